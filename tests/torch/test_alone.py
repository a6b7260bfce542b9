"""Records that are mixed, positions that look like records, and dropout."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from cape.core.errors import InvalidInput
from cape.torch import ClippedSums, clipped_sum
from tests.torch.one_by_one import clipped, gradients

LOSS = nn.MSELoss(reduction="none")


class Function(nn.Module):
    """A layer after any function."""

    def __init__(self, function, wide=3):
        super().__init__()
        self.function, self.out = function, nn.Linear(wide, 2)

    def forward(self, x):
        return self.out(self.function(x))


MIXING = {
    "centred": lambda x: x - x.mean(0),
    "scaled by the largest": lambda x: x / x.abs().max(),
    "shifted by one": lambda x: x + x.roll(1, 0),
    "attention over records": lambda x: (x @ x.mT).softmax(1) @ x,
}


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("method", ["auto", "ghost", "vmap", "loop"])
def test_mixing_records_is_refused(name, method):
    with pytest.raises(InvalidInput, match="depends on others"):
        clipped_sum(Function(MIXING[name]), LOSS, torch.randn(8, 3), torch.randn(8, 2), 1.0, method=method)


def test_mixing_is_found_after_a_first_batch_of_one():
    sums = ClippedSums(Function(MIXING["centred"]), LOSS)
    sums(torch.randn(1, 3), torch.randn(1, 2), 1.0)
    with pytest.raises(InvalidInput, match="depends on others"):
        sums(torch.randn(8, 3), torch.randn(8, 2), 1.0)


class PositionsFirst(nn.Module):
    """Turns (records, positions) around for its layer, as old code does."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x.transpose(0, 1)).transpose(0, 1).sum(1)


class Places(nn.Module):
    """Adds an embedding of positions, which has no dimension of records."""

    def __init__(self):
        super().__init__()
        self.place, self.out = nn.Embedding(20, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.out(x + self.place(torch.arange(x.shape[1]))).sum(1)


@pytest.mark.parametrize("kind", [PositionsFirst, Places])
@pytest.mark.parametrize("positions", [4, 7])
def test_positions_are_not_taken_for_records(kind, positions):
    """As many positions as records, in the first batch (4: as many as are tried) or in a later one."""
    model = kind()
    sums = ClippedSums(model, LOSS)
    for records in (positions, 6, positions):
        inputs, targets = torch.randn(records, positions, 3), torch.randn(records, 2)
        total, norms = clipped(gradients(model, LOSS, inputs, targets), 1.0)
        found = sums(inputs, targets, 1.0)
        torch.testing.assert_close(found.norms, norms)
        torch.testing.assert_close(found.total, total)
    assert list(sums._chosen.values()) == ["vmap"]


@pytest.mark.parametrize("method", ["ghost", "vmap", "auto"])
@pytest.mark.parametrize(
    "drop", [nn.Dropout(0.5), nn.AlphaDropout(0.5), lambda x: functional.dropout(x, 0.5, training=True)]
)
def test_dropout_is_allowed_and_every_mask_is_clipped(method, drop):
    if not isinstance(drop, nn.Module) and method != "vmap":
        model = Function(lambda x: functional.dropout(x, 0.5, model.training))
    else:
        model = Function(drop if isinstance(drop, nn.Module) else nn.Dropout(0.5))
    sums = ClippedSums(model, LOSS, method=method)
    inputs, targets = torch.randn(5, 3), 10.0 + torch.randn(5, 2)
    first, second = sums(inputs, targets, 1e-2), sums(inputs, targets, 1e-2)
    assert not torch.equal(first.norms, second.norms)
    assert float(first.total.norm()) <= 5e-2
    assert all(layer.training for layer in model.modules())


def test_trying_records_does_not_use_up_random_numbers():
    model = Function(nn.Dropout(0.5))
    inputs, targets = torch.randn(5, 3), torch.randn(5, 2)
    sums = ClippedSums(model, LOSS)
    torch.manual_seed(5)
    first = sums(inputs, targets, 1.0)
    torch.manual_seed(5)
    torch.testing.assert_close(sums(inputs, targets, 1.0).total, first.total)
