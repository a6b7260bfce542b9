"""Killed anywhere: what is finished is not asked again, and nothing that may have left is forgotten."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from cape.coordinator import Record, Relay, Submission
from cape.core.errors import BudgetExceeded, InvalidInput, TooFewSites
from cape.engine.result import Release
from cape.study import Study
from tests.channel import LocalChannel
from tests.world import (
    HISTOGRAM,
    KMEANS,
    LINEAR,
    LOGISTIC,
    MEAN,
    NAMES,
    NETWORK,
    World,
)

pytestmark = pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")

ROUNDS = ("advertise", "share", "mask", "consistency", "unmask")


class Killed(BaseException):
    """The aggregator's or the coordinator's process ends."""


class Killing(LocalChannel):
    """Dies in a round of a stage, after so many sites were reached."""

    def __init__(self, members, stage: int, round_: str, reached: int) -> None:
        super().__init__(members)
        self._left, self._round, self._reached = stage, round_, reached

    def exchange(self, round_, messages):
        if round_ == self._round and self._left == 0:
            for site in list(messages)[: self._reached]:
                self._note(site, self.members[site].handle(messages[site]))
            raise Killed
        if round_ == "unmask":
            self._left -= 1
        yield from super().exchange(round_, messages)


def paid(world: World, study: Study) -> Fraction:
    """The most that one site's ledger holds, as a share of the study's budget."""
    whole = Fraction(study.budget.mu) ** 2
    return max(world.sites[name].ledger.spent().mu_squared for name in NAMES) / whole


def run_and_die(world: World, study: Study, path: Path, channel: LocalChannel) -> None:
    def run() -> None:
        submission = Submission(study, world.coordinator, Relay(channel), record)
        for entry in study.analyses:
            submission.answer(entry)

    with Record(path) as record, pytest.raises(Killed):
        run()


def same(one: Release, other: Release) -> None:
    first, second = one.to_dict(), other.to_dict()
    assert first == second


@pytest.mark.slow(3)
def test_finished_analyses_are_answered_out_of_the_record(world: World):
    study = world.study(MEAN, HISTOGRAM, LINEAR, LOGISTIC, KMEANS, NETWORK)
    path = world.folder / "record"
    with Record(path) as record:
        submission = world.submission(study, record)
        releases = [submission.answer(entry) for entry in study.analyses]
    lines = world.lines()
    with Record(path) as record:
        again = Submission(study, world.coordinator, None, record)  # type: ignore[arg-type]
        assert again.resume() == []
        for entry, release in zip(study.analyses, releases, strict=True):
            same(again.answer(entry), release)
        assert again.spent == 1
        assert again.budget == submission.budget
    assert world.lines() == lines


@pytest.mark.quick_cases("mask-4", "unmask-4", seconds=0.38)
@pytest.mark.parametrize("reached", [0, 1, 4])
@pytest.mark.parametrize("round_", ROUNDS)
def test_killed_in_any_round(world: World, round_: str, reached: int):
    study = world.study(f"{MEAN}\nshare = 0.25", f"{HISTOGRAM}\nshare = 0.25")
    path = world.folder / "record"
    run_and_die(world, study, path, Killing(world.members, 0, round_, reached))
    touched = ROUNDS.index(round_) > 2 or (round_ == "mask" and reached > 0)
    with Record(path) as record:
        submission = world.submission(study, record)
        assert submission.spent == Fraction(1, 4), "what is not known counts as spent"
        (attempt,) = submission.resume()
        assert attempt.failed == (1 if touched else 0)
        assert submission.spent == (Fraction(1, 4) if touched else 0) == paid(world, study)
        assert submission.resume() == []
        for entry in study.analyses:
            assert submission.answer(entry).participants == NAMES
        assert submission.spent == (Fraction(3, 4) if touched else Fraction(1, 2)) == paid(world, study)


@pytest.mark.quick_cases("1-mask", seconds=0.8)
@pytest.mark.parametrize(("stage", "round_"), [(1, "advertise"), (1, "mask"), (2, "mask"), (3, "unmask")])
def test_killed_in_a_later_stage(world: World, stage: int, round_: str):
    study = world.study(f"{NETWORK}\nshare = 0.25")
    path = world.folder / "record"
    run_and_die(world, study, path, Killing(world.members, stage, round_, 2))
    with Record(path) as record:
        submission = world.submission(study, record)
        submission.resume()
        begun = stage + (round_ != "advertise")
        assert submission.spent == Fraction(begun, 16) == paid(world, study)
        submission.answer(study.analyses[0])
        assert submission.spent == Fraction(begun + 4, 16) == paid(world, study)


def test_a_site_that_cannot_be_asked_makes_it_spent(world: World):
    study = world.study(f"{MEAN}\nshare = 0.25", min_sites=3)
    path = world.folder / "record"
    run_and_die(world, study, path, Killing(world.members, 0, "advertise", 0))
    world.channel.deaf["d"] = "inquiry"
    with Record(path) as record:
        submission = world.submission(study, record)
        (attempt,) = submission.resume()
        assert attempt.open, "d might have paid, and can be asked later"
        assert submission.spent == Fraction(1, 4)
        assert submission.answer(study.analyses[0]).participants == NAMES[:3]
        assert submission.spent == Fraction(1, 2)


def test_a_site_that_is_back_settles_what_was_left_open(world: World):
    study = world.study(f"{MEAN}\nshare = 0.25", f"{HISTOGRAM}\nshare = 0.75")
    path = world.folder / "record"
    run_and_die(world, study, path, Killing(world.members, 0, "advertise", 0))
    world.channel.deaf["d"] = "inquiry"
    with Record(path) as record:
        submission = world.submission(study, record)
        submission.resume()
        with pytest.raises(BudgetExceeded, match=r"0\.25 was spent on attempts that broke off"):
            submission.answer(study.analyses[0])
    world.channel.deaf = {}
    with Record(path) as record:
        submission = world.submission(study, record)
        (attempt,) = submission.resume()
        assert (attempt.open, attempt.failed, submission.spent) == (False, 0, 0)
        assert submission.resume() == []
        for entry in study.analyses:
            assert submission.answer(entry).participants == NAMES
        assert submission.spent == 1 == paid(world, study)
    with Record(path) as record:
        again = Submission(study, world.coordinator, None, record)  # type: ignore[arg-type]
        assert (again.resume(), again.spent) == ([], 1), "it stands in the record"


def test_a_site_that_is_back_may_say_that_it_paid(world: World):
    """Only d was reached, and then d is away: what it paid is known when it is back."""
    study = world.study(f"{MEAN}\nshare = 0.25")
    path = world.folder / "record"

    class OnlyD(LocalChannel):
        def exchange(self, round_, messages):
            if round_ == "mask":
                self._note("d", self.members["d"].handle(messages["d"]))
                raise Killed
            yield from super().exchange(round_, messages)

    run_and_die(world, study, path, OnlyD(world.members))
    world.channel.deaf["d"] = "inquiry"
    with Record(path) as record:
        submission = world.submission(study, record)
        (attempt,) = submission.resume()
        assert (attempt.open, submission.spent) == (True, Fraction(1, 4))
        world.channel.deaf = {}
        (attempt,) = submission.resume()
        assert (attempt.failed, submission.spent) == (1, Fraction(1, 4))
        assert submission.resume() == []


def test_what_is_finished_needs_nobody_although_something_is_open(world: World):
    study = world.study(f"{MEAN}\nshare = 0.25", f"{HISTOGRAM}\nshare = 0.25")
    path = world.folder / "record"
    with Record(path) as record:
        release = world.submission(study, record).answer(study.analyses[0])
    run_and_die(world, study, path, Killing(world.members, 0, "mask", 1))
    with Record(path) as record:
        submission = Submission(study, world.coordinator, None, record)  # type: ignore[arg-type]
        same(submission.answer(study.analyses[0]), release)
        assert submission.spent == Fraction(1, 2)
        assert record.attempts[1].open


def test_an_aggregator_that_goes_on_after_all_cannot_spend_what_was_given_back(world: World):
    """The coordinator dies and comes back; the old aggregator is still at it with the old requests."""
    study = world.study(f"{MEAN}\nshare = 0.25")
    path = world.folder / "record"
    kept: dict[str, bytes] = {}

    class Keeping(LocalChannel):
        def exchange(self, round_, messages):
            if round_ == "mask":
                kept.update(messages)
                raise Killed
            yield from super().exchange(round_, messages)

    run_and_die(world, study, path, Keeping(world.members))
    with Record(path) as record:
        submission = world.submission(study, record)
        submission.resume()
        assert submission.spent == 0
    for site, message in kept.items():
        world.channel._note(site, world.members[site].handle(message))
    assert paid(world, study) == 0
    assert not world.channel.left


def test_too_little_is_left_for_another_attempt(world: World):
    study = world.study(f"{MEAN}\nshare = 0.6", f"{HISTOGRAM}\nshare = 0.4")
    path = world.folder / "record"
    run_and_die(world, study, path, Killing(world.members, 0, "consistency", 0))
    with Record(path) as record:
        submission = world.submission(study, record)
        for _ in range(2):
            with pytest.raises(BudgetExceeded, match=r"0\.6 was spent on attempts that broke off") as raised:
                submission.answer(study.analyses[0])
            assert "write a new study for what is missing" in str(raised.value)
            assert submission.spent == Fraction(3, 5) == paid(world, study)
        submission.answer(study.analyses[1])
        assert submission.spent == 1 == paid(world, study)
        assert submission.guarantee == study.guarantee(Fraction(1))
        assert (submission.budget.epsilon, submission.budget.remaining) == (8.0, 0)
        with pytest.raises(BudgetExceeded):
            submission.answer(study.analyses[0])


def test_a_study_cannot_be_submitted_twice(world: World):
    """With a new record, as if it was lost: the sites remember, and hold the study to what it states."""
    study = world.study(MEAN)
    assert world.submission(study).answer(study.analyses[0]).participants == NAMES
    again = world.submission(study)
    own = "the budget that the study itself states (earlier submissions count) does not cover this release"
    assert all(own in str(each) for each in again.check().values())
    with pytest.raises(TooFewSites, match=re.escape(f"a refused (budget: {own})")) as raised:
        again.answer(study.analyses[0])
    assert not raised.value.sent
    assert again.spent == 0
    assert [world.lines(name) for name in NAMES] == [1, 1, 1, 1]
    other = world.study(MEAN, name="lungs-2")
    assert world.submission(other).answer(other.analyses[0]).participants == NAMES
    assert [world.lines(name) for name in NAMES] == [2, 2, 2, 2]


def test_what_broke_off_does_not_take_what_others_need(world: World):
    study = world.study(f"{MEAN}\nshare = 0.5", f"{HISTOGRAM}\nshare = 0.5")
    path = world.folder / "record"
    run_and_die(world, study, path, Killing(world.members, 0, "consistency", 0))
    with Record(path) as record:
        submission = world.submission(study, record)
        with pytest.raises(BudgetExceeded):
            submission.answer(study.analyses[0])
        submission.answer(study.analyses[1])
        assert submission.spent == 1 == paid(world, study)


@pytest.mark.slow(3)
def test_cut_at_every_line_and_in_the_middle_of_each(world: World):
    """The record of a whole study, cut; the sites remember everything."""
    study = world.study(f"{MEAN}\nshare = 0.2", f"{NETWORK}\nshare = 0.2", f"{HISTOGRAM}\nshare = 0.2")
    path = world.folder / "record"
    with Record(path) as record:
        submission = world.submission(study, record)
        releases = [submission.answer(entry) for entry in study.analyses]
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    shares = {1: Fraction(1, 5), 2: Fraction(1, 20), 3: Fraction(1, 5)}  # of a stage
    for number in range(len(lines)):
        for torn in (b"", lines[number][: len(lines[number]) // 2]):
            whole = b"".join(lines[:number])
            path.write_bytes(whole + torn)
            with Record(path) as record:
                again = world.submission(study, record)
                again.resume()
                asked = sum(shares[each.number] * each.asked for each in record.attempts)
                assert again.spent == asked, "the sites say that every stage that was asked is paid for"
                for attempt in record.attempts:
                    complete = len(attempt.answers) == len(
                        study.analyses[attempt.number - 1].analysis.stages()
                    )
                    assert attempt.finished == complete
                    if complete:
                        entry = study.analyses[attempt.number - 1]
                        same(again.answer(entry), releases[attempt.number - 1])
    lines_before = world.lines()
    path.write_bytes(b"".join(lines[:8]) + lines[8][:9])
    with Record(path) as record:
        again = world.submission(study, record)
        for entry in study.analyses:
            again.answer(entry)
        assert world.lines() > lines_before
        assert again.spent > Fraction(3, 5)


def test_an_inquiry_is_not_needed_where_nothing_was_asked(world: World):
    study = world.study(MEAN)
    path = world.folder / "record"
    with Record(path) as record:
        submission = world.submission(study, record)
        record.begin(1, bytes(16))
        assert submission.spent == 0
        world.channel.deaf = dict.fromkeys(NAMES, "request")
        submission.resume()
        assert submission.spent == 0


def test_another_study_in_the_folder(world: World):
    path = world.folder / "record"
    with Record(path) as record:
        world.submission(world.study(MEAN), record)
    with Record(path) as record:  # nothing was asked
        submission = world.submission(world.study(MEAN, epsilon=7.0), record)
        submission.answer(submission.study.analyses[0])
    with Record(path) as record, pytest.raises(InvalidInput, match="record of another study"):
        world.submission(world.study(MEAN), record)
