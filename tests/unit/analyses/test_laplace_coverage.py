"""Intervals and tests hold at their level where noise is Laplace's."""

from __future__ import annotations

import numpy as np
import pytest

from cape.analyses import Difference, Mean, Proportion
from cape.data import Number, Schema
from tests.unit.analyses.slow_sums import release_laplace


def people(rng, rows):
    """A skewed column of which many cells are 0, a rare category, and two groups of the same kind."""
    x = np.where(rng.random(rows) < 0.4, 0.0, rng.lognormal(2.5, 1, rows))
    return {
        "x": np.clip(x, 0, 100),
        "ill": (rng.random(rows) < 0.08).astype(int),
        "group": (rng.random(rows) < 0.4).astype(int),
    }


SCHEMA = Schema(x=Number(0, 100, missing=False), ill=["no", "yes"], group=["a", "b"])


@pytest.mark.filterwarnings("ignore::cape.core.errors.TooNoisyWarning")
@pytest.mark.slow(12)
@pytest.mark.parametrize("rows", [200, 1000, 20_000])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_intervals_and_tests_hold_under_laplace_noise(rows, epsilon):
    """400 runs: the standard error of a coverage of 95%, and of a size of 5%, is 1.1%; four of them are
    allowed."""
    rng = np.random.default_rng(rows)
    large = people(np.random.default_rng(5), 2_000_000)
    true = {"x": large["x"].mean(), "ill=yes": 0.08}
    covered, rejected, runs = {"x": 0, "ill=yes": 0, "x difference | group: b - a": 0}, 0, 400
    for _ in range(runs):
        table = people(rng, rows)
        for label, analysis in (("x", Mean("x")), ("ill=yes", Proportion("ill"))):
            found = {e.label: e for e in release_laplace(analysis, SCHEMA, table, rng, epsilon=epsilon)}
            low, high = found[label].interval()
            covered[label] += low <= true[label] <= high
        result = release_laplace(Difference("x", by="group"), SCHEMA, table, rng, epsilon=epsilon)
        found = {e.label: e for e in result.estimates}
        low, high = found["x difference | group: b - a"].interval()
        covered["x difference | group: b - a"] += low <= 0 <= high
        (test,) = result.model.comparisons[0].tests
        rejected += test is not None and test.p_value < 0.05
    for label, hits in covered.items():
        assert hits / runs > 0.95 - 0.044, label
    assert rejected / runs < 0.05 + 0.044
