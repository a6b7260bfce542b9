from __future__ import annotations

import math

import numpy as np
import pytest

from cape.analyses.survival.cox_baseline import Hazards, Left
from cape.stats.score_norms import Lengths
from cape.stats.score_steps import Point, ScoreStep


def left(noise: float = 0.0, seed: int = 0, strata: int = 1, rows: float = 4000.0) -> Left:
    """Counts of rows that leave at a hazard of .2 a bin, half of them by the event, in 6 bins."""
    rng = np.random.default_rng(seed)
    at = rows / strata * np.exp(-0.2 * np.arange(7))
    leaving = np.tile(at[:-1] - at[1:], (strata, 1))
    drawn = leaving / 2 + noise * rng.normal(size=(2, strata, 6))
    staying = np.full(strata, at[-1]) + noise * rng.normal(size=strata)
    totals = np.full(strata, leaving[0].sum() / 2) + noise * rng.normal(size=strata)
    return Left(drawn[0], drawn[1], staying, totals, None, noise, noise, rows)


def first(noise: float = 0.0, seed: int = 0, strata: int = 1) -> Hazards:
    return Hazards.first(left(noise, seed, strata), np.ones(6), np.eye(2))


@pytest.mark.parametrize("strata", [1, 3])
def test_without_noise_hazards_are_events_over_those_at_risk_and_nothing_is_left(strata: int) -> None:
    found, raw = first(strata=strata), left(strata=strata)
    assert found.events == pytest.approx(raw.events.reshape(-1))
    assert found.rates == pytest.approx(np.full(6 * strata, 0.1), rel=0.01)
    assert np.abs(found.doubt).max() == 0
    assert found.misled() == 0


def test_with_noise_hazards_are_nearer_than_single_counts_and_doubt_is_what_they_are_wrong_by() -> None:
    wrong, raw, doubts = [], [], []
    true = first().rates
    for seed in range(200):
        found = first(100.0, seed)
        wrong.append(np.sum((found.rates / true - 1) ** 2))
        raw.append(np.sum((left(100.0, seed).events / left().events - 1) ** 2))
        doubts.append(np.trace(found.doubt[0] / np.outer(found.events, found.events)))
    assert np.mean(wrong) < 0.7 * np.mean(raw)
    assert 0.4 < np.mean(doubts) / np.mean(wrong) < 4


def test_a_step_corrects_hazards_and_leaves_less_doubt() -> None:
    before = first(100.0, 3)
    true, at_risk = first().rates, left().at_risk[0].reshape(-1)
    moved = true * at_risk - before.rates * at_risk  # events less what is expected
    after, found = before.seen(np.array([moved.sum()]), 5.0, moved, 5.0)
    assert np.abs(after.rates / true - 1).max() < 0.5 * np.abs(before.rates / true - 1).max()
    assert np.trace(after.doubt[0]) < 0.1 * np.trace(before.doubt[0])
    assert found.reshape(-1) == pytest.approx(moved, abs=20)
    exact, _ = before.seen(np.array([moved.sum()]), 0.0, moved, 0.0)
    assert np.abs(exact.doubt).max() == 0


def test_means_of_events_count_by_how_well_they_are_known() -> None:
    start = first(20.0)
    sums = (
        np.tile([0.4, -0.2], (start.groups.max() + 1, 1)) * np.bincount(start.groups, start.events)[:, None]
    )
    known, unknown = (start.with_means(sums, noise, np.eye(2)) for noise in (1e-3, 1e6))
    assert known.offsets == pytest.approx(np.tile([0.4, -0.2], (6, 1)), abs=1e-3)
    assert np.abs(unknown.offsets).max() < 1e-3  # the guess: the mean of all
    assert known.misled() < unknown.misled()


def test_a_mean_that_drifts_is_drawn_to_that_of_all_as_far_as_chance_warrants() -> None:
    start = first()
    many = int(start.groups.max()) + 1
    events = np.bincount(start.groups, start.events)
    drift = np.linspace(0.3, -0.3, many)
    means = np.stack([drift, np.zeros(many)], axis=1)
    found = start.with_means(means * events[:, None], 0.0, np.eye(2)).offsets[:, 0]
    rough = first(20.0).with_means(means * events[:, None], 400.0, np.eye(2)).offsets[:, 0]
    assert found[0] == pytest.approx(0.3, abs=0.05)
    assert 0 < rough[0] - rough[-1] < 0.5 * (found[0] - found[-1])


def test_hazards_make_up_for_weights_where_features_are_normal() -> None:
    start, change = first(), np.array([0.5, 0.0])
    sums = np.tile(change, (start.groups.max() + 1, 1)) * np.bincount(start.groups, start.events)[:, None]
    after = start.with_means(sums, 0.0, np.eye(2)).after(change, 0.5)
    # the mean of e^(change x) over normal x is e^(1/8); the mean at risk then is `change`
    assert after.rates / start.rates == pytest.approx(np.full(6, math.exp(-0.125)), rel=1e-6)
    assert (np.diag(after.doubt[0]) > np.diag(start.doubt[0])).all()


@pytest.mark.parametrize("many", [5.0, 4000.0])
def test_events_that_noise_hides_are_not_clear(many: float) -> None:
    found = left(rows=2 * many / (1 - math.exp(-1.2)))
    hidden = Left(**(vars(found) | {"total_noise": 20.0}))
    assert hidden.clear == (many > 100)


def test_expected_lengths_count_only_where_noise_could_hide_them() -> None:
    edges = 2.0 ** np.arange(-3.0, 5.0)
    counts = np.array([0, 500, 500, 300, 5, -4, 3, 0, 2.0])
    expected = np.array([0, 0, 0, 0, 0, 0, 15, 400, 0.0])
    plain, told = (Lengths(edges, counts, 10.0, each) for each in (None, expected))
    assert told.rows(0.25)[6] == 15
    assert told.rows(0.25)[7] == pytest.approx(16.4)  # more would be seen
    assert plain.rows(0.25)[7] < 2
    typical = plain.typical(), told.typical()
    assert typical[0] is not None
    assert typical[1] is not None
    assert typical[1] > 1.3 * typical[0]
    assert told.best(2.0, 2, 0.25).bound > plain.best(2.0, 2, 0.25).bound


def test_one_bin_of_lengths_far_from_the_others_must_be_certain() -> None:
    edges = 2.0 ** (np.arange(39.0) / 2)
    counts = np.where(np.arange(40) < 8, 500.0, 0.0)
    for height, last in ((45.0, 7), (80.0, 30)):
        counts[30] = height
        rows = Lengths(edges, counts, 10.0).rows(0.25)
        assert (rows[30] > 40) == (last == 30)


def test_an_earlier_score_counts_where_it_is_expected_to_be_now() -> None:
    """A quadratic likelihood: both steps say where it is highest, and together better than one of them."""
    curvature, best, rng = np.diag([400.0, 100.0]), np.array([0.3, -0.5]), np.random.default_rng(1)

    def step(weights: np.ndarray, noise: float, drawn: np.ndarray) -> ScoreStep:
        point = Point(weights, np.eye(2), 1.0, 0.1, 0.0, 5.0, 5.0)
        score = curvature @ (best - weights) + noise * drawn
        return ScoreStep(point, 1000.0, score, curvature, curvature, noise, 1e-6, 1e-6, None, True)

    alone, both = [], []
    for _ in range(200):
        early = step(np.zeros(2), 20.0, rng.normal(size=2))
        late = step(best + 0.01, 20.0, rng.normal(size=2))
        mixed = late.beside(early, 0.0)
        alone.append(late.change - (best - late.point.weights))
        both.append(mixed.change - (best - late.point.weights))
    assert np.std(both) == pytest.approx(np.std(alone) / math.sqrt(2), rel=0.15)
    assert mixed.score_noise == pytest.approx(20 / math.sqrt(2), rel=1e-3)
