"""Per-record gradients for modules without closed forms: many at a time, or one by one.

Claim. Row i is the gradient of record i's loss as if it were the whole batch, whatever the module does.
Reason. `torch.func` runs the module on batches of one, all at once; where it cannot, autograd runs them one
after the other. The rows are held in memory, so they are computed for some records at a time.
Tested in tests/torch/test_fallback.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.func import functional_call, grad_and_value, vmap

from cape.torch.batch import Batch, per_record
from cape.torch.refuse import trainable

__all__ = ["flat_gradient", "records_at_once", "rows_by_loop", "rows_by_vmap"]

_HELD = 1 << 25


def records_at_once(parameters: list[Any]) -> int:
    """Return how many records' gradients are computed at a time."""
    entries = int(sum(parameter.numel() for parameter in parameters))
    return min(1024, max(1, _HELD // entries))


def rows_by_vmap(module: Any, loss: Any, batch: Batch) -> tuple[Any, Any]:
    """Return losses and gradients (records by all trainable parameters) with `torch.func.vmap`."""
    named = dict(module.named_parameters())
    trained = {name: p.detach() for name, p in named.items() if p.requires_grad}
    fixed = {name: p.detach() for name, p in named.items() if not p.requires_grad}
    fixed.update(module.named_buffers())

    def alone(values: dict[str, Any], inputs: tuple[Any, ...], target: Any) -> Any:
        one = Batch(tuple(part[None] for part in inputs), target[None])
        losses = one.losses(lambda *args: functional_call(module, {**fixed, **values}, args), loss)
        return per_record(losses)[0]

    each = vmap(grad_and_value(alone), in_dims=(None, 0, 0), randomness="different")
    gradients, losses = each(trained, batch.inputs, batch.targets)
    return losses.detach(), torch.cat([gradients[name].flatten(1) for name in trained], 1)


def rows_by_loop(module: Any, loss: Any, batch: Batch) -> tuple[Any, Any]:
    """Return the same, from one backward pass for each record."""
    parameters = trainable(module)
    losses, rows = [], []
    for i in range(len(batch)):
        with torch.enable_grad():
            value = per_record(batch[i : i + 1].losses(module, loss))
        losses.append(value.detach())
        rows.append(flat_gradient(value, parameters))
    return torch.cat(losses), torch.stack(rows)


def flat_gradient(losses: Any, parameters: list[Any]) -> Any:
    """Return the gradient of the sum of losses over all parameters, 0 where it does not depend on one."""
    gradients: Any = map(torch.zeros_like, parameters)
    if losses.requires_grad:
        gradients = torch.autograd.grad(losses.sum(), parameters, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in gradients])
