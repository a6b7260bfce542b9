"""Refuses modules that cannot be clipped record by record, before anything is computed.

Claim. A module that passes has no layer of torch's own whose training step mixes records, and parameters
in which rounding is what `cape.torch.rounding` says.
Reason. BatchNorm in training normalises a record by the others; InstanceNorm with running statistics
learns them from the batch without noise; an Embedding with `max_norm` writes into its own weights, and one
with `scale_grad_by_freq` divides by counts over the batch. `cape.torch.alone` finds custom modules that mix
records, on the first batch. A frozen BatchNorm (in eval) is a constant map and passes.
Dropout passes: the bound holds for each mask, however masks are drawn.
Tested in tests/torch/test_refuse.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cape.core.errors import InvalidInput

__all__ = ["require_loss", "require_module", "trainable"]

_DEVICES = ("cpu", "cuda")  # float64 sums are needed, which other kinds of device do not have


def trainable(module: Any) -> list[Any]:
    """Return the parameters that a gradient is taken of, in the order of `module.parameters()`."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def require_module(module: Any, parameters: list[Any]) -> None:
    """Raise `InvalidInput` unless each record of a batch can have a gradient of its own."""
    if not parameters:
        raise InvalidInput("module must have a trainable parameter (requires_grad=True); it has none")
    for parameter in parameters:
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise InvalidInput("module must be initialised: run it once before clipping its gradients")
        if parameter.dtype not in (torch.float32, torch.float64):
            kind = str(parameter.dtype).removeprefix("torch.")
            raise InvalidInput(f"module's parameters must be float32 or float64, not {kind}")
    first = parameters[0]
    if any(p.dtype != first.dtype or p.device != first.device for p in parameters):
        raise InvalidInput("module's trainable parameters must share one dtype and one device")
    if first.device.type not in _DEVICES:
        raise InvalidInput(f"module must be on the CPU or a CUDA device, not {first.device.type!r}")
    if torch.is_autocast_enabled(first.device.type):
        raise InvalidInput("clipped sums must be made outside autocast: half precision voids their bound")
    for name, layer in module.named_modules():
        _require_layer(name or "module", layer)


def _require_layer(name: str, layer: Any) -> None:
    kind = type(layer).__name__
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and (layer.training or layer.running_mean is None):
        raise InvalidInput(
            f"{name} is {kind}, which mixes the records of a batch; use GroupNorm or LayerNorm "
            "(or eval(), which freezes its statistics)"
        )
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        raise InvalidInput(
            f"{name} is {kind} with track_running_stats=True, whose statistics are not private; "
            "use track_running_stats=False"
        )
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        if layer.max_norm is not None:
            raise InvalidInput(f"{name} has max_norm, which writes into its weights; leave it out")
        if layer.scale_grad_by_freq:
            raise InvalidInput(f"{name} has scale_grad_by_freq=True, which counts records; leave it out")


def require_loss(loss: Any) -> None:
    """Raise `InvalidInput` for a loss that says it returns one number for a whole batch."""
    reduction = getattr(loss, "reduction", "none")
    if reduction != "none":
        raise InvalidInput(
            f"loss must return one value for each record: use reduction='none', not {reduction!r}"
        )
