from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from cape.blocks.clipped import (
    BITS,
    LOSS_BITS,
    Records,
    arithmetic,
    chunks,
    clipped_sum,
    grids,
    layers,
    one_hidden,
)
from cape.blocks.network import ACTIVATIONS, LOSSES, Network
from cape.core.errors import InvalidInput, OverflowRisk
from tests.slices import examples

SEED = bytes(range(32))
LIMIT = 1 << 2 * BITS
UNIT = 2.0**-BITS
HIDDEN = [(), (5,), (6, 4), (3, 1, 2)]
NETWORKS = [
    Network(4, hidden, outputs, activation, loss)
    for hidden in HIDDEN
    for outputs in (1, 3)
    for activation in (ACTIVATIONS if hidden else ("relu",))
    for loss in LOSSES
]


def name_of(network):
    return f"{network.hidden}-{network.outputs}-{network.activation}-{network.loss}"


def table(network, rows, seed=1):
    rng = np.random.default_rng(seed)
    x = np.trunc(rng.uniform(-1, 1, (rows, network.inputs)) * 2**20) / 2**20
    if network.loss == "squared":
        return x, rng.uniform(-1, 1, (rows, network.outputs))
    return x, rng.integers(0, max(network.outputs, 2), rows).astype(float)


def weights_of(network, scale=1.0):
    return scale * (network.initial(SEED) + np.random.default_rng(2).normal(0, 0.2, network.size))


# The plain way, one record after the other, in lists of floats.


def activate(kind, z):
    if kind == "relu":
        return max(z, 0.0), 1.0 if z > 0 else 0.0
    if kind == "tanh":
        return math.tanh(z), 1.0 - math.tanh(z) ** 2
    if kind == "sigmoid":
        s = 1.0 / (1.0 + math.exp(-z))
        return s, s * (1.0 - s)
    return z, 1.0


def loss_and_slopes(network, z, y):
    if network.loss == "squared":
        off = [a - b for a, b in zip(z, y, strict=True)]
        return 0.5 * sum(e * e for e in off), off
    if network.outputs == 1:
        p = 1.0 / (1.0 + math.exp(-z[0]))
        return -math.log(p if y[0] == 1 else 1.0 - p), [p - y[0]]
    powers = [math.exp(s - max(z)) for s in z]
    p = [e / sum(powers) for e in powers]
    return -math.log(p[int(y[0])]), [q - (k == int(y[0])) for k, q in enumerate(p)]


def slow_gradient(network, parameters, x, y):
    place, layers = 0, []
    for fan_in, fan_out in network.shapes:
        weights = [[parameters[place + i * fan_out + k] for k in range(fan_out)] for i in range(fan_in)]
        place += fan_in * fan_out
        layers.append((weights, list(parameters[place : place + fan_out])))
        place += fan_out
    inputs, slopes, a, z = [], [], list(x), []
    for number, (weights, biases) in enumerate(layers):
        inputs.append(a)
        z = [b + sum(a[i] * weights[i][k] for i in range(len(a))) for k, b in enumerate(biases)]
        if number < len(layers) - 1:
            pairs = [activate(network.activation, s) for s in z]
            a = [value for value, _ in pairs]
            slopes.append([slope for _, slope in pairs])
    loss, signal = loss_and_slopes(network, z, y)
    parts = []
    for number in range(len(layers) - 1, -1, -1):
        weights, a = layers[number][0], inputs[number]
        parts.insert(0, [value * s for value in a for s in signal] + list(signal))
        if number:
            signal = [
                slopes[number - 1][i] * sum(weights[i][k] * s for k, s in enumerate(signal))
                for i in range(len(a))
            ]
    return loss, [value for part in parts for value in part]


def slow_sum(network, parameters, x, y, clip, bound=math.inf):
    total, below, losses, lengths = np.zeros(network.size), 0, 0.0, []
    for row, target in zip(x.tolist(), y.reshape(len(x), -1).tolist(), strict=True):
        loss, vector = slow_gradient(network, parameters.tolist(), row, target)
        length = math.sqrt(sum(value * value for value in vector))
        total += np.array(vector) * min(1.0, clip / length if length else 1.0) / clip
        below += length <= clip
        losses += min(loss, bound)
        lengths.append(length)
    return total, below, losses, lengths


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_sums_agree_with_a_loop_over_records(network):
    (x, y), parameters = table(network, 60), weights_of(network)
    lengths = sorted(slow_sum(network, parameters, x, y, 1.0)[3])
    # the wider of the gaps in the middle: no length is so near the clip that rounding decides
    gap = max(range(20, 40), key=lambda i: lengths[i] - lengths[i - 1])
    for clip in (0.3 * lengths[20], (lengths[gap] + lengths[gap - 1]) / 2, 1.5 * lengths[-1]):
        got = clipped_sum(parameters, Records(network, x, y), clip, loss_bound=0.7)
        total, below, losses, _ = slow_sum(network, parameters, x, y, clip, 0.7)
        # each record's signals and activations are off by a few steps of their grids
        assert np.abs(got.sums * UNIT - total).max() < 60 * 8 * 2.0**-20
        assert got.below == below
        assert got.loss * 2.0**-LOSS_BITS == pytest.approx(losses, abs=60 * 4 * 2.0**-20)


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_gradients_agree_with_finite_differences(network):
    (x, y), parameters = table(network, 6), weights_of(network)

    def loss(at):
        z = network.forward(at, x).tolist()
        targets = y.reshape(len(x), -1).tolist()
        return sum(loss_and_slopes(network, s, t)[0] for s, t in zip(z, targets, strict=True))

    clip, step = 16.0, 1e-5
    sums = clipped_sum(parameters, Records(network, x, y), clip)
    assert sums.below == 6
    for i in range(network.size):
        move = np.zeros(network.size)
        move[i] = step
        slope = (loss(parameters + move) - loss(parameters - move)) / (2 * step)
        assert sums.sums[i] * UNIT * clip == pytest.approx(slope, abs=6 * clip * 2.0**-18)


@pytest.mark.one_in(3, seconds=0.2)
@pytest.mark.parametrize("network", [n for n in NETWORKS if n.hidden != (3, 1, 2)], ids=name_of)
def test_order_and_chunks_and_threads_do_not_change_a_bit(network):
    (x, y), parameters = table(network, 2500), weights_of(network)
    records = Records(network, x, y)
    one = clipped_sum(parameters, records, 0.5, loss_bound=1.0)
    order = np.random.default_rng(3).permutation(len(x))
    for rows in (1, 7, 250, 1000, 8192):
        if rows == 1:  # slow, and a part will do
            few = np.arange(100)
            small = clipped_sum(parameters, records, 0.5, rows=few)
            again = clipped_sum(parameters, Records(network, x, y, chunk=1), 0.5, rows=few)
            assert np.array_equal(small.sums, again.sums)
            continue
        with threadpool_limits(1 + rows % 2):
            mixed = Records(network, x[order], y[order], chunk=rows)
            two = clipped_sum(parameters, mixed, 0.5, loss_bound=1.0)
        assert np.array_equal(one.sums, two.sums)
        assert (one.below, one.loss) == (two.below, two.loss)


@pytest.mark.parametrize(
    "network", [Network(4, (6, 4)), Network(4, (5,), 3, "tanh"), Network(4)], ids=name_of
)
def test_a_batch_is_exactly_the_sum_of_its_records(network):
    (x, y), parameters = table(network, 1500), weights_of(network, 3.0)
    records = Records(network, x, y)
    total = [0] * network.size
    for i in range(len(x)):
        single = clipped_sum(parameters, records, 0.5, rows=np.array([i])).sums
        total = [a + b for a, b in zip(total, single.tolist(), strict=True)]
    assert clipped_sum(parameters, records, 0.5).sums.tolist() == total


def test_a_batch_is_exactly_the_sum_of_its_records_where_weights_multiply_the_total():
    network = Network(4, (5,))
    (x, y), parameters = table(network, 1500), weights_of(network)
    parameters[25:30] = [1.0, -2.0, 4.0, -1.0, 3.0]  # whole: their products with single sums are not rounded
    records = Records(network, x, y)
    total = [0] * network.size
    for i in range(len(x)):
        single = clipped_sum(parameters, records, 0.5, rows=np.array([i])).sums
        total = [a + b for a, b in zip(total, single.tolist(), strict=True)]
    assert clipped_sum(parameters, records, 0.5).sums.tolist() == total


def test_more_records_than_a_float_can_add_exactly_still_add_up():
    network, count = Network(1, (1,)), 997 * 251  # odd chunks of odd numbers: no bit is spare
    x, y = np.full((count, 1), 1 - 2.0**-20), np.zeros(count)
    parameters = np.array([0.01, 0.0, 1.0, 0.0])  # a weight of 1, and signals near the largest there can be
    records = Records(network, x, y)
    single = clipped_sum(parameters, records, 1e-9, rows=np.array([7])).sums.tolist()
    assert sum(value * value for value in single) > 0.999 * LIMIT
    for rows in (997, 8192):
        many = clipped_sum(parameters, Records(network, x, y, chunk=rows), 1e-9).sums
        assert many.tolist() == [count * value for value in single]
        assert many.max() > 2**57


# That no sum is ever rounded: tiny, so that no comparison of results would show it.


def lowest_bit(values):
    """Return the place of the lowest bit that is set in any of the values."""
    fractions, exponents = np.frexp(values[values != 0])
    whole = np.abs(fractions * 2.0**53).astype(np.int64)
    low = whole & -whole
    return int(np.min(exponents - 53 + np.round(np.log2(low)).astype(int))) if low.size else 0


def require_exact(left, right):
    """Every product a multiple of one step, and no more than 2^53 of those in any sum."""
    if left.shape[-1] == 1:  # one product is no sum: it is rounded alike wherever it stands
        return
    steps = lowest_bit(left) + lowest_bit(right)
    most = float(np.max(np.abs(left) @ np.abs(right), initial=0.0))
    assert most <= 2.0 ** (53 + steps) * (1 + 1e-9), (most, steps)


def watch(monkeypatch):
    seen = []

    def watched(name, pair):
        right = getattr(arithmetic, name)

        def function(*arguments):
            seen.append(name)
            require_exact(*pair(*arguments))
            return right(*arguments)

        monkeypatch.setattr(arithmetic, name, function)

    watched("dot", lambda a, b: (a, b))
    watched("product", lambda a, b, out: (a, b))
    watched("cross", lambda a, b: (a.T, b))
    watched("squares", lambda a: (a.reshape(-1, 1, a.shape[1]), a.reshape(-1, a.shape[1], 1)))
    return seen


@pytest.mark.parametrize("scale", [1e-9, 1.0, 30.0, 1e6, 1e15])
@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_no_sum_that_blas_makes_is_ever_rounded(network, scale, monkeypatch):
    (x, y), parameters = table(network, 300), weights_of(network, scale)
    seen = watch(monkeypatch)
    for clip in (1e-6, 1.0, 1e6):
        clipped_sum(parameters, Records(network, x, y), clip)
    assert {"product", "cross"} <= set(seen)


@pytest.mark.parametrize("hidden", [(3,), (3, 2)])
def test_no_sum_is_rounded_when_many_inputs_all_pull_one_way(hidden, monkeypatch):
    network = Network(4000, hidden)
    parameters = np.abs(network.initial(SEED))
    watch(monkeypatch)
    clipped_sum(parameters, Records(network, np.ones((9, 4000)), np.zeros(9)), 1.0)


def test_a_sum_that_is_rounded_is_noticed(monkeypatch):
    network = Network(4, (6, 4), 3)
    (x, y), parameters = table(network, 300), weights_of(network)
    watch(monkeypatch)
    monkeypatch.setattr(layers, "truncate", lambda values, bits: None)
    with pytest.raises(AssertionError):
        clipped_sum(parameters, Records(network, x, y), 1.0)


# The bound, certified in Python integers.


def squared_change(network, parameters, x, y, clip, spoil=None):
    """Return the squared length, in integers, of what the last record adds to the others."""
    records = Records(network, x, y)
    if spoil is not None:
        spoil(records)
    everyone = np.arange(len(records))
    many = clipped_sum(parameters, records, clip, rows=everyone).sums.tolist()
    fewer = clipped_sum(parameters, records, clip, rows=everyone[:-1]).sums.tolist()
    return sum((a - b) ** 2 for a, b in zip(many, fewer, strict=True))


CELLS = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 2.0**-20, -(2.0**-20)]), st.floats(-1, 1))


@st.composite
def cases(draw):
    hidden = draw(st.sampled_from([(), (1,), (3,), (7,), (4, 3), (2, 1, 3)]))
    network = Network(
        draw(st.integers(1, 5)),
        hidden,
        draw(st.sampled_from([1, 1, 2, 4])),
        draw(st.sampled_from(ACTIVATIONS)),
        draw(st.sampled_from(LOSSES)),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    parameters = rng.normal(size=network.size)
    for matrix in network.matrices(parameters):
        matrix *= 10.0 ** draw(st.integers(-12, 18))
    if draw(st.booleans()):
        parameters[rng.random(network.size) < 0.5] = 0.0
    rows = draw(st.integers(1, 3))
    x = np.array([[draw(CELLS) for _ in range(network.inputs)] for _ in range(rows)])
    y = table(network, rows, draw(st.integers(0, 9)))[1]
    return network, parameters, x, y, 10.0 ** draw(st.integers(-12, 6))


@given(cases())
@examples(400)
def test_no_record_moves_the_sums_by_more_than_one_clip(case):
    assert squared_change(*case) <= LIMIT


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_the_bound_is_reached_but_for_the_rounding(network):
    (x, y), parameters = table(network, 20), weights_of(network)
    parameters[-network.outputs :] = 0.7  # biases: no record's signal is nothing
    changes = [squared_change(network, parameters, x[:i], y[:i], 1e-4) for i in range(1, len(x) + 1)]
    assert max(changes) <= LIMIT
    assert max(changes) > 0.99 * LIMIT


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_a_norm_without_its_bias_term_is_caught(hidden):
    def forget_the_bias(records):
        records.squares -= 1.0

    network = Network(3, hidden)
    parameters, x, y = np.full(network.size, 0.3), np.full((1, 3), 0.125), np.zeros(1)
    assert squared_change(network, parameters, x, y, 0.01) <= LIMIT
    assert squared_change(network, parameters, x, y, 0.01, forget_the_bias) > LIMIT


@pytest.mark.parametrize("network", [Network(3, (4,)), Network(3, (4, 4))], ids=name_of)
def test_a_norm_without_a_hidden_layer_s_bias_term_is_caught(network, monkeypatch):
    parameters, x, y = np.full(network.size, 0.01), np.zeros((1, 3)), np.zeros(1)
    right = arithmetic.squares
    assert squared_change(network, parameters, x, y, 0.01) <= LIMIT
    monkeypatch.setattr(arithmetic, "squares", lambda a: right(a) - 4.0 ** _bits(network, parameters))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert squared_change(network, parameters, x, y, 0.01) > LIMIT


def _bits(network, parameters):
    return grids.grids(network, parameters)[0].out_bits


def test_rounding_up_instead_of_toward_zero_is_caught(monkeypatch):
    network = Network(2)
    case = (network, np.array([0.1, 0.2, 0.3]), np.array([[0.5, 0.25]]), np.zeros(1), 0.01)
    assert squared_change(*case) <= LIMIT
    for module in (layers, one_hidden):
        monkeypatch.setattr(module, "KEEP", 1.0 + 2.0**-18)
    assert squared_change(*case) > LIMIT


# What breaks.


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("network", [Network(4), Network(4, (5,)), Network(4, (5, 3), 3)], ids=name_of)
def test_a_record_that_is_not_finite_adds_nothing(network, bad):
    (x, y), parameters = table(network, 30), weights_of(network)
    clean = clipped_sum(parameters, Records(network, x, y), 0.5, loss_bound=1.0)
    worse_x, worse_y = np.vstack([x, x[:2]]), np.append(y, y[:2])
    worse_x[30, 1], worse_y[31] = bad, bad
    got = clipped_sum(parameters, Records(network, worse_x, worse_y), 0.5, loss_bound=1.0)
    assert np.array_equal(got.sums, clean.sums)
    assert (got.below, got.loss) == (clean.below, clean.loss)


def test_a_class_that_there_is_not_adds_nothing():
    for network, wrong in ((Network(4), [2.0, -1.0, 0.5]), (Network(4, outputs=3), [3.0, -1.0, 1.5])):
        x, y = table(network, 10)
        y[:3] = wrong
        assert len(Records(network, x, y)) == 7


def test_values_outside_are_clamped_and_rounded_toward_zero():
    network = Network(2, loss="squared")
    records = Records(network, [[3.0, -7.0], [2.0**-21, -1.5 * 2.0**-20]], [5.0, -0.5])
    assert records.steps.tolist() == [[2.0**20, -(2.0**20), 2.0**20], [0.0, -1.0, 2.0**20]]
    assert records.targets.tolist() == [[1.0], [-0.5]]
    assert records.squares.tolist() == [3.0, 1.0 + 2.0**-40]


@pytest.mark.parametrize("network", NETWORKS, ids=name_of)
def test_an_empty_batch_gives_zeros(network):
    (x, y), parameters = table(network, 5), weights_of(network)
    nobody = clipped_sum(parameters, Records(network, x[:0], y[:0]), 1.0, loss_bound=1.0)
    unlucky = clipped_sum(parameters, Records(network, x, y), 1.0, rows=np.empty(0, np.int64))
    for got in (nobody, unlucky):
        assert got.sums.tolist() == [0] * network.size
        assert got.sums.dtype == np.int64
        assert got.below == 0
    assert (nobody.loss, unlucky.loss) == (0, None)


def test_a_gradient_of_zero_stays_zero_and_counts_as_below():
    network = Network(2, (3,), loss="squared")
    got = clipped_sum(np.zeros(network.size), Records(network, np.ones((4, 2)), np.zeros(4)), 1.0)
    assert not got.sums.any()
    assert got.below == 4


@pytest.mark.parametrize("network", [Network(3, (4,)), Network(3, (4, 4), 2, "identity")], ids=name_of)
def test_activations_too_large_for_their_grid_are_cut_off(network):
    x, y = table(network, 50)
    parameters = weights_of(network, 1e15)
    assert grids.grids(network, parameters)[0].cap is not None
    got = clipped_sum(parameters, Records(network, x, y), 1.0)
    assert np.abs(got.sums).max() <= 50 << BITS
    assert got.sums.any()


def test_parameters_that_no_float_can_follow_are_refused():
    network = Network(2, (2,))
    records = Records(network, np.ones((1, 2)), np.ones(1))
    for value in (math.nan, math.inf, 1e30):
        with pytest.raises(InvalidInput, match="parameters must be finite and at most 2\\^64"):
            clipped_sum(np.full(network.size, value), records, 1.0)
    deep = Network(2, (2,) * 30)
    with pytest.raises(InvalidInput, match="parameters must be smaller"):
        clipped_sum(np.full(deep.size, 1e18), Records(deep, np.ones((1, 2)), np.ones(1)), 1.0)
    linear = Network(2, (2,) * 30, activation="tanh", outputs=2)
    with pytest.raises(InvalidInput, match="parameters must be smaller"):
        clipped_sum(np.full(linear.size, 1e18), Records(linear, np.ones((1, 2)), np.ones(1)), 1.0)


def test_what_does_not_fit_is_refused(monkeypatch):
    network, other = Network(2, (2,)), Network(2, (3,))
    records = Records(network, np.ones((3, 2)), np.ones(3))
    parameters = np.zeros(network.size)
    for clip in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="clip"):
            clipped_sum(parameters, records, clip)
    with pytest.raises(InvalidInput, match="loss_bound"):
        clipped_sum(parameters, records, 1.0, loss_bound=0.0)
    with pytest.raises(InvalidInput, match="parameters must be a vector of 9"):
        clipped_sum(np.zeros(other.size), records, 1.0)
    with pytest.raises(InvalidInput, match="chunk"):
        Records(network, np.ones((3, 2)), np.ones(3), chunk=8193)
    for rows in ([3], [-1], [[0]], [0.5], [1, 1], [1, 0]):
        with pytest.raises(InvalidInput, match="rows must be a vector"):
            clipped_sum(parameters, records, 1.0, rows=np.array(rows))
    with pytest.raises(InvalidInput, match="x must have 2 columns"):
        Records(network, np.ones((3, 3)), np.ones(3))
    for y in (np.ones(2), np.ones((3, 2)), 1.0):
        with pytest.raises(InvalidInput, match="y must have as many rows"):
            Records(network, np.ones((3, 2)), y)
    monkeypatch.setattr(chunks, "_MOST_ROWS", 2)
    with pytest.raises(OverflowRisk):
        clipped_sum(parameters, records, 1.0)


# The pieces.


@given(st.integers(-(2**62), 2**62), st.integers(-(2**25), 2**25), st.integers(-10, 40))
@examples(500)
def test_products_that_do_not_fit_a_word_are_exact(total, whole, shift):
    expected = total * whole >> shift if shift >= 0 else (total * whole) << -shift
    if abs(expected) < 2**62:
        got = one_hidden._times(np.array([total]), np.array([whole]), shift)
        assert got.tolist() == [expected]


def test_functions_of_one_number_are_right_and_the_same_at_every_place():
    z = np.concatenate([np.linspace(-70, 70, 20_001), [0.0, -0.0, 1e300, -1e300]])
    with np.errstate(over="ignore"):
        cases = [
            (arithmetic.exp, -np.abs(z), np.exp, 2.0**-30),
            (arithmetic.sigmoid, z, lambda v: 1 / (1 + np.exp(-v)), 2.0**-22),
            (arithmetic.tanh, z, np.tanh, 2.0**-30),
            (arithmetic.log, 1 + np.abs(z[:-2]), np.log, 2.0**-30),
        ]
        for function, values, exact, error in cases:
            got = function(values.copy())
            assert np.abs(got - exact(values)).max() < error
            for start in (0, 1, 3, 6_000, 19_990):
                for size in (1, 2, 5, 9):
                    part = function(values[start : start + size].copy())
                    assert np.array_equal(part, got[start : start + size])


@pytest.mark.parametrize("rows", [1, 63, 64, 300, 307, 1000, 1003])
def test_products_in_blocks_are_products(rows):
    rng = np.random.default_rng(rows)
    left, right = rng.integers(-9, 9, (rows, 51)).astype(float), rng.integers(-9, 9, (51, 64)).astype(float)
    out = np.empty((rows, 64))
    arithmetic.product(left, right, out)
    assert np.array_equal(out, left @ right)
    assert np.array_equal(arithmetic.cross(left, out), left.T @ out)


def test_rows_have_the_same_squares_with_and_without_vecdot():
    values = np.trunc(np.random.default_rng(1).normal(0, 2**20, (50, 7)))
    assert np.array_equal(arithmetic.row_squares(values), arithmetic.squares(values))
