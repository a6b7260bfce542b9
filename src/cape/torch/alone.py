"""Tests a module on a few records: does it treat each record by itself, and which way of clipping fits it?

Claim. A module or loss that mixes records by mistake (x - x.mean(0), or (B, 1) against (B,)) is refused,
and closed forms are used only where they give the gradients that autograd gives one record at a time.
Reason. Up to four records of the batch are run together and one by one; losses, shapes and gradients have
to agree, and every layer's input has to have the records first in both. That also distinguishes records from
positions when a batch has as many of one as of the other. Dropout is switched off meanwhile; a module that
still draws random numbers is compared in eval mode. This catches a mistake, not an adversary, and only what
this batch shows.
Tested in tests/torch/test_alone.py and test_losses.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from cape.core.errors import InvalidInput
from cape.torch.batch import Batch, per_record
from cape.torch.capture import Unfit, catch, layers_of
from cape.torch.each import flat_gradient, rows_by_loop, rows_by_vmap
from cape.torch.layers import pieces
from cape.torch.refuse import trainable

__all__ = ["choose"]

_TRIED = 4


def choose(module: Any, loss: Any, batch: Batch, method: str) -> str:
    """Return "ghost", "vmap" or "loop": the wanted one or the first that fits; or raise `InvalidInput`."""
    last = len(batch) - 1
    some = batch[torch.tensor(sorted({last * i // (_TRIED - 1) for i in range(_TRIED)}))]
    with _still(module, some), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of broadcasting, which is an error here
        losses, rows = _require_alone(module, loss, some)
        why = _unfit_for_ghost(module, loss, some, rows) if method in ("auto", "ghost") else ""
        if method == "ghost" and why:
            raise InvalidInput(f"method='ghost' does not fit this module: {why}; use 'auto'")
        if method == "loop" or (method != "vmap" and not why):
            return "loop" if method == "loop" else "ghost"
        try:
            found, mapped = rows_by_vmap(module, loss, some)
            if _close(found, losses) and _close(mapped, rows):
                return "vmap"
            problem = "it gives other gradients than autograd"
        except Exception as error:  # torch.func raises no type of its own for what it cannot do
            problem = type(error).__name__
    if method == "vmap":
        raise InvalidInput(f"method='vmap' does not fit this module ({problem}); use 'auto'")
    return "loop"


def _require_alone(module: Any, loss: Any, batch: Batch) -> tuple[Any, Any]:
    """Return losses and gradients of single records, which have to be those of the batch."""
    with torch.enable_grad():
        together = batch.losses(module, loss)
        shape = batch[:1].losses(module, loss).shape
    if together.shape[1:] != shape[1:]:
        raise InvalidInput(
            "loss must treat each record by itself, but its shape grows with the batch: the module's output "
            "and the targets are broadcast against each other; give both the same shape, (B,) or (B, 1)"
        )
    losses, rows = rows_by_loop(module, loss, batch)
    whole = flat_gradient(together, trainable(module))
    if not _close(per_record(together.detach()), losses) or not _close(
        whole, rows.sum(0), float(rows.nan_to_num(0.0, 0.0, 0.0).abs().max())
    ):
        raise InvalidInput(
            "module and loss must treat each record by itself; here one record's result depends on others"
        )
    return losses, rows


def _unfit_for_ghost(module: Any, loss: Any, batch: Batch, rows: Any) -> str:
    """Return why the closed forms cannot be used, or an empty text."""
    try:
        layers = layers_of(module)
        caught = catch(module, layers, loss, batch)
        one = catch(module, layers, loss, batch[:1])
    except Unfit as reason:
        return str(reason)
    wanted = [(len(batch), *shape[1:]) for shape in one.shapes]
    if caught.shapes != wanted or any(shape[0] != 1 for shape in one.shapes):
        return "a layer's input does not have the records in dimension 0"
    squares = torch.zeros(len(batch), dtype=torch.float64, device=rows.device)
    for layer, x, g in caught.inputs:
        for piece in pieces(layer, x, g):
            squares += piece.squares()
    if not _close(squares.sqrt(), torch.linalg.vector_norm(rows.double(), dim=1)):
        return "its norms are not those of single records"
    return ""


def _close(a: Any, b: Any, scale: float = 0.0) -> bool:
    """Return whether numbers agree but for rounding, where both are finite.

    A GPU's convolutions keep 10 bits by default, and a batch of one may be computed another way than a
    larger one; mixed records differ by far more.
    """
    finite = a.isfinite() & b.isfinite()
    a, b = a[finite].double(), b[finite].double()
    if not a.numel():
        return True
    part = 5e-2 if finite.is_cuda else 1e-3
    return bool((a - b).abs().max() <= part * max(scale, float(b.abs().max())) + 1e-12)


@contextmanager
def _still(module: Any, batch: Batch) -> Iterator[None]:
    """Switch off what draws random numbers, and restore generators and modes at the end."""
    modes = [(layer, layer.training) for layer in module.modules()]
    cuda = [batch.inputs[0].device] if batch.inputs[0].is_cuda else []
    with torch.random.fork_rng(devices=cuda):
        try:
            for layer, _ in modes:
                if isinstance(layer, nn.modules.dropout._DropoutNd):
                    layer.training = False
            before = _generators(cuda)
            with torch.no_grad():
                module(*batch.inputs)
            if any(not torch.equal(a, b) for a, b in zip(before, _generators(cuda), strict=True)):
                module.eval()
            yield
        finally:
            for layer, mode in modes:
                layer.training = mode


def _generators(cuda: list[Any]) -> list[Any]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in cuda)]
