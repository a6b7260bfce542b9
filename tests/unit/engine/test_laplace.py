"""Releases with Laplace noise: their law, their price, who may ask for them, and what is promised."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

import cape
from cape.core.errors import BudgetExceeded, InvalidInput
from cape.engine.calibration import RESOLUTION, calibrate_laplace
from cape.engine.contribution import add_noise
from cape.engine.query import Query
from cape.engine.schemes import Parties, Task, make_scheme
from cape.engine.stages import Setting, Stages
from cape.noise import LaplacePart, Ring, SecureStream
from cape.stats.law import Law

SITES = {name: pd.DataFrame({"age": np.arange(20.0, 90.0)}) for name in "abcde"}
SCHEMA = {"age": cape.Number(0, 120, missing=False)}
COUNT = cape.Histogram("age", bins=3)
PARTIES = Parties(5, 1, 3)
ENTRIES = 20_000


def consortium(budget=None, **options):
    budget = budget or cape.Budget(1.0)
    options = {"stream": SecureStream(bytes(range(32)))} | options
    return cape.Consortium(SITES, SCHEMA, budget, **options)


def total(scheme, drop, key=b"laplace", parties=PARTIES):
    """The noise in a total over vectors of zeros, and what is said of it."""
    root, part = SecureStream(key.ljust(32, b".")), scheme.part(parties)
    rows = dict.fromkeys("abcde", 10)
    noisy = scheme.noisy(rows, drop)
    zeros = np.zeros(ENTRIES, np.int64)
    vectors = {n: add_noise(zeros, part, root.fork(n)) if n in noisy else zeros.copy() for n in rows}
    task = Task(vectors, rows, parties, 1.0, Ring(64), drop, root.fork("keys"))
    return scheme.run(task)


@pytest.mark.quick_cases("cape-drop1-1.3333333333333333", "cape-drop3-1.5", seconds=0.8)
@pytest.mark.parametrize(
    ("name", "drop", "shape"),
    [
        ("cape", {}, 5 / 4),
        ("cape", {"a": "mask"}, 4 / 3),
        ("cape", {"a": "share", "b": "mask"}, 3 / 2),
        ("cape", {"e": "unmask"}, 4 / 4 + 1 / 2),  # it leaves all its surplus in
        ("conventional", {"a": "message"}, 4),
        ("pooled", {}, 1),
        ("local", {}, 1),
    ],
)
def test_the_noise_of_a_total_has_the_law_that_is_said_of_it(name, drop, shape):
    scheme = make_scheme(name, "laplace")
    outcome = total(scheme, drop)
    law = scheme.part(PARTIES).law(outcome.noise)
    assert law.shape == pytest.approx(shape, rel=1e-6)
    scaled = outcome.total / outcome.noise
    assert kstest(scaled, law.cdf).pvalue > 1e-4
    assert kstest(scaled * 1.15, law.cdf).pvalue < 1e-4
    assert outcome.noise == pytest.approx(RESOLUTION * math.sqrt(2 * shape), rel=1e-6)


def test_honest_noise_alone_is_laplace_noise_of_the_claimed_scale():
    """What is left when a colluder takes its own noise off: shape 1, so that epsilon is 1 at one unit."""
    scheme = make_scheme("cape", "laplace")
    part = scheme.part(PARTIES)
    assert part == LaplacePart(Fraction(1, 4), float(RESOLUTION))
    honest = sum(part.draw(ENTRIES, SecureStream(bytes([i] * 32))) for i in range(4))
    assert kstest(honest / RESOLUTION / math.sqrt(2), Law(1.0).cdf).pvalue > 1e-4
    assert scheme.cost_epsilon(3.0, 6.0, PARTIES) == 0.5


def test_the_worst_pair_of_rows_costs_at_most_its_epsilon():
    """One row moves from one bin to another: two entries of the grid, and rounding at most one step each."""
    setting = Setting(cape.Schema(SCHEMA).at(SITES), cape.Budget(0.3), PARTIES, "replace-one")
    stages = Stages.of(COUNT, setting, make_scheme("cape", "laplace"), 0.5)
    query = COUNT.query(setting.schema, "replace-one")
    calibration, _ = stages.calibrate(0, query)
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(200):
        one = rng.integers(0, 1000, 3)
        other = one + np.array([1, -1, 0])
        moved = np.abs(calibration.encode((one,)) - calibration.encode((other,))).sum()
        worst = max(worst, float(moved) / RESOLUTION)
    assert worst <= 0.15
    assert worst > 0.15 * (1 - 1e-3)  # and the grid costs less than a thousandth


def test_rounding_is_paid_for_where_a_person_is_a_few_steps():
    part = LaplacePart(Fraction(1), float(RESOLUTION))
    schema = cape.Schema(SCHEMA).at(SITES)
    query = COUNT.query(schema, "replace-one")
    found = calibrate_laplace(query, schema, Fraction(41, RESOLUTION), part, moved=1, rounding=1)
    counts = np.arange(60)
    pairs = [(counts, counts + 1), (counts + 1, counts)]  # one bin gains a row, another loses one
    up, down = (
        found.steps[0].round(after.astype(np.int64)) - found.steps[0].round(before.astype(np.int64))
        for before, after in pairs
    )
    assert np.abs(up).max() + np.abs(down).max() <= 41
    assert np.abs(up).max() + np.abs(down).max() >= 38


def test_a_histogram_of_any_length_pays_for_the_rounding_of_two_bins():
    part = LaplacePart(Fraction(1), float(RESOLUTION))
    setting = Setting(cape.Schema(SCHEMA).at(SITES), cape.Budget(1.0), PARTIES, "replace-one")
    noises = []
    for bins in (2, 100_000):
        query = cape.Histogram("age", bins=bins).query(setting.schema, "replace-one")
        found = calibrate_laplace(query, setting.schema, Fraction(1, 10), part, moved=1, rounding=1)
        noises.append(found.local_noise)
    assert noises[0] == noises[1] == pytest.approx(2 / 0.1 * math.sqrt(2), rel=1e-3)
    assert noises[0] > 2 / 0.1 * math.sqrt(2)


def test_too_fine_a_release_is_refused():
    part = LaplacePart(Fraction(1), float(RESOLUTION))
    setting = Setting(cape.Schema(SCHEMA).at(SITES), cape.Budget(1.0), PARTIES, "replace-one")
    query = COUNT.query(setting.schema, "replace-one")
    with pytest.raises(InvalidInput, match="mostly rounding"):
        calibrate_laplace(query, setting.schema, Fraction(1, 10**6), part, moved=1, rounding=1)
    with pytest.raises(InvalidInput, match="L1 sensitivity"):
        calibrate_laplace(
            Query(query.blocks, query.scales, 1.0), setting.schema, Fraction(1), part, moved=1, rounding=1
        )


@pytest.mark.parametrize(
    ("rows", "sites", "scheme", "times"),
    [
        (4, 1, "cape", 4),
        (1, 2, "cape", 2),
        (3, 2, "pooled", 6),
        (1, 2, "conventional", 4),
        (2, 1, "conventional", 2),
    ],
)
def test_noise_grows_with_the_rows_and_sites_of_a_person(rows, sites, scheme, times):
    kind = make_scheme(scheme, "laplace")

    def noise(schema):
        setting = Setting(schema, cape.Budget(1.0), PARTIES, "add-remove")
        stages = Stages.of(COUNT, setting, kind, 1.0)
        return stages.calibrate(0, COUNT.query(setting.schema, "add-remove"))[0].local_noise

    alone = cape.Schema(SCHEMA).at(SITES)
    person = alone.of_persons(cape.Person("who", rows=rows, sites=sites))
    assert noise(person) / noise(alone) == pytest.approx(times, rel=1e-4)


def test_shares_of_a_budget_without_delta_are_shares_of_epsilon():
    here = consortium(neighbours="add-remove")  # counts are not made to add up
    one, two = here.release(COUNT, 0.25), here.release(COUNT, 0.75)
    assert (one.guarantee.pure, two.guarantee.pure) == (0.25, 0.75)
    assert one.guarantee.epsilon == 0.25
    ratio = one.standard_error["age in [0, 40)"] / two.standard_error["age in [0, 40)"]
    assert ratio == pytest.approx(3, rel=1e-3)
    assert two.estimates[0].law == Law(5 / 4)
    low, high = two.interval(0.95)["age in [0, 40)"]
    assert (high - low) / 2 == pytest.approx(float(Law(5 / 4).quantile(0.975, two.estimates[0].privacy)))
    with pytest.raises(BudgetExceeded):
        here.release(COUNT, 0.001)
    assert "no delta, so nobody can ever be sure" in str(one.guarantee)
    assert "at most e^1000 times as likely" in str(replace(one.guarantee, pure=1000.0))
    assert "epsilon = 0.25, no delta" in str(one)


def test_a_sparse_graph_of_masks_is_named_in_the_promise():
    scheme = make_scheme("cape", "laplace")
    setting = Setting(cape.Schema(SCHEMA), cape.Budget(1.0), scheme.parties(200), "replace-one")
    promise = setting.guarantee(scheme, 0.5)
    assert 0 < promise.extra < 2**-40
    assert "no delta, but for the graph of masks" in promise.statement
    assert "fails to hide a site with a chance of at most" in promise.statement


@pytest.mark.filterwarnings("ignore::cape.PrivacyLeakWarning")
def test_laplace_noise_needs_no_delta_even_if_there_is_one():
    here = consortium(cape.Budget(1.0, 1e-6), noise="laplace")
    assert here.release(COUNT, 0.5).guarantee.pure == 0.5
    assert here.release(COUNT, 0.1, scheme="none").guarantee.pure is None


def test_what_needs_a_delta_is_refused_before_anything_is_spent():
    pure, mixed = consortium(), consortium(cape.Budget(1.0, 1e-6), noise="laplace")
    regression = cape.PCA(["age"])
    with pytest.raises(InvalidInput, match="PCA needs delta: write delta = 1e-6"):
        pure.release(regression, 0.5)
    with pytest.raises(InvalidInput, match='PCA needs Gaussian noise: write noise = "gaussian"'):
        mixed.release(regression, 0.5)
    with pytest.raises(InvalidInput, match='"cape-gaussian" makes Gaussian noise'):
        pure.release(COUNT, 0.5, scheme="cape-gaussian")
    assert pure.budget.spent == mixed.budget.spent == 0
    with pytest.raises(InvalidInput, match="Gaussian noise needs a budget with a delta"):
        consortium(noise="gaussian")
    with pytest.raises(InvalidInput, match="is for study files"):
        consortium(noise="auto")
    with pytest.raises(InvalidInput, match="noise must be"):
        consortium(noise="uniform")
    with pytest.raises(InvalidInput, match="was made for gaussian noise"):
        pure.release(COUNT, 0.5, scheme=make_scheme("cape"))


def test_a_plan_shows_both_kinds_of_noise():
    gaussian = consortium(cape.Budget(1.0, 1e-6)).plan(COUNT, 1.0)
    laplace = consortium(cape.Budget(1.0, 1e-6), noise="laplace").plan(COUNT, 1.0)
    label = "age in [0, 40)"
    assert gaussian.other[label] == laplace.noise[label]["cape"]
    assert laplace.other[label] == gaussian.noise[label]["cape"]
    assert gaussian.ratio == pytest.approx(1 / laplace.ratio)
    assert gaussian.ratio < 0.5
    assert "With Laplace noise it would be 0.4" in gaussian.advice
    assert laplace.expected_error[label] / laplace.noise[label]["cape"] == pytest.approx(0.7236, abs=1e-3)
    assert consortium().plan(COUNT, 1.0).other == {}
    assert consortium().plan(COUNT, 1.0).halving["epsilon"] == 2.0


@pytest.mark.slow(3.0)
def test_intervals_cover_what_they_say():
    """At 5 sites and epsilon 1: noise alone, at three levels."""
    here = consortium(cape.Budget(100.0), stream=SecureStream(b"c" * 32))
    found = [here.release(COUNT, 0.01) for _ in range(60)]
    truth = np.array([5 * 20, 5 * 40, 5 * 10])
    for level in (0.5, 0.8, 0.95):
        inside = [
            [low <= t <= high for (low, high), t in zip(r.interval(level).values(), truth, strict=True)]
            for r in found
        ]
        assert np.mean(inside) == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / 180))
