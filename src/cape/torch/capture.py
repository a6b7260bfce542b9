"""One forward and one backward pass that records each layer's input and the gradient of its output.

Claim. What is recorded determines the loss's gradient of the trainable parameters; otherwise
`Unfit` is raised and nothing is used.
Reason. Each trainable parameter belongs to one layer with a closed form. After the forward pass the graph of
the losses is walked: every edge into a parameter has to be the one of its own layer's only call, so a
parameter that is also used elsewhere, by two layers or by hand, is found. An input that was overwritten
after the call is found by its version. The backward pass stops at the layers' outputs: gradients of
parameters are never formed.
Tested in tests/torch/test_fallback.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from cape.torch.batch import Batch, per_record
from cape.torch.layers import closed_form

__all__ = ["Call", "Caught", "Unfit", "catch", "layers_of"]


class Unfit(Exception):
    """The closed forms do not apply to this module; the text says why."""


@dataclass
class Call:
    """One use of a layer."""

    layer: Any
    x: Any
    version: int
    edge: Any


@dataclass
class Caught:
    """Losses, and for each layer that they depend on its input and the gradient of its output."""

    losses: Any
    inputs: list[tuple[Any, Any, Any]]
    shapes: list[tuple[int, ...]]


def layers_of(module: Any) -> list[Any]:
    """Return the layers that own the trainable parameters, or raise `Unfit`."""
    owner: dict[Any, Any] = {}
    layers = []
    for layer in module.modules():
        own = [p for p in layer._parameters.values() if p is not None and p.requires_grad]
        if not own:
            continue
        if not closed_form(layer):
            raise Unfit(f"{type(layer).__name__} has no closed form")
        if any(parameter in owner for parameter in own):
            raise Unfit("two layers share a parameter")
        owner.update(dict.fromkeys(own, layer))
        layers.append(layer)
    return layers


def catch(module: Any, layers: list[Any], loss: Any, batch: Batch) -> Caught:
    """Run the module forward and backward on a batch, or raise `Unfit`."""
    calls: list[Call] = []

    def hook(layer: Any, arguments: tuple[Any, ...], output: Any) -> None:
        if len(arguments) != 1:
            raise Unfit("a layer is called with more than its input")
        (x,) = arguments
        edge = get_gradient_edge(output) if output.requires_grad else None
        calls.append(Call(layer, x.detach(), x._version, edge))

    hooks = [layer.register_forward_hook(hook) for layer in layers]
    try:
        with torch.enable_grad():
            losses = per_record(batch.losses(module, loss))
    finally:
        for handle in hooks:
            handle.remove()
    _require_one_use(losses, calls)
    used = [call for call in calls if call.edge is not None]
    gradients: Any = [None] * len(used)
    if used and losses.requires_grad:
        gradients = torch.autograd.grad(losses.sum(), [call.edge for call in used], allow_unused=True)
    found = []
    for call, g in zip(used, gradients, strict=True):
        if call.x._version != call.version:
            raise Unfit("a layer's input is overwritten after its use")
        if call.x.shape[0] != len(batch) or (g is not None and g.ndim < 2):
            raise Unfit("a layer's input does not have the records in dimension 0")
        if g is not None:
            found.append((call.layer, call.x, g))
    return Caught(losses.detach(), found, [tuple(call.x.shape) for call in calls])


def _require_one_use(losses: Any, calls: list[Call]) -> None:
    """Raise `Unfit` unless each parameter in the graph is there by its layer's only call."""
    called = [call.layer for call in calls]
    if len(set(called)) != len(called):
        raise Unfit("a layer is used more than once")
    once = {parameter for layer in called for parameter in layer._parameters.values()}
    waiting, seen = [losses.grad_fn], {None, losses.grad_fn}
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        for following, _ in node.next_functions:
            variable = getattr(following, "variable", None)
            if variable is not None:  # a leaf: each edge into it is one use
                if variable in once:
                    once.remove(variable)
                elif isinstance(variable, torch.nn.Parameter):
                    raise Unfit("a parameter is used outside its layer, or more than once")
            elif following not in seen:
                seen.add(following)
                waiting.append(following)
