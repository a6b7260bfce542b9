"""What a steward reads and changes: nothing of a cell, and nothing that somebody else changed meanwhile."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from scipy.stats import norm

from cape.core.errors import InvalidInput
from cape.secagg import Identity
from cape.site.admin import Desk
from cape.site.decide.policy import Policy
from cape.site.decide.preview import Verdict, preview
from cape.site.keyring import public_text
from cape.site.ledger.book import Book
from tests.world import SECRET, World, document


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "w")
    world.edit('approve = "auto"', 'approve = "ask"')
    return world


@pytest.fixture
def desk(world: World) -> Desk:
    return Desk(world.site)


def test_no_answer_holds_a_cell_or_the_private_key(world: World, desk: Desk):
    private = (world.site.path / "identity.key").read_text().strip().rpartition(":")[2]
    assert world.code(world.request()) == "approval"
    world.edit("age = [18, 90]", "age = [18, 71]")
    told = [desk.status(), desk.mine(), desk.inbox(), desk.check(), desk.policy(), desk.ledger(lines=True)]
    told += [desk.approve("lungs"), desk.refuse("lungs"), desk.log(), desk.study("lungs"), desk.verify()]
    told += [desk.ledger_export(), desk.events(), desk.notify()]
    (world.site.path / "rows.csv").write_text(f"age,weight,sex,ill,hiv\nx{SECRET},50,male,no,no\n")
    told.append(Desk(type(world.site)(world.site.path)).check())
    for each in told:
        packed = msgspec.json.encode(each).decode()
        assert str(SECRET) not in packed
        assert private not in packed


def test_a_change_of_the_policy_must_be_of_the_text_that_was_read(world: World, desk: Desk):
    read = desk.policy()
    world.edit("min_rows = 100", "min_rows = 150")  # somebody else, with an editor
    new = read.text.replace("min_rows = 100", "min_rows = 200")
    with pytest.raises(InvalidInput, match="has changed since it was read"):
        desk.save_policy(new, read.hash)
    assert world.site.policy.min_rows == 150
    now = desk.policy()
    done = desk.save_policy(new, now.hash)
    assert (done.saved, done.hash, world.site.policy.min_rows) == (True, desk.policy().hash, 200)
    assert "-min_rows = 150\n+min_rows = 200\n" in done.diff
    assert "the policy was changed" in desk.log(1).lines[0]


def test_a_text_is_tried_without_being_saved(world: World, desk: Desk):
    before = desk.policy()
    tried = desk.try_policy(before.text.replace('approve = "ask"', 'approve = "auto"'))
    assert tried.summary is not None
    assert (tried.problem, tried.summary.approve, tried.saved) == (None, "auto", False)
    wrong = desk.save_policy("[site]\n", before.hash)
    assert wrong.problem is not None
    assert (wrong.summary, wrong.saved) == (None, False)
    assert desk.policy() == before


def test_a_broken_policy_can_be_read_and_mended(world: World, desk: Desk):
    good = desk.policy().text
    (world.site.path / "site.toml").write_text("[site\n")
    broken = desk.policy()
    assert (broken.text, broken.summary) == ("[site\n", None)
    assert broken.problem is not None
    assert desk.status().policy == "broken"
    assert desk.save_policy(good, broken.hash).saved
    assert desk.status().policy == "in force"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('b = "{key}"  # until May\n', ""),
        ("'b' = '{key}'\n", ""),
        ('# b = "old"\nb = "{key}"\n', '# b = "old"\n'),
    ],
)
def test_a_line_is_found_however_people_write_it(world: World, desk: Desk, line: str, kept: str):
    path = world.site.path / "site.toml"
    key = public_text(world.identities["b"].public)
    plain = next(row for row in path.read_text().splitlines(keepends=True) if key in row)
    path.write_text(path.read_text().replace(plain, line.format(key=key)))
    before = path.read_text()
    assert desk.revoke("b").fingerprint
    assert path.read_text() == before.replace(line.format(key=key), kept)


def test_a_line_that_is_not_found_is_left_to_the_steward(world: World, desk: Desk):
    path = world.site.path / "site.toml"
    text = path.read_text()
    start = text.index("[peers]")
    end = text.find("\n[", start)
    key = public_text(world.identities["b"].public)
    rest = text[end + 1 :] if end >= 0 else ""
    path.write_text(f'peers = {{b = "{key}"}}\n{text[:start]}{rest}')
    with pytest.raises(InvalidInput, match=r"remove the line of 'b' from \[peers\] yourself"):
        desk.revoke("b")
    assert world.site.policy.peers == {"b": world.identities["b"].public}


def test_one_name_that_is_coordinator_and_peer(world: World, desk: Desk):
    key = public_text(Identity().public)
    assert desk.trust("b", key, "coordinator", coordinator=True).changed
    with pytest.raises(InvalidInput, match="give --coordinator or --peer"):
        desk.revoke("b")
    assert desk.revoke("b", coordinator=True).key == key
    assert "b" in world.site.policy.peers


def test_names_and_keys_are_checked(desk: Desk):
    key = "ed25519:" + "07" * 32
    for name, given in (("", key), ("x", key[:-1]), ("a\n[peers]", key)):
        with pytest.raises(InvalidInput):
            desk.trust(name, given, "", coordinator=False)


def test_what_is_left_counts_what_was_given_and_what_would_be(world: World, desk: Desk):
    world.edit('approve = "ask"', 'approve = "auto"')
    world.granted(world.request())
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request(document(name="again"))) == "approval"
    (study,) = desk.inbox().of("waiting")
    limit = study.limits[0]
    assert 0 < limit.spent < limit.after < limit.epsilon
    assert limit.spent == desk.ledger().limits[0].spent
    assert study.answered == 1


def test_the_log_is_read_from_its_end(world: World, desk: Desk, monkeypatch: pytest.MonkeyPatch):
    assert desk.log().lines == ()
    for number in range(5):
        world.site.log(f"line {number}")
    assert [line[-6:] for line in desk.log(2).lines] == ["line 3", "line 4"]
    assert desk.log(0).lines == ()
    monkeypatch.setattr("cape.site.admin.desk._LOG_BYTES", 40)
    assert [line[-6:] for line in desk.log().lines] == ["line 4"], "a line that is cut is left out"


def test_unreadable_cells_are_counted_without_showing_them(world: World, desk: Desk):
    path = Path(world.site.policy.data.where[0])
    first, second, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, second, "qqq" + second[second.index(",") :], *rest]) + "\n")
    found = desk.check().survey
    assert found is not None
    assert found.unreadable[first.split(",")[0]] == 1
    assert not found.fails()
    assert "qqq" not in repr(found)


CONNECTIONS = [
    'connection = "{}"',
    "connection = '{}'",
    "'connection'='{}'",
    'connection = """{}"""',
    'connection = "{}',  # not closed
    "connection = {}",  # no text at all
    'omop = "{}"',
]
ADDRESS = "postgresql://u:pa:ss/w@rd,x@h/d"


@pytest.mark.parametrize("written", CONNECTIONS)
def test_no_password_is_told(world: World, desk: Desk, written: str):
    line = f"data = {{query = 'SELECT * FROM p', {written.format(ADDRESS)}}}"
    world.edit('data = "rows.csv"', line)
    read = desk.policy()
    tried = desk.try_policy(read.text.replace("min_rows = 100", "min_rows = 200"))
    for told in (read.text, tried.diff, *filter(None, [read.problem, tried.problem])):
        assert "pa:ss" not in told
        assert "w@rd" not in told
    assert "min_rows = 200" in tried.diff
    assert "hidden" not in tried.diff or "+data" not in tried.diff, "a password that stays is no difference"


def test_a_change_beside_a_password_keeps_it(world: World, desk: Desk):
    path = world.site.path / "site.toml"
    world.edit('data = "rows.csv"', f"data = {{query = 'SELECT 1', connection = '{ADDRESS}'}}  # remark")
    before, read = path.read_text(), desk.policy()
    changed = read.text.replace("min_rows = 100", "min_rows = 200")
    assert desk.save_policy(changed, read.hash).saved
    assert path.read_text() == before.replace("min_rows = 100", "min_rows = 200")
    other = desk.policy().text.replace('connection = "(hidden)"', "connection = 'sqlite:///x.db'")
    assert desk.save_policy(other, desk.policy().hash).saved
    assert "connection = 'sqlite:///x.db'" in path.read_text()
    assert ADDRESS not in path.read_text()


def test_a_password_in_a_path_is_hidden_too(world: World, desk: Desk):
    world.edit('data = "rows.csv"', 'data = "s3://me:secret@bucket/rows.csv"')
    before, read = (world.site.path / "site.toml").read_text(), desk.policy()
    assert "secret" not in read.text
    desk.save_policy(read.text, read.hash)
    assert (world.site.path / "site.toml").read_text() == before


@pytest.mark.parametrize(
    "added",
    [
        "'connection=\"(hidden)\"' = [0, 1]",
        "note = ['connection=\"(hidden)\"']",
        "x = [0, 1]\nx = 'connection = \"(hidden)\"'",
    ],
    ids=["a column's name", "a category", "no TOML"],
)
def test_a_mark_brings_no_password_to_where_it_would_be_shown(world: World, desk: Desk, added: str):
    """The name of a column, which a summary shows, may not become the password."""
    world.edit('data = "rows.csv"', f"data = {{query = 'SELECT 1', connection = '{ADDRESS}'}}")
    read = desk.policy()
    other = read.text.replace('connection = "(hidden)"', "connection = 'sqlite:///x.db'")
    text = other.replace("[schema]\n", f"[schema]\n{added}\n")
    assert text != other
    before = (world.site.path / "site.toml").read_text()
    for tried in (desk.try_policy(text), desk.save_policy(text, read.hash)):
        assert tried.problem is not None
        assert tried.summary is None
        assert "pa:ss" not in str(tried)
    assert (world.site.path / "site.toml").read_text() == before


def test_the_running_total_ends_at_the_total_and_never_falls(world: World, desk: Desk):
    assert desk.curve().points == ()
    world.edit('approve = "ask"', 'approve = "auto"')
    for number in range(5):
        world.granted(world.request(document(name=f"study {number}")))
    curve = desk.curve()
    values = [epsilon for _, epsilon in curve.points]
    assert len(values) == 5
    assert values == sorted(values)
    assert values[0] > 0
    assert values[-1] == pytest.approx(desk.ledger().limits[-1].spent)
    assert (curve.most, curve.delta) == (world.site.policy.total.epsilon, world.site.policy.total.delta)


def test_a_long_ledger_is_drawn_with_few_points(world: World, desk: Desk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cape.site.admin.shown._POINTS", 3)
    world.edit('approve = "ask"', 'approve = "auto"')
    found = []
    for number in range(9):
        world.granted(world.request(document(name=f"study {number}", epsilon=0.2)))
        found.append(desk.curve().points)
    assert max(map(len, found)) == 3
    assert all(points[-1][1] == pytest.approx(desk.ledger().total.epsilon) for points in found[-1:])


def test_a_study_is_priced_as_a_bet(world: World, desk: Desk):
    assert world.code(world.request()) == "approval"
    (study,) = desk.inbox().of("waiting")
    assert study.bet == pytest.approx(norm.cdf(study.mu / 2), abs=1e-6)
    assert study.bet_after == study.bet, "nothing was released before"
    desk.approve("lungs")
    world.granted(world.request())
    (study,) = desk.inbox().of("approved")
    assert study.bet < study.bet_after < norm.cdf(study.mu)


def test_people_are_counted_for_the_steward(world: World, desk: Desk):
    assert (desk.people().count, desk.people().unit) == (400, "row")
    world.edit('data = "rows.csv"', 'data = "gone.csv"')
    assert desk.people().count is None


def test_verdicts_are_computed_again_only_if_something_changed(
    world: World, desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    computed: list[str] = []

    def counted(policy: Policy, book: Book, study: dict[str, str], coordinator: bytes) -> list[Verdict]:
        computed.append(study["name"])
        return preview(policy, book, study, coordinator)

    monkeypatch.setattr("cape.site.admin.verdicts.preview", counted)
    for name in ("x", "y"):
        assert world.code(world.request(document(name=name))) == "approval"
    first = desk.inbox()
    assert sorted(computed) == ["x", "y"]
    assert desk.inbox() == first
    assert len(computed) == 2
    desk.approve("x")
    before = len(computed)
    world.granted(world.request(document(name="x")))  # a line in the ledger
    after = desk.inbox()
    assert len(computed) == before + 2
    assert after.of("waiting")[0].limits != first.of("waiting")[0].limits
    world.edit("min_rows = 100", "min_rows = 101")
    desk.inbox()
    assert len(computed) == before + 4
    world.edit('approve = "ask"', 'approve = "ask"\n# a remark')
    desk.inbox()
    assert len(computed) == before + 4, "the policy says the same"
    monkeypatch.setattr("cape.site.admin.verdicts._MOST_KEPT", 1)
    assert [each.study for each in desk.inbox().studies] == ["y", "x"]
