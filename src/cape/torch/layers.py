"""The layers whose per-record gradients have a closed form, from inputs and gradients of outputs.

Claim. For a layer here, used once with the records in dimension 0, `pieces` holds every record's gradient of
all of its trainable parameters.
Reason. Each layer's parameters act on a record alone, linearly: weights as a sum of products over positions
(for a convolution, of patches), scales and shifts elementwise, an embedding by rows. Which form is cheaper
depends on shapes only: per-record gradients cost T I O and have I O entries, Gram matrices cost
T^2 (I + O). Gradients are kept only where I O <= T (I + O), so they take no more memory than the layer's
own inputs and outputs do.
Tested in tests/torch/test_layers.py against one record at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from cape.torch.pieces import TEMPORARY, Gram, Kept, Lookup, Piece, Product
from cape.torch.rounding import ROWS

__all__ = ["closed_form", "pieces"]


def closed_form(layer: Any) -> bool:
    """Return whether a layer's own parameters have a closed form, and its forward pass is torch's own."""
    kind = next((kind for kind in _KINDS if isinstance(layer, kind)), None)
    if kind is None or type(layer).forward is not kind.forward:
        return False
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return set(layer._parameters) <= {"weight", "bias"} and not any(hooks) and "forward" not in vars(layer)


def pieces(layer: Any, x: Any, g: Any) -> list[Piece]:
    """Return the gradients of a layer, given its input and the gradient of its output; records first."""
    kind = next(kind for kind in _KINDS if isinstance(layer, kind))
    return _KINDS[kind](layer, x, g)


def _trained(layer: Any, name: str) -> Any | None:
    parameter = getattr(layer, name, None)
    return parameter if parameter is not None and parameter.requires_grad else None


def _linear(layer: Any, x: Any, g: Any) -> list[Piece]:
    weight, bias = _trained(layer, "weight"), _trained(layer, "bias")
    if x.ndim == 2:
        return [Product(weight, bias, x, g)]
    x, g = x.flatten(1, -2), g.flatten(1, -2)
    found = _weight(weight, lambda part: part[:, None].mT, x, g[:, None].mT, x.shape[2])
    return found + _shift(bias, g.sum(1))


def _convolution(layer: Any, x: Any, g: Any) -> list[Piece]:
    weight, bias = _trained(layer, "weight"), _trained(layer, "bias")
    g = g.flatten(2)
    grouped = g.unflatten(1, (layer.groups, -1))
    wide = layer.weight[0].numel()
    return _weight(weight, _patches(layer), x, grouped, wide) + _shift(bias, g.sum(2))


def _weight(weight: Any, inputs: Callable[[Any], Any], x: Any, g: Any, wide: int) -> list[Piece]:
    """Return the gradients of a weight in the cheaper form; `inputs` and `g` as in `Gram`."""
    if weight is None:
        return []
    records, groups, outputs, positions = g.shape
    if positions == 1 and groups == 1:
        return [Product(weight, None, inputs(x).flatten(1), g.flatten(1))]
    if positions * (wide + outputs) < wide * outputs and groups * positions**2 <= ROWS**2:
        return [Gram(weight, inputs, x, g, wide)]
    rows = g.new_empty(records, groups, outputs, wide)
    size = max(1, (TEMPORARY << 2 if g.is_cuda else TEMPORARY) // (groups * wide * positions))
    for start in range(0, records, size):
        some = slice(start, start + size)
        torch.matmul(g[some], inputs(x[some]).mT, out=rows[some])
    return [Kept((weight,), rows.flatten(1))]


def _patches(layer: Any) -> Callable[[Any], Any]:
    """Return a function from a convolution's input to (records, groups, I, T): I numbers at T positions."""
    size, step, spread = layer.kernel_size, layer.stride, layer.dilation
    around = layer._reversed_padding_repeated_twice
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode

    def patches(x: Any) -> Any:
        if any(around):
            x = functional.pad(x, around, mode=mode)
        space, strides = x.shape[2:], x.stride()
        places = [
            (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(space, size, step, spread, strict=True)
        ]
        inner = [d * one for d, one in zip(spread, strides[2:], strict=True)]
        outer = [s * one for s, one in zip(step, strides[2:], strict=True)]
        seen = x.as_strided((*x.shape[:2], *size, *places), (*strides[:2], *inner, *outer))
        return seen.reshape(len(x), layer.groups, -1, math.prod(places))

    return patches


def _shift(bias: Any, rows: Any) -> list[Piece]:
    return [] if bias is None else [Kept((bias,), rows.flatten(1))]


def _embedding(layer: Any, x: Any, g: Any) -> list[Piece]:
    weight = _trained(layer, "weight")
    if weight is None:
        return []
    records, size = len(x), layer.num_embeddings
    x, g = x.reshape(records, -1), g.reshape(records, -1, g.shape[-1])
    used = x + torch.arange(records, device=x.device)[:, None] * size
    key, place = torch.unique(used, return_inverse=True)
    rows = g.new_zeros(len(key), g.shape[2]).index_add_(0, place.flatten(), g.flatten(0, 1))
    if layer.padding_idx is not None:
        rows[key % size == layer.padding_idx] = 0.0
    return [Lookup(weight, records, key // size, key % size, rows)]


def _affine(normal: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], list[Piece]]:
    """Return the form of a scale and a shift of normal(layer, x), which itself has no parameters."""

    def form(layer: Any, x: Any, g: Any) -> list[Piece]:
        weight, bias = _trained(layer, "weight"), _trained(layer, "bias")
        shape = layer.weight.shape
        # LayerNorm scales the last dimensions; the others scale channels, which follow the record
        last = isinstance(layer, (nn.LayerNorm, nn.RMSNorm))
        others = range(1, g.ndim - len(shape)) if last else range(2, g.ndim)
        over = tuple(others)
        found = [] if weight is None else _shift(weight, _sum(g * normal(layer, x), over))
        return found + _shift(bias, _sum(g, over))

    return form


def _sum(values: Any, over: tuple[int, ...]) -> Any:
    return values.sum(over) if over else values


_KINDS: dict[Any, Callable[[Any, Any, Any], list[Piece]]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: _affine(lambda m, x: functional.layer_norm(x, m.normalized_shape, eps=m.eps)),
    nn.RMSNorm: _affine(lambda m, x: functional.rms_norm(x, m.normalized_shape, eps=m.eps)),
    nn.GroupNorm: _affine(lambda m, x: functional.group_norm(x, m.num_groups, eps=m.eps)),
    nn.modules.instancenorm._InstanceNorm: _affine(lambda m, x: functional.instance_norm(x, eps=m.eps)),
    # only in eval: `cape.torch.refuse`
    nn.modules.batchnorm._BatchNorm: _affine(
        lambda m, x: functional.batch_norm(x, m.running_mean, m.running_var, eps=m.eps)
    ),
}
