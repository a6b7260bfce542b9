"""Two persons approve, an approval for once ends, and a question goes to the coordinator."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cape.core.errors import InvalidInput, Refused
from cape.site import Refusal
from cape.site.admin import Desk
from cape.site.decide.codes import ASKS
from cape.site.decide.held import MOST_QUESTION
from cape.site.persons import Person
from tests.world import World, document

TWO = [{"kind": "mean", "columns": [name], "share": 0.1} for name in ("age", "weight")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "w")
    world.edit('approve = "auto"', 'approve = "ask"')
    return world


def by(world: World, person: str) -> Desk:
    return Desk(world.site, person=person)


def two(world: World) -> None:
    world.edit('approve = "ask"', 'approve = "ask"\napprovals = 2')


def test_two_different_persons_must_approve(world: World):
    two(world)
    assert world.code(world.request()) == "approval"
    first = by(world, "ana@clinic.org").approve("lungs").study
    assert (first.state, first.needed, len(first.approvals)) == ("waiting", 2, 1)
    assert world.code(world.request()) == "approval"
    again = by(world, "Ana").approve("lungs").study  # at the command line: the same person
    assert (again.state, len(again.approvals)) == ("waiting", 1)
    assert world.code(world.request()) == "approval"
    second = by(world, "ben@clinic.org").approve("lungs").study
    assert (second.state, [each.person for each in second.approvals]) == (
        "approved",
        ["Ana", "ben@clinic.org"],
    )
    world.granted(world.request())


def test_one_refusal_refuses_and_earlier_approvals_are_gone(world: World):
    two(world)
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs")
    by(world, "ben").refuse("lungs")
    assert world.code(world.request()) == "steward"
    assert by(world, "ben").approve("lungs").study.state == "waiting", "ana's approval was before the refusal"
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs")
    world.granted(world.request())
    by(world, "ana").refuse("lungs")
    assert world.code(world.request()) == "steward", "one person takes back what two allowed"


def test_a_policy_that_asks_for_more_persons_holds_what_was_approved(world: World):
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs")
    world.granted(world.request())
    two(world)
    assert world.code(world.request()) == "approval"
    (waits,) = by(world, "ana").inbox().of("waiting")
    assert "1 of 2 did: ana" in waits.why
    by(world, "ben").approve("lungs")
    world.granted(world.request())


def test_approvals_at_the_same_time_are_all_kept(world: World):
    world.edit('approve = "ask"', 'approve = "ask"\napprovals = 9')
    assert world.code(world.request()) == "approval"
    held = world.site.approvals.find("lungs")

    def decide(number: int) -> None:
        world.site.approvals.approve(held, Person(f"steward {number}"), 9)

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (study,) = world.site.approvals.studies("approved")
    assert study.persons == 9


def test_an_approval_that_comes_too_late_does_not_take_others_back(world: World):
    two(world)
    assert world.code(world.request()) == "approval"
    approvals = world.site.approvals
    held = approvals.find("lungs")  # by three persons at once
    for name in ("ana", "ben", "cleo"):
        study, state = approvals.approve(held, Person(name), 2)
    assert (state, study.persons) == ("approved", 3)
    world.granted(world.request())


def test_a_refusal_meanwhile_is_not_reversed_by_an_approval(world: World):
    assert world.code(world.request()) == "approval"
    approvals = world.site.approvals
    held = approvals.find("lungs")
    approvals.refuse(held, Person("ben"))
    with pytest.raises(InvalidInput, match="was refused meanwhile"):
        approvals.approve(held, Person("ana"))
    assert world.code(world.request()) == "steward"


def test_an_approval_that_was_renewed_meanwhile_does_not_end(world: World):
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs", once=True)
    world.granted(world.request())
    approvals, request = world.site.approvals, world.request()
    before = world.site.ledger.answers(request.study_hash, request.coordinator, request.number)
    assert approvals.approved(request, 1, before) is None
    by(world, "ana").approve("lungs", once=True)  # after the request was found to be asked twice
    assert approvals.hold(request, 1, before).approvals
    world.granted(world.request())


def test_an_approval_that_was_used_does_not_count_for_a_policy_that_asks_for_more(world: World):
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs", once=True)
    world.granted(world.request())
    two(world)
    assert world.code(world.request()) == "approval"
    (waits,) = world.site.approvals.studies("waiting")
    assert waits.approvals == ()
    assert by(world, "ben").approve("lungs").study.state == "waiting"
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs")
    world.granted(world.request())


def test_an_approval_that_was_used_does_not_count_beside_one_that_comes_at_the_same_time(world: World):
    """Two persons open a study that waits; one approves it for once, and it is answered; then the other."""
    assert world.code(world.request()) == "approval"
    approvals = world.site.approvals
    held = approvals.find("lungs")
    approvals.approve(held, Person("ana"), once=True)
    world.granted(world.request())
    two(world)
    request = world.request()
    asked = request.study_hash, request.coordinator
    _, state = approvals.approve(held, Person("ben"), 2, world.site.ledger.answers(*asked), once=True)
    assert state == "waiting"
    assert world.code(world.request()) == "approval"


def test_a_file_with_a_used_approval_is_not_enough(world: World):
    """As of a version that kept it: what counts is asked of the ledger with every request."""
    two(world)
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs", once=True)
    by(world, "ben").approve("lungs")
    (file,) = (world.site.path / "approved").iterdir()
    text = file.read_text()
    world.granted(world.request())
    by(world, "cleo").approve("lungs", once=True)
    world.granted(world.request())  # ben's is for good, and cleo's is new
    file.write_text(text)
    assert world.code(world.request()) == "approval"


def test_an_approval_for_good_counts_beside_new_ones(world: World):
    two(world)
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs", once=True)
    by(world, "ben").approve("lungs")
    world.granted(world.request())
    (told,) = by(world, "ben").inbox().of("approved")
    assert told.ended
    assert "was approved for once, and was answered" in told.why
    assert by(world, "cleo").approve("lungs").study.state == "approved"
    world.granted(world.request())
    world.granted(world.request())


def test_a_study_that_too_few_have_approved_can_be_approved_before_somebody_asks(world: World):
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs")
    two(world)
    (told,) = by(world, "ben").inbox().of("approved")
    assert told.ended
    assert "1 of 2 did: ana" in told.why
    assert by(world, "ben").approve("lungs").study.state == "approved"
    world.granted(world.request())


def test_an_approval_of_a_ledger_that_was_lost_does_not_count(world: World):
    """A ledger was put back from a copy, and nobody has shown its site a head yet."""
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs")
    path = world.site.path / "ledger.sqlite"
    before = path.read_bytes()
    world.granted(world.request())
    by(world, "ana").refuse("lungs")
    by(world, "ana").approve("lungs", once=True)
    for name in (path, path.with_name("ledger.sqlite-wal"), path.with_name("ledger.sqlite-shm")):
        name.unlink(missing_ok=True)
    path.write_bytes(before)
    (told,) = by(world, "ana").inbox().of("approved")
    assert told.ended
    assert "before a part of the ledger was lost" in told.why
    assert world.code(world.request()) == "approval"


def test_several_approvals_need_a_policy_that_asks(world: World):
    world.edit('approve = "ask"', 'approve = "auto"\napprovals = 2')
    with pytest.raises(InvalidInput, match='approvals = 2 needs approve = "ask"'):
        world.site.policy  # noqa: B018


def test_an_approval_for_once_answers_each_analysis_once(world: World):
    study = document(analyses=TWO)
    assert world.code(world.request(study)) == "approval"
    told = by(world, "ana").approve("lungs", once=True).study
    assert (told.once, told.ended) == (True, False)
    run = os.urandom(16)
    world.granted(world.request(study, run=run))
    world.granted(world.request(study, number=2))
    (told,) = by(world, "ana").inbox().of("approved")
    assert told.ended
    assert world.code(world.request(study)) == "approval", "a second run of analysis 1"
    (held,) = world.site.approvals.studies("waiting")
    assert held.approvals == ()
    by(world, "ana").approve("lungs", once=True)
    world.granted(world.request(study))


def test_what_was_answered_before_does_not_use_an_approval_up(world: World):
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs")
    world.granted(world.request())
    by(world, "ana").refuse("lungs")
    by(world, "ana").approve("lungs", once=True)
    world.granted(world.request())
    assert world.code(world.request()) == "approval"


def test_an_approval_that_is_used_up_is_renewed_before_somebody_asks(world: World):
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs", once=True)
    with pytest.raises(InvalidInput, match="there is no study 'lungs' to approve"):
        by(world, "ben").approve("lungs", once=True)
    world.granted(world.request())
    by(world, "ben").approve("lungs", once=True)
    world.granted(world.request())


def test_a_renewal_needs_as_many_persons_as_the_approval(world: World):
    two(world)
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs", once=True)
    by(world, "ben").approve("lungs")
    world.granted(world.request())
    assert by(world, "ben").approve("lungs").study.state == "waiting"
    assert world.code(world.request()) == "approval"


def test_of_two_runs_at_once_one_is_answered(world: World):
    """Both were considered before either was paid for: the ledger decides."""
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs", once=True)
    offers = [world.site.consider(world.request().pack()) for _ in range(2)]
    assert not any(isinstance(offer, Refusal) for offer in offers)
    found = [offer.reserve() for offer in offers]
    assert [isinstance(each, Refusal) for each in found] == [False, True]
    assert found[1].code == "run"
    entry = offers[0].entry
    with pytest.raises(Refused, match="approval, has changed meanwhile"):
        world.site.ledger.reserve(replace(entry, run=os.urandom(16)), (), offers[0].approved)


@pytest.mark.parametrize("how", ["ask", "auto"])
def test_a_refusal_holds_for_an_offer_that_was_made_before_it(world: World, how: str):
    """The request was considered, and its table took a while to be read."""
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs")
    world.edit('approve = "ask"', f'approve = "{how}"')
    offer = world.site.consider(world.request().pack())
    by(world, "ben").refuse("lungs")
    assert isinstance(offer.reserve(), Refusal)
    assert world.site.ledger.entries() == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('approve = "auto"', 'approve = "ask"'),
        ('columns = ["age", ', "columns = ["),
        ('analyses = ["count", "mean", ', 'analyses = ["count", '),
    ],
)
def test_a_policy_that_changes_meanwhile_holds_for_an_offer_that_was_made_before(
    world: World, old: str, new: str
):
    world.edit('approve = "ask"', 'approve = "auto"')
    offers = [world.site.consider(world.request().pack()) for _ in range(2)]
    assert not isinstance(offers[0].reserve(), Refusal), "the policy is as it was"
    world.edit(old, new)
    found = offers[1].reserve()
    assert isinstance(found, Refusal)
    assert "changed meanwhile" in found.sentence
    assert len(world.site.ledger.entries()) == 1


def test_no_offer_outlives_the_approvals_that_a_gap_ends(world: World):
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs", once=True)
    offer = world.site.consider(world.request().pack())
    assert world.site.approvals.end() == 1
    assert isinstance(offer.reserve(), Refusal)


def test_an_approval_beside_an_unrecognised_refusal_ends_too(world: World):
    assert world.code(world.request()) == "approval"
    by(world, "ana").approve("lungs")
    (file,) = (world.site.path / "approved").iterdir()
    (world.site.path / "refused").mkdir()
    (world.site.path / "refused" / file.name).write_text("not a study")
    assert world.site.approvals.end() == 1
    (world.site.path / "refused" / file.name).unlink()
    assert world.code(world.request()) == "approval"


def test_a_question_is_the_answer_until_a_decision(world: World):
    assert world.code(world.request()) == "approval"
    told = by(world, "ana").ask("lungs", "Which ethics vote\ncovers this? ").study
    assert told.question == "Which ethics vote covers this?"
    found = world.decide(world.request())
    assert isinstance(found, Refusal)
    assert (found.code, found.sentence) == ("approval", f"{ASKS}Which ethics vote covers this?")
    by(world, "ana").ask("lungs", "And whose?")
    assert world.decide(world.request()).sentence == f"{ASKS}And whose?"
    by(world, "ben").approve("lungs")
    world.granted(world.request())
    with pytest.raises(InvalidInput, match="there is no study 'lungs' to ask about"):
        by(world, "ana").ask("lungs", "Too late?")


def test_questions_are_bounded_and_printable(world: World):
    assert world.code(world.request()) == "approval"
    with pytest.raises(InvalidInput, match="the question is empty"):
        by(world, "ana").ask("lungs", " \n ")
    with pytest.raises(InvalidInput, match="at most 500 characters"):
        by(world, "ana").ask("lungs", "x" * (MOST_QUESTION + 1))
    by(world, "ana").ask("lungs", "a\x1b[31mb")
    assert "\x1b" not in world.decide(world.request()).sentence


def test_a_reason_and_the_names_of_who_decided_stay_at_the_site(world: World):
    two(world)
    assert world.code(world.request()) == "approval"
    by(world, "ana@clinic.org").approve("lungs", reason="bed 12 is fine")
    assert "ana" not in (sentence := world.decide(world.request()).sentence)
    assert "bed 12" not in sentence
    told = by(world, "ben@clinic.org").refuse("lungs", reason="only bed 12 has it").study
    assert told.reason == "only bed 12 has it"
    refusal = world.decide(world.request())
    assert "bed 12" not in refusal.sentence
    assert "ben" not in refusal.sentence


def test_a_decision_is_on_the_disk_when_it_is_acknowledged(world: World, monkeypatch: pytest.MonkeyPatch):
    assert world.code(world.request()) == "approval"
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    here = str(world.site.path.resolve())
    for decide, new, old in (
        (by(world, "ana").approve, "approved", "held"),
        (by(world, "ana").refuse, "refused", "approved"),
    ):
        synced.clear()
        decide("lungs")
        assert any(path.startswith(f"{here}/{new}/.") for path in synced), "the file"
        places = [path for path in synced if path in (f"{here}/{new}", f"{here}/{old}")]
        assert places == [f"{here}/{new}", f"{here}/{old}"], "its folder, then that which it left"
