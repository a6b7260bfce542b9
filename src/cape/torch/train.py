"""Train any torch module across sites: every step is one release of clipped gradients.

Claim. A step costs at most the mu of its stage.
Reason. (1) A record adds a vector of norm at most 1 in units of the clip, and rounding moves a difference of
sums by at most `rounding_slack(batch)` more (`cape.torch.rounding`).
(2) Records go through the module in batches of at most 2^13, and each batch's sum is truncated to multiples
of 2^-40 of the clip and added as integers. One record is in one batch, whose truncation moves a difference by
less than two of these multiples in each entry, so by sqrt(parameters) 2^-39 in all. Both slacks are part of
the sensitivity, and of what one record alone adds.
(3) Kernels may change the last bits of every record when the batch size changes, and with sampling one more
record makes the batch larger. Hence `_places`: batches have a public size, `slots`, and the
sampled records are put into slots at random, in secret; the remaining slots repeat the first record
with factor 0. One more sampled record takes an empty slot, and all others stay where they are, in a batch of
the same shape: their bits stay the same if a kernel's result for one record does not depend on what another
record holds. That is assumed, as for whole tables, and nothing else. Slots run out with probability below
2^-50 a training step under "replace-one"; under "add-remove" each site has as many as `rows` asks for.
(4) Modules and losses are custom code: a stage is paid for even if they fail.
Tested in tests/torch/test_train.py.

The gradients leave the device as one vector; grid, noise and masks are the host's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import rel_entr

from cape.blocks.block import Array
from cape.blocks.holder import Held, Holder
from cape.blocks.sampling import sample
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.consortium import Consortium
from cape.engine.execute import Progress
from cape.engine.query import AnalysisResult, Neighbours, Query
from cape.engine.result import Release
from cape.learning.checkpoint import fingerprint
from cape.learning.descent import Descent, Training
from cape.learning.gradient_descent import DescentModel
from cape.noise import SecureStream
from cape.privacy import Budget
from cape.torch.batch import Batch
from cape.torch.clipped import ClippedSums
from cape.torch.refuse import require_loss, require_module, trainable
from cape.torch.rounding import rounding_slack

__all__ = ["Trained", "train"]

Floats = NDArray[np.float64]

_BITS = 40
_MOST_ROWS = 1 << 22  # at one site: their sums stay within 64 bits
_PART = 1 << 13  # records that go through the module together
_RUN_OUT = 50 * math.log(2)  # slots run out with a probability of at most exp(-this) a step


class Trained(NamedTuple):
    """The module with its new parameters, the release that they came from, and the budget after it."""

    module: Any
    release: Release
    budget: Budget

    @property
    def learning_curve(self) -> list[Any]:
        """What was released in each training step."""
        return list(self.release.model.learning_curve)


def train(
    module: Any,
    sites: Mapping[str, tuple[Any, Any]],
    loss: Callable[[Any, Any], Any],
    *,
    budget: Budget,
    share: float = 1.0,
    colluding: int | None = None,
    min_sites: int | None = None,
    scheme: str = "cape",
    neighbours: Neighbours = "replace-one",
    drop: Mapping[Any, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    stream: SecureStream | None = None,
    **training: Any,
) -> Trained:
    """Train a module on the records of several sites, and return it with what it cost.

    >>> sites = {"a": (x_a, y_a), "b": (x_b, y_b), "c": (x_c, y_c)}
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> train(module, sites, loss, budget=cape.Budget(2, 1e-5), epochs=20, sampling=0.1, clip=1.0)

    Args:
        module: any `torch.nn.Module` that treats each record by itself; its parameters are the start, and
            are replaced in place. If the run fails they are as they were.
        sites: name -> (inputs, targets), tensors whose first dimension is the records; several inputs are
            a tuple. Real numbers are taken in the module's precision.
        loss: `loss(output, target)` with one value for each record (reduction="none"). A record whose loss
            or gradient is not finite adds nothing.
        budget, share: what the run may cost. A `Budget` never changes: what is left is in the result, or
            in a note of the exception. A run resumed from a checkpoint pays for all its training steps: give
            it the budget that the run started with.
        colluding, min_sites, scheme, neighbours, stream: as for `cape.Consortium`.
        drop, progress: as for `Consortium.release`.
        **training: epochs, sampling, clip, rate, optimiser, checkpoint, rows: see `cape.learning.Training`.
    """
    require_loss(loss)
    how = Training.of(training)
    if how.watched:
        raise InvalidInput("losses are tracked, and clips adapted, in a NeuralNetwork only")
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"module must be a torch.nn.Module, not {type(module).__name__}")
    if not isinstance(sites, Mapping) or not sites:
        raise InvalidInput("sites must map at least one name to (inputs, targets)")
    parameters = trainable(module)
    require_module(module, parameters)
    held = {name: _Tensors(name, module, loss, _batch(name, pair)) for name, pair in sites.items()}
    together = Consortium(
        held,
        Schema(record=(0, 1)),
        budget,
        colluding=colluding,
        min_sites=min_sites,
        scheme=scheme,
        neighbours=neighbours,
        stream=stream,
    )
    first = _vector(parameters)
    shapes = tuple(tuple(parameter.shape) for parameter in parameters)
    public = max(each.rows() for each in held.values()) if neighbours == "replace-one" else how.rows
    told = f"{getattr(loss, '__qualname__', type(loss).__name__)} {fingerprint(loss)}"
    asked = _ModuleDescent(how, type(module).__name__, first, shapes, neighbours, public or 1, told)
    try:
        release = together.release(asked, share, drop=drop, progress=progress or False)
    except BaseException as error:
        load(module, first)
        error.add_note(f"the budget now: {together.budget}")
        raise
    load(module, release.model.parameters)
    return Trained(module, release, together.budget)


def load(module: Any, parameters: Floats) -> None:
    """Set the trainable parameters of a module from a flat vector, in place."""
    place = 0
    with torch.no_grad():
        for parameter in trainable(module):
            part = parameters[place : place + parameter.numel()].reshape(parameter.shape)
            parameter.copy_(torch.as_tensor(part, dtype=parameter.dtype, device=parameter.device))
            place += parameter.numel()


def slots(rows: int, rate: float) -> int:
    """Return how many records a training step has room for, from public numbers.

    The smallest n for which Chernoff's bound on the chance that a Poisson sample has more, exp(-rows KL(n /
    rows, rate)), is below 2^-50.
    """
    if rate >= 1:
        return rows
    low, high = math.floor(rows * rate), rows
    while low < high:
        middle = (low + high) // 2
        if rows * _divergence((middle + 1) / rows, rate) >= _RUN_OUT:
            high = middle
        else:
            low = middle + 1
    return low


def _divergence(a: float, b: float) -> float:
    """Return KL(a, b) of two Bernoulli distributions."""
    return float(rel_entr(a, b) + rel_entr(1 - a, 1 - b))


def _places(chosen: NDArray[np.int64], room: int, stream: SecureStream) -> tuple[Any, Any]:
    """Return which record is in each slot, and whether it counts: a random slot for each sampled record."""
    while room < len(chosen):  # see (3) at the head of the module
        room *= 2
    places = np.argsort(stream.words(room), kind="stable")[: len(chosen)]
    index, keep = np.zeros(room, np.int64), np.zeros(room, bool)
    index[places], keep[places] = chosen, True
    return torch.from_numpy(index), torch.from_numpy(keep)


def _vector(parameters: list[Any]) -> Floats:
    parts = [parameter.detach().double().reshape(-1).cpu().numpy() for parameter in parameters]
    return np.concatenate(parts)


def _batch(name: str, pair: Any) -> Batch:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidInput(f"site {name!r} must be a pair (inputs, targets) of tensors")
    try:
        batch = Batch.of(*pair)
    except InvalidInput as error:
        raise InvalidInput(f"site {name!r}: {error}") from None
    if len(batch) > _MOST_ROWS:
        raise InvalidInput(f"site {name!r} must have at most {_MOST_ROWS:,} records")
    return batch


@dataclass(frozen=True, eq=False)
class _ModuleGradient(Held):
    """The clipped gradients of a module at these parameters; `rows` is the public number of records."""

    parameters: Floats
    clip: float
    rate: float = 1.0
    rows: int | None = None

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        return (Array("sums", (self.parameters.size,), _BITS),)


class _Tensors(Holder):
    """A site's records as tensors."""

    def __init__(self, name: str, module: Any, loss: Any, records: Batch) -> None:
        self.name, self._module, self._records = name, module, records
        self._clipped = ClippedSums(module, loss)
        self._like = trainable(module)[0]

    def rows(self) -> int:
        return len(self._records)

    def sums(
        self, blocks: Sequence[Any], stream: SecureStream | None = None
    ) -> list[tuple[NDArray[np.int64], ...]]:
        return [(self._sum(block, stream),) for block in blocks]

    def _sum(self, block: _ModuleGradient, stream: SecureStream | None) -> NDArray[np.int64]:
        load(self._module, block.parameters)
        total = np.zeros(block.parameters.size, np.int64)
        for batch, keep in self._batches(block, stream):
            found = self._clipped(batch.inputs, batch.targets, block.clip, keep).total.cpu().numpy()
            total += np.trunc(found * (2.0**_BITS / block.clip)).astype(np.int64)
        return total

    def _batches(self, block: _ModuleGradient, stream: SecureStream | None) -> Any:
        """Yield batches of public sizes, and which of their records count (None: all)."""
        rows = self.rows()
        if not rows:
            return
        index = keep = None
        room = rows
        if block.rate < 1 or block.rows is not None:
            if stream is None:
                raise InvalidInput("a site that samples its records needs a stream to draw from")
            chosen = sample(stream, rows, block.rate)
            index, keep = _places(chosen, slots(block.rows or rows, block.rate), stream)
            room = len(index)
        for start in range(0, room, _PART):
            some = slice(start, min(start + _PART, room))
            if index is None or keep is None:
                yield self._on_device(self._records[some]), None
            else:
                yield self._on_device(self._records[index[some]]), keep[some].to(self._like.device)

    def _on_device(self, batch: Batch) -> Batch:
        """Return the batch on the module's device, real numbers in its precision."""
        parts = [
            part.to(self._like.device, self._like.dtype if part.is_floating_point() else part.dtype)
            for part in (*batch.inputs, batch.targets)
        ]
        return Batch(tuple(parts[:-1]), parts[-1])


@dataclass(frozen=True, eq=False)
class _ModuleDescent(Descent):
    """Descent on a module's loss."""

    kind: ClassVar[str] = "module"
    training: Training
    what: str
    first: Floats
    shapes: tuple[tuple[int, ...], ...]
    neighbours: Neighbours
    rows: int
    """The largest public number of records at one site."""
    loss: str = ""

    def start(self, schema: Schema) -> Floats:
        return self.first

    def block(self, schema: Schema, parameters: Floats, clip: float) -> Any:
        reckoned = None if self.neighbours == "replace-one" else self.rows
        return _ModuleGradient(parameters, clip, self.training.sampling, reckoned)

    def question(self, schema: Schema, neighbours: Neighbours, parameters: Floats, clip: float) -> Query:
        query = super().question(schema, neighbours, parameters, clip)
        batch = min(_PART, slots(self.rows, self.training.sampling))
        rounding = rounding_slack(batch) + math.sqrt(parameters.size) * 2.0 ** (1 - _BITS)
        assert query.norm is not None
        return Query(query.blocks, query.scales, query.sensitivity + rounding, query.norm + rounding)

    def found(self, schema: Schema, parameters: Floats, history: Floats) -> AnalysisResult:
        return AnalysisResult((), DescentModel(parameters, history))

    def describe(self) -> str:
        return f"{self.what} of {self.first.size:,} parameters, in {self.training.steps} steps"

    def to_dict(self) -> dict[str, Any]:
        told = {key: value for key, value in vars(self.training).items() if key != "checkpoint"}
        shapes = [list(shape) for shape in self.shapes]
        return {"kind": self.kind, "module": self.what, "loss": self.loss, "shapes": shapes, **told}
