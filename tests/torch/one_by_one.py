"""What every test compares with: one record at a time, by autograd, in the plainest way."""

from __future__ import annotations

import torch

from cape.torch.rounding import SHRINK


def gradients(module, loss, inputs, targets):
    """Return (records by parameters) gradients, each of a batch of one."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    rows = []
    for i in range(len(targets)):
        value = loss(module(inputs[i : i + 1]), targets[i : i + 1]).sum()
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        flat = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
        rows.append(torch.cat([g.flatten() for g in flat]))
    return torch.stack(rows)


def clipped(rows, clip):
    """Return the sum of clipped rows, and their norms."""
    norms = torch.linalg.vector_norm(rows.double(), dim=1)
    factors = (clip * SHRINK / norms).clamp(max=1.0)
    return factors @ rows.double(), norms
