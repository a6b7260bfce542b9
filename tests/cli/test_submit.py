"""What `cape submit` keeps when a network fails: finished analyses, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from cape.cli.report import page
from cape.cli.results import Results
from cape.cli.submit import RECORD, Terms, run_study
from cape.coordinator import Event, Relay
from cape.errors import BudgetExceeded, CapeError, InvalidInput, TooFewSites
from cape.study import Study
from tests.coordinator.world import HISTOGRAM, LINEAR, MEAN, NAMES, LocalChannel, World

pytestmark = pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")


class Net:
    """In place of `cape.flare.link.Network`: members in this process, and a line that can be cut."""

    channel: LocalChannel
    opens = True
    rounds: int | None = None  # the line is cut after so many rounds of stages
    error: BaseException

    def __init__(
        self,
        kit: Path,
        name: str,
        sites: Sequence[str],
        told: Callable[[Event], None],
        present: Callable[[Sequence[str]], None],
    ) -> None:
        self.alive: tuple[str, ...] = ()
        self._sites = tuple(sites)
        self._relay = Relay(self, told)

    def open(self) -> None:
        if not self.opens:
            raise CapeError("no aggregator there")
        self.alive = self._sites

    def close(self) -> None:
        self.alive = ()

    def refresh(self) -> tuple[str, ...]:
        return self.alive

    def call(self, data: bytes) -> bytes:
        assert self.alive, "nobody is called before the line is open"
        return self._relay.call(data)

    def exchange(self, round_, messages):
        if round_ not in ("hello", "review", "inquiry") and Net.rounds is not None:
            Net.rounds -= 1
            if Net.rounds < 0:
                raise Net.error
        yield from self.channel.exchange(round_, messages)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    monkeypatch.setattr(Net, "channel", world.channel, raising=False)
    monkeypatch.setattr(Net, "opens", True)
    monkeypatch.setattr(Net, "rounds", None)
    monkeypatch.setattr(Net, "error", KeyboardInterrupt(), raising=False)
    monkeypatch.setattr("cape.flare.link.Network", Net)
    return world


def submit(world: World, study: Study, *, resume: bool = False) -> Results:
    out = world.folder / "out"
    out.mkdir(exist_ok=True)
    return run_study(study, world.office, out, Terms(resume))


def numbers(results: Results) -> list[int]:
    return [each.entry.number for each in results.answered]


def three(world: World) -> Study:
    return world.study(*(f"{each}\nshare = 0.25" for each in (MEAN, HISTOGRAM, LINEAR)))


def test_a_whole_study(world: World):
    study = three(world)
    results = submit(world, study)
    assert (numbers(results), results.failure, results.budget.spent) == ([1, 2, 3], None, Fraction(3, 4))
    with pytest.raises(InvalidInput, match="--resume goes on with it"):
        submit(world, study)
    Net.opens = False
    again = submit(world, study, resume=True)
    assert (numbers(again), again.failure) == ([1, 2, 3], None), "out of the record: nobody has to be there"
    assert [each.release.to_dict() for each in again.answered] == [
        each.release.to_dict() for each in results.answered
    ]
    assert world.lines() == 3


def test_there_must_be_something_to_resume(world: World):
    with pytest.raises(InvalidInput, match="holds no record to go on with"):
        submit(world, world.study(MEAN), resume=True)


def test_what_no_approval_would_change_is_said_before_one_is_asked_for(world: World):
    world.edit('approve = "auto"', 'approve = "ask"', "a")
    for name in NAMES[1:]:
        world.edit('"histogram", ', "", name)
    results = submit(world, three(world))
    assert isinstance(results.error, TooFewSites)
    assert "1 of 4 sites would answer analysis 2" in str(results.error)
    assert "a: waits for its steward" not in str(results.error)


def test_an_analysis_that_no_approval_would_help_is_told_apart_from_one_that_waits(world: World):
    """Every site holds the study, and refuses one analysis of it for good."""
    for name in NAMES:
        world.edit('approve = "auto"', 'approve = "ask"', name)
        world.edit('"histogram", ', "", name)
    results = submit(world, three(world))
    assert isinstance(results.error, TooFewSites)
    assert "0 of 4 sites would answer analysis 2" in str(results.error)


def test_a_resume_that_fails_keeps_what_was_finished(world: World):
    study = three(world)
    Net.rounds = 5 + 3  # the second analysis is cut off once vectors were masked
    first = submit(world, study)
    assert first.interrupted
    assert "the same command with --resume" in first.next
    assert (numbers(first), first.lost, first.budget.spent) == ([1], Fraction(1, 4), Fraction(1, 2))
    Net.rounds, Net.opens = None, False
    second = submit(world, study, resume=True)
    assert "no aggregator there" in str(second.error)
    assert (numbers(second), second.lost) == ([1], 0), "nothing was asked this time"
    assert second.budget.spent == Fraction(1, 2), "what was cut off counts, until sites can be asked"
    assert second.answered[0].release.to_dict() == first.answered[0].release.to_dict()
    Net.opens = True
    world.channel.deaf = dict.fromkeys(NAMES[1:], "message")
    third = submit(world, study, resume=True)
    assert isinstance(third.error, TooFewSites)
    assert numbers(third) == [1]
    world.channel.deaf = {}
    last = submit(world, study, resume=True)
    assert (last.failure, last.next) == (None, "")
    assert numbers(last) == [1, 2, 3]
    assert (
        last.budget.spent == 1 == world.sites["a"].ledger.spent().mu_squared / Fraction(study.budget.mu) ** 2
    )


def left_out(world: World) -> Results:
    """The first analysis was cut off and cannot be paid for again; the second is asked."""
    study = world.study(*(f"{each}\nshare = {share}" for each, share in ((MEAN, 0.6), (HISTOGRAM, 0.4))))
    Net.rounds = 3
    first = submit(world, study)
    assert (numbers(first), first.budget.spent) == ([], Fraction(3, 5))
    Net.rounds = None
    results = submit(world, study, resume=True)
    assert results.failed == study.analyses[0]
    return results


def test_what_cannot_be_paid_again_is_left_out_and_the_rest_is_asked(world: World):
    results = left_out(world)
    assert numbers(results) == [2]
    assert isinstance(results.error, BudgetExceeded)
    assert results.budget.spent == 1


def test_what_is_left_out_costs_nothing_more(world: World):
    assert left_out(world).lost == 0


def test_the_same_study_elsewhere_is_refused_by_the_sites(world: World):
    study = world.study(MEAN)
    assert submit(world, study).failure is None
    (world.folder / "out" / RECORD).unlink()
    again = submit(world, study)
    assert isinstance(again.error, TooFewSites)
    assert "that the study itself states" in str(again.error)
    assert again.budget.spent == 0
    assert "This counts what was asked from this folder." in page(again)
    assert world.lines() == 1
