"""A study at the desk: the card says what a steward must know, and the buttons decide."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from msgspec import structs
from scipy.stats import norm

from cape.app import words as cli_words
from cape.desk.site import PAGES, inbox, words
from cape.site.admin import Desk
from cape.site.folder import MISSING
from cape.site.keyring import fingerprint
from cape.study import Study
from cape.study.document import document as written_as
from tests.unit.desk.visitor import Visitor, desk
from tests.world import HISTOGRAM, MEAN, SECRET, World, ask, document

ASKED = [
    {"kind": "mean", "columns": ["age", "weight"], "share": 0.25},
    {"kind": "pca", "columns": ["age", "sex"], "components": 1, "share": 0.1},
]


def asked(folder: Path) -> World:
    world = World(folder / "w")
    world.edit('approve = "auto"', 'approve = "ask"')
    assert world.code(world.request(document(analyses=ASKED))) == "approval"
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return asked(tmp_path)


@pytest.fixture
def steward(world: World, tmp_path: Path) -> Visitor:
    return Visitor(desk(PAGES, tmp_path, world.site), "steward")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The same, for tests that decide nothing."""
    return asked(tmp_path_factory.mktemp("inbox"))


@pytest.fixture
def reader(kept: World, tmp_path: Path) -> Visitor:
    return Visitor(desk(PAGES, tmp_path, kept.site), "steward")


def digest(world: World) -> str:
    (held,) = [
        held for state in ("waiting", "approved", "refused") for held in world.site.approvals.studies(state)
    ]
    return held.study_hash


def decide(steward: Visitor, what: str, world: World, **more: str) -> int:
    return steward.submit(f"/inbox/{what}", study=digest(world), coordinator="office", **more).status_code


def test_the_card_says_who_what_whose_and_at_what_price(reader: Visitor, kept: World):
    words = unescape(reader.words("/inbox"))
    (study,) = Desk(kept.site).inbox().of("waiting")
    assert f"office , whose key you trust. Fingerprint {fingerprint(kept.office.public)}" in words
    assert "Mean of age and weight: within your policy" in words
    assert "refused by your policy . This site does not answer analyses of kind 'pca'" in words
    assert "If you approve, your policy answers 1 of 2 analyses" in words
    assert "Columns it reads age weight" in words
    assert "All 400 people in your table." in words
    won = norm.cdf(study.mu / 2)
    assert f"right at most {100 * won:.1f}% of the time" in words or f"{100 * won + 0.1:.1f}%" in words
    assert f"Epsilon {study.cost:.3g} at delta 1e-06 (once in 1,000,000): strong protection" in words
    assert "which of two things a person's record says, for instance ill or healthy" in words
    for limit in study.limits:
        assert f"{limit.name}: epsilon 0 of {limit.epsilon:g} spent, {limit.after:.3g} after it" in words
    assert 'The policy says approve = "ask"' in words
    assert "They say of it: “three clinics”" in words
    assert str(SECRET) not in words


def test_a_condition_of_the_study_is_told(world: World, steward: Visitor):
    assert world.code(world.request(document(name="old", where="age >= 40"))) == "approval"
    assert "Of the 400 people in your table, those with age >= 40" in unescape(steward.words("/inbox"))


def test_a_viewer_reads_but_learns_no_number_of_rows_and_cannot_decide(kept: World, tmp_path: Path):
    viewer = Visitor(desk(PAGES, tmp_path, kept.site), "viewer")
    page = viewer.get("/inbox").text
    assert "lungs" in page
    assert "400" not in page
    assert "/inbox/approve" not in page
    for what in ("approve", "refuse", "ask"):
        assert decide(viewer, what, kept, question="Why?") == 403
    assert len(kept.site.approvals.studies("waiting")) == 1


def test_of_many_studies_some_are_cards_and_all_are_listed(
    world: World, steward: Visitor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inbox, "_MOST_CARDS", 1)
    assert world.code(world.request(document(name="second"))) == "approval"
    page = steward.get("/inbox").text
    assert page.count("<article") == 1
    assert "2 studies wait" in page
    for held in world.site.approvals.studies("waiting"):
        assert f'href="/study/{held.study_hash}?coordinator=office"' in page


def test_a_policy_that_has_expired_and_a_lost_link_are_said_first(world: World, tmp_path: Path):
    world.edit("expires = 2999-12-31", "expires = 2020-12-31")
    app = desk(PAGES, tmp_path, world.site)
    app.state.site = lambda person: Desk(world.site, lambda: False)
    words = Visitor(app, "viewer").words("/inbox")
    assert "Your policy has expired: nothing is answered" in words
    assert "link is not connected" in words


def test_a_stranger_is_called_one(world: World, steward: Visitor):
    world.edit(f'office = "ed25519:{world.office.public.hex()}"\n', "")
    words = steward.words("/inbox")
    assert "Somebody whom you do not trust" in words
    assert "nothing is answered to somebody whose key your policy does not have" in words


def test_an_approved_study_is_answered_and_can_be_refused_later(steward: Visitor, world: World):
    assert decide(steward, "approve", world, how="always", reason="board of 3 May") == 303
    assert "Approved: lungs." in steward.words("/inbox")
    assert "UTC: board of 3 May" in steward.words(f"/study/{digest(world)}")
    world.granted(world.request(document(analyses=ASKED)))
    assert "board of 3 May" in world.site.path.joinpath("site.log").read_text()
    assert decide(steward, "refuse", world) == 303
    assert world.code(world.request(document(analyses=ASKED))) == "steward"
    assert "refused" in steward.words("/inbox")


def test_approved_once_waits_again_after_one_answer(steward: Visitor, world: World):
    assert decide(steward, "approve", world, how="once") == 303
    world.granted(world.request(document(analyses=ASKED)))
    assert world.code(world.request(document(analyses=ASKED))) == "approval"
    assert "1 study waits" in steward.words("/inbox")


def test_a_question_goes_to_the_coordinator_and_the_study_waits_on(steward: Visitor, world: World):
    assert decide(steward, "ask", world, question="Which board approved it?") == 303
    refusal = world.decide(world.request(document(analyses=ASKED)))
    assert "Which board approved it?" in refusal.sentence
    assert "Which board approved it?" in unescape(steward.words("/inbox"))
    assert decide(steward, "ask", world, question="  ") == 400


def test_two_people_must_approve_where_the_policy_says_so(world: World, tmp_path: Path):
    world.edit('approve = "ask"', 'approve = "ask"\napprovals = 2')
    app = desk(PAGES, tmp_path, world.site)
    ana, bo = Visitor(app, "steward", "ana"), Visitor(app, "steward", "bo")
    assert decide(ana, "approve", world) == 303
    assert "It waits for 1 more, by somebody else." in ana.words("/inbox")
    assert decide(ana, "approve", world) == 303
    assert world.code(world.request(document(analyses=ASKED))) == "approval"
    assert "1 of 2 did: ana" in bo.words("/inbox")
    assert decide(bo, "approve", world) == 303
    world.granted(world.request(document(analyses=ASKED)))


def test_a_decision_needs_the_whole_hash(reader: Visitor, kept: World):
    for study in ("", "lungs", digest(kept)[:12], "0" * 64):
        assert reader.submit("/inbox/approve", study=study).status_code == 400
    assert len(kept.site.approvals.studies("waiting")) == 1


def test_the_same_study_of_two_coordinators_is_decided_for_one(world: World, steward: Visitor):
    asked = ask(document(analyses=ASKED), world.roster, world.other)
    assert world.code(asked) == "approval"
    assert steward.submit("/inbox/approve", study=asked.study_hash, coordinator="other").status_code == 303
    (held,) = world.site.approvals.studies("approved")
    assert held.coordinator == world.other.public


def test_the_page_of_a_study_has_its_file_plan_sites_and_what_left(steward: Visitor, world: World):
    decide(steward, "approve", world)
    world.granted(world.request(document(analyses=ASKED)))
    words = unescape(steward.words(f"/study/{digest(world)}"))
    assert 'kind = "mean" columns = ["age", "weight"]' in words
    assert "expected error" in words
    for name, identity in world.identities.items():
        assert name in words
        assert fingerprint(identity.public) in words
    assert "1 line of the ledger, together epsilon" in words
    assert "Approved by ana" in words
    assert steward.get("/study/" + "0" * 64).status_code == 400


def test_the_expected_accuracy_comes_as_a_part(reader: Visitor, kept: World):
    (address,) = re.findall(r'hx-get="(/study/[^"]*)"', reader.get("/inbox").text)
    words = unescape(reader.words(unescape(address)))
    assert re.search(r"mean of age and weight: age ± \d", words)
    assert "if every site had as many rows as yours (400)" in words


def test_of_many_analyses_the_first_are_planned(
    kept: World, reader: Visitor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cape.site.admin.studied._MOST_PLANNED", 1)
    for path in (f"/study/{digest(kept)}", f"/study/{digest(kept)}/plan"):
        words = reader.words(path)
        assert "1. mean of age and weight" in words
        assert "2. principal" not in words
        assert re.search("other 1 analyses are not planned|1 more analyses, which are not planned", words)


def test_texts_from_outside_are_escaped(world: World, steward: Visitor):
    evil = "<script>alert(1)</script>"
    assert world.code(world.request(document(name=evil, description=evil))) == "approval"
    found = [held.study_hash for held in world.site.approvals.studies("waiting")]
    for path in ("/inbox", *(f"/study/{each}" for each in found)):
        assert evil not in steward.get(path).text


def test_a_bet_is_on_what_the_study_protects(kept: World):
    (study,) = Desk(kept.site).inbox().of("waiting")
    assert "bets 1 to 1 on which of two things a person's record says" in words.bet(study)
    assert "bets 1 to 1 on whether a person is in the data" in words.bet(
        structs.replace(study, neighbours="add-remove")
    )


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_bet_is_the_same_at_the_desk_and_in_plan_and_report(tmp_path: Path, noise: str, neighbours: str):
    """The command line said how many somebody finds who may accuse 5% wrongly, and called that the bet."""
    world = World(tmp_path / "w", epsilon=(8.0, 8.0, 8.0))
    world.edit('approve = "auto"', 'approve = "ask"')
    if neighbours == "add-remove":
        world.hide_sizes()
    study = world.study(MEAN, HISTOGRAM, epsilon=2.0, neighbours=neighbours)
    if noise == "laplace":
        path = world.folder / "lungs.toml"
        path.write_text(path.read_text().replace("delta = 1e-6\n", ""))
        study = Study.load(path)
    assert world.code(world.request(written_as(study))) == "approval"
    (held,) = Desk(world.site).inbox().of("waiting")
    promised = study.guarantee(study.total(study.analyses).spent)
    (percent,) = re.findall(r"right at most ([\d.]+%)", words.bet(held))
    assert float(percent[:-1]) > 55
    for said in (cli_words.bet(promised), cli_words.guarantee(promised)[1]):
        assert said.endswith(
            f"With all the answers together they would be right at most {percent} of the time."
        )
        assert words.bet(held).partition(" Tossing")[0][1:] in said


def test_a_page_that_is_out_of_date_reverses_no_refusal(steward: Visitor, world: World, tmp_path: Path):
    page = steward.get("/inbox").text
    assert '<input type="hidden" name="was" value="waiting">' in page
    Desk(world.site, person="ben").refuse("lungs", reason="no consent")
    found = steward.submit(
        "/inbox/approve", study=digest(world), coordinator="office", how="always", was="waiting"
    )
    assert found.status_code == 400
    assert "was refused meanwhile; look at it again" in unescape(found.text)
    assert world.code(world.request(document(analyses=ASKED))) == "steward"
    assert 'name="was" value="refused"' in steward.get(f"/study/{digest(world)}").text


def test_viewers_learn_no_number_of_rows(world: World, tmp_path: Path):
    viewer = Visitor(desk(PAGES, tmp_path, world.site), "viewer")
    world.site.log(f"{MISSING}: age 17")
    for path in (f"/study/{digest(world)}", f"/study/{digest(world)}/plan", "/inbox", "/log"):
        words = unescape(viewer.words(path))
        assert "as yours" not in words
        assert re.search(r"(?<![\w.-])400(?![\w.-])", words) is None
        assert "age 17" not in words
    steward = Visitor(viewer.app, "steward")
    assert "age 17" in steward.words("/log")
