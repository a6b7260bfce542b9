"""Rank tests from histograms: scipy's on the same bins without noise, and of the right size with it."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.stats import kruskal, mannwhitneyu

from cape.analyses import RankTest
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Schema
from cape.engine.query import Answer
from tests.unit.analyses.slow_sums import MU

SCHEMA = Schema(crp=(0, 8), arm=["a", "b"], stage=["I", "II", "III"], ward=["only"])
NOISE = math.sqrt(2) / MU
pytestmark = pytest.mark.filterwarnings("ignore::cape.core.errors.TooNoisyWarning")


def finished(counts, noise=0.0, by="arm"):
    table = np.asarray(counts, float)
    asked = RankTest("crp", by=by, bins=table.shape[1])
    return asked.finish(Answer(((table,),), ((noise,),), None, SCHEMA))


def spread_out(counts):
    """The bins of rows, which are ties."""
    return [np.repeat(np.arange(len(row)), row) for row in np.asarray(counts)]


def test_without_noise_two_groups_are_compared_as_scipy_does():
    counts = [[10, 7, 12, 3, 0, 1], [4, 9, 11, 8, 2, 5]]
    result = finished(counts)
    a, b = spread_out(counts)
    known = mannwhitneyu(b, a, use_continuity=False, method="asymptotic")
    assert result.model.p_value == pytest.approx(known.pvalue, abs=1e-6)
    assert result.estimates[0].label == "P(arm=b > a)"
    assert result.estimates[0].value == pytest.approx(known.statistic / len(a) / len(b), abs=1e-9)


def test_without_noise_several_groups_are_compared_as_scipy_does():
    counts = [[10, 7, 12, 3, 0, 1], [4, 9, 11, 8, 2, 5], [6, 6, 6, 6, 6, 9]]
    result = finished(counts, by="stage")
    known = kruskal(*spread_out(counts))
    assert result.model.test.statistic == pytest.approx(known.statistic, abs=1e-6)
    assert result.model.p_value == pytest.approx(known.pvalue, abs=1e-6)
    assert result.model.test.freedom == 2
    assert len(result.estimates) == 3


@pytest.mark.slow(1)
@pytest.mark.parametrize("rows", [400, 1000, 20_000])
@pytest.mark.parametrize("first", [0.5, 0.75])
def test_the_level_is_kept_and_intervals_cover(rows, first):
    """Two thousand runs: 5% is known to 0.5%. Most rows are in the first bins."""
    rng, shares = np.random.default_rng(rows), 0.6 ** np.arange(8)
    shares /= shares.sum()
    rejected = covered = 0
    for _ in range(2000):
        counts = rng.multinomial(rows, np.outer([first, 1 - first], shares).ravel()).reshape(2, 8)
        result = finished(counts + rng.normal(size=(2, 8)) * NOISE, NOISE)
        rejected += (1.0 if result.model.p_value is None else result.model.p_value) < 0.05
        low, high = result.estimates[0].interval()
        covered += low <= 0.5 <= high
    assert rejected / 2000 < 0.067  # 3.5 standard errors
    assert covered / 2000 > 0.933


@pytest.mark.slow(1)
def test_intervals_cover_where_groups_differ():
    rng = np.random.default_rng(3)
    shares = np.stack([0.6 ** np.arange(8), 0.85 ** np.arange(8)])
    shares /= shares.sum(axis=1, keepdims=True)
    below = np.cumsum(shares[0]) - shares[0] / 2
    true, hits = float(shares[1] @ below), 0
    for _ in range(1000):
        counts = rng.multinomial(1500, (shares / 2).ravel()).reshape(2, 8)
        low, high = finished(counts + rng.normal(size=(2, 8)) * NOISE, NOISE).estimates[0].interval()
        hits += low <= true <= high
    assert 0.925 < hits / 1000 < 0.975


def test_a_group_of_nobody_and_a_column_that_does_not_vary_have_no_test():
    with pytest.warns(TooNoisyWarning, match="arm=b > a"):
        result = finished([[300, 200, 100, 50], [3, -5, 8, 1]], NOISE)
    assert result.model.p_value is None
    assert result.estimates[0].interval() == (0, 1)
    assert "Noise hides whether anybody is in the group arm=b" in result.model.notes()[0]
    assert result.model.notes()[1:] == ["There is too much noise for the Mann–Whitney test."]
    assert finished([[30, 0, 0], [20, 0, 0]]).model.p_value is None


def test_what_cannot_be_ranked_is_refused_before_anything_is_asked():
    with pytest.raises(InvalidInput, match="at least three numbers"):
        RankTest("crp", by="arm", edges=[0, 8])
    with pytest.raises(InvalidInput, match="not both"):
        RankTest("crp", by="arm", edges=[0, 4, 8], bins=3)
    with pytest.raises(InvalidInput, match="bins must be"):
        RankTest("crp", by="arm", bins=1)
    with pytest.raises(InvalidInput, match="named twice"):
        RankTest("crp", by="crp")
    with pytest.raises(InvalidInput, match="one category"):
        RankTest("crp", by="ward").query(SCHEMA, "replace-one")
    with pytest.raises(InvalidInput, match="numeric bounds"):
        RankTest("arm", by="stage").query(SCHEMA, "replace-one")


def test_a_result_is_the_same_after_pickling():
    found = list(finished([[300, 200, 100, 50], [150, 180, 120, 90]], NOISE).estimates)
    assert pickle.loads(pickle.dumps(found)) == found
