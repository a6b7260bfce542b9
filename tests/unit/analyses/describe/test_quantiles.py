"""Quantiles of columns with spikes: what is not known within a bin is counted in their errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import columns
from cape.analyses import Quantiles
from cape.analyses.describe.tree_axes import level_axes
from cape.data import Number, Schema
from cape.stats.tree import depth
from tests.unit.analyses.slow_sums import exact, noisy, release

SCHEMA = columns.SCHEMA
VISITS = ("inpatient", "emergency", "outpatient", "repeats")
BINS = 64
PROBS = (0.5, 0.75, 0.9)


def _width(name):
    return 2 * SCHEMA.number(name).half / BINS


def _errors(rows, mu, seeds=8):
    """Return by how much quantiles of visits miss those of the population, with their standard errors."""
    truth = columns.population(100_000)
    analysis = Quantiles(*VISITS, probs=PROBS, bins=BINS)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        drawn = columns.sample(rows, rng, truth)
        found = release(analysis, SCHEMA, drawn, rng, mu=mu)
        for name in VISITS:
            for prob in PROBS:
                estimate = found[f"{name} quantile {prob:g}"]
                yield name, estimate.value - np.quantile(truth[name], prob, method="inverted_cdf"), estimate


@pytest.mark.parametrize(("rows", "mu"), [(5_000, 0.5), (5_000, 0)], ids=["noise", "no noise"])
def test_standard_errors_on_spikes_count_the_width_of_bins(rows, mu):
    """Without it the root mean square of error over standard error would be far above 1."""
    counted, without = [], []
    for name, error, estimate in _errors(rows, mu):
        place = estimate.value / _width(name) % 1.0
        rounding = _width(name) * math.sqrt(1 / 12 + (place - 0.5) ** 2)
        assert estimate.standard_error >= rounding
        counted.append(error / estimate.standard_error)
        without.append(error / math.sqrt(max(estimate.standard_error**2 - rounding**2, 1e-18)))
    assert np.abs(counted).max() < 2.1
    assert np.sqrt(np.mean(np.square(counted))) < 1.6
    assert np.median(np.abs(without)) > 5


def test_a_place_anywhere_in_a_bin_is_the_least_error():
    schema = Schema(x=Number(0, 64, missing=False))
    rows = {"x": np.full(1000, 3.9)}
    estimate = release(Quantiles("x", probs=[0.5], bins=64), schema, rows, np.random.default_rng(1), mu=0)
    found = estimate["x quantile 0.5"]
    assert found.sampling == pytest.approx(1 / math.sqrt(12), rel=0.02)
    assert found.privacy == 0
    low, high = found.interval()
    assert low <= 3.9 <= high


def test_noise_at_a_spike_at_a_bound_is_what_releases_show():
    """The bound itself has no noise: half way to the next edge there is half as much."""
    schema = Schema(x=Number(0, 64, missing=False))
    rows = {"x": np.concatenate([np.zeros(8000), np.linspace(0, 64, 2000)])}
    analysis, rng = Quantiles("x", probs=[0.2, 0.6], bins=64), np.random.default_rng(4)
    query = analysis.query(schema, "replace-one")
    sums = exact(query, schema, rows)
    found = [analysis.finish(noisy(query, schema, sums, 10_000, rng)) for _ in range(400)]
    for place in range(2):
        values = [estimates[place].value for estimates in found]
        assert np.std(values) == pytest.approx(found[0][place].privacy, rel=0.2)


def test_the_levels_are_cut_at_the_same_edges():
    axes = level_axes("x", Number(0.1, 0.7), 256)
    fine = axes[-1].edges
    assert [len(axis.edges) - 1 for axis in axes] == [4, 16, 64, 256]
    assert all(set(axis.edges) <= set(fine) for axis in axes)
    assert depth(256) == 4
