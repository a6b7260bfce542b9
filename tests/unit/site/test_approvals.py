"""What a steward decides: studies wait, are approved, refused, and all of it can be taken back."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from cape.core.errors import InvalidInput
from cape.site import Request
from cape.site.decide.preview import preview
from cape.site.keyring import Card
from cape.site.persons import Person
from tests.world import World, ask, document

ANA = Person("ana")


def test_ask_first_holds_a_study_until_it_is_approved(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request()) == "approval"
    assert world.code(world.request()) == "approval"
    (held,) = world.site.approvals.studies("waiting")
    assert (held.name, held.coordinator) == ("lungs", world.office.public)
    assert " held " in (world.site.path / "site.log").read_text()
    world.site.approvals.approve(world.site.approvals.find("lungs"), ANA)
    world.granted(world.request())
    assert world.code(world.request(document(epsilon=0.9))) == "approval", "another study by the same name"
    assert world.code(ask(document(), world.roster, world.other)) == "approval", "another coordinator"


def test_a_steward_may_say_no_and_take_it_back(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    approvals = world.site.approvals
    assert world.code(world.request()) == "approval"
    approvals.refuse(approvals.find("lungs", to="refuse"), ANA)
    assert world.code(world.request()) == "steward"
    assert not approvals.studies("waiting"), "it does not wait again"
    world.edit('approve = "ask"', 'approve = "auto"')
    assert world.code(world.request()) == "steward", "whatever the policy allows"
    approvals.approve(approvals.find("lungs"), ANA)
    world.granted(world.request())
    approvals.refuse(approvals.find("lungs", to="refuse"), ANA)
    assert world.code(world.request()) == "steward", "an approval that was taken back"
    world.granted(world.request(document(epsilon=0.9)))
    with pytest.raises(InvalidInput, match="there is no study 'lungs' to refuse; there are none"):
        approvals.find("lungs", to="refuse")


def test_the_same_study_of_two_coordinators_is_told_apart(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    approvals = world.site.approvals

    def theirs() -> Request:
        return ask(document(), world.roster, world.other)

    assert world.code(world.request()) == world.code(theirs()) == "approval"
    with pytest.raises(InvalidInput, match="say who asks with --coordinator"):
        approvals.find("lungs")
    approvals.approve(approvals.find("lungs", coordinator=world.office.public), ANA)
    world.granted(world.request())
    approvals.refuse(approvals.find("lungs", to="refuse", coordinator=world.office.public), ANA)
    assert world.code(world.request()) == "steward"
    assert world.code(theirs()) == "approval"


def test_a_study_that_is_held_again_meanwhile_is_in_one_folder(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    approvals = world.site.approvals
    assert world.code(world.request()) == "approval"
    (held,) = approvals.studies("waiting")
    text = held.path.read_text()
    approvals.approve(held, ANA)
    held.path.write_text(text)  # by a request that came when it was not approved yet
    approvals.refuse(approvals.find("lungs", to="refuse"), ANA)
    assert (approvals.studies("waiting"), approvals.studies("approved")) == ([], [])
    assert world.code(world.request()) == "steward"
    assert approvals.hold(world.request())
    assert approvals.studies("waiting") == [], "what was decided does not wait"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_decides_belongs_to_the_owner_of_the_folder(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    for path in (world.site.path, *world.site.path.iterdir()):
        os.chown(path, 70_001, 70_002)
    assert world.code(world.request()) == "approval"
    world.site.approvals.approve(world.site.approvals.find("lungs"), ANA)
    world.site.trust(Card("z", bytes([7] * 32), "site"), coordinator=False)
    for path in ("approvals.lock", "held", "approved", "site.toml"):
        assert (world.site.path / path).stat().st_uid == 70_001, path
    (file,) = (world.site.path / "approved").iterdir()
    assert (file.stat().st_uid, file.stat().st_gid) == (70_001, 70_002)


def test_of_two_files_of_a_study_the_refusal_counts(world: World):
    """As after a kill between the two: an approval that reverses a refusal was not acknowledged."""
    world.edit('approve = "auto"', 'approve = "ask"')
    approvals = world.site.approvals
    assert world.code(world.request()) == "approval"
    approvals.refuse(approvals.find("lungs", to="refuse"), ANA)
    (refused,) = approvals.studies("refused")
    (world.site.path / "approved").mkdir()
    (world.site.path / "approved" / refused.path.name).write_text(refused.path.read_text())
    assert (approvals.studies("approved"), len(approvals.studies("refused"))) == ([], 1)
    assert world.code(world.request()) == "steward"
    approvals.approve(approvals.find("lungs"), ANA)
    assert (len(approvals.studies("approved")), approvals.studies("refused")) == (1, [])
    world.granted(world.request())


def test_a_refusal_holds_whatever_a_study_has_in_it(world: World):
    """A key that is no text comes back from JSON as one: another hash."""
    odd = document(analyses=[*document()["analyses"], {1: 2, "share": 0.1}])
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request(odd)) == "approval"
    world.site.approvals.refuse(world.site.approvals.find("lungs", to="refuse"), ANA)
    world.edit('approve = "ask"', 'approve = "auto"')
    assert world.code(world.request(odd)) == "steward"


@pytest.mark.parametrize("other", [5, None, "x", {"kind": "mean", "columns": ["nope"], "share": 0.1}, {}])
def test_an_analysis_beside_the_one_that_is_asked_may_be_anything(world: World, other: Any):
    bad = document(analyses=[*document()["analyses"], other])
    first, second = preview(world.site.policy, world.site.ledger, bad, world.office.public)
    assert (first.refusal, second.refusal.code) == (None, "request")


def test_studies_that_find_no_room_are_told(world: World, monkeypatch: pytest.MonkeyPatch):
    world.edit('approve = "auto"', 'approve = "ask"')
    monkeypatch.setattr("cape.site.decide.approvals._MOST_HELD", 1)
    assert world.code(world.request()) == "approval"
    assert world.code(world.request(document(epsilon=0.9))) == "steward"
    assert world.code(world.request()) == "approval"
    theirs = ask(document(), world.roster, world.other)
    assert world.code(theirs) == "approval", "nobody fills the room of another"
    assert len(world.site.approvals.studies("waiting")) == 2


def test_what_the_policy_refuses_is_not_held(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request(document(scheme="none"))) == "scheme"
    assert not world.site.approvals.studies("waiting")


HERE = ("held", "approved", "refused")


def _held(study: Any) -> str:
    return json.dumps({"coordinator": "ed25519:" + "1f" * 32, "study": study})


ODD = {
    "no JSON": "{",
    "deep": "[" * 200_000,
    "no object": "5",
    "empty": _held({}),
    "no study": _held(5),
    "sites": _held(document(sites=5)),
    "a site": _held(document(sites=["a", 5])),
    "analyses": _held(document(analyses={"a": 1})),
    "name": _held(document(name=["x"])),
    "half a sign": _held(document(description="\ud800")),
    "digits": _held(document(epsilon=10**400)),
    "many digits": _held(document(epsilon=1)).replace(": 1,", f": {'9' * 5000},"),
    "nested": _held(document(description=1)).replace(": 1,", f": {'[' * 900 + ']' * 900},"),
    "key": json.dumps({"coordinator": "x", "study": document()}),
    "bytes": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("odd", ODD)
def test_a_file_that_is_no_study_is_named_and_stands_in_no_others_way(world: World, odd: str):
    world.edit('approve = "auto"', 'approve = "ask"')
    approvals, path = world.site.approvals, world.site.path
    for folder in HERE:
        (path / folder).mkdir(exist_ok=True)
        text = ODD[odd]
        (path / folder / "odd.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    told = approvals.unreadable()
    assert all(str(path / folder / "odd.json") in each for folder, each in zip(HERE, told, strict=True))
    assert world.code(world.request()) == "approval"
    assert [held.name for held in approvals.studies("waiting")] == ["lungs"]
    approvals.approve(approvals.find("lungs"), ANA)
    world.granted(world.request())
    approvals.refuse(approvals.find("lungs", to="refuse"), ANA)
    assert world.code(world.request()) == "steward"
    assert [held.name for held in approvals.studies("refused")] == ["lungs"]


def test_a_folder_or_a_pipe_among_the_files_is_no_study(world: World):
    (world.site.path / "held").mkdir()
    (world.site.path / "held" / "folder.json").mkdir()
    os.mkfifo(world.site.path / "held" / "pipe.json")
    assert (len(world.site.approvals.unreadable()), world.site.approvals.studies("waiting")) == (2, [])


def test_what_was_not_found_is_told_in_a_line_however_many_wait(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    for number in range(9):
        assert world.code(world.request(document(name="x" * 150, epsilon=0.5 + number / 100))) == "approval"
    for name in ("y" * 5000, "x" * 150):
        with pytest.raises(InvalidInput, match="and 3 more") as raised:
            world.site.approvals.find(name)
        assert len(str(raised.value)) < 1000


def test_no_name_finds_nothing(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request()) == "approval"
    with pytest.raises(InvalidInput, match="there is no study ''"):
        world.site.approvals.find("")


def test_a_study_that_could_not_be_read_again_is_not_kept(world: World, monkeypatch: pytest.MonkeyPatch):
    world.edit('approve = "auto"', 'approve = "ask"')
    monkeypatch.setattr("cape.site.decide.held.MOST_BYTES", 100)
    assert world.code(world.request()) == "steward"
    assert not list((world.site.path).glob("held/*"))


def test_a_decision_that_cannot_be_written_is_an_error_that_says_so(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request()) == "approval"
    (world.site.path / "approved").write_text("a file")
    with pytest.raises(InvalidInput, match="cannot be moved"):
        world.site.approvals.approve(world.site.approvals.find("lungs"), ANA)


@pytest.mark.parametrize("text", ["x" * 1999 + "\n", "\u200b" * 2000, "\ud800" * 5])
def test_whatever_is_noted_a_decision_can_be_read_again(world: World, text: str):
    """A file that cannot be read counts for nothing: a note would undo what others approved."""
    world.edit('approve = "auto"', 'approve = "ask"\napprovals = 2')
    assert world.code(world.request()) == "approval"
    approvals = world.site.approvals
    approvals.approve(approvals.find("lungs"), ANA, 2)
    approvals.approve(approvals.find("lungs"), Person("ben"), 2, note=text)
    assert len(approvals.studies("approved")[0].approvals) == 2
    approvals.refuse(approvals.find("lungs", to="refuse"), ANA, text)
    assert [held.name for held in approvals.studies("refused")] == ["lungs"]
    assert approvals.unreadable() == []


def test_a_question_that_is_too_long_as_it_is_written_is_refused(world: World):
    world.edit('approve = "auto"', 'approve = "ask"')
    world.code(world.request())
    approvals = world.site.approvals
    approvals.approve(approvals.find("lungs"), ANA, 2)
    with pytest.raises(InvalidInput, match="at most 500 characters"):
        approvals.ask(approvals.find("lungs"), ANA, "\u200b" * 500)
    assert [held.persons for held in approvals.studies("waiting")] == [1]


def test_a_decision_that_could_not_be_read_again_is_not_written(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.edit('approve = "auto"', 'approve = "ask"')
    world.code(world.request())
    approvals = world.site.approvals
    approvals.approve(approvals.find("lungs"), ANA, 2)
    monkeypatch.setattr("cape.site.decide.approvals.check.plain", lambda text, most: text)
    with pytest.raises(InvalidInput, match="could not be read again"):
        approvals.approve(approvals.find("lungs"), Person("ben"), 2, note="x" * 2001)
    monkeypatch.undo()
    assert [held.persons for held in approvals.studies("waiting")] == [1], "nothing was lost"
