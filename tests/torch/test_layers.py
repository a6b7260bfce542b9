"""Every layer with a closed form, in every shape that it takes, against one record at a time."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cape.torch import ClippedSums, clipped_sum, pieces
from cape.torch.batch import Batch
from tests.torch.one_by_one import clipped, gradients

RECORDS = 7


def squared(output, target):
    """A loss with a gradient in every output, and one row of targets for each record."""
    return (output.flatten(1) - target[:, :1]).pow(2) * torch.linspace(0.5, 1.5, output[0].numel())


LAYERS = {
    "linear": (nn.Linear(5, 4), (5,)),
    "linear, no bias": (nn.Linear(5, 4, bias=False), (5,)),
    "linear, few positions (Gram)": (nn.Linear(12, 9), (3, 12)),
    "linear, many positions (kept)": (nn.Linear(3, 2), (20, 3)),
    "linear, two dimensions of positions": (nn.Linear(6, 5), (2, 2, 6)),
    "conv1d": (nn.Conv1d(2, 3, 3), (2, 9)),
    "conv1d, Gram": (nn.Conv1d(8, 9, 3), (8, 5)),
    "conv1d, groups, stride, padding, dilation": (
        nn.Conv1d(4, 6, 3, stride=2, padding=3, dilation=2, groups=2),
        (4, 11),
    ),
    "conv2d": (nn.Conv2d(3, 4, 3, padding=1), (3, 6, 5)),
    "conv2d, Gram": (nn.Conv2d(8, 16, 3), (8, 4, 4)),
    "conv2d, Gram, groups": (nn.Conv2d(8, 16, 3, groups=2), (8, 4, 4)),
    "conv2d, one place": (nn.Conv2d(3, 4, 3), (3, 3, 3)),
    "conv2d, one place, groups": (nn.Conv2d(4, 4, 3, groups=2), (4, 3, 3)),
    "conv2d, depthwise": (nn.Conv2d(3, 6, (3, 2), stride=(2, 1), groups=3), (3, 7, 6)),
    "conv2d, 1 x 1": (nn.Conv2d(3, 4, 1), (3, 4, 4)),
    "conv2d, same": (nn.Conv2d(2, 3, (2, 3), padding="same", dilation=2), (2, 6, 6)),
    "conv2d, valid": (nn.Conv2d(2, 3, 3, padding="valid"), (2, 5, 5)),
    "conv2d, circular": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
    "conv2d, reflect": (nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="reflect"), (2, 5, 5)),
    "conv3d": (nn.Conv3d(2, 3, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 1)), (2, 3, 5, 4)),
    "layer norm": (nn.LayerNorm(6), (6,)),
    "layer norm, positions": (nn.LayerNorm((3, 4)), (2, 3, 4)),
    "layer norm, no bias": (nn.LayerNorm(6, bias=False), (3, 6)),
    "rms norm": (nn.RMSNorm(6), (3, 6)),
    "group norm": (nn.GroupNorm(2, 6), (6, 4, 3)),
    "group norm, no positions": (nn.GroupNorm(2, 6), (6,)),
    "instance norm": (nn.InstanceNorm2d(3, affine=True), (3, 4, 5)),
    "batch norm, frozen": (nn.BatchNorm2d(3).eval(), (3, 4, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("method", ["ghost", "vmap"])
def test_a_layer_gives_the_gradients_of_single_records(name, method):
    layer, shape = LAYERS[name]
    layer = layer.double()
    with torch.no_grad():  # scales of 1 and shifts of 0 would hide a mistake
        for parameter in layer.parameters():
            parameter.normal_()
    inputs, targets = torch.randn(RECORDS, *shape), torch.randn(RECORDS, 1)
    rows = gradients(layer, squared, inputs, targets)
    clip = float(rows.norm(dim=1).median())
    total, norms = clipped(rows, clip)
    found = clipped_sum(layer, squared, inputs, targets, clip, method=method)
    assert (norms > clip).any()
    assert (norms < clip).any()
    torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(found.total, total, rtol=1e-6, atol=1e-7 * clip)
    torch.testing.assert_close(found.losses, squared(layer(inputs), targets).sum(1).detach())
    assert int(found.finite) == RECORDS


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("shape", [(), (6,), (2, 3)])
def test_an_embedding_adds_up_the_words_that_a_record_repeats(padding, shape):
    layer = nn.Embedding(5, 3, padding_idx=padding)
    inputs, targets = torch.randint(0, 5, (RECORDS, *shape)), torch.randn(RECORDS, 1)
    total, norms = clipped(gradients(layer, squared, inputs, targets), 1.5)
    found = clipped_sum(layer, squared, inputs, targets, 1.5, method="ghost")
    torch.testing.assert_close(found.norms, norms)
    torch.testing.assert_close(found.total, total)


@pytest.mark.parametrize("name", ["linear", "linear, few positions (Gram)", "conv2d", "group norm"])
@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_a_frozen_parameter_has_no_part(name, frozen):
    layer, shape = LAYERS[name]
    layer = layer.double()
    inputs, targets = torch.randn(RECORDS, *shape), torch.randn(RECORDS, 1)
    getattr(layer, frozen).requires_grad_(False)
    try:
        total, norms = clipped(gradients(layer, squared, inputs, targets), 1.0)
        found = clipped_sum(layer, squared, inputs, targets, 1.0, method="ghost")
    finally:
        getattr(layer, frozen).requires_grad_(True)
    torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(found.total, total, rtol=1e-6, atol=1e-7)


def test_parts_of_records_give_the_same(monkeypatch):
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(64, 2))
    inputs, targets = torch.randn(RECORDS, 2, 6, 6), torch.randn(RECORDS, 2)
    whole = clipped_sum(model, squared, inputs, targets, 1.0, method="ghost")
    monkeypatch.setattr("cape.torch.pieces.TEMPORARY", 1)
    monkeypatch.setattr("cape.torch.layers.TEMPORARY", 1)
    monkeypatch.setattr("cape.torch.pieces.ROWS", 8)
    parts = clipped_sum(model, squared, inputs, targets, 1.0, method="ghost")
    torch.testing.assert_close(parts.total, whole.total)
    torch.testing.assert_close(parts.norms, whole.norms)


@pytest.mark.parametrize("kind", [pieces.Product, pieces.Gram, pieces.Kept, pieces.Lookup])
def test_a_wrong_norm_is_found(kind, monkeypatch):
    """The comparison on single records has to see norms that are a part in ten too short."""
    right = kind.squares
    monkeypatch.setattr(kind, "squares", lambda self: 0.8 * right(self))
    layer, shape = {
        pieces.Product: LAYERS["linear"],
        pieces.Gram: LAYERS["conv2d, Gram"],
        pieces.Kept: LAYERS["conv2d"],
        pieces.Lookup: (nn.Embedding(5, 3), None),
    }[kind]
    inputs = torch.randint(0, 5, (RECORDS, 4)) if shape is None else torch.randn(RECORDS, *shape)
    targets = torch.randn(RECORDS, 1)
    sums = ClippedSums(layer.double(), squared)
    assert sums.method(Batch.of(inputs, targets)) == "vmap"
