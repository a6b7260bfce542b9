"""Whole models: the sum, the norms, that the bound binds, and records that are not finite."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from cape.torch import ClippedSums, clipped_sum
from tests.torch.one_by_one import clipped, gradients

RECORDS = 9


class BagOfWords(nn.Module):
    """Words, averaged, and a layer."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(11, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.words(x).mean(1))


class Block(nn.Module):
    """A transformer's block: attention by hand, norms, a residual network."""

    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(11, width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.net = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        x = self.words(x)
        q, k, v = self.qkv(self.one(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = ((q @ k.mT).softmax(3) @ v).transpose(1, 2).flatten(2)
        x = x + self.mix(seen)
        return self.out((x + self.net(self.two(x))).mean(1))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


def perceptron(outputs):
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, outputs))


def words():
    return torch.randint(0, 11, (RECORDS, 5))


MODELS = {
    "perceptron": (lambda: perceptron(3), lambda: torch.randn(RECORDS, 5)),
    "convolutions": (convolutions, lambda: torch.randn(RECORDS, 3, 8, 8)),
    "bag of words": (BagOfWords, words),
    "block": (Block, words),
}
CROSS = nn.CrossEntropyLoss(reduction="none")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["ghost", "vmap", "loop", "auto"])
def test_the_sum_is_that_of_single_records(name, method):
    make, draw = MODELS[name]
    model, inputs, targets = make(), draw(), torch.randint(0, 3, (RECORDS,))
    rows = gradients(model, CROSS, inputs, targets)
    clip = float(rows.norm(dim=1).median())
    total, norms = clipped(rows, clip)
    found = clipped_sum(model, CROSS, inputs, targets, clip, method=method)
    assert found.total.dtype == torch.float64
    torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(found.total, total, rtol=1e-6, atol=1e-7 * clip)


@pytest.mark.parametrize("name", MODELS)
def test_closed_forms_are_chosen_where_they_fit(name):
    make, draw = MODELS[name]
    sums = ClippedSums(make(), CROSS)
    sums(draw(), torch.randint(0, 3, (RECORDS,)), 1.0)
    assert list(sums._chosen.values()) == ["ghost"]


@pytest.mark.parametrize("shape", [(RECORDS,), (RECORDS, 1)])
@pytest.mark.parametrize("method", ["ghost", "vmap"])
def test_one_output_for_each_record_in_either_shape(shape, method):
    model, inputs, targets = perceptron(1), torch.randn(RECORDS, 5), 10.0 + torch.randn(shape)
    if len(shape) == 1:
        model.append(nn.Flatten(0))
    loss = nn.MSELoss(reduction="none")
    total, norms = clipped(gradients(model, loss, inputs, targets), 1.0)
    found = clipped_sum(model, loss, inputs, targets, 1.0, method=method)
    torch.testing.assert_close(found.norms, norms)
    torch.testing.assert_close(found.total, total)
    assert found.losses.shape == (RECORDS,)


@pytest.mark.parametrize("name", MODELS)
def test_the_bound_binds(name):
    """Each record alone, with a bound far below its norm: it adds the bound, and no more."""
    make, draw = MODELS[name]
    model, inputs, targets = make().float(), draw(), torch.randint(0, 3, (RECORDS,))
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    sums = ClippedSums(model, CROSS)
    for i in range(RECORDS):
        found = sums(inputs[i : i + 1], targets[i : i + 1], 1e-3)
        assert 0.998e-3 < float(found.total.norm()) <= 1e-3


def test_parts_of_a_batch_add_up():
    model, inputs, targets = convolutions(), torch.randn(RECORDS, 3, 8, 8), torch.randint(0, 3, (RECORDS,))
    whole = clipped_sum(model, CROSS, inputs, targets, 0.5)
    for method in ("ghost", "vmap"):
        parts = clipped_sum(model, CROSS, inputs, targets, 0.5, method=method, at_once=4)
        torch.testing.assert_close(parts.total, whole.total, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(parts.norms, whole.norms, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(parts.losses, whole.losses)


def test_several_inputs():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(4, 2)

        def forward(self, x, y):
            return self.a(x) * self.b(y)

    model, x, y, targets = Both(), torch.randn(6, 3), torch.randn(6, 4), torch.randint(0, 2, (6,))
    ghost, mapped = (
        clipped_sum(model, CROSS, (x, y), targets, 0.3, method=method) for method in ("ghost", "vmap")
    )
    torch.testing.assert_close(ghost.total, mapped.total)
    torch.testing.assert_close(ghost.norms, mapped.norms)


def test_an_empty_batch_adds_nothing():
    model = perceptron(3)
    found = clipped_sum(model, CROSS, torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64), 1.0)
    assert found.total.shape == (sum(p.numel() for p in model.parameters()),)
    assert not found.total.any()
    assert found.norms.shape == found.losses.shape == (0,)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
@pytest.mark.parametrize("at_once", [None, 3])
@pytest.mark.parametrize("method", ["ghost", "vmap", "loop"])
@pytest.mark.parametrize("name", ["perceptron", "convolutions"])
def test_a_record_that_is_not_finite_adds_nothing(bad, at_once, method, name):
    make, draw = MODELS[name]
    model, inputs, targets = make(), draw(), torch.randint(0, 3, (RECORDS,))
    good = torch.tensor([0, 1, 2, 3, 4, 6, 7])
    inputs[5], inputs[8] = bad, -bad
    found = clipped_sum(model, CROSS, inputs, targets, 0.5, method=method, at_once=at_once)
    assert found.total.isfinite().all()
    if not math.isfinite(bad):
        alone = clipped_sum(model, CROSS, inputs[good], targets[good], 0.5)
        torch.testing.assert_close(found.total, alone.total, rtol=1e-6, atol=1e-7)
        assert int(found.finite) == len(good)


def test_an_embedding_with_a_record_that_is_not_finite():
    def loss(output, target):
        return CROSS(output, target[:, 0].long()) / target[:, 1]

    inputs = torch.arange(RECORDS)[:, None].expand(-1, 5).contiguous()
    model, targets = BagOfWords(), torch.randint(0, 3, (RECORDS,))
    keep = torch.arange(RECORDS) != 3
    both = torch.stack([targets, keep], 1).double()
    found = clipped_sum(model, loss, inputs, both, 0.5, method="ghost")
    alone = clipped_sum(model, CROSS, inputs[keep], targets[keep], 0.5, method="ghost")
    torch.testing.assert_close(found.total, alone.total)
    assert int(found.finite) == RECORDS - 1


def test_a_batch_of_which_nothing_is_finite_adds_nothing():
    found = clipped_sum(perceptron(3), CROSS, torch.full((4, 5), math.nan), torch.zeros(4).long(), 1.0)
    assert not found.total.any()
    assert int(found.finite) == 0


def test_a_loss_that_is_not_finite_counts_even_with_a_gradient():
    def loss(output, target):
        return output.sum(1) + torch.where(target > 0, math.nan, 0.0)

    found = clipped_sum(perceptron(3), loss, torch.randn(4, 5), torch.tensor([0.0, 1.0, 0.0, 0.0]), 1.0)
    assert int(found.finite) == 3
    assert found.total.isfinite().all()


def test_what_is_private_is_not_shown():
    found = clipped_sum(perceptron(3), CROSS, torch.randn(4, 5), torch.zeros(4).long(), 1.0)
    assert "norms" not in repr(found)
    assert "finite" not in repr(found)


def test_gradients_and_hooks_are_left_alone():
    model = convolutions()
    clipped_sum(model, CROSS, torch.randn(4, 3, 8, 8), torch.zeros(4).long(), 1.0)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(layer._forward_hooks for layer in model.modules())
    assert all(layer.training for layer in model.modules())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same():
    model, inputs, targets = convolutions(), torch.randn(RECORDS, 3, 8, 8), torch.randint(0, 3, (RECORDS,))
    here = clipped_sum(model, CROSS, inputs, targets, 0.5)
    there = clipped_sum(model.cuda(), CROSS, inputs.cuda(), targets.cuda(), 0.5)
    torch.testing.assert_close(there.total.cpu(), here.total, rtol=1e-6, atol=1e-9)
