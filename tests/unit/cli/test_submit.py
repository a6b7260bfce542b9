"""What `cape submit` keeps when a network fails: finished analyses, and what they cost."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from html import escape
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cape.app.folder import RECORD, ResultsFolder
from cape.app.progress import Progress, read_progress
from cape.app.report import page
from cape.app.results import Results
from cape.cli.live import Live
from cape.cli.output import finish
from cape.cli.submit_action import Terms, run_study
from cape.coordinator import Event, Relay
from cape.core.errors import BudgetExceeded, CapeError, InvalidInput, TooFewSites
from cape.site.admin import Desk
from cape.study import Study
from tests.channel import LocalChannel
from tests.world import HISTOGRAM, LINEAR, MEAN, NAMES, NETWORK, World

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
    world = World(tmp_path, NAMES, epsilon=(20.0, 20.0, 20.0))
    monkeypatch.setattr(Net, "channel", world.channel, raising=False)
    monkeypatch.setattr(Net, "opens", True)
    monkeypatch.setattr(Net, "rounds", None)
    monkeypatch.setattr(Net, "error", KeyboardInterrupt(), raising=False)
    monkeypatch.setattr("cape.flare.link.Network", Net)
    return world


def submit(world: World, study: Study, *, resume: bool = False) -> Results:
    with ResultsFolder.find(world.folder / "out", study, study.scheme, "submit") as kept:
        return run_study(study, world.coordinator, kept, Terms(resume))


def numbers(results: Results) -> list[int]:
    return [each.entry.number for each in results.answered]


def three(world: World) -> Study:
    return world.study(*(f"{each}\nshare = 0.25" for each in (MEAN, HISTOGRAM, LINEAR)))


def test_a_whole_study(world: World):
    study = three(world)
    results = submit(world, study)
    assert (numbers(results), results.failure, results.budget.spent) == ([1, 2, 3], None, Fraction(3, 4))
    with pytest.raises(InvalidInput, match="--resume continues it"):
        submit(world, study)
    Net.opens = False
    again = submit(world, study, resume=True)
    assert (numbers(again), again.failure) == ([1, 2, 3], None), "out of the record: nobody has to be there"
    assert [each.release.to_dict() for each in again.answered] == [
        each.release.to_dict() for each in results.answered
    ]
    assert world.lines() == 5, "the regression has three stages"


def test_others_can_read_how_far_it_is(world: World, monkeypatch: pytest.MonkeyPatch):
    seen: list[Progress | None] = []
    begin = Live.start

    def start(live: Live, *arguments: Any) -> None:
        begin(live, *arguments)
        time.sleep(0.6)  # the file is written soon after, not at once
        seen.append(read_progress(world.folder / "out"))

    monkeypatch.setattr(Live, "start", start)
    submit(world, world.study(f"{MEAN}\nshare = 0.25"))
    (during,) = seen
    assert during is not None
    assert (during.number, during.done, during.total) == (1, 0, 1)
    assert {site.name: site.what for site in during.sites} == dict.fromkeys(NAMES, "answered")
    after = read_progress(world.folder / "out")
    assert after is not None
    assert after.budget is not None
    assert (after.number, after.done, after.budget.share) == (0, 1, 0.25)
    assert [site.round for site in after.sites] == ["unmask"] * len(NAMES)
    assert after.lines[0] == f"connected: {', '.join(NAMES)}"


def test_there_must_be_something_to_resume(world: World):
    with pytest.raises(InvalidInput, match="holds no record to resume"):
        submit(world, world.study(MEAN), resume=True)


def test_what_no_approval_would_change_is_said_before_one_is_asked_for(world: World):
    world.edit('approve = "auto"', 'approve = "ask"', "a")
    for name in NAMES[1:]:
        world.edit('"histogram", ', "", name)
    results = submit(world, three(world))
    assert isinstance(results.error, TooFewSites)
    assert "1 of 4 sites would answer analysis 2" in str(results.error)
    assert "a: waits for its steward" not in str(results.error)


def test_a_steward_asks_back_and_approves_for_once_while_the_coordinator_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.edit('approve = "auto"', 'approve = "ask"', "a")
    monkeypatch.setattr("cape.cli.submit_action._AGAIN", 0.01)
    desk, said = Desk(world.site), []

    def say(_: Live, line: str) -> None:
        said.extend([line] if line.startswith("a: ") else [])
        if line == "a: waits for its steward":
            desk.ask("lungs", "Which ethics vote?")
        elif "who asks" in line:
            desk.approve("lungs", once=True)

    monkeypatch.setattr(Live, "say", say)
    study = world.study(f"{LINEAR}\nshare = 0.25")
    with ResultsFolder.find(world.folder / "out", study, study.scheme, "submit") as kept:
        results = run_study(study, world.coordinator, kept, Terms(False, 60.0))
    assert said == ["a: waits for its steward", "a: waits for its steward, who asks: Which ethics vote?"]
    assert (numbers(results), results.failure) == ([1], None), "once, in several stages"
    with ResultsFolder.find(world.folder / "again", study, study.scheme, "submit") as kept:
        again = run_study(study, world.coordinator, kept, Terms(False))
    assert "awaits approval by the steward of a" in str(again.error)


def test_an_analysis_that_no_approval_would_help_is_told_apart_from_one_that_waits(world: World):
    """Every site holds the study, and refuses one analysis of it for good."""
    for name in NAMES:
        world.edit('approve = "auto"', 'approve = "ask"', name)
        world.edit('"histogram", ', "", name)
    results = submit(world, three(world))
    assert isinstance(results.error, TooFewSites)
    assert "0 of 4 sites would answer analysis 2" in str(results.error)


@pytest.mark.slow(2)
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


def row(site: str, *cells: str) -> str:
    """What a report has of a site."""
    names = ("connected", "took part in analyses", "refused or lost, and why")
    told = [
        f'<td data-of="{name}">{escape(cell)}</td>' if cell else '<td class="none"></td>'
        for name, cell in zip(names, cells, strict=True)
    ]
    return f'<th scope="row">{site}</th>{"".join(told)}'


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


def refusing(world: World, *names: str) -> None:
    world.edit('"mean", ', "", *names)


SENTENCE = (
    "this site does not answer analyses of kind 'mean'; its steward can add it to analyses under [allow] in "
    "site.toml"
)


def test_a_site_that_refused_and_one_that_is_not_connected_are_told_apart(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    refusing(world, "b")
    results = submit(world, world.study(MEAN, HISTOGRAM))
    assert (results.failure, numbers(results)) == (None, [1, 2])
    sites = {site["name"]: site for site in results.to_dict()["sites"]}
    told = {"analysis": 1, "code": "analysis", "sentence": SENTENCE}
    assert sites["a"] == {"name": "a", "connected": True, "took_part": [1, 2], "refusals": [], "lost": []}
    assert sites["b"] == {
        "name": "b",
        "connected": True,
        "took_part": [2],
        "refusals": [told],
        "lost": [],
    }
    again = submit(world, world.study(MEAN, HISTOGRAM), resume=True)  # out of the record
    assert [site for site in again.to_dict()["sites"] if site["name"] == "b"] == [sites["b"]]


def test_a_site_that_is_not_connected_has_not_refused(world: World, monkeypatch: pytest.MonkeyPatch):
    world.channel.deaf["d"] = "request"
    opened = Net.open

    def without_d(net: Net) -> None:
        opened(net)
        net.alive = NAMES[:3]

    monkeypatch.setattr(Net, "open", without_d)
    results = submit(world, world.study(MEAN))
    assert results.failure is None
    told = {site["name"]: site for site in results.to_dict()["sites"]}
    assert (told["d"]["connected"], told["d"]["refusals"], told["d"]["took_part"]) == (False, [], [])
    assert [site.reasons for site in results.sites] == [[], [], [], ["was not connected"]]
    assert row("d", "no", "none", "") in page(results)


def test_a_study_that_fails_because_sites_refuse_says_so_for_each(world: World):
    refusing(world, "a", "b")
    world.edit("2999-12-31", "2020-12-31", "c")
    results = submit(world, world.study(MEAN, HISTOGRAM))
    assert isinstance(results.error, TooFewSites)
    told = {site["name"]: site for site in results.to_dict()["sites"]}
    assert [each["analysis"] for each in told["b"]["refusals"]] == [1]
    assert [(each["analysis"], each["code"]) for each in told["c"]["refusals"]] == [
        (1, "expired"),
        (2, "expired"),
    ]
    assert told["d"]["refusals"] == []
    assert "refused analyses 1, 2 (expired: " in page(results)


def test_a_steward_who_refuses_between_two_analyses(world: World, monkeypatch: pytest.MonkeyPatch):
    study = world.study(MEAN, HISTOGRAM)
    done = Live.done

    def changed(live: Live, *told: Any) -> None:
        done(live, *told)
        world.edit("2999-12-31", "2020-12-31", "c")

    monkeypatch.setattr(Live, "done", changed, raising=True)
    monkeypatch.setattr(World, "edit", once(World.edit))
    results = submit(world, study)
    assert results.failure is None
    (site,) = [site for site in results.sites if site.name == "c"]
    assert (site.took_part, list(site.refusals)) == ((1,), [2])
    assert site.refusals[2].code == "expired"


def once(edit: Callable[..., None]) -> Callable[..., None]:
    left = [edit]
    return lambda *told: left.pop()(*told) if left else None


def test_the_report_and_the_screen_say_why(world: World, capsys: pytest.CaptureFixture[str]):
    refusing(world, "b")
    study = world.study(MEAN, HISTOGRAM)
    results = submit(world, study)
    assert f"b: refuses analysis 1 (analysis: {SENTENCE})" in capsys.readouterr().err.replace("\n", " ")
    with ResultsFolder.find(world.folder / "out", study, study.scheme, "submit") as kept:
        finish(results, kept, False)
    said = f"refused analysis 1 (analysis: {SENTENCE})"
    assert f"b {said}." in " ".join(capsys.readouterr().out.split())
    html = (world.folder / "out" / "report.html").read_text()
    assert "<h2>Sites</h2>" in html
    assert row("b", "yes", "2", said) in html
    written = json.loads((world.folder / "out" / "results.json").read_text())
    assert [len(site["refusals"]) for site in written["sites"]] == [0, 1, 0, 0]


def drawn(live: Live) -> list[str]:
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(live._table())
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_live_table_shows_why_within_80_columns(capsys: pytest.CaptureFixture[str]):
    live = Live("lungs", ["cleveland", "zurich"], 3)
    sentence = "budget: the budget of this coordinator for this year does not cover this release"
    live.event(Event("advertise", "zurich", "refused", sentence))
    lines = drawn(live)
    assert max(map(len, lines)) <= 80
    state, why = [line for line in lines if "zurich" in line]
    assert state.split()[:3] == ["zurich", "refused", "advertise"]
    assert why == f"zurich: {sentence}"[:79] + "…"
    assert capsys.readouterr().err.split() == f"zurich refused ({sentence})".split()
    live.event(Event("advertise", "zurich", "asked"))
    live.event(Event("advertise", "zurich", "refused", sentence))
    assert not capsys.readouterr().err, "a reason is said once"
    live.event(Event("advertise", "zurich", "refused", "x\x1b[2Jy"))
    assert "\x1b" not in "".join(drawn(live)) + capsys.readouterr().err
    live.event(Event("share", "zurich", "answered"))
    assert "budget" not in "".join(drawn(live))


def test_a_site_that_refuses_in_the_middle_of_an_analysis(world: World, monkeypatch: pytest.MonkeyPatch):
    study = world.study(NETWORK)
    step = Live.step

    def after(live: Live, progress: Any) -> None:
        step(live, progress)
        if progress.done == 2:
            world.restart("d")

    monkeypatch.setattr(Live, "step", after)
    results = submit(world, study)
    assert results.failure is None
    (site,) = [site for site in results.sites if site.name == "d"]
    assert site.took_part == (1,)
    assert site.reasons == [
        "refused later stages of analysis 1 (run: this site has no such session, or it is over)"
    ]


def test_an_attempt_that_broke_off_is_past(world: World):
    refusing(world, "d")
    Net.rounds = 2
    assert submit(world, world.study(MEAN)).interrupted
    Net.rounds = None
    world.edit('analyses = ["count", ', 'analyses = ["count", "mean", ', "d")
    results = submit(world, world.study(MEAN), resume=True)
    assert results.failure is None
    assert [site.reasons for site in results.sites] == [[], [], [], []]
