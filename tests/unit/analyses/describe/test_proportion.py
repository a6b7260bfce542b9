"""Shares of categories: Wilson's interval without noise, and one that covers with it."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.stats import binomtest

from cape.analyses import Proportion
from cape.core.errors import TooNoisyWarning
from cape.data import Category, Schema
from cape.engine.query import Answer
from tests.unit.analyses.slow_sums import MU

NOISE = math.sqrt(2) / MU
pytestmark = pytest.mark.filterwarnings("ignore::cape.core.errors.TooNoisyWarning")


def schema(missing=True, values=("no", "yes")):
    return Schema(ill=Category(tuple(values), missing=missing), sex=Category(("f", "m"), missing=missing))


def finished(counts, noise=0.0, rows=None, known=None, **options):
    known = known or schema()
    answer = Answer(((np.asarray(counts, float),),), ((noise,),), rows, known)
    return {estimate.label: estimate for estimate in Proportion("ill", **options).finish(answer)}


@pytest.mark.parametrize(("ill", "rows"), [(0, 40), (3, 200), (100, 200), (40, 40)])
def test_without_noise_the_interval_is_wilsons(ill, rows):
    found = finished([rows - ill, ill])
    known = binomtest(ill, rows).proportion_ci(0.9, method="wilson")
    assert found["ill=yes"].value == ill / rows
    assert found["ill=yes"].interval(0.9) == pytest.approx((known.low, known.high), abs=1e-6)
    assert found["ill=no"].interval(0.9) == pytest.approx((1 - known.high, 1 - known.low), abs=1e-6)


def test_groups_are_shares_of_their_own_people():
    found = finished([[30, 10], [50, 50]], by="sex")
    assert found["ill=yes | sex=f"].value == 0.25
    assert found["ill=yes | sex=m"].value == 0.5
    known = binomtest(10, 40).proportion_ci(method="wilson")
    assert found["ill=yes | sex=f"].interval() == pytest.approx((known.low, known.high), abs=1e-6)


def coverage(share, rows, noise, runs, *, missing, by=False, categories=2):
    rng, hits = np.random.default_rng([rows, categories]), 0
    values = ["no", "yes", "maybe", "later"][:categories]
    shares = np.array([1 - share, share, *[share] * (categories - 2)])
    shares[0] = 1 - shares[1:].sum()
    known = schema(missing, values)
    for _ in range(runs):
        counts = rng.multinomial(rows, np.concatenate([0.6 * shares, 0.4 * shares]) if by else shares)
        noisy = counts.reshape(2, -1) if by else counts
        noisy = noisy + rng.normal(size=noisy.shape) * noise
        options = {"by": "sex"} if by else {}
        found = finished(noisy, noise, None if missing else rows, known, **options)
        low, high = found["ill=yes | sex=m" if by else "ill=yes"].interval()
        hits += low <= share <= high
    return hits / runs


@pytest.mark.slow(3)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("rows", [200, 1000, 20_000])
@pytest.mark.parametrize("missing", [True, False])
def test_intervals_cover_small_and_large_shares(share, rows, missing):
    """Two thousand runs: 95% is known to 0.5%."""
    assert coverage(share, rows, NOISE, 2000, missing=missing) > 0.935


@pytest.mark.slow(3)
@pytest.mark.parametrize("missing", [True, False])
def test_intervals_cover_with_groups_and_many_categories(missing):
    assert coverage(0.2, 1000, NOISE, 2000, missing=missing, by=True) > 0.935
    found = coverage(0.2, 2000, NOISE, 2000, missing=missing, categories=4, by=True)
    assert 0.935 < found < 0.965


def test_a_public_number_of_rows_makes_shares_more_precise():
    """Of two categories with half each, the noise of both counts: none of it in the total."""
    counts = [500.0, 500.0]
    private = finished(counts, NOISE)["ill=yes"]
    public = finished(counts, NOISE, 1000, schema(missing=False))["ill=yes"]
    assert public.privacy == pytest.approx(NOISE / math.sqrt(2) / 1000)
    assert private.privacy == pytest.approx(public.privacy)
    few = finished([950.0, 50.0], NOISE)["ill=yes"].privacy
    assert few > 1.3 * finished([950.0, 50.0], NOISE, 1000, schema(missing=False))["ill=yes"].privacy


def test_a_group_of_nobody_has_the_interval_of_everything_and_a_warning():
    with pytest.warns(TooNoisyWarning, match="'ill=no | sex=m' and 1 more"):
        found = finished([[300, 100], [3.0, -8.0]], NOISE, by="sex")
    assert found["ill=yes | sex=m"].interval() == (0, 1)
    assert found["ill=yes | sex=f"].interval()[1] < 0.4


def test_a_share_that_noise_made_negative_is_0_with_an_interval():
    found = finished([1000.0, -9.0], NOISE)["ill=yes"]
    assert found.value == 0
    low, high = found.interval()
    assert low == 0
    assert 0.005 < high < 0.03
    assert pickle.loads(pickle.dumps(found)) == found
