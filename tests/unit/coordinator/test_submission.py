"""A study across members in one process: as `cape run` would answer it, and when sites fail."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest

from cape.coordinator import Event, Relay, StageOutcome, Submission
from cape.coordinator.calls import (
    AskKnown,
    CallFailed,
    GotHello,
    GotKnown,
    pack,
    unpack_call,
    unpack_reply,
)
from cape.core.errors import InvalidInput, ProtocolError, TooFewSites
from cape.engine.execute import Progress
from cape.engine.result import Release
from cape.privacy import Budget, gaussian
from cape.secagg import Identity
from cape.site.endpoint import SiteEndpoint
from cape.site.keyring import Card, public_text
from cape.site.persons import Person
from cape.site.wire import Inquiry, Known
from cape.study.document import document, hash_of
from tests.channel import LocalChannel
from tests.checkout import ROOT
from tests.world import (
    COUNT,
    HISTOGRAM,
    KMEANS,
    LINEAR,
    LOGISTIC,
    MEAN,
    NAMES,
    NETWORK,
    ROWS,
    SECRET,
    World,
)

pytestmark = pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")

ERRORS = 6  # standard deviations of the two releases' privacy noise: once in 10^9
ROUNDS = ("advertise", "share", "mask", "consistency", "unmask")


def table(release: Release) -> np.ndarray:
    """Value and privacy error of each estimate; clusters in the order of the last coordinate."""
    rows = np.array([(e.value, e.privacy) for e in release.estimates])
    if release.analysis.kind == "k-means":
        clusters = rows.reshape(2, -1, 2)
        rows = clusters[np.argsort(clusters[:, -1, 0])].reshape(-1, 2)
    return rows


def agree(ours: Release, theirs: Release) -> None:
    mine, other = table(ours), table(theirs)
    assert mine.shape == other.shape
    reach = ERRORS * np.hypot(mine[:, 1], other[:, 1])
    assert (np.abs(mine[:, 0] - other[:, 0]) <= reach + 1e-9).all(), (mine, other)
    for name in ("guarantee", "share", "scheme", "participants", "rows", "lost", "growth"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert type(ours.model) is type(theirs.model)


@pytest.mark.quick_cases("cape-replace-one", seconds=2.7)
@pytest.mark.parametrize(
    ("scheme", "neighbours"),
    [("cape", "replace-one"), ("cape", "add-remove"), ("conventional", "replace-one")],
)
def test_it_agrees_with_one_process(world: World, scheme: str, neighbours: str):
    if neighbours == "add-remove":
        world.hide_sizes()
    analyses = [MEAN, HISTOGRAM, LINEAR, LOGISTIC, KMEANS, COUNT]
    study = world.study(*analyses, epsilon=10.0, scheme=scheme, neighbours=neighbours)
    seen: list[Progress] = []
    submission, consortium = world.submission(study, progress=seen.append), study.consortium()
    for entry in study.analyses:
        ours, theirs = submission.answer(entry), consortium.release(entry.analysis, entry.share)
        agree(ours, theirs)
        assert ours.cost.rounds == (
            1 if entry.analysis.kind == "count" and not ours.share else theirs.cost.rounds
        )
        assert ours.cost.bytes >= theirs.cost.bytes
    assert submission.spent == consortium.budget.spent
    assert submission.budget == consortium.budget
    assert submission.guarantee == study.guarantee(submission.spent)
    for site in NAMES:
        ledger = world.sites[site].ledger.spent().mu_squared
        assert ledger == submission.spent * Fraction(study.budget.mu) ** 2
    assert [each.done for each in seen if each.of == 3][:3] == [1, 2, 3]
    assert all(each.epsilon <= 10.0 for each in seen)


def test_rounds_of_a_long_analysis_share_keys(world: World):
    study = world.study(NETWORK)
    release = world.submission(study).answer(study.analyses[0])
    assert release.cost.rounds == 5 + 5 + 3 + 3
    assert [event.round for event in world.events if event.site == "a" and event.what == "asked"] == [
        *ROUNDS,
        *ROUNDS,
        *ROUNDS[2:],
        *ROUNDS[2:],
    ]
    assert release.model is not None


@pytest.mark.one_in(4, seconds=0.4)
@pytest.mark.parametrize("round_", ROUNDS)
@pytest.mark.parametrize("how", ["deaf", "silent"])
def test_a_site_lost_in_the_first_stage(world: World, round_: str, how: str):
    study = world.study(MEAN, HISTOGRAM)
    submission = world.submission(study)
    getattr(world.channel, how)["d"] = round_
    release = submission.answer(study.analyses[0])
    counted = round_ in ("consistency", "unmask")
    assert release.participants == (NAMES if counted else NAMES[:3])
    assert release.rows == sum(ROWS[name] for name in release.participants)
    with_d_lost = study.consortium().release(study.analyses[0].analysis, 0.5, drop={"d": round_})
    assert (release.growth, release.lost) == (with_d_lost.growth, ("d",))
    assert release.growth == pytest.approx(math.sqrt((3 / 2) / (4 / 3)), rel=1e-6), (
        "late or lost, for 4 sites"
    )
    assert Event(round_, "d", "lost") in world.events
    assert world.lines("d") == (1 if counted or (how, round_) == ("silent", "mask") else 0)
    assert world.lines("a") == 1
    world.channel.deaf, world.channel.silent = {}, {}
    if how == "deaf":
        world.restart("d")
    again = submission.answer(study.analyses[1])
    assert (again.participants, again.lost, again.growth) == (NAMES, (), 1.0), "back in the next analysis"
    assert world.submission(study, submission.record).answer(study.analyses[0]).growth == release.growth


@pytest.mark.one_in(3, seconds=0.7)
@pytest.mark.parametrize("round_", ROUNDS)
def test_a_site_lost_in_a_later_stage(world: World, round_: str):
    study = world.study(NETWORK, MEAN)

    def after(progress: Progress) -> None:
        world.channel.silent = {"d": round_} if progress.done == 2 else {}

    release = world.submission(study, progress=after).answer(study.analyses[0])
    assert release.participants == NAMES
    # in the third stage there is no setup: it is silent from its first message on
    lost = [event.round for event in world.events if event.what == "lost"]
    assert lost == ["mask" if round_ in ("advertise", "share") else round_]
    assert world.lines("d") == 4, "it was given its vector's price, and takes part again in the fourth"


@pytest.mark.one_in(2, seconds=1)
@pytest.mark.parametrize("round_", ["advertise", "share"])
def test_a_site_lost_when_keys_are_agreed_misses_the_session(world: World, round_: str):
    study = world.study(NETWORK, MEAN)

    def after(progress: Progress) -> None:
        world.channel.silent = {"d": round_} if progress.done == 1 else {}

    submission = world.submission(study, progress=after)
    submission.answer(study.analyses[0])
    assert world.lines("d") == 1
    assert world.lines("a") == 4
    assert submission.answer(study.analyses[1]).participants == NAMES


@pytest.mark.slow(2)
def test_a_site_that_dies_in_a_session_is_back_in_the_next_analysis(world: World):
    study = world.study(NETWORK, KMEANS)

    def after(progress: Progress) -> None:
        if progress.done == 2:
            world.restart("d")

    submission = world.submission(study, progress=after)
    submission.answer(study.analyses[0])
    assert world.lines("d") == 2
    refused = [event for event in world.events if event.what == "refused"]
    assert {(event.round, event.site) for event in refused} == {("mask", "d")}
    assert refused[-1].why == "run: this site has no such session, or it is over"
    assert submission.answer(study.analyses[1]).participants == NAMES


@pytest.mark.slow(1)
def test_a_site_that_was_away_gets_all_earlier_answers(world: World):
    study = world.study(KMEANS, scheme="conventional")
    world.channel.deaf = {"d": "message"}

    def after(progress: Progress) -> None:
        world.channel.deaf = {}
        world.restart("c")  # and one that has forgotten is refused once, and then told everything

    submission = world.submission(study, progress=after)
    submission.answer(study.analyses[0])
    stages = [line.stage for line in world.sites["d"].ledger.entries()]
    assert stages == [1, 2]


@pytest.mark.one_in(2, seconds=0.25)
@pytest.mark.parametrize("round_", ROUNDS)
def test_too_few_sites(world: World, round_: str):
    study = world.study(MEAN, min_sites=4)
    submission = world.submission(study)
    world.channel.deaf["d"] = round_
    with pytest.raises(TooFewSites, match=f"d was lost in the round '{round_}'") as raised:
        submission.answer(study.analyses[0])
    early = round_ in ("advertise", "share")
    assert raised.value.sent is not early
    assert submission.spent == (0 if early else 1)
    assert world.lines("a") == (0 if early else 1), "who is lost early costs the others nothing"


def test_too_few_sites_in_a_later_stage_keep_what_was_spent(world: World):
    study = world.study(NETWORK, min_sites=4)

    def after(progress: Progress) -> None:
        world.channel.deaf = {"d": "advertise"} if progress.done == 1 else {}

    submission = world.submission(study, progress=after)
    with pytest.raises(TooFewSites) as raised:
        submission.answer(study.analyses[0])
    assert not raised.value.sent
    assert submission.spent == Fraction(1, 4)
    assert "1 of 4 stages" in raised.value.__notes__[0]
    assert world.lines("a") == 1


def test_conventional_with_too_few_sites(world: World):
    study = world.study(MEAN, scheme="conventional", min_sites=4)
    submission = world.submission(study)
    world.channel.deaf["d"] = "message"
    with pytest.raises(TooFewSites, match="3 sites answered, and min_sites asks for 4") as raised:
        submission.answer(study.analyses[0])
    assert raised.value.sent


# Each thing that one site does not allow: what its check and its refusal say.
POLICIES = {
    "expired": ("2999-12-31", "2020-01-31", "expired"),
    "bounds": ("age = [18, 90]", "age = [18, 91]", "schema"),
    "exhausted": ("coordinator = {epsilon = 20.0", "coordinator = {epsilon = 0.01", "budget"),
    "stranger": ("office =", "nobody =", "coordinator"),
    "few rows": ("min_rows = 100", "min_rows = 10000", "data"),
    "kind": ('"mean", ', "", "analysis"),
}


@pytest.mark.one_in(2, seconds=0.4)
@pytest.mark.parametrize("what", POLICIES)
def test_one_site_refuses(world: World, what: str):
    old, new, code = POLICIES[what]
    if what == "stranger":
        new = f'nobody = "{public_text(Identity().public)}" #'
    world.edit(old, new, "d")
    study = world.study(MEAN)
    submission = world.submission(study)
    report = submission.check()
    assert [report[name].ready for name in NAMES] == [True, True, True, False]
    assert f"({code}: " in str(report["d"])
    release = submission.answer(study.analyses[0])
    assert release.participants == NAMES[:3]
    assert world.lines("d") == 0
    strict = world.study(MEAN, min_sites=4, name="strict")
    again = world.submission(strict)
    with pytest.raises(TooFewSites, match=rf"d refused \({code}: ") as raised:
        again.answer(strict.analyses[0])
    if what == "stranger":  # d tells this office nothing: it might have paid, for all that is known
        assert raised.value.sent
        assert again.spent == 1
        world.edit("nobody =", f'office = "{public_text(world.office.public)}"\nnobody =', "d")
        (attempt,) = again.resume()
        assert attempt.failed == 0
    else:
        assert not raised.value.sent
    assert again.spent == 0
    assert world.lines("a") == 1, "nobody paid for it"
    assert str(SECRET) not in str(raised.value)
    assert not any(str(rows) in str(raised.value) for rows in ROWS.values())


def test_a_wrong_key_in_the_roster(world: World):
    path = world.coordinator.path / "sites.toml"
    right = public_text(world.sites["d"].identity.public)
    path.write_text(path.read_text().replace(right, public_text(Identity().public)))
    study = world.study(MEAN)
    submission = world.submission(study)
    report = submission.check()
    assert report["d"].key_differs
    assert "another key than the pinned one" in str(report["d"])
    assert not report["a"].key_differs
    assert "roster" in str(report["a"]), "a knows d by another key, and does not take part with this one"
    with pytest.raises(TooFewSites, match=r"a refused \(roster: "):
        submission.answer(study.analyses[0])
    assert [world.lines(name) for name in NAMES] == [0, 0, 0, 0]


def test_check_tells_who_is_there_and_spends_nothing(world: World):
    study = world.study(MEAN, HISTOGRAM)
    submission = world.submission(study)
    world.channel.deaf["b"] = "request"
    report = submission.check()
    assert str(report["b"]) == "b: is not connected"
    assert str(report["a"]) == "a: would answer"
    assert report["a"].rows == ROWS["a"]
    assert submission.spent == 0
    assert not submission.record.begun
    assert [world.lines(name) for name in NAMES] == [0, 0, 0, 0]


def test_ask_first_then_approve(world: World):
    world.edit('approve = "auto"', 'approve = "ask"', "a", "b")
    study = world.study(MEAN, min_sites=4)
    submission = world.submission(study)
    report = submission.check()
    assert [report[name].held for name in NAMES] == [True, True, False, False]
    with pytest.raises(TooFewSites, match="approval"):
        submission.answer(study.analyses[0])
    assert submission.spent == 0
    for name in "ab":
        approvals = world.sites[name].approvals
        approvals.approve(approvals.find("lungs"), Person("ana"))
    assert all(each.ready for each in submission.check().values())
    assert submission.answer(study.analyses[0]).participants == NAMES


def test_what_a_steward_approves_is_what_is_asked(world: World):
    """A study keeps its hash in the steward's file of JSON, whatever its keys are."""
    loss = 'kind = "polynomial-loss"\ntarget = "weight"\nfeatures = ["age"]\n'
    loss += "coefficients = {1 = [0, -2], 2 = [1]}"
    world.edit('"count", "mean"', '"polynomial-loss", "mean"', *NAMES)
    world.edit('approve = "auto"', 'approve = "ask"', *NAMES)
    study = world.study(loss)
    plain = document(study)
    assert hash_of(json.loads(json.dumps(plain))) == hash_of(plain)
    submission = world.submission(study)
    assert all(each.held for each in submission.check().values())
    for site in world.sites.values():
        site.approvals.approve(site.approvals.find("lungs"), Person("ana"))
    assert submission.answer(study.analyses[0]).participants == NAMES


def test_only_two_schemes_go_across_machines(world: World):
    for scheme in ("cape-gaussian", "pooled", "local", "none"):
        study = world.study(MEAN, scheme=scheme)
        with pytest.raises(InvalidInput, match=f"{scheme!r} cannot be run across machines"):
            world.submission(study)


def test_a_site_without_a_key_is_named(world: World):
    path = world.coordinator.path / "sites.toml"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith('"c"')))
    with pytest.raises(InvalidInput, match=r"no key of 'c' .*cape deploy trust"):
        world.submission(world.study(MEAN))
    world.coordinator.trust(Card("c", world.sites["c"].identity.public))
    world.submission(world.study(MEAN))


def test_two_studies_at_once_cannot_overdraw(world: World):
    """Threads: six studies, and budget for four."""
    mu = gaussian.mu(2.0, 1e-6)
    total = next(e for e in np.arange(3.9, 4.6, 0.01) if gaussian.mu(float(e), 1e-6) ** 2 >= 4 * mu**2)
    for key in ("coordinator", "year"):
        world.edit(f"{key} = {{epsilon = 20.0", f"{key} = {{epsilon = {total:.2f}", *NAMES)
    studies = [world.study(MEAN, name=f"study-{i}", epsilon=2.0, min_sites=4) for i in range(6)]
    submissions = [
        Submission(study, world.coordinator, Relay(LocalChannel(world.members)), world.record())
        for study in studies
    ]
    found: list[object] = []
    start = threading.Barrier(len(studies))

    def run(submission: Submission) -> None:
        start.wait()
        try:
            found.append(submission.answer(submission.study.analyses[0]))
        except TooFewSites as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in submissions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    answered = sum(isinstance(each, Release) for each in found)
    assert answered <= 4
    for name in NAMES:
        spent = world.sites[name].ledger.spent().mu_squared
        assert spent <= Fraction(gaussian.mu(float(f"{total:.2f}"), 1e-6)) ** 2
        assert answered <= world.lines(name) <= 4


_PROCESS = """
import sys
from pathlib import Path
from cape.coordinator import CoordinatorFolder, Record, Relay, Submission
from cape.core.errors import TooFewSites
from cape.site import SiteFolder
from cape.site.endpoint import SiteEndpoint
from cape.study.document import document, hash_of
from cape.study import Study
from tests.channel import LocalChannel
from tests.world import NAMES

folder, which = Path(sys.argv[1]), sys.argv[2]
members = {name: SiteEndpoint(SiteFolder(folder / name)) for name in NAMES}
answered = 0
for number in range(4):
    study = Study.load(folder / f"{which}-{number}.toml")
    record = Record(folder / f"{which}-{number}.jsonl")
    submission = Submission(study, CoordinatorFolder(folder / "office"), Relay(LocalChannel(members)), record)
    try:
        submission.answer(study.analyses[0])
        answered += 1
    except TooFewSites as error:
        assert "budget" in str(error), error
print(answered)
"""


@pytest.mark.slow(4.2)
def test_two_processes_at_once_cannot_overdraw(world: World):
    mu = gaussian.mu(2.0, 1e-6)
    total = next(e for e in np.arange(3.9, 5.2, 0.01) if gaussian.mu(float(e), 1e-6) ** 2 >= 5 * mu**2)
    world.edit("year = {epsilon = 20.0", f"year = {{epsilon = {total:.2f}", *NAMES)
    for which in ("x", "y"):
        for number in range(4):
            world.study(MEAN, name=f"{which}-{number}", epsilon=2.0, min_sites=4)
    command = [sys.executable, "-c", _PROCESS, str(world.folder)]
    root = ROOT
    running = [
        subprocess.Popen([*command, which], cwd=root, stdout=subprocess.PIPE, text=True) for which in "xy"
    ]
    answered = [int(process.communicate()[0]) for process in running]
    assert all(process.returncode == 0 for process in running)
    most = int(gaussian.mu(float(f"{total:.2f}"), 1e-6) ** 2 / mu**2)
    assert most == 5
    for name in NAMES:
        assert sum(answered) <= world.lines(name) <= most
    charged = world.sites["a"].ledger.entries()[0].charged
    assert math.isclose(float(charged.mu_squared), Budget(2.0, 1e-6).mu ** 2)


def test_a_restarted_member_is_another_member(world: World):
    assert isinstance(world.channel.members["a"], SiteEndpoint)
    world.restart("a")
    assert world.channel.members["a"] is not world.members["a"]


@pytest.mark.one_in(3, seconds=0.5)
@pytest.mark.parametrize(
    "lie",
    [
        {"participants": ("a", "b", "c", "x")},
        {"participants": ("a", "a", "b", "c")},
        {"participants": ("a", "b")},
        {"total": b""},
        {"rows": {"a": 1}},
        None,
        "failed",
    ],
)
def test_an_aggregator_that_cannot_be_right_is_not_believed(world: World, lie: Any):
    class Lying:
        lies = True

        def call(self, data: bytes) -> bytes:
            outcome = unpack_reply(world.relay.call(data))
            if not isinstance(outcome, StageOutcome) or not self.lies:
                return pack(outcome)
            if isinstance(lie, dict):
                return pack(msgspec.structs.replace(outcome, **lie))
            return pack(GotHello({}) if lie is None else CallFailed("no"))

    study, link = world.study(f"{MEAN}\nshare = 0.25"), Lying()
    submission = Submission(study, world.coordinator, link, world.record())
    with pytest.raises(ProtocolError, match="aggregator"):
        submission.answer(study.analyses[0])
    assert submission.spent == Fraction(1, 4), "it is spent: the sites' ledgers say so"
    link.lies = False
    assert submission.answer(study.analyses[0]).participants == NAMES, "and asked again, as a new run"
    assert submission.spent == Fraction(1, 2)
    assert world.lines() == 2


class Bending:
    """An aggregator that says that nothing was sent, and bends what sites say of their ledgers."""

    def __init__(self, world: World) -> None:
        self.world, self.asked = world, 0
        self.bend: Callable[[Inquiry, dict[str, Known | None]], dict[str, Known | None]] | None = None

    def call(self, data: bytes) -> bytes:
        call, reply = unpack_call(data), unpack_reply(self.world.relay.call(data))
        if isinstance(reply, StageOutcome):
            reply = StageOutcome(b"", (), {}, {}, {}, (), 0, failure="the line was cut", sent=False)
        if isinstance(call, AskKnown) and isinstance(reply, GotKnown):
            self.asked += 1
            reply = GotKnown(self.bend(call.inquiry, reply.sites)) if self.bend else reply
        return pack(reply)


def test_an_aggregator_that_says_nothing_was_sent_is_not_believed(world: World):
    study, link = world.study(f"{MEAN}\nshare = 0.25"), Bending(world)
    submission = Submission(study, world.coordinator, link, world.record())
    with pytest.raises(TooFewSites, match="the line was cut") as raised:
        submission.answer(study.analyses[0])
    assert raised.value.sent, "the sites' ledgers say so"
    assert (link.asked, submission.spent) == (1, Fraction(1, 4))
    assert submission.record.attempts[0].failed == 1
    assert submission.resume() == []


def test_nothing_was_sent_where_the_sites_say_so(world: World):
    study, link = world.study(f"{MEAN}\nshare = 0.25"), Bending(world)
    world.channel.deaf = dict.fromkeys(NAMES, "message")
    submission = Submission(study, world.coordinator, link, world.record())
    with pytest.raises(TooFewSites) as raised:
        submission.answer(study.analyses[0])
    assert not raised.value.sent
    assert (link.asked, submission.spent) == (1, 0)
    assert submission.record.attempts[0].failed == 0


def _forged(world: World, inquiry: Inquiry, said: Known) -> Known | None:
    return Known(0, False).signed(Identity(), inquiry)


def _turned(world: World, inquiry: Inquiry, said: Known) -> Known | None:
    return msgspec.structs.replace(said, known=False)


def _unsigned(world: World, inquiry: Inquiry, said: Known) -> Known | None:
    return Known(0, False)


def _missing(world: World, inquiry: Inquiry, said: Known) -> Known | None:
    return None


def _other_stage(world: World, inquiry: Inquiry, said: Known) -> Known | None:
    """What the site does say, of a stage that was never asked."""
    other = msgspec.structs.replace(inquiry, stage=7).signed(world.office)
    return world.relay.known(("d",), other)["d"]


def _other_run(world: World, inquiry: Inquiry, said: Known) -> Known | None:
    other = msgspec.structs.replace(inquiry, run=bytes(16)).signed(world.office)
    return world.relay.known(("d",), other)["d"]


def _other_site(world: World, inquiry: Inquiry, said: Known) -> Known | None:
    """What another site would say, which has not paid."""
    return Known(0, False).signed(world.sites["a"].identity, inquiry)


@pytest.mark.one_in(2, seconds=0.3)
@pytest.mark.parametrize(
    "lie", [_forged, _turned, _unsigned, _missing, _other_stage, _other_run, _other_site]
)
def test_what_a_site_did_not_sign_gives_nothing_back(world: World, lie: Any):
    """Only d has paid; the aggregator says that nothing was sent, and hides what d says of it."""
    study, link = world.study(f"{MEAN}\nshare = 0.25"), Bending(world)

    def bend(inquiry: Inquiry, sites: dict[str, Known | None]) -> dict[str, Known | None]:
        assert all(each is not None and each.known == (site == "d") for site, each in sites.items())
        assert sites["d"] is not None
        return sites | {"d": lie(world, inquiry, sites["d"])}

    link.bend = bend
    world.channel.deaf = dict.fromkeys(NAMES[:3], "mask")
    submission = Submission(study, world.coordinator, link, world.record())
    with pytest.raises(TooFewSites) as raised:
        submission.answer(study.analyses[0])
    assert raised.value.sent
    assert [world.lines(name) for name in NAMES] == [0, 0, 0, 1]
    (attempt,) = submission.record.attempts
    assert (attempt.open, submission.spent) == (True, Fraction(1, 4)), "it counts as spent, and stays open"
    (attempt,) = submission.resume()
    assert (attempt.open, submission.spent) == (True, Fraction(1, 4))
    link.bend = None
    (attempt,) = submission.resume()
    assert (attempt.open, attempt.failed, submission.spent) == (False, 1, Fraction(1, 4)), "d says so"


def test_an_aggregator_that_does_not_say_what_sites_know_leaves_it_open(world: World):
    """The reasons of the failure are told all the same."""

    class Silent(Bending):
        silent = True

        def call(self, data: bytes) -> bytes:
            if self.silent and isinstance(unpack_call(data), AskKnown):
                return pack(CallFailed("no"))
            return super().call(data)

    study, link = world.study(f"{MEAN}\nshare = 0.25"), Silent(world)
    world.channel.deaf = dict.fromkeys(NAMES, "message")
    submission = Submission(study, world.coordinator, link, world.record())
    with pytest.raises(TooFewSites, match="the line was cut") as raised:
        submission.answer(study.analyses[0])
    assert raised.value.sent
    assert submission.spent == Fraction(1, 4)
    with pytest.raises(ProtocolError):
        submission.resume()
    link.silent = False
    submission.resume()
    assert submission.spent == 0
