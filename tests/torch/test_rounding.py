"""Floating point: a record never passes the bound, and sums are as close as the slack says."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import nn

from cape.torch import clipped_sum, pieces, rounding_slack
from cape.torch.rounding import GRAM_FLOOR, factors, squares_of

LOSS = nn.MSELoss(reduction="none")


def exact(values):
    return [Fraction(float(v)) for v in values]


@pytest.mark.parametrize("width", [1, 100, 2048, 2049, 300_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_are_not_measured_too_short(width, dtype):
    """Equal numbers are the worst that a float32 sum can meet: 0.1 loses a little each time."""
    for rows in (torch.full((2, width), 0.1), torch.randn(2, width), torch.full((2, width), 1e-30)):
        rows = rows.to(dtype)
        true = rows.double().square().sum(1)
        found = squares_of(rows)
        assert ((found - true) >= -(2.0**-12) * true).all()
        assert (found <= true * (1 + 2.0**-12) + width * torch.finfo(dtype).tiny).all()


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1.0, 1e12, 1e18])
@pytest.mark.parametrize("shape", [(6,), (3, 6), (40, 6)])
def test_a_record_of_any_size_stays_within_the_bound(scale, shape):
    """Alone in a batch of two, beside a record whose loss does not depend on the weights."""
    layer = nn.Linear(6, 8).float()
    inputs = torch.randn(2, *shape).float() * scale
    targets = torch.randn(2, *shape[:-1], 8).float() * scale
    for clip in (1e-8, 1.0, 1e6):
        found = clipped_sum(layer, LOSS, inputs[:1], targets[:1], clip)
        assert float(found.total.norm()) <= clip


def test_an_underflow_does_not_hide_a_gradient():
    """x^2 underflows in float32, but g is so large that the gradient does not: it is still clipped."""
    layer = nn.Linear(4, 2, bias=False).float()
    piece = pieces.Product(layer.weight, None, torch.full((1, 4), 1e-25), torch.full((1, 2), 1e18).float())
    piece.x = piece.x.float()
    total = {layer.weight: torch.zeros(2, 4)}
    piece.add(total, factors(piece.squares(), 1e-9))
    assert float(total[layer.weight].norm()) <= 1e-9


def test_a_gradient_that_cancels_stays_within_the_bound():
    """Positions that cancel to nearly nothing: a Gram matrix cannot see what is left, so it adds a floor."""
    x = torch.randn(1, 1, 6, 1).repeat(1, 1, 1, 2)
    g = torch.randn(1, 1, 5, 1).repeat(1, 1, 1, 2)
    g[..., 1] *= -(1 - 2.0**-28)
    weight = nn.Parameter(torch.zeros(5, 6))
    piece = pieces.Gram(weight, lambda part: part, x * 1e9, g * 1e9, 6)
    total = {weight: torch.zeros(5, 6)}
    piece.add(total, factors(piece.squares(), 1.0))
    assert float(total[weight].norm()) <= 1.0
    assert float(piece.squares()) >= 0.999 * GRAM_FLOOR * float(
        (x * 1e9).square().sum() * (g * 1e9).square().sum()
    )


@pytest.mark.parametrize("form", ["product", "kept", "gram"])
@pytest.mark.parametrize("records", [50, 3000])
def test_a_sum_is_as_close_as_the_slack_says(form, records):
    """Against exact sums of the very numbers that are added; equal records are the worst case."""
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(records, 3, generator=generator).float()
    g = torch.rand(records, 2, generator=generator).float()
    weight = nn.Parameter(torch.zeros(2, 3))
    rows = torch.einsum("bo,bi->boi", g, x).flatten(1)
    piece = {
        "product": pieces.Product(weight, None, x, g),
        "kept": pieces.Kept((weight,), rows),
        "gram": pieces.Gram(weight, lambda part: part, x[:, None, :, None], g[:, None, :, None], 3),
    }[form]
    scale = factors(piece.squares(), 0.25)
    total = {weight: torch.zeros(2, 3)}
    piece.add(total, scale)
    error = Fraction(0)
    for o in range(2):
        for i in range(3):
            terms = exact(rows[:, 3 * o + i]) if form == "kept" else None
            if terms is None:
                terms = [a * b for a, b in zip(exact(g[:, o]), exact(x[:, i]), strict=True)]
            true = sum(f * t for f, t in zip(exact(scale), terms, strict=True))
            error += (Fraction(float(total[weight][o, i])) - true) ** 2
    assert math.sqrt(error) <= rounding_slack(records) / 2 * 0.25


def test_a_sum_in_float32_would_not_be():
    """The same numbers, added in float32: the slack is a bound that a plain sum does not keep."""
    rows = torch.full((20_000, 1), 0.1)
    plain = float(rows.float().numpy().cumsum()[-1])  # torch would add these in float64
    true = float(Fraction(float(rows.float()[0])) * 20_000)
    assert abs(plain - true) > rounding_slack(20_000) / 2 * 0.1


def test_the_slack_is_small_and_grows_with_the_batch():
    assert rounding_slack(0) == 0.0
    assert rounding_slack(1000) < 1e-4
    assert rounding_slack(10_000) < 1e-3
    assert rounding_slack(10_000) > rounding_slack(1000)
