"""Principal components: scikit-learn's without noise, unbiased with it, and told apart from it."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import decomposition

from cape.analyses.describe.pca import PCA
from cape.analyses.describe.pca_estimate import Components, NoisyMatrix, component
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Number, Schema
from cape.stats.matrices import nearest_positive, shrunk, symmetric, without_repulsion
from tests.unit.analyses.regression.conversations import converse, sums_of

NAMES = [f"x{i}" for i in range(6)]
SCHEMA = Schema({name: Number(-3, 7, missing=False) for name in NAMES})
HOLED = Schema({name: Number(-3, 7) for name in NAMES})
MIX = np.random.default_rng(1).normal(size=(6, 6)) * np.array([1.2, 0.8, 0.4, 0.3, 0.2, 0.1])
NO_NOISE = 1e12


def people(rng, rows):
    return np.clip(2 + rng.normal(size=(rows, 6)) @ MIX.T, -3, 7)


def as_table(x):
    return {name: x[:, i] for i, name in enumerate(NAMES)}


TRUE = np.linalg.eigvalsh(np.cov(((people(np.random.default_rng(2), 1_000_000) - 2) / 5).T))[::-1]


@pytest.mark.slow(1.5)
def test_the_share_of_the_only_component_there_is():
    """v**2 is not always v * v in floats: what the others have must not be found as a difference."""
    found = NoisyMatrix(100.0, np.zeros(2), np.eye(2), 0.0, 0.0, 0.01)
    values = np.random.default_rng(0).random(20_000)
    assert (np.array([value**2 for value in values.tolist()]) > values**2).any()
    for value in values:
        variances = np.array([value, 0.0])
        parts = Components(found, variances, variances, np.eye(2), 0.0)
        _, share = component(0, parts, float(value), 1.0, None)
        assert (share.value, share.sampling) == (1.0, 0.0)


def test_a_variance_that_noise_cut_to_0_keeps_a_sampling_error():
    found = NoisyMatrix(100.0, np.zeros(2), np.eye(2), 0.0, 0.0, 0.01)
    variances = np.array([0.5, 0.0])
    told = component(1, Components(found, variances, variances, np.eye(2), 0.02), 0.5, 1.0, None)
    assert all(estimate.value == 0 and estimate.sampling > 0 for estimate in told)


def test_the_noise_of_a_share_counts_that_of_each_direction_where_means_are_near_a_bound():
    rng = np.random.default_rng(4)
    mean, matrix = np.array([-0.5, -0.1, 0.0]), np.diag([0.06, 0.03, 0.02])
    noise, of_means, shares, told = 1e-4, 4e-4, [], []
    for _ in range(400):
        moved = symmetric(rng.normal(size=3) * math.sqrt(2), rng.normal(size=3)) * noise
        across = np.outer(mean, rng.normal(size=3) * of_means)
        found = NoisyMatrix(1e5, mean, matrix + moved - across - across.T, 0.0, of_means, noise)
        parts = Components.of(found)
        _, share = component(1, parts, parts.total(3), 1.0, None)
        shares.append(share.value)
        told.append(share.privacy)
    assert np.median(told) == pytest.approx(np.std(shares), rel=0.12)


@pytest.mark.parametrize("holes", [False, True])
def test_without_noise_it_is_scikit_learns(holes):
    rng = np.random.default_rng(3)
    x = people(rng, 3000)
    table = as_table(x.copy())
    if holes:
        table["x2"][::4] = np.nan
        x = x[np.arange(3000) % 4 > 0]
    found, _ = converse(PCA(*NAMES), HOLED if holes else SCHEMA, table, rng, mu=NO_NOISE)
    t = (x - 2) / 5
    known = decomposition.PCA().fit(t)
    model = found.model
    assert model.explained_variance == pytest.approx(known.explained_variance_, rel=1e-3, abs=1e-5)
    assert model.explained_variance_ratio == pytest.approx(known.explained_variance_ratio_, abs=1e-5)
    assert np.abs(model.components) == pytest.approx(np.abs(known.components_), abs=1e-3)
    assert model.mean == pytest.approx(known.mean_, abs=1e-4)
    assert all(row[np.abs(row).argmax()] > 0 for row in model.components)
    assert np.abs(model.transform(as_table(x))) == pytest.approx(np.abs(known.transform(t)), abs=5e-3)
    back = model.inverse_transform(model.transform(as_table(x)))
    assert np.stack([back[name] for name in NAMES], axis=1) == pytest.approx(x, abs=1e-6)


def test_uncentred_components_are_those_of_the_mean_square():
    rng = np.random.default_rng(4)
    x = people(rng, 2000)
    found, _ = converse(PCA(NAMES, components=2, center=False), SCHEMA, as_table(x), rng, mu=NO_NOISE)
    t = (x - 2) / 5
    known = np.linalg.eigvalsh(t.T @ t / 2000)[::-1][:2]
    assert [e.value for e in found.estimates[::2]] == pytest.approx(known, rel=1e-4)


@pytest.mark.slow(2)
def test_variances_and_shares_cover():
    """At epsilon 1; with 200 runs the standard error of a coverage is 1.5%."""
    rng, hits, runs = np.random.default_rng(5), np.zeros(4), 200
    true = [TRUE[0], TRUE[0] / TRUE.sum(), TRUE[1], TRUE[1] / TRUE.sum()]
    for _ in range(runs):
        found, _ = converse(PCA(*NAMES, components=2), SCHEMA, as_table(people(rng, 10_000)), rng)
        ends = [estimate.interval(0.95) for estimate in found.estimates]
        hits += [low <= value <= high for (low, high), value in zip(ends, true, strict=True)]
    assert np.all((hits / runs >= 0.91) & (hits / runs <= 1.0)), hits / runs


def test_what_noise_adds_to_an_eigenvalue_is_taken_off():
    rng, width, noise = np.random.default_rng(6), 40, 1.0
    spike = np.zeros(width)
    spike[0] = 20.0
    raw, corrected = [], []
    for _ in range(200):
        error = symmetric(
            rng.normal(size=width) * math.sqrt(2) * noise, rng.normal(size=width * (width - 1) // 2)
        )
        values = np.linalg.eigvalsh(np.diag(spike) + error)[::-1]
        raw.append(values[0])
        corrected.append(without_repulsion(values, noise)[0])
    assert np.mean(raw) == pytest.approx(20 + width / 20, abs=0.4)
    assert np.mean(corrected) == pytest.approx(20.0, abs=0.4)
    assert np.mean(raw) > 21.4  # so the test would notice if nothing were taken off


def test_a_component_that_noise_hides_is_told_with_a_number():
    rng = np.random.default_rng(7)
    with pytest.warns(TooNoisyWarning, match=r"component \d cannot be distinguished from noise.*\d"):
        found, _ = converse(PCA(*NAMES), SCHEMA, as_table(people(rng, 500)), rng)
    assert not all(found.model.clear)
    assert "(noise)" in found.model.summary()


def test_a_hidden_number_of_rows_says_nothing():
    rng = np.random.default_rng(8)
    with pytest.warns(TooNoisyWarning, match="number of rows"):
        found, _ = converse(
            PCA(*NAMES, components=1), HOLED, as_table(people(rng, 5)), rng, mu=1e-3, neighbours="add-remove"
        )
    assert found.estimates[0].interval()[0] == 0


@given(mu=st.floats(1e-6, 1e3), seed=st.integers(0, 2**32 - 1), rows=st.sampled_from([1, 2, 50]))
def test_whatever_the_noise_the_answer_is_possible(mu, seed, rows):
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        found, _ = converse(PCA(*NAMES), SCHEMA, as_table(people(rng, rows)), rng, mu=mu)
    for estimate in found.estimates:
        low, high = estimate.interval(0.95)
        assert 0 <= low <= estimate.value <= high


@pytest.mark.quick_cases("True-1.5909902576697321", seconds=1.1)
@pytest.mark.parametrize(("center", "bound"), [(True, math.sqrt(2) * 9 / 8), (False, math.sqrt(2))])
def test_no_pair_of_rows_moves_the_sums_further(center, bound):
    query = PCA(*NAMES, center=center).query(SCHEMA, "replace-one")
    assert query.sensitivity == pytest.approx(bound, rel=1e-5)
    rng, top = np.random.default_rng(9), 0.0
    for _ in range(3000):
        x = rng.choice([-3.0, 7.0, 2.0], size=(2, 6), p=[0.45, 0.45, 0.1])
        parts = zip(
            sums_of(query.blocks[0], SCHEMA, as_table(x[:1])),
            sums_of(query.blocks[0], SCHEMA, as_table(x[1:])),
            query.flat_scales,
            strict=True,
        )
        top = max(top, math.sqrt(sum(float(((a - b) ** 2).sum()) / s**2 for a, b, s in parts)))
    assert 0.98 * bound < top <= query.sensitivity


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (((), {}), "at least one column"),
        ((("x0", "x0"), {}), "twice"),
        ((("x0",), {"components": 0}), "components"),
        ((("x0",), {"norm": -1}), "norm"),
        ((("x0",), {"center": 1}), "center"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments, told):
    given_names, keywords = arguments
    with pytest.raises(InvalidInput, match=told):
        PCA(*given_names, **keywords)


def test_more_components_than_columns_and_wrong_scores_are_refused():
    with pytest.raises(InvalidInput, match="at most 6"):
        PCA(*NAMES, components=7).query(SCHEMA, "replace-one")
    rng = np.random.default_rng(10)
    found, _ = converse(PCA(*NAMES, components=2), SCHEMA, as_table(people(rng, 400)), rng, mu=NO_NOISE)
    with pytest.raises(InvalidInput, match="2 columns"):
        found.model.inverse_transform(np.zeros((1, 3)))


def test_what_is_expected_is_about_what_is_found():
    rng = np.random.default_rng(11)
    analysis = PCA(*NAMES, components=1)
    query = analysis.query(SCHEMA, "replace-one")
    table = as_table(people(rng, 20_000))
    found, _ = converse(analysis, SCHEMA, table, rng)
    from tests.unit.analyses.regression.conversations import MU

    std = query.sensitivity / MU * math.sqrt(5 / 4)
    noise = [[std * scale for scale in scales] for scales in query.scales]
    expected = analysis.expected(SCHEMA, noise, 20_000)
    assert list(expected) == [e.label for e in found.estimates]
    assert expected["component 1 variance"] == pytest.approx(found.estimates[0].privacy, rel=0.3)


def test_a_matrix_of_noise_is_drawn_to_the_identity_and_one_without_stays():
    rng = np.random.default_rng(12)
    noise = symmetric(rng.normal(size=8) * math.sqrt(2), rng.normal(size=28))
    drawn, keep = shrunk(3 * np.eye(8) + noise, 1.0)
    assert keep < 0.5
    assert np.linalg.norm(drawn - 3 * np.eye(8)) < np.linalg.norm(noise)
    whole = MIX @ MIX.T
    assert shrunk(whole, 0.0)[0] == pytest.approx(whole)
    assert np.linalg.eigvalsh(nearest_positive(noise)).min() > -1e-9
