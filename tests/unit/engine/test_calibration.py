from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cape
from cape.blocks import Axis, Counts, Moments
from cape.blocks.block import Array
from cape.core.errors import InvalidInput, OverflowRisk
from cape.data import Schema
from cape.engine.calibration import RESOLUTION, Step, calibrate, discretisation_error
from cape.engine.query import Query
from tests.slices import examples

SCHEMA = Schema(age=(18, 90), chol=(100, 600))


def question(bins, scales, sensitivity):
    edges = tuple(np.linspace(18, 90, bins + 1))
    return Query(
        (Moments(("age", "chol")), Counts((Axis("age", edges),))), (scales[:3], scales[3:]), sensitivity
    )


scale = st.floats(0.05, 20.0)


@examples(300)
@given(
    st.integers(1, 200),
    st.tuples(scale, scale, scale, scale),
    st.floats(0.1, 5.0),
    st.floats(0.05, 300.0),
    st.integers(0, 2**32),
)
def test_no_pair_of_sums_at_the_sensitivity_costs_more_than_was_asked(
    bins, scales, sensitivity, local_std, seed
):
    """The claim itself: the distance in steps over the noise in steps is at most 1 / local_std."""
    query = question(bins, scales, sensitivity)
    calibration = calibrate(query, SCHEMA, local_std)
    rng = np.random.default_rng(seed)
    arrays = query.arrays(SCHEMA)
    sums = [
        rng.integers(-(10**4), 10**4, a.shape) << a.bits
        if a.bits < 30
        else rng.integers(-(2**52), 2**52, a.shape)
        for a in arrays
    ]
    direction = [rng.normal(size=a.shape) for a in arrays]
    length = math.sqrt(sum(np.sum(d * d) for d in direction))
    moved = []
    for s, d, a, relative in zip(sums, direction, arrays, scales, strict=True):
        step = np.trunc(
            d / length * sensitivity * relative * 2.0**a.bits
        )  # at most the sensitivity, in units of 2^-bits
        moved.append(s + step.astype(np.int64))
    distance = calibration.encode(tuple(sums)) - calibration.encode(tuple(moved))
    cost = math.sqrt(np.sum(distance.astype(float) ** 2)) / RESOLUTION
    assert cost <= 1 / local_std * (1 + 1e-12)


def test_rounding_is_paid_for_where_a_person_is_a_few_steps():
    """With much noise a step is coarse: one person moves four sums by few steps, and rounding by one."""
    query, costs = question(1, (1.0,) * 4, 1.0), []
    for local_std in np.linspace(5e4, 1.5e5, 80):
        calibration = calibrate(query, SCHEMA, local_std)
        one, two = [], []
        for step in calibration.steps:
            fine = step.bits == step.array.bits  # of the others a person moves nothing here
            below = (step.factor + 1) // 2 - 1 if fine else 0  # is just rounded down
            one.append(np.full(step.array.shape, 1000 * step.factor + below))
            two.append(one[-1] + (math.floor(0.5 * 2.0**step.array.bits) if fine else 0))
        assert sum(step.array.size for step in calibration.steps if step.bits == step.array.bits) == 4
        distance = calibration.encode(tuple(one)) - calibration.encode(tuple(two))
        costs.append(math.sqrt(np.sum(distance.astype(float) ** 2)) / RESOLUTION * local_std)
    assert max(costs) <= 1
    assert max(costs) > 0.9, "some come near, so that less would show"


def test_the_noise_is_what_was_asked_and_no_more_than_a_thousandth_above():
    query = question(1, (1.0, 0.7, 0.5, 2.0), 1.5)
    calibration = calibrate(query, SCHEMA, 4.0)
    for noise, relative in zip(calibration.noise(RESOLUTION), (1.0, 0.7, 0.5, 2.0), strict=True):
        assert 4.0 * 1.5 * relative <= noise <= 4.0 * 1.5 * relative * 1.002


def test_decoding_gives_back_the_sums_to_half_a_step():
    query = question(5, (1.0, 1.0, 1.0, 1.0), 1.0)
    calibration = calibrate(query, SCHEMA, 3.0)
    arrays = query.arrays(SCHEMA)
    exact = tuple(np.full(a.shape, 7 << a.bits, np.int64) for a in arrays)
    for decoded, step, array in zip(
        calibration.decode(calibration.encode(exact)), calibration.steps, arrays, strict=True
    ):
        assert decoded.shape == array.shape
        assert np.all(np.abs(decoded - 7) <= step.size / 2)


def test_without_noise_nothing_is_rounded():
    calibration = calibrate(question(3, (1.0, 1.0, 1.0, 1.0), 1.0), SCHEMA, None)
    sums = tuple(
        np.arange(a.size, dtype=np.int64).reshape(a.shape) for a in question(3, (1,) * 4, 1.0).arrays(SCHEMA)
    )
    assert calibration.std is None
    assert calibration.encode(sums).tolist() == np.concatenate([s.ravel() for s in sums]).tolist()


def test_limits_are_refused():
    with pytest.raises(InvalidInput, match="mostly rounding"):
        calibrate(question(10**5, (1.0,) * 4, 1.0), SCHEMA, 4000.0)
    with pytest.raises(InvalidInput, match="too small to be told from rounding"):
        calibrate(question(3, (1.0,) * 4, 1.0), SCHEMA, 1e-12)
    with pytest.raises(InvalidInput, match="one scale for each"):
        calibrate(Query((Moments(("age",)),), ((1.0,),), 1.0), SCHEMA, 1.0)
    with pytest.raises(OverflowRisk, match="use less epsilon"):
        calibrate(question(3, (1.0,) * 4, 1.0), SCHEMA, 1e-4).ring(1 << 36, 5, 5)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="sensitivity must be"):
            question(3, (1.0,) * 4, wrong)
        with pytest.raises(InvalidInput, match="scales must be"):
            question(3, (1.0, 1.0, 1.0, wrong), 1.0)


@given(st.integers(-(2**62), 2**62), st.integers(0, 50), st.integers(1 << 10, 1 << 11))
def test_rounding_is_exact_also_where_the_shifted_sum_would_not_fit(total, shift, factor):
    wanted = (2 * total * 2**shift + factor) // (2 * factor)
    if abs(wanted) < 2**62:
        step = Step(Array("count", (1,), 0), shift, factor)
        assert step.round(np.array([total], np.int64)).tolist() == [wanted]


def test_the_ring_holds_the_rows_and_the_noise():
    calibration = calibrate(question(3, (1.0,) * 4, 1.0), SCHEMA, 100.0)
    assert calibration.ring(1000, 5, 5).bits == 32
    assert calibration.ring(10**7, 5, 5).bits == 64


def test_integer_noise_is_continuous_to_any_digit_that_a_float_has():
    assert discretisation_error(1) == 0.0
    assert discretisation_error(50) == 0.0


@given(
    st.lists(st.integers(-(2**75), 2**75), min_size=1, max_size=5),
    st.integers(2**20, 2**40),
    st.integers(0, 9),
)
def test_sums_beyond_64_bits_are_rounded_like_others(sums: list[int], factor: int, shift: int) -> None:
    step = Step(Array("a", (len(sums),), 40), 40 + shift, factor)
    found = step.round(np.array([*sums, 2**70], object))[:-1]
    wanted = [math.floor(Fraction(s << shift, factor) + Fraction(1, 2)) for s in sums]
    assert found.tolist() == [min(max(n, -(2**63)), 2**63 - 1) for n in wanted]


def test_without_noise_sums_of_millions_of_rows_fit_however_fine_they_are():
    analysis = cape.Cox("years", "died", ["x"])
    schema = Schema(x=(0, 10), years=(0, 8), died=["no", "yes"])
    query = analysis.query(schema, "replace-one")
    assert max(array.bits for array in query.arrays(schema)) > 40
    calibration = calibrate(query, schema, None)
    calibration.ring(4_000_000, 5, 5)
    assert all(step.size <= 2.0**-30 or step.array.bits < 30 for step in calibration.steps)
    fine = next(step for step in calibration.steps if step.array.bits > 40)
    sums = np.array([3 << fine.array.bits, -(5 << fine.array.bits), 1])
    assert fine.round(np.resize(sums, fine.array.size))[:3] * fine.size == pytest.approx([3.0, -5.0, 0.0])
