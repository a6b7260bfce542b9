"""Where scores are asked for: near the truth, with rows that are centred and whitened."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cape.analyses.sites.mixed_points import PARTS, SHARES, first_point
from cape.analyses.sites.mixed_steps import Step, next_point
from cape.analyses.sites.site_scores import SiteScoreSums, site_score_query
from cape.blocks import Design
from cape.data import Number, Schema
from cape.engine.query import Answer
from cape.stats.score_norms import Lengths

SCHEMA = Schema({name: Number(-1, 1, missing=False) for name in "yab"}).at("pqr")
DESIGN = Design(("a", "b"), "y")
LENGTH = math.sqrt(2)
COEFFICIENTS = np.array([0.5, -0.4])


def rows(many=2000, apart=0.3):
    """(1, x) and y of each site, which differ in the means of features and in intercepts."""
    rng, found = np.random.default_rng(1), []
    for place in (-1, 0, 1):
        a, b = apart * place + 0.2 * rng.normal(size=many), 0.1 * rng.normal(size=many)
        y = 0.2 * place + 0.5 * a - 0.4 * b + 0.1 * rng.normal(size=many)
        found.append((np.stack([np.ones(many), a / LENGTH, b / LENGTH]), y))
    return found


def begin(sites, random, noise=0.0):
    """The first point, of features whose sites are not known."""
    v = np.hstack([each for each, _ in sites])
    y = np.hstack([each for _, each in sites])
    return first_point(v @ v.T / v.shape[1], random, 3, float(y.mean()), float(y.var()), noise, v.shape[1])


def asked(point, sites, noise, parts=PARTS[0], seed=1):
    """The scores of sites there, with noise of this size for a sensitivity of 1."""
    block, rng = point.block(DESIGN, "site", None), np.random.default_rng(seed)
    query = site_score_query(block, parts, SCHEMA, "replace-one")
    sums = block.summed([(v, y, 1.0) for v, y in sites])
    each = [noise * query.sensitivity * scale for scale in query.scales[0]]
    noisy = tuple(a + s * rng.normal(size=a.shape) for a, s in zip(sums, each, strict=True))
    return SiteScoreSums.of(Answer((noisy,), (tuple(each),), None, SCHEMA), block)


def slopes(point):
    return np.array([[w[point.places.index(i)] / LENGTH for i in (1, 2)] for w in point.weights])


def test_shares_add_up():
    assert sum(SHARES) == pytest.approx(1)
    assert len(SHARES) == 1 + len(PARTS)


@pytest.mark.parametrize("random", [[0], [0, 1], [1], [0, 1, 2]])
def test_without_noise_one_step_is_least_squares(random):
    sites = rows()
    if 0 not in random:
        sites = [(v, y - 0.2 * place) for place, (v, y) in zip((-1, 0, 1), sites, strict=True)]
    point = replace(begin(sites, random), bound=100.0)
    found = next_point(Step.of(point, asked(point, sites, 0.0)), 0.0, 0.25, last=False)
    held = replace(found, bound=100.0)
    again = Step.of(held, asked(held, sites, 0.0))
    assert np.abs(again.own).max() < 1e-5
    assert np.abs(again.rest).max(initial=0.0) < 1e-5
    assert slopes(found) == pytest.approx(np.tile(COEFFICIENTS, (3, 1)), abs=0.06)


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_features_are_centred_at_each_site_and_whitened(noise):
    sites = rows()
    point, step = begin(sites, [0], noise), None
    for place in range(3):
        step = Step.of(point, asked(point, sites, noise, seed=place), step)
        point = next_point(step, noise, 0.25, last=False)
    for turn, (v, _) in zip(point.turns, sites, strict=True):
        u = turn @ v[list(point.places)]
        assert u[0] == pytest.approx(np.ones(v.shape[1]))
        assert u[1:].mean(axis=1) == pytest.approx([0, 0], abs=0.01 if not noise else 0.35)
        assert (u[1:] ** 2).mean(axis=1) == pytest.approx([1, 1], rel=0.4)


def test_steps_with_noise_go_to_the_coefficients_of_rows_and_residuals_become_short():
    sites = rows()
    point, step = begin(sites, [0], 1.0), None
    first = point.residual
    for place in range(3):
        step = Step.of(point, asked(point, sites, 1.0, seed=place), step)
        point = next_point(step, 1.0, 0.25, last=place == 2)
    assert slopes(point) == pytest.approx(np.tile(COEFFICIENTS, (3, 1)), abs=0.1)
    assert [w[0] for w in point.weights] == pytest.approx([-0.2, 0.0, 0.2], abs=0.05)
    assert point.residual < 0.8 * first
    assert point.beyond is not None
    assert point.square > 0
    assert point.edges == ()


def test_where_noise_hides_everything_no_step_is_made():
    sites = rows(20)
    point, step = begin(sites, [0], 1e4), None
    for place in range(2):
        step = Step.of(point, asked(point, sites, 1e4, seed=place), step)
        after = next_point(step, 1e4, 0.25, last=False)
        assert np.linalg.norm((after.weights - point.weights)[:, 1:]) < 10
        point = after


def test_what_sites_have_apart_is_kept_as_far_as_it_is_more_than_noise():
    sites = rows()
    point = begin(sites, [0], 0.0)
    exact = Step.of(point, asked(point, sites, 0.0))
    near, far = (
        Step.of(there, asked(there, sites, noise))
        for noise in (0.1, 1e3)
        for there in [begin(sites, [0], noise)]
    )
    wanted = exact.crossed[:, 0, 0]
    assert near.crossed[:, 0, 0] == pytest.approx(wanted, rel=0.3, abs=100)
    assert (far.crossed_doubt > 0).all()
    assert far.own_curvature[:, 0, 0] == pytest.approx(far.sums.counts)  # the numbers of rows


def test_a_site_without_rows_and_sums_of_nothing_leave_a_point_that_can_be_asked_at():
    for sites in (rows(), [rows()[0], (np.zeros((3, 0)), np.zeros(0)), rows()[2]]):
        for random in ([0], [1], [0, 1, 2]):
            for noise in (0.0, 1.0):
                point, step = begin(sites, random, noise), None
                for _ in range(2):
                    step = Step.of(point, asked(point, sites, noise), step)
                    point = next_point(step, noise, 0.25, last=False)
                    point.block(DESIGN, "site", None).arrays(SCHEMA)


def test_the_kurtosis_of_lengths_is_that_of_their_counts():
    edges = np.array([1.0, 2.0, 4.0])
    alike = Lengths(edges, np.array([0.0, 100.0, 0.0, 0.0]), 0.0)
    apart = Lengths(edges, np.array([0.0, 99.0, 0.0, 1.0]), 0.0)
    assert alike.kurtosis(0.25) == pytest.approx(1.0)
    assert 1.3 < apart.kurtosis(0.25) < 1.6
