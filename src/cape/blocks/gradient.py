"""The sum over records of a network's gradients, each clipped: integers, without a gradient per record.

Claim. `clipped_sum` returns integers in units of clip 2^-40. When a record is added or removed, they change
by a vector of length at most 1 clip, certainly, whatever the records, the parameters, the order of the
rows, the chunks they come in, the BLAS and its threads. The count and the loss change by at most 1 and by
at most their bound.

Reason. (1) What a record adds depends on nothing but the record and the public parameters. Its inputs,
every layer's activations and signals, and the weights are rounded toward zero to grids that are chosen from
the parameters so that every weighted sum is a sum of whole multiples of one step of which fewer than 2^53
can ever come together: float64 does not round, so the order in which BLAS adds cannot matter. The same
holds for sums of squares. Everything else works on one number at a time with operations that IEEE 754
specifies exactly (exp and log are made of those here); none of them sees its neighbours. So there is no
last bit that another chunk or another place in it could change, and no slack is owed for it.
(2) It is not too long. The gradient of a layer is the outer product of its inputs (a, 1) and its signals d,
of length |d| sqrt(|a|² + 1). All signals are divided by the larger of the clip and that length over all
layers, times 1 - 2^-24, and rounded toward zero, which only shrinks; the length is computed from the very
numbers that are multiplied, with a relative error below 2^-40, which the factor covers.
(3) The sum is exact. On grids of 2^-b for the inputs and 2^-(40 - b) for the signals a product is a whole
number of 2^-40, by (2) at most 2^40 of them, so the sums of up to 8192 records fit float64's 2^53; such
chunks are added as int64.
(4) Nothing overflows: inputs lie in [-1, 1], so the parameters bound every sum, and activations that could
be too large for their grid are cut off at a public bound. A record with a cell that is not finite, or a
class that there is not, adds nothing.
(5) With one hidden layer of ReLUs and one output, signals are d_ik = q_i v_k or 0: one number per record
times a weight. Then the sums of x_ij q_i over the records with active unit k are exact as above, and v_k
multiplies the total, in integers and rounded down once. That moves each parameter by less than one unit:
together less than 2^-27 clips for 2^26 parameters, which the factor of (2) covers as well.

Tested in tests/blocks/test_gradient.py: against a loop over records; what a record changes, in Python
integers, also with huge weights; under permutations, chunks and threads; every sum that BLAS makes, for a bit
that it could lose. A norm without its bias term is caught, and so is a grid that is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cape import check
from cape.blocks.network import Network
from cape.blocks.steps import ONE
from cape.errors import InvalidInput, OverflowRisk

__all__ = ["BITS", "LOSS_BITS", "GradientSum", "Records", "Workspace", "clipped_sum"]

BITS = 40
"""Sums of gradients count in units of clip times 2^-BITS."""

LOSS_BITS = 20
"""Sums of losses count in units of 2^-LOSS_BITS."""

CHUNK_ROWS = 1250  # what stays in cache; at most 8192, see (3)
_MOST_ROWS = 1 << 22  # their sum fits 63 bits
_MOST_CHUNK = 1 << 13
_INPUT_BITS = 20
_EXACT = 52  # sums of at most 2^52 steps: one bit less than float64 has, for the rounding of the bounds
_KEEP = 1.0 - 2.0**-24
_SMALL_PRODUCT = 10**6  # OpenBLAS multiplies up to so many numbers a quarter faster

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


class Records:
    """A site's records as `clipped_sum` wants them: prepared once, used in every step.

    Args:
        network: which inputs and targets to expect.
        x: (rows, inputs) of float64, clamped to [-1, 1] and rounded toward zero to multiples of 2^-20.
        y: (rows,) of 0 or 1 for one output with "cross-entropy", of class numbers for several; for
            "squared", (rows,) or (rows, outputs), clamped to [-1, 1].

    A row with anything that is not finite, or with a class that there is not, is left out.
    """

    def __init__(self, network: Network, x: ArrayLike, y: ArrayLike) -> None:
        rows, targets = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if rows.ndim != 2 or rows.shape[1] != network.inputs:
            raise InvalidInput(f"x must have {network.inputs} columns, not the shape {rows.shape}")
        columns = network.outputs if network.loss == "squared" else 1
        if targets.shape not in ((len(rows), columns), (len(rows),) if columns == 1 else ()):
            raise InvalidInput(f"y must have as many rows as x, and {columns} columns")
        targets = targets.reshape(len(rows), columns)
        good = np.isfinite(rows).all(axis=1) & np.isfinite(targets).all(axis=1)
        if network.loss == "cross-entropy":
            label = targets[:, 0]
            good &= (label >= 0) & (label <= max(network.outputs - 1, 1)) & (label == np.floor(label))
        if not good.all():
            rows, targets = rows[good], targets[good]
        self.network = network
        self.steps = np.empty((len(rows), network.inputs + 1))
        inputs = self.steps[:, :-1]
        np.clip(rows, -1.0, 1.0, out=inputs)
        np.multiply(inputs, ONE, out=inputs)
        np.trunc(inputs, out=inputs)
        self.steps[:, -1] = ONE
        self.targets: NDArray[Any]
        if network.loss == "squared":
            self.targets = np.clip(targets, -1.0, 1.0)
        elif network.outputs > 1:
            self.targets = targets[:, 0].astype(np.int64)
        else:
            self.targets = np.ascontiguousarray(targets)
        self.squares = np.empty(len(rows))
        for start in range(0, len(rows), _MOST_CHUNK):
            part = self.steps[start : start + _MOST_CHUNK].astype(np.int64)
            self.squares[start : start + _MOST_CHUNK] = np.einsum("ij,ij->i", part, part)
        self.squares /= ONE * ONE

    def __len__(self) -> int:
        return len(self.steps)


class Workspace:
    """The arrays that a chunk of records passes through, to be used again in the next step."""

    def __init__(self, network: Network, rows: int = CHUNK_ROWS) -> None:
        self.rows = check.integer("rows", rows, least=1, most=_MOST_CHUNK)
        self.network = network
        widths = (*network.hidden, network.outputs)
        self.inputs = np.empty((self.rows, network.inputs + 1))
        self.layers = [np.empty((self.rows, width)) for width in widths]
        self.signals = [np.empty((self.rows, width)) for width in widths]
        # numpy is twice as fast at max(a, b) when b is an array
        self.zeros, self.ones = np.zeros_like(self.layers[0]), np.ones_like(self.layers[0])


@dataclass(frozen=True)
class GradientSum:
    """What a site adds up over the records of one step; all of it private.

    Attributes:
        sums: the clipped gradients, in units of clip 2^-40, in the order of the parameters.
        below: how many records had a gradient no longer than the clip.
        loss: the losses, each cut off at the bound, in units of 2^-20; None if they were not asked for.
    """

    sums: Int64
    below: int
    loss: int | None = None


def clipped_sum(
    network: Network,
    parameters: ArrayLike,
    records: Records,
    clip: float,
    *,
    rows: Int64 | None = None,
    loss_bound: float | None = None,
    workspace: Workspace | None = None,
) -> GradientSum:
    """Return the sum over records of g min(1, clip / |g|), for the gradient g of a record's loss.

    Args:
        network: the architecture.
        parameters: where the gradient is taken: finite and at most 2^64 in magnitude.
        records: what the site holds.
        clip: the length that longer gradients are shortened to.
        rows: the numbers of the records that take part, rising, as `cape.blocks.sampling` gives them; None
            for all.
        loss_bound: also add up the losses, each cut off at this bound.
        workspace: arrays to use again; None makes them.

    Raises:
        InvalidInput: parameters that are not finite, or that no float64 could follow.
        OverflowRisk: more than 2^22 records at once.
    """
    clip = check.real("clip", clip, least=2.0**-64, most=2.0**64)
    if loss_bound is not None:
        loss_bound = check.real("loss_bound", loss_bound, above=0.0, most=ONE)
    if records.network != network:
        raise InvalidInput("records must have been prepared for this network")
    if workspace is None:
        workspace = Workspace(network)
    elif workspace.network != network:
        raise InvalidInput("workspace must have been made for this network")
    count = len(records)
    if rows is not None:
        rows = np.asarray(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not _rising(rows, count):
            raise InvalidInput("rows must be a vector of numbers of records that rise: each at most once")
        count = len(rows)
    if count > _MOST_ROWS:
        raise OverflowRisk("a sum of gradients takes at most 2^22 records; use a smaller rate or more sites")
    vector = network.check_parameters(parameters)
    with np.errstate(over="ignore", invalid="ignore"):
        one_number = len(network.hidden) == 1 and network.outputs == 1 and network.activation == "relu"
        kind = _OneHidden if one_number else _Layers
        adder = kind(network, vector, clip, loss_bound, workspace)
        size = -(-count // max(-(-count // workspace.rows), 1))  # chunks as even as can be
        for start in range(0, count, max(size, 1)):
            stop = min(start + size, count)
            if rows is None:
                part = slice(start, stop)
                steps, squares, targets = records.steps[part], records.squares[part], records.targets[part]
            else:
                taken = rows[start:stop]
                steps = workspace.inputs[: stop - start]
                np.take(records.steps, taken, axis=0, out=steps, mode="clip")
                squares, targets = records.squares[taken], records.targets[taken]
            adder.add(steps, squares, targets)
        return adder.result()


class _Adder:
    """What both ways of adding share: the first layer, the loss, and the totals."""

    def __init__(
        self, network: Network, vector: Float64, clip: float, loss_bound: float | None, workspace: Workspace
    ) -> None:
        self.network, self.clip, self.loss_bound, self.workspace = network, clip, loss_bound, workspace
        self.layers = _grids(network, vector)
        self.below, self.loss = 0, 0
        self.totals = np.zeros(network.size, np.int64)
        self.parts: list[Int64] = network.matrices(self.totals)

    def result(self) -> GradientSum:
        return GradientSum(self.totals, self.below, None if self.loss_bound is None else self.loss)

    def _lengths(self, lengths: Float64) -> Float64:
        """Count the gradients that are short enough, and return what to divide each by."""
        self.below += int(np.count_nonzero(lengths <= self.clip))
        return np.maximum(lengths, self.clip, out=lengths)

    def _add_loss(self, losses: Float64) -> None:
        assert self.loss_bound is not None
        self.loss += int(np.trunc(np.clip(losses, 0.0, self.loss_bound) * 2.0**LOSS_BITS).sum())


class _Layers(_Adder):
    """Any network: signals of every layer, then one product per layer."""

    def __init__(
        self, network: Network, vector: Float64, clip: float, loss_bound: float | None, workspace: Workspace
    ) -> None:
        super().__init__(network, vector, clip, loss_bound, workspace)
        _choose_signal_grids(network, self.layers)

    def add(self, steps: Float64, squares: Float64, targets: NDArray[Any]) -> None:
        count, last = len(steps), len(self.layers) - 1
        inputs: list[Float64] = [steps]
        lengths: list[Float64] = [squares]  # |a|² + 1 of each layer's inputs
        for i, layer in enumerate(self.layers):
            sums = self.workspace.layers[i][:count]
            _product(inputs[i], layer.weights, sums)
            if layer.bias is not None:
                sums += layer.bias
            if i < last:
                self._activate(sums, layer)
                inputs.append(sums)
                lengths.append(_squares(sums) * 4.0**-layer.out_bits + 1.0)
        signals = [signal[:count] for signal in self.workspace.signals]
        self._output(sums, targets, signals[last])
        total = np.zeros(count)
        for i in range(last, -1, -1):
            layer, signal = self.layers[i], signals[i]
            if i < last:
                above = self.layers[i + 1]
                if above.back.shape[1] == 1:  # one product and no sum
                    np.multiply(signals[i + 1], above.back.T, out=signal)
                else:
                    _product(signals[i + 1], above.back.T, signal)
                self._differentiate(inputs[i + 1], signal, layer)
            _truncate(signal, layer.signal_bits)
            total += _squares(signal) * lengths[i]
        scale = _KEEP / self._lengths(np.sqrt(total))
        for layer, signal, given, part in zip(self.layers, signals, inputs, self.parts, strict=True):
            bits = BITS - layer.in_bits
            signal *= (scale * 2.0**bits)[:, None]
            np.trunc(signal, out=signal)
            if layer.bias is None:
                part += _cross(given, signal).astype(np.int64)
            else:
                part[:-1] += _cross(given, signal).astype(np.int64)
                part[-1] += signal.sum(axis=0).astype(np.int64) << layer.in_bits

    def _activate(self, sums: Float64, layer: _Layer) -> None:
        """Turn sums into activations in whole steps."""
        kind = self.network.activation
        if kind == "tanh":
            sums[...] = _tanh(sums)
        elif kind == "sigmoid":
            sums[...] = _sigmoid(sums)
        elif kind == "relu":
            np.maximum(sums, 0.0, out=sums)
        if kind in ("tanh", "sigmoid"):
            np.multiply(sums, 2.0**layer.out_bits, out=sums)
        elif layer.cap is not None:
            np.clip(sums, -layer.cap, layer.cap, out=sums)
        np.trunc(sums, out=sums)

    def _differentiate(self, activations: Float64, signal: Float64, layer: _Layer) -> None:
        """Multiply a signal by the derivative of the activation."""
        kind = self.network.activation
        if kind == "relu":
            signal *= np.minimum(activations, 1.0)  # whole steps: 0 or at least 1
        elif kind != "identity":
            natural = activations * 2.0**-layer.out_bits
            signal *= 1.0 - natural * natural if kind == "tanh" else natural * (1.0 - natural)

    def _output(self, sums: Float64, targets: NDArray[Any], signal: Float64) -> None:
        """Write the derivative of the loss by the last sums."""
        if self.network.loss == "squared":
            np.subtract(sums, targets, out=signal)
            if self.loss_bound is not None:
                losses = np.zeros(len(sums))
                for column in signal.T:  # one after the other: the order is fixed
                    losses += 0.5 * column * column
                self._add_loss(losses)
        elif self.network.outputs == 1:
            np.subtract(_sigmoid(sums), targets, out=signal)
            if self.loss_bound is not None:
                self._add_loss(_cross_entropy(sums, targets)[:, 0])
        else:
            sums -= sums.max(axis=1, keepdims=True)
            np.trunc(_exp(sums) * 2.0**40, out=signal)  # at most 2^12 of them: the sum is exact
            total = _dot(signal, np.ones(signal.shape[1]))
            signal /= total[:, None]
            everyone = np.arange(len(sums))
            signal[everyone, targets] -= 1.0
            if self.loss_bound is not None:
                self._add_loss(_log(total * 2.0**-40) - sums[everyone, targets])


class _OneHidden(_Adder):
    """One hidden layer of ReLUs and one output: one number per record stands for all signals (5)."""

    def __init__(
        self, network: Network, vector: Float64, clip: float, loss_bound: float | None, workspace: Workspace
    ) -> None:
        super().__init__(network, vector, clip, loss_bound, workspace)
        weights = np.ascontiguousarray(network.matrices(vector)[1][:-1, 0], np.float64)
        # whole numbers of at most 25 bits, and their squares rounded up to what any sum of them can hold
        self.shift = min(25 - _exponent(float(np.max(np.abs(weights)))), BITS)
        whole = np.trunc(weights * 2.0**self.shift)
        self.whole = whole.astype(np.int64)
        spare = 2.0 ** len(weights).bit_length()
        self.squares = np.ceil(whole * whole / spare) * (spare * 4.0**-self.shift)
        output = self.layers[1]
        assert output.bias is not None
        self.last, self.bias = output.weights[:, 0], float(output.bias[0])
        if network.loss == "cross-entropy":  # in the units of the table of the sigmoid
            self.last = self.last * _SIGMOID_PARTS
            self.bias = self.bias * _SIGMOID_PARTS + _SIGMOID_MIDDLE
        self.far = output.most > 2.0**40
        self.sums = np.zeros((network.inputs + 1, len(weights)))
        self.room = _MOST_CHUNK
        self.bits = BITS - output.in_bits

    def add(self, steps: Float64, squares: Float64, targets: NDArray[Any]) -> None:
        count = len(steps)
        hidden, output = self.layers
        workspace = self.workspace
        units, active = workspace.layers[0][:count], workspace.signals[0][:count]
        _product(steps, hidden.weights, units)
        np.maximum(units, workspace.zeros[:count], out=units)
        if hidden.cap is not None:
            np.minimum(units, hidden.cap, out=units)
        np.floor(units, out=units)
        np.minimum(units, workspace.ones[:count], out=active)  # whole steps: 0 or at least 1
        signal = self._signal(_dot(units, self.last), targets[:, 0])
        lengths = _squares(units)
        lengths *= 4.0**-hidden.out_bits
        lengths += 1.0
        below = _dot(active, self.squares)
        below *= squares
        lengths += below
        np.sqrt(lengths, out=lengths)
        lengths *= np.abs(signal)
        signal /= self._lengths(lengths)
        signal *= _KEEP * 2.0**self.bits
        numbers = np.trunc(signal)
        part = self.parts[1]
        part[:-1, 0] += _dot(numbers, units).astype(np.int64)
        part[-1, 0] += int(numbers.sum()) << output.in_bits
        signal *= 2.0 ** (BITS - _INPUT_BITS - self.bits)
        np.trunc(signal, out=signal)
        active *= signal[:, None]
        if count > self.room:
            self._flush()
        self.room -= count
        self.sums += _cross(steps, active)

    def _signal(self, sums: Float64, labels: Float64) -> Float64:
        """Return the derivative of the loss, and add up the loss if it is asked for."""
        sums += self.bias
        if self.network.loss == "squared":
            sums -= labels
            if self.loss_bound is not None:
                self._add_loss(0.5 * sums * sums)
            return sums
        if self.loss_bound is not None:
            self._add_loss(_cross_entropy((sums - _SIGMOID_MIDDLE) * (1.0 / _SIGMOID_PARTS), labels))
        signal = _sigmoid_at(sums, self.far)
        signal -= labels
        return signal

    def _flush(self) -> None:
        """Move the exact sums of at most 8192 records from float64 to int64."""
        self.parts[0][...] += self.sums.astype(np.int64)
        self.sums[...] = 0.0
        self.room = _MOST_CHUNK

    def result(self) -> GradientSum:
        self._flush()
        self.parts[0][...] = _times(self.parts[0], self.whole, self.shift)
        return super().result()


def _times(sums: Int64, whole: Int64, shift: int) -> Int64:
    """Return floor(sums whole / 2^shift), which fits 63 bits, without a product that does not."""
    if shift <= 0:
        return (sums * whole) << -shift
    bits = min(shift, 26)
    high, low = sums >> bits, sums & ((1 << bits) - 1)
    high *= whole
    low *= whole
    low >>= bits
    high += low
    high >>= shift - bits
    return high


@dataclass
class _Layer:
    """A layer on its grids."""

    weights: Float64  # from inputs in steps to sums, in steps of the activations or natural
    bias: Float64 | None  # None where the inputs have a column for it
    back: Float64  # natural
    in_bits: int  # the inputs' grid is 2^-in_bits
    out_bits: int  # the activations'
    cap: float | None  # activations in steps are cut off here
    most: float  # what a sum can come to
    bounds: Float64  # what the activations can come to
    signal_bits: int = 0


def _grids(network: Network, vector: Float64) -> list[_Layer]:
    """Choose the grids from the parameters, and put the weights on them."""
    magnitudes = np.abs(vector)
    if not magnitudes.max() <= 2.0**64:
        raise InvalidInput("parameters must be finite and at most 2^64 in magnitude")
    layers: list[_Layer] = []
    bounds, bits, typical = None, _INPUT_BITS, math.sqrt(network.inputs / 3)
    for matrix, magnitude in zip(network.matrices(vector), network.matrices(magnitudes), strict=True):
        # what the sums can come to
        bounds = magnitude.sum(axis=0) if bounds is None else bounds @ magnitude[:-1] + magnitude[-1]
        most = float(bounds.max())
        places = min(_EXACT - bits - _exponent(most), 60)
        whole = matrix * 2.0**places
        np.trunc(whole, out=whole)
        out_bits, cap, scale = 0, None, 0
        if len(layers) < len(network.hidden):
            fan_in, units = len(matrix) - 1, matrix.shape[1]
            square = float(np.vdot(matrix, matrix)) * max(typical * typical / fan_in, 1.0 / 16)
            typical = min(math.sqrt(square / 2), 2.0**_INPUT_BITS)
            if network.activation in ("tanh", "sigmoid"):
                bounds = np.minimum(bounds, 1.0)
                typical = min(typical, math.sqrt(units))
            # the coarser for the activations, the finer for the signals; squares have to be exact
            room = (_EXACT - _exponent(float(np.dot(bounds, bounds)))) // 2
            wanted = _INPUT_BITS - round(math.log2(max(typical, 1.0)))
            out_bits = max(min(wanted, room), 0)
            if room < 0:
                cap = math.floor(2.0 ** (_EXACT / 2) / math.sqrt(units))
                bounds = np.minimum(bounds, cap)
            scale = out_bits if network.activation in ("relu", "identity") else 0
        whole *= 2.0 ** (scale - places - bits)
        weights, bias = (whole[:-1], whole[-1] * 2.0**bits) if layers else (whole, None)
        layers.append(_Layer(weights, bias, matrix[:-1], bits, out_bits, cap, most, bounds))
        bits = out_bits
    return layers


def _choose_signal_grids(network: Network, layers: list[_Layer]) -> None:
    """Choose the grids of the signals, from the last layer to the first."""
    bounds = np.ones(network.outputs) if network.loss == "cross-entropy" else layers[-1].bounds + 1.0
    for layer in layers[::-1]:
        if len(bounds) == 1:
            layer.signal_bits = 50 - _exponent(float(bounds[0]))
        else:
            layer.signal_bits = (_EXACT - _exponent(float(np.dot(bounds, bounds)))) // 2
        below = np.matmul(np.abs(layer.back), bounds)
        most = float(below.max())
        if not most <= 2.0**400:
            raise InvalidInput(
                "parameters must be smaller: the gradients they make leave the range of float64"
            )
        if len(bounds) > 1:
            layer.back = _on_grid(layer.back, _EXACT - layer.signal_bits - _exponent(most))
        bounds = below


def _exponent(value: float) -> int:
    """Return e with value <= 2^e, and not far below; -60 for what is smaller still."""
    return max(math.frexp(value)[1], -60)


def _on_grid(values: Float64, bits: int) -> Float64:
    return np.asarray(np.trunc(values * 2.0**bits) * 2.0**-bits)


def _truncate(values: Float64, bits: int) -> None:
    np.multiply(values, 2.0**bits, out=values)
    np.trunc(values, out=values)
    np.multiply(values, 2.0**-bits, out=values)


def _rising(rows: Int64, count: int) -> bool:
    """Return whether these are numbers below `count`, each at most once."""
    if not rows.size:
        return True
    return bool(rows[0] >= 0 and rows[-1] < count and (rows[1:] > rows[:-1]).all())


# Sums over several numbers: these four, and the grids see to it that all of them are exact.


def _dot(left: Float64, right: Float64) -> Float64:
    return np.asarray(np.matmul(left, right))


def _product(left: Float64, right: Float64, out: Float64) -> None:
    """Write left @ right, in blocks of rows that BLAS multiplies without packing them first."""
    count, rows = _blocks(len(left), right.size)
    whole = count * rows
    if count > 1:
        np.matmul(left[:whole].reshape(count, rows, -1), right, out=out[:whole].reshape(count, rows, -1))
    if count <= 1 or whole < len(left):
        whole = whole if count > 1 else 0
        np.matmul(left[whole:], right, out=out[whole:])


def _cross(left: Float64, right: Float64) -> Float64:
    """Return left.T @ right, in the same blocks."""
    count, rows = _blocks(len(left), left.shape[1] * right.shape[1])
    if count <= 1:
        return np.asarray(left.T @ right)
    whole = count * rows
    stacked = left[:whole].reshape(count, rows, -1).transpose(0, 2, 1)
    sums: Float64 = np.add.reduce(np.matmul(stacked, right[:whole].reshape(count, rows, -1)), axis=0)
    if whole < len(left):
        sums += left[whole:].T @ right[whole:]
    return sums


def _blocks(rows: int, size: int) -> tuple[int, int]:
    """Return how many blocks of how many rows to multiply by a matrix of `size` entries."""
    most = _SMALL_PRODUCT // size
    if most < 64 or rows <= most:
        return 1, rows
    count = -(-rows // most)
    return count, rows // count


def _row_squares(values: Float64) -> Float64:
    return np.asarray(np.einsum("ij,ij->i", values, values))


def _row_dots(values: Float64) -> Float64:
    return np.asarray(np.vecdot(values, values))


_squares = _row_dots if hasattr(np, "vecdot") else _row_squares  # faster, from numpy 2 on


# Functions of one number, made of operations that IEEE 754 rounds exactly: the same value anywhere.

_EXP_PARTS = 32
_EXP_LOWEST = -60
_EXP_TABLE = np.array([math.exp(-i / _EXP_PARTS) for i in range(-_EXP_LOWEST * _EXP_PARTS + 1)])


def _exp(values: Float64) -> Float64:
    """Return exp of values that are at most 0, to a part in 2^36; of less than -60, as of -60."""
    rest = np.maximum(values, _EXP_LOWEST)
    parts = np.rint(rest * -_EXP_PARTS)
    rest += parts * (1.0 / _EXP_PARTS)
    power = rest * (1 / 24)
    power += 1 / 6
    power *= rest
    power += 1 / 2
    power *= rest
    power += 1.0
    power *= rest
    power += 1.0
    power *= _EXP_TABLE[parts.astype(np.intp)]
    return power


_SIGMOID_PARTS = 256
_SIGMOID_MIDDLE = 20 * _SIGMOID_PARTS
_SIGMOID = np.array(
    [1.0 / (1.0 + math.exp(-i / _SIGMOID_PARTS)) for i in range(-_SIGMOID_MIDDLE, _SIGMOID_MIDDLE + 1)]
)
_SIGMOID_SLOPE = _SIGMOID * (1.0 - _SIGMOID) / _SIGMOID_PARTS


def _sigmoid(values: Float64) -> Float64:
    """Return 1 / (1 + exp(-x)), to 2^-22."""
    return _sigmoid_at(values * _SIGMOID_PARTS + _SIGMOID_MIDDLE, True)


def _sigmoid_at(places: Float64, far: bool) -> Float64:
    """Return the sigmoid of (places - middle) / parts: a table, and its slope in between."""
    if far:
        np.maximum(places, 0.0, out=places)
        np.minimum(places, 2.0 * _SIGMOID_MIDDLE, out=places)
    nearest = np.rint(places)
    places -= nearest
    index = nearest.astype(np.intp)
    places *= _SIGMOID_SLOPE.take(index, mode="clip")
    places += _SIGMOID.take(index, mode="clip")
    return places


def _tanh(values: Float64) -> Float64:
    small = _exp(np.abs(values) * -2.0)
    return np.copysign((1.0 - small) / (1.0 + small), values)


def _cross_entropy(logits: Float64, labels: Float64) -> Float64:
    return np.asarray(_log(1.0 + _exp(-np.abs(logits))) + np.maximum(logits, 0.0) - logits * labels)


def _log(values: Float64) -> Float64:
    """Return the logarithm of values of at least 1, to 2^-30."""
    fraction, exponent = np.frexp(values)
    ratio = (1.0 - fraction) / (1.0 + fraction)
    square = ratio * ratio
    series = np.full_like(square, 1 / 19)
    for odd in range(17, 0, -2):
        series = series * square + 1 / odd
    return np.asarray(exponent * math.log(2.0) - 2.0 * ratio * series)
