"""The sum over a batch of per-record gradients, each clipped to an L2 norm: the private step of any module.

Claim. Each record adds to `total` a vector of norm at most `clip`, whatever the record holds;
`rounding_slack` bounds what rounding adds. A record whose loss or gradient is not finite adds nothing.
Reason. The gradient of a record is over all trainable parameters together; its norm is measured in
closed form or from the gradient itself, and the same numbers are then added with factors
min(1, clip (1 - 2^-10) / norm) in float64: see `cape.torch.layers`, `pieces` and `rounding`. That a
record's gradient is its own is checked by `cape.torch.alone` on the first batch of each form.
`norms`, `losses` and `finite` are private: only `total`, with noise, may leave a site.
Tested in tests/torch/test_clipped.py against one record at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch

from cape.core import check
from cape.core.errors import InvalidInput
from cape.torch.alone import choose
from cape.torch.batch import Batch
from cape.torch.capture import Unfit, catch, layers_of
from cape.torch.each import records_at_once, rows_by_loop, rows_by_vmap
from cape.torch.layers import pieces
from cape.torch.pieces import Kept, Piece, joined
from cape.torch.refuse import require_loss, require_module, trainable
from cape.torch.rounding import factors

__all__ = ["ClippedSum", "ClippedSums", "clipped_sum"]

Method = Literal["auto", "ghost", "vmap", "loop"]
_METHODS = get_args(Method)


@dataclass(frozen=True)
class ClippedSum:
    """The clipped sum of a batch.

    Attributes:
        total: the sum, in float64: all trainable parameters in the order of `module.parameters()`.
        norms: each record's norm before clipping (private).
        losses: each record's loss (private).
        finite: how many records were added, a tensor (private: the others were not finite).
    """

    total: Any
    norms: Any = field(repr=False)
    losses: Any = field(repr=False)
    finite: Any = field(repr=False)


def clipped_sum(
    module: Any,
    loss: Callable[[Any, Any], Any],
    inputs: Any,
    targets: Any,
    clip: float,
    *,
    method: Method = "auto",
    at_once: int | None = None,
) -> ClippedSum:
    """Return the sum of a batch's gradients, clipped record by record, after testing the module on a few.

    For more than one batch make a `ClippedSums`: it tests a module once.
    """
    return ClippedSums(module, loss, method=method, at_once=at_once)(inputs, targets, clip)


class ClippedSums:
    """Clipped sums of one module and loss, batch after batch.

    Args:
        module: any `torch.nn.Module` that treats each record by itself, on the CPU or a CUDA device.
        loss: `loss(output, target)` with one value for each record (reduction="none"); dimensions
            beyond the first are added up.
        method: "ghost" (closed forms, no per-record gradients but where they are smaller than the
            activations), "vmap" (per-record gradients by `torch.func`), "loop" (one by one), or "auto":
            the first of these that fits.
        at_once: how many records go through the module together; by default all ("ghost") or as many
            as keep the per-record gradients small.

    Raises:
        InvalidInput: a module that mixes records, a loss that reduces or broadcasts, or a method that
            does not fit.
    """

    def __init__(
        self,
        module: Any,
        loss: Callable[[Any, Any], Any],
        *,
        method: Method = "auto",
        at_once: int | None = None,
    ) -> None:
        if method not in _METHODS:
            raise InvalidInput(f"method must be one of {', '.join(_METHODS)}, not {method!r}")
        require_loss(loss)
        self._module, self._loss, self._method = module, loss, method
        self._at_once = None if at_once is None else check.integer("at_once", at_once, least=1)
        self._chosen: dict[Any, str] = {}

    def __call__(self, inputs: Any, targets: Any, clip: float, keep: Any = None) -> ClippedSum:
        """Return the clipped sum of a batch: see `ClippedSum`.

        `keep`, a tensor of true and false, says which records count; the others go through the module, so
        that a batch keeps its size, and add exactly nothing.
        """
        clip = check.real("clip", clip, above=0.0)
        parameters = trainable(self._module)
        require_module(self._module, parameters)
        batch = Batch.of(inputs, targets)
        sums = _Sums(parameters, clip, keep)
        if len(batch) if keep is None else keep.any():
            for losses, found in self._parts(self.method(batch, keep), batch, parameters):
                with torch.no_grad():
                    sums.add(losses, found)
        return sums.result()

    def method(self, batch: Batch, keep: Any = None) -> str:
        """Return how this batch is clipped; the first of its form is tested on a few of its records."""
        modes = tuple(layer.training for layer in self._module.modules())
        form = (batch.form, modes, tuple(p.requires_grad for p in self._module.parameters()))
        if form in self._chosen:
            return self._chosen[form]
        tried = batch if keep is None else batch[keep]
        method = choose(self._module, self._loss, tried, self._method)
        if len(tried) > 1:  # a single record cannot show mixing
            self._chosen[form] = method
        return method

    def _parts(self, method: str, batch: Batch, parameters: list[Any]) -> Iterator[tuple[Any, list[Piece]]]:
        """Yield losses and gradients, some records at a time."""
        size = self._at_once or (len(batch) if method == "ghost" else records_at_once(parameters))
        for start in range(0, len(batch), size):
            part = batch if size >= len(batch) else batch[start : start + size]
            if method != "ghost":
                yield self._rows(method, part, parameters)
                continue
            try:
                caught = catch(self._module, layers_of(self._module), self._loss, part)
            except Unfit as reason:  # these records took another path through the module than the first did
                if self._method == "ghost":
                    raise InvalidInput(f"method='ghost' does not fit this module: {reason}") from None
                yield from self._parts("loop", part, parameters)
                continue
            yield caught.losses, joined([p for layer, x, g in caught.inputs for p in pieces(layer, x, g)])

    def _rows(self, method: str, batch: Batch, parameters: list[Any]) -> tuple[Any, list[Piece]]:
        rows_of = rows_by_vmap if method == "vmap" else rows_by_loop
        losses, rows = rows_of(self._module, self._loss, batch)
        return losses, [Kept(tuple(parameters), rows)]


class _Sums:
    """The total, with norms and losses, added up part by part."""

    def __init__(self, parameters: list[Any], clip: float, keep: Any = None) -> None:
        first, widths = parameters[0], [parameter.numel() for parameter in parameters]
        self._clip, self._keep, self._seen = clip, keep, 0
        self._total = first.new_zeros(sum(widths), dtype=torch.float64, requires_grad=False)
        parts = zip(parameters, self._total.split(widths), strict=True)
        self._views = {parameter: part.view(parameter.shape) for parameter, part in parts}
        self._squares = [self._total.new_zeros(0)]
        self._losses = [first.new_zeros(0, requires_grad=False)]
        self._finite = torch.zeros((), dtype=torch.int64, device=first.device)

    def add(self, losses: Any, found: list[Piece]) -> None:
        squares = self._total.new_zeros(len(losses))
        for piece in found:
            squares += piece.squares()
        good = (squares + losses).isfinite()
        scale = factors(squares, self._clip)
        if self._keep is not None:
            kept = self._keep[self._seen : self._seen + len(losses)]
            self._seen += len(losses)
            scale, counted = scale * kept, (good & kept).sum()
        else:
            counted = good.sum()
        # Nearly always every record is finite, so the sum is made before that is known: a GPU need not wait.
        before = self._total.clone() if len(self._squares) > 1 else None
        for piece in found:
            piece.add(self._views, scale)
        if not bool(good.all()):
            self._total.zero_() if before is None else self._total.copy_(before)
            which = good.nonzero()[:, 0]
            for piece in found:
                piece.select(which).add(self._views, scale[which])
        self._squares.append(squares)
        self._losses.append(losses)
        self._finite += counted

    def result(self) -> ClippedSum:
        return ClippedSum(
            self._total, torch.cat(self._squares).sqrt_(), torch.cat(self._losses), self._finite
        )
