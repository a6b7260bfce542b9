"""Order and edges, and that breaking either is seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cape.analyses.registry import KINDS, build
from cape.audit import rounding
from cape.audit.rounding import (
    BOUNDS,
    NO_NUMBERS,
    EdgeRows,
    asked,
    checks,
    edge_rows,
    excess,
    order_matters,
    shuffled,
)
from cape.audit.world import OWN, analysis_of, random_rows, stream_of
from cape.blocks import steps
from cape.core.errors import InvalidInput

MEAN = {"kind": "mean", "columns": ["x", "y"]}


@pytest.mark.slow(5.1)
def test_everything_holds_here(monkeypatch):
    monkeypatch.setattr(rounding, "BOUNDS", BOUNDS[2:5])
    found = checks(1)
    assert len(found) == 5
    assert all(check.holds for check in found), found


def test_every_kind_that_reads_a_number_is_asked():
    assert {each.kind for each in asked(0.0, 1.0)} | {*NO_NUMBERS} == {*KINDS} | {*OWN}


@pytest.mark.parametrize("which", ["quantiles", "gradient-descent"])
def test_a_kind_that_is_refused_and_may_not_be_is_a_failure(monkeypatch, which):
    def refuse(analysis, rows, neighbours, epsilon):
        if analysis.kind == which and neighbours == "add-remove":
            raise InvalidInput("no")
        return 0.9, 1

    monkeypatch.setattr(rounding, "excess", refuse)
    found = checks(1)[2:]
    assert len(found) == len(BOUNDS)
    wide = [check for check in found if "1e+15" in check.name or "1000000000000000.0" in check.name]
    for check in found:
        allowed = which == "quantiles" and (check in wide or "1.7e+308" in check.name)
        assert check.holds == allowed, check
        assert (f"must be answered: {which}" in check.found) is not allowed


def test_a_distance_that_is_not_a_number_is_a_failure(monkeypatch):
    monkeypatch.setattr(rounding, "excess", lambda *asked: (math.nan, 1))
    assert not any(check.holds for check in checks(1)[2:])


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_edges_nearly_attain_the_claim(neighbours):
    ratio, pairs = excess(build(MEAN), EdgeRows(18.0, 90.0, 1), neighbours, 1.0)
    assert pairs > 60
    assert 0.999 < ratio <= 1


def test_rows_that_were_added_up_for_another_query_are_not_taken_for_these():
    """The same rows serve all queries about them, one after the other."""
    rows = EdgeRows(18.0, 90.0, 1)
    kinds = [
        MEAN,
        {"kind": "histogram", "column": "x", "bins": 4},
        {"kind": "covariance", "columns": ["x", "y"]},
        MEAN,
    ]
    for kind in kinds:
        for neighbours in ("replace-one", "add-remove"):
            alone = excess(build(kind), EdgeRows(18.0, 90.0, 1), neighbours, 1.0)
            assert excess(build(kind), rows, neighbours, 1.0) == alone


def test_edges_hold_both_bounds_and_their_neighbours():
    cells = {cell for row in edge_rows(18.0, 90.0, stream_of("test")) for cell in row}
    assert {18.0, 90.0, math.nextafter(90.0, 100), math.nextafter(18.0, 0), 5e-324} <= cells
    assert any(cell == 0 and math.copysign(1, cell) < 0 for cell in cells)


def test_cells_that_are_not_clamped_are_seen(monkeypatch):
    def unclamped(self, values, out):
        np.divide(values - self.middle, self.size, out=out)
        return np.clip(out, -(2.0**21), 2.0**21, out=out)

    monkeypatch.setattr(steps.Steps, "scale", unclamped)
    assert excess(build(MEAN), EdgeRows(18.0, 90.0, 1), "replace-one", 1.0)[0] > 1


def test_a_claim_that_is_a_thousandth_too_small_is_seen(monkeypatch):
    monkeypatch.setattr(rounding, "RESOLUTION", rounding.RESOLUTION * 999 // 1000)
    assert excess(build(MEAN), EdgeRows(18.0, 90.0, 1), "replace-one", 1.0)[0] > 1


def test_a_sum_that_depends_on_the_order_is_seen(monkeypatch):
    stream = stream_of("test order")
    rows = random_rows(50, stream)
    turned = shuffled(rows, stream)
    assert sorted(map(repr, rows)) == sorted(map(repr, turned))
    assert not order_matters(analysis_of("covariance"), rows, turned)
    monkeypatch.setattr(steps.Steps, "scale", _drifting(steps.Steps.scale))
    assert order_matters(analysis_of("covariance"), rows, turned)


def _drifting(real):
    """What a row adds depends on the place that it stands at."""

    def scale(self, values, out):
        real(self, values, out)
        out += np.arange(out.shape[-1]) * 0.01
        return out

    return scale
