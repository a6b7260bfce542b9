"""Losses: one value for each record, in whatever shape, and never a silent broadcast."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from cape.core.errors import InvalidInput
from cape.torch import clipped_sum
from tests.torch.one_by_one import clipped, gradients

RECORDS = 6


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("method", ["auto", "vmap"])
def test_a_loss_that_reduces_is_refused(reduction, method):
    with pytest.raises(InvalidInput, match="reduction='none'"):
        clipped_sum(
            nn.Linear(3, 1),
            nn.MSELoss(reduction=reduction),
            torch.randn(RECORDS, 3),
            torch.randn(RECORDS, 1),
            1.0,
            method=method,
        )


@pytest.mark.parametrize("records", [1, RECORDS])
def test_a_function_that_reduces_is_refused(records):
    with pytest.raises(InvalidInput, match="reduction='none'"):
        clipped_sum(
            nn.Linear(3, 1), functional.mse_loss, torch.randn(records, 3), torch.randn(records, 1), 1.0
        )


@pytest.mark.parametrize(("output", "target"), [((1,), ()), ((), (1,))])
@pytest.mark.parametrize("method", ["auto", "ghost", "vmap", "loop"])
def test_a_silent_broadcast_is_refused(output, target, method):
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0) if output == () else nn.Identity())
    for loss in (nn.MSELoss(reduction="none"), lambda o, t: (o - t).pow(2)):
        with pytest.raises(InvalidInput, match="same shape"):
            clipped_sum(
                model, loss, torch.randn(RECORDS, 3), torch.randn(RECORDS, *target), 1.0, method=method
            )


def test_a_broadcast_that_is_averaged_away_is_refused():
    def loss(output, target):
        return (output - target).pow(2).mean(1)

    with pytest.raises(InvalidInput, match="depends on others"):
        clipped_sum(nn.Linear(3, 1), loss, torch.randn(RECORDS, 3), torch.randn(RECORDS), 1.0)


def test_a_loss_over_positions_is_added_up():
    def loss(output, target):
        return functional.cross_entropy(output.transpose(1, 2), target, reduction="none")

    model, inputs = nn.Linear(4, 3), torch.randn(RECORDS, 5, 4)
    targets = torch.randint(0, 3, (RECORDS, 5))
    total, norms = clipped(gradients(model, loss, inputs, targets), 1.0)
    for method in ("ghost", "vmap"):
        found = clipped_sum(model, loss, inputs, targets, 1.0, method=method)
        torch.testing.assert_close(found.total, total, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=1e-9)


def test_as_many_classes_as_records_is_no_broadcast():
    model, inputs, targets = nn.Linear(4, RECORDS), torch.randn(RECORDS, 4), torch.rand(RECORDS, RECORDS)
    loss = nn.BCEWithLogitsLoss(reduction="none")
    total, _ = clipped(gradients(model, loss, inputs, targets), 1.0)
    torch.testing.assert_close(clipped_sum(model, loss, inputs, targets, 1.0).total, total)


def test_batches_have_to_fit():
    loss = nn.MSELoss(reduction="none")
    with pytest.raises(InvalidInput, match="one entry for each record"):
        clipped_sum(nn.Linear(3, 1), loss, torch.randn(4, 3), torch.randn(5, 1), 1.0)
    with pytest.raises(InvalidInput, match="must be a tensor"):
        clipped_sum(nn.Linear(3, 1), loss, [1.0], torch.randn(5, 1), 1.0)
    with pytest.raises(InvalidInput, match="clip must be"):
        clipped_sum(nn.Linear(3, 1), loss, torch.randn(5, 3), torch.randn(5, 1), 0.0)
    with pytest.raises(InvalidInput, match="method must be"):
        clipped_sum(nn.Linear(3, 1), loss, torch.randn(5, 3), torch.randn(5, 1), 1.0, method="fast")
