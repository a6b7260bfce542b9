"""Whatever happens to a message: an exception from the tree, or a right sum. Never a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import CapeError
from cape.noise import SecureStream
from cape.secagg import AGGREGATOR, ROUNDS, Session, Wire, simulate
from tests.slices import examples

NAMES = ("a", "b", "c", "d")
RANDOM = np.random.default_rng(5)
VECTORS = {name: RANDOM.integers(10**9, 10**12, 3) for name in NAMES}
Tamper = Callable[[list[Wire], int], list[Wire]]


def run(hook=None, seed: int = 1, **choices):
    choices = {"colluding": 0, "drop": {"mask": ["d"]}, **choices}
    return simulate(VECTORS, hook=hook, stream=SecureStream(seed.to_bytes(32, "big")), **choices)


def outcome_is_right_or_in_the_tree(hook, **choices) -> bool:
    """Return whether there was a sum. Errors and refusals may not show an entry of a vector."""
    try:
        outcome = run(hook, **choices)
    except CapeError as error:
        texts = [str(error), *getattr(error, "__notes__", ())]
    else:
        expected = sum(VECTORS[name] for name in outcome.survivors)
        assert np.array_equal(outcome.total, expected)
        assert len(outcome.survivors) >= outcome.parameters.threshold
        texts = [why for _, why in outcome.refusals]
    entries = [str(entry) for vector in VECTORS.values() for entry in vector]
    assert not [text for text in texts for entry in entries if entry in text]
    return "outcome" in locals()


def record(**choices) -> list[list[Wire]]:
    batches: list[list[Wire]] = []

    def hook(batch):
        batches.append(batch)
        return batch

    run(hook, **choices)
    return batches


HONEST = record()
FOREIGN = record(seed=2)


def on(number: int, tamper: Callable[[list[Wire]], list[Wire]]):
    """Return a hook that tampers with one batch: a round in one direction."""
    count = iter(range(100))
    return lambda batch: tamper(list(batch)) if next(count) == number else batch


def flipped(wire: Wire, at: float, bit: int = 0) -> Wire:
    data = bytearray(wire.data)
    data[int(at * (len(data) - 1))] ^= 1 << bit
    return replace(wire, data=bytes(data))


def change(index: int, new: Callable[[Wire], list[Wire]]):
    return lambda batch: batch[:index] + new(batch[index]) + batch[index + 1 :]


CASES = [(number, index) for number, batch in enumerate(HONEST) for index in range(len(batch))]
LABELS = [
    f"{HONEST[number][index].round}-{HONEST[number][index].sender or 'to-'}{HONEST[number][index].receiver}"
    for number, index in CASES
]


def test_an_honest_run_gives_the_sum():
    assert np.array_equal(run().total, sum(VECTORS[name] for name in "abc"))
    assert len(CASES) == 4 + 2 * 4 + (4 + 3) + 2 * 3 + 2 * 3


@pytest.mark.one_in(3, seconds=0.1)
@pytest.mark.parametrize(("number", "index"), CASES, ids=LABELS)
def test_one_message_changed(number, index):
    for where in (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        for bit in (0, 7):
            tamper = change(index, lambda wire, w=where, b=bit: [flipped(wire, w, b)])
            outcome_is_right_or_in_the_tree(on(number, tamper))


@pytest.mark.parametrize(("number", "index"), CASES, ids=LABELS)
def test_one_message_truncated_extended_emptied_dropped_or_repeated(number, index):
    for new in (
        lambda wire: [replace(wire, data=wire.data[:-1])],
        lambda wire: [replace(wire, data=wire.data[: len(wire.data) // 2])],
        lambda wire: [replace(wire, data=wire.data + b"\0")],
        lambda wire: [replace(wire, data=b"")],
        lambda wire: [],
        lambda wire: [wire, wire],
        lambda wire: [wire, flipped(wire, 0.7)],
        lambda wire: [flipped(wire, 0.7), wire],
    ):
        outcome_is_right_or_in_the_tree(on(number, change(index, new)))


def test_a_repeated_message_does_no_harm():
    for number, index in CASES:
        assert outcome_is_right_or_in_the_tree(on(number, change(index, lambda wire: [wire, wire])))


@pytest.mark.quick_cases("mask-to-d", "consistency-to-a", "mask-c", "share-d", "share-to-d", seconds=0.28)
@pytest.mark.parametrize(("number", "index"), CASES, ids=LABELS)
def test_one_message_replaced_by_any_other_of_this_or_another_run(number, index):
    for batches in (HONEST, FOREIGN):
        for batch in batches:
            for other in batch:
                tamper = change(index, lambda wire, o=other: [replace(wire, data=o.data)])
                outcome_is_right_or_in_the_tree(on(number, tamper))


def test_two_messages_swapped_between_sites():
    for number, batch in enumerate(HONEST):
        for i in range(len(batch)):
            for j in range(i):

                def swap(wires, i=i, j=j):
                    one, two = wires[i], wires[j]
                    wires[i] = replace(one, data=two.data)
                    wires[j] = replace(two, data=one.data)
                    return wires

                outcome_is_right_or_in_the_tree(on(number, swap))


def test_a_round_in_reverse_order_is_harmless():
    for number in range(len(HONEST)):
        assert outcome_is_right_or_in_the_tree(on(number, lambda batch: batch[::-1]))


def test_a_message_that_is_a_round_or_two_late():
    for number, index in CASES:
        for later in (1, 2, 3):
            held: list[Wire] = []
            count = iter(range(100))

            def hook(batch, count=count, held=held, number=number, index=index, later=later):
                here = next(count)
                if here == number:
                    held.append(batch[index])
                    return batch[:index] + batch[index + 1 :]
                return batch + held if here == number + later else batch

            outcome_is_right_or_in_the_tree(hook)


def test_a_late_message_to_the_wrong_side_is_only_refused():
    down = [wire for batch in HONEST for wire in batch if wire.sender == AGGREGATOR]
    assert down
    for wire in down:
        stray = replace(wire, receiver=AGGREGATOR)
        assert outcome_is_right_or_in_the_tree(on(4, lambda batch, s=stray: [s, *batch]))


@given(data=st.data())
@examples(150)
def test_any_mischief_in_any_round(data):
    """Many messages at once: dropped, repeated, changed, replaced, reordered."""

    def hook(batch):
        out = []
        for wire in batch:
            kind = data.draw(st.sampled_from(["keep"] * 12 + ["drop", "twice", "flip", "foreign"]))
            if kind == "flip":
                wire = flipped(wire, data.draw(st.floats(0, 1)), data.draw(st.integers(0, 7)))
            elif kind == "foreign":
                other = data.draw(st.sampled_from([*HONEST, *FOREIGN]))
                wire = replace(wire, data=data.draw(st.sampled_from(other)).data)
            out += {"drop": 0, "twice": 2}.get(kind, 1) * [wire]
        return data.draw(st.permutations(out))

    outcome_is_right_or_in_the_tree(hook, drop={}, threshold=3)


# --- many steps ------------------------------------------------------------------------------------

STEPS = 3


def steps_are_right_or_in_the_tree(hook, seed: int = 1) -> list[bool]:
    """Play a session in which another site drops in each step; return in which steps there was a sum."""
    stream, done = SecureStream(seed.to_bytes(32, "big")), []
    try:
        session = Session(NAMES, 3, STEPS, colluding=0, stream=stream, hook=hook)
    except CapeError:
        return []
    for step in range(STEPS):
        own = {name: vector + step for name, vector in VECTORS.items()}
        try:
            outcome = session.step(own, drop={"mask": [NAMES[step]]})
        except CapeError:
            done.append(False)
        else:
            assert np.array_equal(outcome.total, sum(own[name] for name in outcome.survivors))
            assert len(outcome.survivors) >= session.parameters.threshold
            done.append(True)
    return done


def record_steps(seed: int) -> list[list[Wire]]:
    batches: list[list[Wire]] = []
    assert (
        steps_are_right_or_in_the_tree(lambda batch: batches.append(batch) or batch, seed) == [True] * STEPS
    )
    return batches


SESSION = record_steps(1)


def test_a_message_of_one_step_in_another_does_no_harm_at_all():
    """Each message of a step comes once more in every later batch: all sums are still there."""
    steps = SESSION[3:]  # after the setup
    for number, batch in enumerate(steps):
        for wire in batch:
            extra = [wire]
            count = iter(range(100))

            def hook(batch, count=count, extra=extra, number=number):
                return batch + extra if next(count) > number + 3 else batch

            assert steps_are_right_or_in_the_tree(hook) == [True] * STEPS


@pytest.mark.slow(5.7)
def test_a_message_replaced_by_any_other_of_the_session():
    for number in range(len(SESSION)):
        for other in (others[0] for others in SESSION):
            tamper = change(0, lambda wire, o=other: [replace(wire, data=o.data)])
            steps_are_right_or_in_the_tree(on(number, tamper))


@given(data=st.data())
@examples(60)
def test_any_mischief_in_any_step(data):
    def hook(batch):
        out = []
        for wire in batch:
            kind = data.draw(st.sampled_from(["keep"] * 20 + ["drop", "twice", "flip", "other"]))
            if kind == "flip":
                wire = flipped(wire, data.draw(st.floats(0, 1)), data.draw(st.integers(0, 7)))
            elif kind == "other":
                wire = replace(
                    wire, data=data.draw(st.sampled_from(data.draw(st.sampled_from(SESSION)))).data
                )
            out += {"drop": 0, "twice": 2}.get(kind, 1) * [wire]
        return data.draw(st.permutations(out))

    steps_are_right_or_in_the_tree(hook)


# --- these checks can fail -------------------------------------------------------------------------


def test_the_check_notices_a_wrong_sum(monkeypatch):
    # Take away what protects the sum, and the same mischief must be seen: the chaos test can fail.
    monkeypatch.setattr("cape.secagg.keys.Verifier.check", lambda *_: None)
    number = next(i for i, b in enumerate(HONEST) if b[0].round == "mask" and b[0].sender == "a")
    with pytest.raises(AssertionError):
        outcome_is_right_or_in_the_tree(on(number, change(0, lambda wire: [flipped(wire, 1.0)])))


def test_the_check_notices_a_mask_with_the_wrong_sign(monkeypatch):
    monkeypatch.setattr("cape.secagg.masks.sign", lambda site, peer: 1)
    with pytest.raises(AssertionError):
        outcome_is_right_or_in_the_tree(None)


def test_the_check_notices_a_seed_that_is_not_checked(monkeypatch):
    monkeypatch.setattr("cape.secagg.aggregator.Aggregator._opens_commitment", lambda *_: True)
    monkeypatch.setattr("cape.secagg.keys.Verifier.check", lambda *_: None)
    number = next(i for i, b in enumerate(HONEST) if b[0].round == "unmask" and b[0].sender == "a")
    with pytest.raises(AssertionError):
        outcome_is_right_or_in_the_tree(on(number, change(0, lambda wire: [flipped(wire, 0.6)])))


def test_rounds_are_named_in_order():
    assert list(dict.fromkeys(batch[0].round for batch in HONEST)) == list(ROUNDS)
