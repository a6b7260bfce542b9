"""What is refused, each with a message that says what would do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cape.core.errors import InvalidInput
from cape.torch import clipped_sum

LOSS = nn.MSELoss(reduction="none")


def attempt(module, inputs=None, loss=LOSS):
    inputs = torch.randn(4, 3) if inputs is None else inputs
    return clipped_sum(module, loss, inputs, torch.randn(4, 2), 1.0)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False).eval()])
def test_batch_norm_is_refused(norm):
    with pytest.raises(InvalidInput, match="GroupNorm or LayerNorm"):
        attempt(nn.Sequential(norm.double(), nn.Linear(3, 2)).train(norm.training))


def test_frozen_batch_norm_and_eval_are_allowed():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    assert attempt(model).total.any()


def test_instance_norm_with_running_statistics_is_refused():
    norm = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
    with pytest.raises(InvalidInput, match="track_running_stats=False"):
        attempt(nn.Sequential(norm, nn.Flatten(), nn.Linear(12, 2)), torch.randn(4, 3, 4))


@pytest.mark.parametrize(
    ("option", "value"), [("max_norm", 1.0), ("scale_grad_by_freq", True)], ids=lambda v: str(v)
)
def test_embeddings_that_look_at_the_batch_are_refused(option, value):
    with pytest.raises(InvalidInput, match=option):
        attempt(nn.Embedding(5, 2, **{option: value}), torch.randint(0, 5, (4,)))


def test_a_module_without_trainable_parameters_is_refused():
    with pytest.raises(InvalidInput, match="trainable"):
        attempt(nn.ReLU())
    with pytest.raises(InvalidInput, match="trainable"):
        attempt(nn.Linear(3, 2).requires_grad_(False))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64])
def test_other_kinds_of_numbers_are_refused(dtype):
    with pytest.raises(InvalidInput, match="float32 or float64"):
        attempt(nn.Linear(3, 2, dtype=dtype), torch.randn(4, 3).to(dtype))


def test_two_kinds_of_numbers_are_refused():
    with pytest.raises(InvalidInput, match="one dtype"):
        attempt(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2).float()))


def test_other_devices_are_refused():
    with pytest.raises(InvalidInput, match="'meta'"):
        attempt(nn.Linear(3, 2, device="meta"))


def test_autocast_is_refused():
    with torch.autocast("cpu"), pytest.raises(InvalidInput, match="outside autocast"):
        attempt(nn.Linear(3, 2))


def test_a_lazy_module_is_refused():
    with pytest.raises(InvalidInput, match="initialised"):
        attempt(nn.LazyLinear(2))
