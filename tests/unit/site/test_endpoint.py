"""A site's end of the wire: pays first, answers once, and says nothing that it should not."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from cape import secagg
from cape.engine.session import StageResult
from cape.secagg import Aggregator, Identity, Send
from cape.secagg import messages as m
from cape.site import Request, SiteFolder, read, wire
from cape.site.endpoint import SiteEndpoint
from cape.site.persons import Person
from tests.world import ROWS, SECRET, THREE, World, ask, document

SEX = {"kind": "histogram", "column": "sex", "share": 0.25}
NETWORK = {"kind": "neural-network", "target": "ill", "features": ["sex"], "hidden": [2], "epochs": 4}
"""Of categories: no cells outside bounds are counted in its first stage, and all have the same length."""


class Table:
    """The sites' members, and an aggregator that a test plays by hand."""

    def __init__(self, world: World, request: Request, names: tuple[str, ...] = THREE) -> None:
        self.world, self.request = world, request
        self.members = {name: SiteEndpoint(world.sites[name]) for name in THREE}
        self.size = read(request.study, request.number).session().calibrate()[0].size
        self.number = 0

    def say(self, name: str, message: Any) -> wire.FromSite:
        """Carry a message, as bytes; whatever comes back may not say too much."""
        self.number += 1
        data = wire.pack(msgspec.structs.replace(message, number=self.number))
        answer = self.members[name].handle(data)
        found = wire.unpack_from_site(answer)
        assert found.number == self.number
        if isinstance(found, wire.Refused):
            sentence = re.sub("[0-9a-f]{32}", "", found.sentence)  # names of runs
            for word in (str(SECRET), "400", "Traceback", "/", "\n"):
                assert word not in sentence, sentence
        return found

    def ask(self, name: str, request: Request | None = None, opening: bytes = b"") -> wire.FromSite:
        return self.say(name, wire.Ask(0, (request or self.request).pack(), opening))

    def carry(self, name: str, data: bytes, session: bytes | None = None) -> wire.FromSite:
        return self.say(name, wire.Carry(0, session or self.request.session, data))

    def open(self, request: Request | None = None) -> dict[str, bytes]:
        """Agree on keys; return what opens the first step for each site."""
        request = request or self.request
        asked = read(request.study, request.number)
        self.aggregator = Aggregator(request.parameters(asked.setting.parties, self.size))
        events: tuple[Any, ...] = ()
        for name in THREE:
            offered = self.ask(name, request)
            assert isinstance(offered, wire.Offered), offered
            events += self.aggregator.handle(offered.data)
        self.deliver(events)
        return {event.to: event.data for event in self.aggregator.begin() if isinstance(event, Send)}

    def deliver(self, events: Any) -> tuple[Any, ...]:
        """Carry what the aggregator sends, and return what it says to the answers."""
        found: tuple[Any, ...] = ()
        for event in events:
            if isinstance(event, Send):
                carried = self.carry(event.to, event.data)
                assert isinstance(carried, wire.Carried), carried
                found += self.aggregator.handle(carried.data)
        return found

    def lines(self, name: str = "a") -> int:
        return len(self.world.sites[name].ledger.entries())


@pytest.fixture
def table(world: World) -> Table:
    return Table(world, world.request(document(analyses=[SEX])))


def code(answer: wire.FromSite) -> str:
    assert isinstance(answer, wire.Refused), answer
    return answer.code


def test_the_whole_way(table: Table):
    openings = table.open()
    assert [table.lines(name) for name in THREE] == [0, 0, 0], "keys are free"
    events = table.deliver([Send(name, data) for name, data in openings.items()])
    assert [table.lines(name) for name in THREE] == [1, 1, 1], "a vector is paid for"
    (finished,) = [e for e in table.deliver(table.deliver(events)) if isinstance(e, secagg.Finished)]
    scale = read(table.request.study, 1)
    step = scale.session().calibrate()[0].steps[0].size
    assert finished.total.sum() * step == pytest.approx(sum(ROWS[name] for name in THREE), abs=400)
    assert not table.members["a"]._sessions, "forgotten when over"
    assert code(table.ask("a")) == "run"


def test_hello(table: Table, world: World):
    present = table.say("a", wire.Hello(0))
    assert isinstance(present, wire.Present)
    assert (present.name, present.key) == ("a", world.identities["a"].public)


def test_a_review_says_what_would_be_answered_and_pays_nothing(table: Table, world: World):
    study = document(
        analyses=[SEX | {"share": 0.5}, SEX | {"share": 0.1, "column": "hiv"}, SEX | {"share": 0.5}]
    )

    def trial(number: int) -> bytes:
        return replace(world.request(study, number=number), trial=True).signed(world.office).pack()

    trials = tuple(trial(number) for number in (1, 2, 3))
    found = table.say("a", wire.Review(0, trials))
    assert isinstance(found, wire.Reviewed)
    assert [each and each.code for each in found.refusals] == [None, "column", None]
    assert found.rows == 400
    # each alone would do, and together they are too dear
    world.edit("coordinator = {epsilon = 2.0", "coordinator = {epsilon = 0.8")
    found = table.say("a", wire.Review(0, trials))
    assert isinstance(found, wire.Reviewed)
    assert [each and each.code for each in found.refusals] == [None, "column", "budget"]
    assert found.refusals[2] is not None
    assert "of this coordinator for this year" in found.refusals[2].sentence
    assert "would refuse analysis 3 of 'lungs'" in (world.site.path / "site.log").read_text()
    assert table.lines() == 0
    assert code(table.say("a", wire.Ask(0, trials[0]))) == "request", "a trial is never answered"
    assert table.lines() == 0
    assert (
        code(table.ask("a", replace(Request.open(trials[0], lambda key: True), trial=False))) == "signature"
    )


def test_a_review_counts_what_the_study_itself_states(table: Table, world: World):
    def review(study: dict[str, Any]) -> list[str | None]:
        trials = (
            replace(world.request(study, number=n), trial=True).signed(world.office).pack() for n in (1, 2)
        )
        found = table.say("a", wire.Review(0, tuple(trials)))
        assert isinstance(found, wire.Reviewed)
        return [each and each.sentence for each in found.refusals]

    own = "the budget that the study itself states (earlier submissions count) does not cover this release"
    study = document(analyses=[SEX | {"share": 0.6}, SEX | {"share": 0.6}])
    assert review(study) == [None, own], "it says more than it states"
    study = document(analyses=[SEX | {"share": 0.5}, SEX | {"share": 0.5}])
    assert review(study) == [None, None]
    world.granted(world.request(study))
    assert review(study) == [None, own], "asked again as a whole"
    assert review(study | {"name": "another"}) == [None, None]


def test_a_trial_cannot_be_reserved_either(world: World):
    request = replace(world.request(), trial=True).signed(world.office)
    assert world.code(request) == "request"


def test_rows_stay_private_where_they_are(world: World):
    world.hide_sizes()
    study = document(neighbours="add-remove", analyses=[SEX])
    table = Table(world, world.request(study))
    offered = table.ask("a")
    assert isinstance(offered, wire.Offered)
    assert offered.rows is None
    reviewed = table.say("a", wire.Review(0, (world.request(study, trial=True).pack(),)))
    assert isinstance(reviewed, wire.Reviewed)
    assert reviewed.refusals == (None,)
    assert reviewed.rows is None


def test_what_was_signed_to_be_answered_is_not_looked_at(world: World):
    table = Table(world, world.request(document(analyses=[SEX])))
    reviewed = table.say("a", wire.Review(0, (table.request.pack(),)))
    assert isinstance(reviewed, wire.Reviewed)
    assert [str(each.code) for each in reviewed.refusals if each] == ["request"]
    assert reviewed.rows is None


def test_conventional_is_paid_before_it_is_answered(world: World):
    table = Table(world, world.request(document(scheme="conventional", analyses=[SEX])))
    offered = table.ask("a")
    assert isinstance(offered, wire.Offered)
    assert len(offered.data) == 8 * table.size
    assert table.lines() == 1
    assert code(table.ask("a")) == "run"
    table.members["a"] = SiteEndpoint(SiteFolder(world.site.path))
    assert code(table.ask("a")) == "run"
    assert table.lines() == 1


def test_what_asks_nothing_of_the_table_needs_no_masks(world: World):
    table = Table(world, world.request(document(analyses=[{"kind": "count", "share": 0.5}])))
    offered = table.ask("a")
    assert isinstance(offered, wire.Offered)
    assert (offered.rows, offered.data) == (400, b"")
    assert world.site.ledger.spent().mu_squared == 0


def test_a_session_is_opened_once(table: Table, world: World):
    assert isinstance(table.ask("a"), wire.Offered)
    assert code(table.ask("a")) == "run"
    table.members["a"] = SiteEndpoint(SiteFolder(world.site.path))  # after a restart too
    assert code(table.ask("a")) == "run"
    anew = table.request.signed(world.office)  # with another nonce, so that it is a new request
    assert anew.session == table.request.session
    assert code(table.ask("a", anew)) == "run", "the session's name was used"
    assert code(table.carry("a", b"anything")) == "run"
    assert table.lines() == 0


def test_another_request_for_the_same_run_is_refused(table: Table, world: World):
    openings = table.open()
    other = world.request(document(analyses=[SEX | {"share": 0.5}]), run=table.request.run)
    assert code(table.ask("a", other)) == "run", "before it is paid for"
    table.deliver([Send("a", openings["a"])])
    assert code(table.ask("a", other)) == "run", "and after"
    assert table.lines() == 1


def test_a_message_twice_gives_one_answer(table: Table):
    openings = table.open()
    first = table.carry("a", openings["a"])
    assert isinstance(first, wire.Carried)
    assert code(table.carry("a", openings["a"])) == "run"
    assert code(table.carry("a", b"\x93garbage")) == "request"
    assert table.lines() == 1


def test_wrong_messages_cost_nothing_and_the_right_one_is_still_welcome(table: Table):
    openings = table.open()
    for wrong in (b"", b"garbage", openings["b"][:-1]):
        assert code(table.carry("a", wrong)) == "request"
    survivors = m.pack(
        m.Survivors(
            m.VERSION, table.request.session, bytes(32), round=4, step=0, survivors=(0, 1, 2), dropped=()
        )
    )
    assert code(table.carry("a", survivors)) == "run"
    assert code(table.carry("a", openings["a"], session=bytes(16))) == "run"
    assert table.lines() == 0
    assert isinstance(table.carry("a", openings["a"]), wire.Carried)


def test_shares_meant_for_another_are_paid_once_at_most(table: Table):
    openings = table.open()
    assert code(table.carry("a", openings["b"])) == "request", "sealed for another site"
    assert isinstance(table.carry("a", openings["a"]), wire.Carried)
    assert table.lines() == 1


def test_a_second_delivery_with_other_sharers_is_refused(table: Table):
    openings = table.open()
    told = msgspec.msgpack.decode(openings["a"])
    place = next(i for i, part in enumerate(told) if part == [0, 1, 2])
    told[place] = [0, 1]
    told[-1] = told[-1][:1]
    lie = msgspec.msgpack.encode(told)
    assert isinstance(table.carry("a", openings["a"]), wire.Carried)
    assert code(table.carry("a", lie)) == "run"
    assert table.lines() == 1


def test_two_lists_of_survivors_get_one_signature(world: World):
    study = document(analyses=[SEX])
    table = Table(world, world.request(study))
    events = table.deliver([Send(name, data) for name, data in table.open().items()])
    honest = next(event.data for event in events if isinstance(event, Send) and event.to == "a")
    told = msgspec.msgpack.decode(honest)
    lie = msgspec.msgpack.encode([*told[:-2], [0, 1], [2]])
    assert code(table.carry("a", lie)) == "run", "below its threshold"
    assert isinstance(table.carry("a", honest), wire.Carried)
    assert code(table.carry("a", lie)) == "run"
    assert code(table.carry("a", honest)) == "run"


def test_a_budget_that_is_spent_meanwhile_stops_the_vector(table: Table, world: World):
    world.edit("coordinator = {epsilon = 2.0", "coordinator = {epsilon = 0.8")
    openings = table.open()
    dear = world.request(document(analyses=[SEX | {"share": 0.5}]))
    world.granted(dear)  # somebody else was quicker
    late = table.carry("a", openings["a"])
    assert code(late) == "budget"
    assert isinstance(late, wire.Refused)
    assert "of this coordinator for this year" in late.sentence
    assert table.lines() == 1
    assert isinstance(table.carry("b", openings["b"]), wire.Carried)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("2999-12-31", "2020-01-31"), "expired"),
        (('approve = "auto"', 'approve = "ask"'), "approval"),
        (("min_rows = 100", "min_rows = 1000"), "data"),
    ],
)
def test_the_policy_that_counts_is_the_one_when_it_pays(table: Table, world: World, change, expected):
    openings = table.open()
    world.edit(*change)
    assert code(table.carry("a", openings["a"])) == expected
    assert table.lines() == 0


def test_a_steward_may_refuse_a_study_that_runs(table: Table, world: World):
    world.site.approvals.hold(table.request)
    world.site.approvals.approve(world.site.approvals.find("lungs"), Person("ana"))
    openings = table.open()
    world.site.approvals.refuse(world.site.approvals.find("lungs", to="refuse"), Person("ana"))
    assert code(table.carry("a", openings["a"])) == "steward"
    assert table.lines() == 0


def test_a_table_that_breaks_when_it_is_read_says_so_and_nothing_else(table: Table, world: World):
    openings = table.open()
    path = world.site.path / "rows.csv"
    path.write_text(path.read_text().replace(",sex,", ",gender,", 1))
    assert code(table.carry("a", openings["a"])) == "data"
    assert code(table.carry("a", openings["a"])) == "run"
    assert table.lines() == 1, "paid for: how it failed could tell something"


@pytest.fixture
def descent(world: World) -> Table:
    """A session of several steps: stages 1 to 3 of a network."""
    study = document(analyses=[NETWORK | {"share": 1.0}])
    table = Table(world, world.request(study))
    table.talk, table.study = read(study, 1).session(), study  # type: ignore[attr-defined]
    table.size = table.talk.calibrate()[0].size  # type: ignore[attr-defined]
    return table


def _stages(table: Any, world: World, stage: int, **more: Any) -> Request:
    """The request of a stage in the session that stage 0 opened, answers made up."""
    talk = read(table.study, 1).session()
    history = []
    for _ in range(stage):
        history.append(StageResult.of(np.zeros(talk.calibrate()[0].size, np.int64), 3, 1200))
        talk.tell(history[-1])
    wanted = {"first": 0, "steps": 4, "earlier": tuple(history)} | more
    return world.request(table.study, run=bytes(range(16)), talk=talk, **wanted)


def _finish_step(table: Table, openings: dict[str, bytes], request: Request, stage: int) -> None:
    events: tuple[Any, ...] = ()
    for name, opening in openings.items():
        answer = table.carry(name, opening) if not stage else table.ask(name, request, opening)
        assert isinstance(answer, wire.Carried if not stage else wire.Offered), answer
        events += table.aggregator.handle(answer.data)
    table.deliver(table.deliver(events))


def test_a_session_goes_on_stage_after_stage(descent: Any, world: World):
    first = descent.request = _stages(descent, world, 0)
    _finish_step(descent, descent.open(first), first, 0)
    for stage in (1, 3):  # a step may be left out
        request = _stages(descent, world, stage)
        openings = {e.to: e.data for e in descent.aggregator.begin(stage) if isinstance(e, Send)}
        _finish_step(descent, openings, request, stage)
    assert [line.stage for line in world.site.ledger.entries()] == [0, 1, 3]
    assert not descent.members["a"]._sessions
    assert code(descent.ask("a", _stages(descent, world, 2), openings["a"])) == "run"
    assert descent.lines() == 3


def test_a_run_goes_on_in_another_session(descent: Any, world: World):
    first = descent.request = _stages(descent, world, 0)
    _finish_step(descent, descent.open(first), first, 0)
    again = _stages(descent, world, 1, first=1, steps=3)
    assert again.session != first.session
    assert isinstance(descent.ask("a", again), wire.Offered), (
        "keys are agreed anew, for the stages that are left"
    )


def test_rows_are_those_of_the_policy_as_it_is_now(world: World):
    request = world.request(document(analyses=[SEX]))
    table = Table(world, request)
    assert table.ask("a", request).rows == 400  # type: ignore[union-attr]
    lines = (world.site.path / "rows.csv").read_text().splitlines()
    (world.site.path / "others.csv").write_text("\n".join(lines[:301]) + "\n")
    world.edit('"rows.csv"', '"others.csv"')
    assert table.ask("a", world.request(document(analyses=[SEX]))).rows == 300  # type: ignore[union-attr]


def test_a_stage_is_answered_once_whatever_came_before_it(descent: Any, world: World):
    first = descent.request = _stages(descent, world, 0)
    _finish_step(descent, descent.open(first), first, 0)
    openings = {e.to: e.data for e in descent.aggregator.begin(1) if isinstance(e, Send)}
    request = _stages(descent, world, 1)
    assert isinstance(descent.ask("a", request, openings["a"]), wire.Offered)
    other = (StageResult.of(np.ones(descent.size, np.int64), 3, 1200),)
    assert code(descent.ask("a", _stages(descent, world, 1, earlier=other), openings["a"])) == "run"
    assert code(descent.ask("a", request, openings["a"])) == "run"
    assert descent.lines() == 2


def test_a_stage_needs_its_session_and_its_opening(descent: Any, world: World):
    first = descent.request = _stages(descent, world, 0)
    _finish_step(descent, descent.open(first), first, 0)
    openings = {e.to: e.data for e in descent.aggregator.begin(1) if isinstance(e, Send)}
    assert code(descent.ask("a", _stages(descent, world, 1), b"")) == "request"
    assert code(descent.ask("a", _stages(descent, world, 1), b"garbage")) == "request"
    request = _stages(descent, world, 1)
    assert code(descent.ask("a", _stages(descent, world, 2), openings["a"])) == "run", "another step's"
    assert code(descent.ask("a", _stages(descent, world, 1, steps=3), openings["a"])) == "run"
    dear = dict(descent.study, analyses=[NETWORK | {"share": 0.5}])
    talk = read(dear, 1).session()
    earlier = (StageResult.of(np.zeros(descent.size, np.int64), 3, 1200),)
    talk.tell(earlier[0])
    bent = world.request(dear, run=bytes(range(16)), talk=talk, first=0, steps=4, earlier=earlier)
    assert code(descent.ask("a", bent, openings["a"])) == "run", "the session was opened for something else"
    assert descent.lines() == 1
    descent.members["a"] = SiteEndpoint(world.site)
    assert code(descent.ask("a", request, openings["a"])) == "run", "a site that died is out of the session"
    assert descent.lines() == 1


def test_sessions_do_not_pile_up(table: Table, world: World):
    for _ in range(40):
        assert isinstance(table.ask("a", world.request(document(analyses=[SEX]))), wire.Offered)
    assert len(table.members["a"]._sessions) == 32


def test_nobody_opens_or_ends_the_sessions_of_another(table: Table, world: World):
    """Neither by opening many, nor by taking the name of the run first, or later with another first stage."""
    openings = table.open()
    study = document(analyses=[SEX])
    for _ in range(40):
        theirs = ask(study, world.roster, world.other)
        assert isinstance(table.ask("a", theirs), wire.Offered)
    theirs = ask(document(), world.roster, world.other, run=table.request.run)
    assert theirs.session != table.request.session
    assert isinstance(table.ask("a", theirs), wire.Offered)
    assert isinstance(table.carry("a", openings["a"]), wire.Carried)


def test_an_inquiry_closes_the_run(table: Table, world: World):
    openings = table.open()
    table.carry("a", openings["a"])
    run = table.request.run

    def known(identity: Identity, stage: int = 0, name: str = "a") -> wire.FromSite:
        inquiry = wire.Inquiry(0, run, stage, identity.public).signed(identity)
        found = table.say(name, inquiry)
        if isinstance(found, wire.Known):
            found.verify(world.identities[name].public, inquiry)
        return found

    stranger = Identity()
    assert code(known(stranger)) == "coordinator"
    forged = wire.Inquiry(0, run, 0, world.office.public, bytes(64))
    assert code(table.say("b", forged)) == "signature"
    assert known(world.office).known is True  # type: ignore[union-attr]
    assert known(world.office, stage=1).known is False  # type: ignore[union-attr]
    assert known(world.office, name="b").known is False  # type: ignore[union-attr]
    assert code(table.carry("b", openings["b"])) == "run", "what was said not to be paid for never will be"
    assert table.lines("b") == 0
    assert known(world.office, name="b").known is False  # type: ignore[union-attr]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 40, bytes(5000), b"\x92\xa5hello\xff"])
def test_garbage_is_refused(table: Table, data: bytes):
    found = wire.unpack_from_site(table.members["a"].handle(data))
    assert isinstance(found, wire.Refused)
    assert (found.number, found.code) == (0, "request")


def test_a_failure_inside_says_nothing_to_others(table: Table, world: World, monkeypatch: pytest.MonkeyPatch):
    def broken(*arguments: object) -> None:
        raise RuntimeError(f"cell {SECRET} of /secret/path")

    monkeypatch.setattr(SiteFolder, "consider", broken)
    assert code(table.ask("a")) == "site"
    log = (world.site.path / "site.log").read_text()
    assert "RuntimeError" in log
    assert str(SECRET) not in log
    monkeypatch.setattr(SiteFolder, "log", lambda self, line: (_ for _ in ()).throw(OSError()))
    assert code(table.ask("a")) == "site", "even if nothing can be written"


def test_a_narrow_ring_is_refused_before_it_could_tell_something(world: World):
    world.hide_sizes()
    study = document(neighbours="add-remove", analyses=[SEX])  # as many rows as there may ever be
    good = world.request(study)
    assert world.code(replace(good, bits=32).signed(world.office)) == "request"
    world.granted(good)


def test_threads_get_one_vector(world: World):
    request = world.request(document(scheme="conventional", analyses=[SEX]))
    table = Table(world, request)
    data = wire.pack(wire.Ask(1, request.pack()))
    found: list[bytes] = []
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait()
        found.append(table.members["a"].handle(data))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = sorted(type(wire.unpack_from_site(each)).__name__ for each in found)
    assert kinds == ["Offered", "Refused", "Refused", "Refused"]
    assert table.lines() == 1


def test_threads_in_one_session_get_one_masked_vector(table: Table):
    data = wire.pack(wire.Carry(1, table.request.session, table.open()["a"]))
    found: list[bytes] = []
    start = threading.Barrier(4)

    def carry() -> None:
        start.wait()
        found.append(table.members["a"].handle(data))

    threads = [threading.Thread(target=carry) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = sorted(type(wire.unpack_from_site(each)).__name__ for each in found)
    assert kinds == ["Carried", "Refused", "Refused", "Refused"]
    assert table.lines() == 1
