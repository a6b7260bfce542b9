"""Many steps with keys agreed once: right sums whoever is away and whenever, and everyone may come back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import InvalidInput, Refused, TooFewSites
from cape.noise import SecureStream
from cape.secagg import AggregatorState, Identity, Parameters, Roster, Session, SiteState, simulate
from cape.secagg import messages as m
from tests.slices import examples

NAMES = list("abcde")


def vectors(seed: int, names=NAMES, length: int = 3, half: int = 1 << 61) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.integers(-half, half, length) for name in names}


def session(steps: int, names=NAMES, length: int = 3, **choices) -> Session:
    choices = {"colluding": 1, "stream": SecureStream(b"\6" * 32), **choices}
    return Session(names, length, steps, **choices)


def total(given: dict[str, np.ndarray], survivors) -> np.ndarray:
    with np.errstate(over="ignore"):
        return sum((given[name] for name in survivors), np.zeros(3, np.int64))


# --- sums ------------------------------------------------------------------------------------------


@given(data=st.data())
@examples(40)
def test_the_sum_of_every_step_with_anyone_dropping_at_any_round(data):
    bits = data.draw(st.sampled_from([32, 64]))
    sites = data.draw(st.integers(3, 7))
    names = [f"s{number}" for number in range(sites)]
    steps = data.draw(st.integers(1, 6))
    lost = data.draw(st.sampled_from([(), ("s0",)])) if sites > 4 else ()
    run = session(
        steps, names, bits=bits, colluding=0, drop={data.draw(st.sampled_from(m.SETUP_ROUNDS)): lost}
    )
    threshold = run.parameters.threshold
    assert run.setup.sites == tuple(name for name in names if name not in lost)
    for step in range(steps):
        assert run.left == steps - step
        own = vectors(step, names, half=1 << (20 if bits == 32 else 61))
        leave = st.sampled_from([len(m.STEP_ROUNDS)] * 6 + list(range(len(m.STEP_ROUNDS))))
        leaves = {name: data.draw(leave) for name in run.setup.sites}
        drop = {
            round_: [name for name, when in leaves.items() if when == number]
            for number, round_ in enumerate(m.STEP_ROUNDS)
        }
        if data.draw(st.booleans()):  # who drops at the first round may as well have no vector
            for name in drop.pop("mask"):
                del own[name]
        enough = all(sum(when > number for when in leaves.values()) >= threshold for number in range(3))
        if not enough:
            with pytest.raises(TooFewSites):
                run.step(own, drop=drop)
            continue
        outcome = run.step(own, drop=drop)
        assert outcome.survivors == tuple(name for name, when in leaves.items() if when > 0)
        assert np.array_equal(outcome.total, total(own, outcome.survivors))
        assert not outcome.refusals
    assert run.left == 0


@pytest.mark.parametrize("round_", m.STEP_ROUNDS)
def test_a_site_that_was_away_is_back_in_the_next_step(round_):
    run = session(3)
    for step, drop in enumerate([{}, {round_: ["b"]}, {}]):
        own = vectors(step)
        outcome = run.step(own, drop=drop)
        assert ("b" in outcome.survivors) == (drop == {} or round_ != "mask")
        assert np.array_equal(outcome.total, total(own, outcome.survivors))


def test_a_site_that_is_first_heard_of_in_a_late_step_gets_its_shares_then():
    run = session(4)
    for step, away in enumerate(["c", "c", "", ""]):
        own = {name: vector for name, vector in vectors(step).items() if name not in away}
        outcome = run.step(own)
        assert set(outcome.survivors) == set(own)
        assert np.array_equal(outcome.total, total(own, own))
        received = outcome.traffic["mask"].received
        if step == 2:  # c gets all shares; the others only the word that the step begins
            assert received["c"] > 5 * received["a"]
        if step == 3:
            assert received["c"] == received["a"] < 100


def test_a_step_without_enough_sites_fails_alone():
    run = session(4)
    own = vectors(1)
    for drop in ({"mask": ["a", "b"]}, {"consistency": ["a", "b"]}, {"unmask": ["a", "b"]}):
        with pytest.raises(TooFewSites, match="3 of 5 sites were left"):
            run.step(own, drop=drop)
    assert run.left == 1
    assert np.array_equal(run.step(own).total, total(own, NAMES))
    with pytest.raises(Refused, match="all 4 steps of this session are over"):
        run.step(own)


def test_the_last_step_may_fail_too():
    run = session(2)
    run.step(vectors(0))
    with pytest.raises(TooFewSites):
        run.step({})
    assert run.left == 0
    assert run._aggregator.state is AggregatorState.FAILED


def test_a_setup_without_enough_sites_fails():
    with pytest.raises(TooFewSites, match="in the round 'share'"):
        session(3, drop={"share": ["a", "b"]})


def test_sites_lost_in_the_setup_are_out_of_all_steps():
    run = session(2, drop={"share": ["e"]})
    assert run.setup.sites == tuple("abcd")
    for step in range(2):
        own = vectors(step)
        outcome = run.step(own)
        assert outcome.survivors == tuple("abcd")
        assert np.array_equal(outcome.total, total(own, "abcd"))


@pytest.mark.filterwarnings("ignore::cape.core.errors.PrivacyLeakWarning")
def test_steps_on_a_graph_with_others_dropping_in_each():
    names = [f"{number:02d}" for number in range(16)]
    run = session(6, names, colluding=0, dropping=4, neighbours=12)
    for step in range(6):
        own = vectors(step, names)
        gone = {"mask": [names[step]], "consistency": [names[step + 5]], "unmask": [names[step + 10]]}
        outcome = run.step(own, drop=gone)
        assert names[step] not in outcome.survivors
        assert len(outcome.survivors) == 15
        assert np.array_equal(outcome.total, total(own, outcome.survivors))


def test_a_step_that_broke_in_the_middle_is_lost_and_the_next_is_right():
    calls = iter(range(100))

    def hook(batch):
        if batch and batch[0].round == "consistency" and next(calls) == 1:
            raise KeyboardInterrupt
        return batch

    run = session(3, hook=hook)
    with pytest.raises(KeyboardInterrupt):
        run.step(vectors(0))
    assert run.left == 2
    own = vectors(1)
    assert np.array_equal(run.step(own).total, total(own, NAMES))


# --- cost and form ---------------------------------------------------------------------------------


def test_the_setup_is_paid_once_and_grows_with_the_steps():
    few, many = session(2), session(12)
    for run in (few, many):
        assert tuple(run.setup.traffic) == m.SETUP_ROUNDS
        assert run.setup.seconds > 0
        first, second = run.step(vectors(0)), run.step(vectors(1))
        assert tuple(first.traffic) == tuple(second.traffic) == m.STEP_ROUNDS
        assert second.traffic["mask"].received["a"] < 100
    grown = many.setup.traffic["advertise"].sent["a"] - few.setup.traffic["advertise"].sent["a"]
    assert 10 * 32 <= grown <= 10 * 32 + 8
    grown = many.setup.traffic["share"].sent["a"] - few.setup.traffic["share"].sent["a"]
    assert 10 * (32 + 4 * 66) <= grown <= 10 * (32 + 4 * 66) + 30


def test_a_run_of_one_step_is_a_session_of_one_step():
    own = vectors(3)
    seen = {"one": [], "run": []}

    def hook(where):
        return lambda batch: seen[where].extend(batch) or batch

    run = session(1, hook=hook("one"), stream=SecureStream(bytes(32)))
    outcome = run.step(own, drop={"mask": ["d"]})
    whole = simulate(own, colluding=1, drop={"mask": ["d"]}, hook=hook("run"), stream=SecureStream(bytes(32)))
    assert seen["one"] == seen["run"]
    assert np.array_equal(outcome.total, whole.total)
    assert whole.traffic == run.setup.traffic | outcome.traffic


def test_a_session_with_a_key_can_be_repeated():
    def wires(seed: int):
        seen = []
        run = session(
            2, hook=lambda batch: seen.extend(batch) or batch, stream=SecureStream(bytes([seed]) * 32)
        )
        run.step(vectors(0))
        run.step(vectors(0))
        return [wire.data for wire in seen]

    assert wires(1) == wires(1)
    assert not set(wires(1)) & set(wires(2))


def test_a_session_says_where_it_is():
    run = session(3)
    run.step(vectors(0))
    assert repr(run) == "Session(5 sites, 2 of 3 steps left)"


def test_what_was_refused_in_the_setup_is_noted_when_a_step_fails():
    def hook(batch):
        if batch and batch[0].round == "share" and batch[0].sender == "":
            return [
                type(w)(w.round, w.sender, w.receiver, w.data[:-1]) if w.receiver == "a" else w for w in batch
            ]
        return batch

    run = session(2, hook=hook)
    assert run.setup.refusals[0][0] == "a"
    with pytest.raises(TooFewSites) as caught:
        run.step(vectors(0), drop={"mask": ["b"]})
    assert caught.value.__notes__[0].startswith("a refused a message")


@pytest.mark.parametrize(
    ("given", "drop", "match"),
    [
        ({**vectors(0), "z": np.zeros(3, np.int64)}, {}, "'z', which is not a site"),
        ({**vectors(0), "a": np.zeros(4, np.int64)}, {}, "shape"),
        ({**vectors(0), "a": np.zeros(3)}, {}, "int64"),
        (vectors(0), {"share": ["a"]}, "rounds out of mask, consistency, unmask"),
        (vectors(0), {"mask": ["z"]}, "'z', which is not a site"),
    ],
)
def test_wrong_use_of_a_step_does_not_use_it_up(given, drop, match):
    run = session(2)
    with pytest.raises(InvalidInput, match=match):
        run.step(given, drop=drop)
    assert run.left == 2
    own = vectors(1)
    assert np.array_equal(run.step(own).total, total(own, NAMES))


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 1 << 17}, "steps"),
        ({"steps": 2, "drop": {"mask": ["a"]}}, "rounds"),
    ],
)
def test_wrong_use_of_a_session(choices, match):
    with pytest.raises(InvalidInput, match=match):
        session(**choices)


def test_the_number_of_steps_is_part_of_what_is_agreed():
    roster = Roster.of({name: Identity(name.encode() * 32).public for name in NAMES})
    one, two = (Parameters.agree(bytes(16), roster, 3, colluding=0, steps=steps) for steps in (1, 2))
    assert one.digest() != two.digest()
    assert Parameters.agree(bytes(16), roster, 3, colluding=0).steps == 1


def test_more_steps_ask_for_a_graph_that_fails_less_often():
    roster = Roster.of({str(n): n.to_bytes(32, "big") for n in range(200)})
    few, many = (
        Parameters.agree(bytes(16), roster, 3, colluding=66, dropping=10, lying=False, steps=steps)
        for steps in (1, 1000)
    )
    assert few.neighbours < many.neighbours < 199


# --- nothing is kept -------------------------------------------------------------------------------


def test_a_site_forgets_vectors_and_the_secrets_of_steps_that_are_over_or_were_missed(cast):
    play = cast(steps=6).until("end")
    site = play.sites["a"]
    assert site._vector is None
    assert site._chain.step == 1
    assert {held.step for held in site._held.values()} == {1}
    play.step(3)
    assert site._chain.step == 3  # steps 1 and 2 are gone before anything of step 3 is sent
    assert {held.step for held in site._held.values()} == {3}
    play.rounds(until="unmask")
    assert site._vector is None
    assert site._chain.step == 4
    play.deliver(play.answers())
    assert {held.step for held in site._held.values()} == {4}
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


def test_a_site_that_first_hears_of_a_late_step_keeps_no_shares_of_earlier_ones(cast):
    play = cast(steps=4).until("mask", {})
    play.step(2)
    play.rounds(until="unmask")
    site = play.sites["a"]
    assert {held.step for held in site._held.values()} == {2}
    play.deliver(play.answers())
    assert play.finished.step == 2
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


def test_the_memory_of_a_session_does_not_grow_with_its_steps():
    run = session(30)
    sizes = []
    for step in range(30):
        run.step(vectors(step))
        sizes.append(len(run._verifier._good))
    assert max(sizes) == sizes[0]
    assert not run._aggregator._undelivered
    assert all(not held._rest for site in run._driver._sites.values() for held in site._held.values())


def test_after_the_last_step_machines_are_done(cast):
    play = cast(steps=2).until("end")
    assert play.aggregator.state is AggregatorState.READY
    play.step(1).rounds()
    assert play.aggregator.state is AggregatorState.DONE
    assert {site.state for site in play.sites.values()} == {SiteState.DONE}
    with pytest.raises(Refused, match="waits for nothing"):
        play.aggregator.begin()
