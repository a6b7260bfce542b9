"""Train any torch module across sites: every step is one release of clipped gradients.

Claim. A step costs at most the mu of its stage.
Reason. A record adds a vector of norm at most 1 in units of the clip, and rounding of the sum moves a
difference by at most `rounding_slack(batch)` more (`cape.torch.rounding`). The sum is then truncated to
multiples of 2^-40 of the clip, which moves a difference by at most sqrt(parameters) of them. Both are part
of the sensitivity. The gradients leave the device as one vector; grid, noise and masks are the host's.
Tested in tests_torch/test_train.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cape import check
from cape.errors import InvalidInput
from cape.learning.descent import Descent, Training, history_table
from cape.noise import SecureStream
from cape.privacy import Budget
from cape.release.consortium import Consortium
from cape.release.query import Finding, Neighbours, Query
from cape.release.result import Release
from cape.release.run import Progress
from cape.site import Schema
from cape.site.blocks import Array, Held
from cape.site.holder import Holder
from cape.site.sampling import sample
from cape.torch.clipped import ClippedSums
from cape.torch.refuse import require_loss, require_module, trainable
from cape.torch.rounding import rounding_slack

__all__ = ["Trained", "train"]

Floats = NDArray[np.float64]

_BITS = 40
_MOST_ROWS = 1 << 22


class Trained(NamedTuple):
    """The module, with its new parameters, and the release that they came from."""

    module: Any
    release: Release

    @property
    def learning_curve(self) -> list[Any]:
        """What was released of each step."""
        return history_table(self.release.model)


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
            are replaced in place.
        sites: name -> (inputs, targets), tensors whose first dimension is the records.
        loss: `loss(output, target)` with one value for each record (reduction="none").
        budget, share: what the run may cost.
        colluding, min_sites, scheme, neighbours, stream: as for `cape.Consortium`.
        drop, progress: as for `Consortium.release`.
        **training: epochs, sampling, clip, rate, optimiser, checkpoint: see `cape.learning.Training`.
    """
    require_loss(loss)
    try:
        how = Training(**training)
    except TypeError as error:
        raise InvalidInput(f"train cannot be told this: {error}") from None
    if how.watched:
        raise InvalidInput("losses are watched, and clips adapted, in a NeuralNetwork only")
    parameters = trainable(module)
    require_module(module, parameters)
    shared = ClippedSums(module, loss)
    held = {name: _Tensors(name, module, shared, *_pair(name, pair)) for name, pair in sites.items()}
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
    largest = max(each.rows() for each in held.values())
    asked = _ModuleDescent(how, type(module).__name__, _vector(parameters), largest)
    release = together.release(asked, share, drop=drop, progress=progress)
    load(module, asked.result)
    return Trained(module, release)


def load(module: Any, parameters: Floats) -> None:
    """Put a flat vector into the trainable parameters of a module, in place."""
    place = 0
    with torch.no_grad():
        for parameter in trainable(module):
            part = parameters[place : place + parameter.numel()].reshape(parameter.shape)
            parameter.copy_(torch.as_tensor(part, dtype=parameter.dtype, device=parameter.device))
            place += parameter.numel()


def _vector(parameters: list[Any]) -> Floats:
    parts = [parameter.detach().double().reshape(-1).cpu().numpy() for parameter in parameters]
    return np.concatenate(parts)


def _pair(name: str, pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidInput(f"site {name!r} must be a pair (inputs, targets) of tensors")
    inputs, targets = pair
    lengths = {len(each) for each in (*(inputs if isinstance(inputs, tuple) else (inputs,)), targets)}
    if len(lengths) != 1:
        raise InvalidInput(f"site {name!r} must have as many targets as inputs")
    return inputs, targets


@dataclass(frozen=True, eq=False)
class _ModuleGradient(Held):
    """The clipped gradients of a module at these parameters."""

    parameters: Floats
    clip: float
    rate: float

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        return (Array("sums", (self.parameters.size,), _BITS),)


class _Tensors(Holder):
    """A site's records as tensors."""

    def __init__(self, name: str, module: Any, clipped: ClippedSums, inputs: Any, targets: Any) -> None:
        self.name, self._module, self._clipped = name, module, clipped
        self._inputs, self._targets = inputs, targets
        self._device = next(module.parameters()).device

    def rows(self) -> int:
        return len(self._targets)

    def sums(
        self, blocks: Sequence[Any], stream: SecureStream | None = None
    ) -> list[tuple[NDArray[np.int64], ...]]:
        return [(self._sum(block, stream),) for block in blocks]

    def _sum(self, block: _ModuleGradient, stream: SecureStream | None) -> NDArray[np.int64]:
        load(self._module, block.parameters)
        rows = None
        if block.rate < 1:
            assert stream is not None
            rows = torch.from_numpy(sample(stream, self.rows(), block.rate))
        found = self._clipped(self._part(self._inputs, rows), self._part(self._targets, rows), block.clip)
        total = found.total.cpu().numpy() * (2.0**_BITS / block.clip)
        return np.asarray(np.trunc(total), np.int64)

    def _part(self, tensors: Any, rows: Any) -> Any:
        if isinstance(tensors, tuple):
            return tuple(self._part(each, rows) for each in tensors)
        chosen = tensors if rows is None else tensors[rows.to(tensors.device)]
        return chosen.to(self._device)


@dataclass(eq=False)
class _ModuleDescent(Descent):
    """Descent on a module's loss."""

    kind: ClassVar[str] = "module"
    training: Training
    what: str
    first: Floats
    largest: int
    result: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        check.integer("records at one site", self.largest, least=1, most=_MOST_ROWS)

    def start(self, schema: Schema) -> Floats:
        return self.first

    def block(self, schema: Schema, parameters: Floats, clip: float) -> Any:
        return _ModuleGradient(parameters, clip, self.training.sampling)

    def question(self, schema: Schema, neighbours: Neighbours, parameters: Floats, clip: float) -> Query:
        query = super().question(schema, neighbours, parameters, clip)
        rounding = rounding_slack(self.largest) + math.sqrt(parameters.size) * 2.0 ** (1 - _BITS)
        assert query.norm is not None
        return Query(query.blocks, query.scales, query.sensitivity + rounding, query.norm + rounding)

    def found(self, schema: Schema, parameters: Floats, history: Floats) -> Finding:
        self.result = parameters
        return Finding((), history)

    def describe(self) -> str:
        return f"{self.what} of {self.first.size:,} parameters, in {self.training.steps} steps"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "module": self.what, "parameters": self.first.size, **vars(self.training)}
