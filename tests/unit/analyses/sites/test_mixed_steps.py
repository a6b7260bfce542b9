"""Where scores are asked for: near the truth, with rows that are centred and whitened."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cape.analyses.sites.mixed_steps import first_point, next_point, silent
from cape.analyses.sites.site_scores import ScoreSums
from cape.analyses.sites.site_sums import SiteSums
from cape.blocks import Design
from cape.data import Number, Schema
from cape.engine.query import Answer

SCHEMA = Schema({name: Number(-1, 1, missing=False) for name in "yab"}).at("pqr")
DESIGN = Design(("a", "b"), "y")
LENGTH = math.sqrt(2)


def rows(many=2000, apart=0.3):
    """(1, x) and y of each site, which differ in the means of features and in intercepts."""
    rng, found = np.random.default_rng(1), []
    for place in (-1, 0, 1):
        a, b = apart * place + 0.2 * rng.normal(size=many), 0.1 * rng.normal(size=many)
        y = 0.2 * place + 0.5 * a - 0.4 * b + 0.1 * rng.normal(size=many)
        found.append((np.stack([np.ones(many), a / LENGTH, b / LENGTH]), y))
    return found


def moments(sites, noise=0.0):
    """Their second moments, all by site, with a stated noise that is not there."""
    full = [np.vstack([v, y]) for v, y in sites]
    groups = np.stack([v @ v.T for v in full])
    each = np.full((4, 4), noise**2)
    return SiteSums(groups, groups.sum(axis=0), each, np.zeros((4, 4)))


def asked(point, sites, noise):
    """The scores of sites there."""
    block = point.block(DESIGN, "site")
    sums = block.summed([(v, y, 1.0) for v, y in sites])
    answer = Answer((sums,), ((noise,) * len(sums),), None, SCHEMA)
    return ScoreSums.of(answer, block, point, np.array([y.size for _, y in sites], float))


@pytest.mark.parametrize("random", [[0], [0, 1], [1]])
def test_steps_go_to_the_coefficients_of_rows(random):
    sites, apart = rows(), [0.0] * 3
    if 0 not in random:
        sites = [(v, y - 0.2 * place) for place, (v, y) in zip((-1, 0, 1), sites, strict=True)]
    else:
        apart = [-0.2, 0.0, 0.2]
    point = first_point(moments(sites, 5.0), random)
    told = asked(point, sites, 1e-3)
    found = next_point(told, random, 1.0)
    for weights, intercept in zip(found.weights, apart, strict=True):
        assert weights[0] == pytest.approx(intercept, abs=0.02)
        assert weights[1:] / LENGTH == pytest.approx([0.5, -0.4], abs=0.06)
    assert found.residual == pytest.approx(0.1, rel=0.5)
    for turn, (v, _) in zip(found.turns, sites, strict=True):
        z = turn @ v
        if 0 in random:
            assert z[1:].mean(axis=1) == pytest.approx([0, 0], abs=0.05)
            assert (z**2).mean(axis=1) == pytest.approx([1, 1, 1], rel=0.4)


def test_common_effects_count_less_than_those_of_sites_and_those_that_differ_least():
    sites = rows()
    point = first_point(moments(sites, 5.0), [0])
    assert point.sizes[0] < point.sizes[1] == point.sizes[2] == 1  # sites differ by two SDs of rows
    same = [(v, y - y.mean() + 0.0 * v[0]) for v, y in rows(apart=0.0)]
    flat = first_point(moments(same, 5.0), [0])
    assert flat.sizes[0] == 1 > flat.sizes[1]


def test_residuals_are_cut_further_out_where_noise_is_small():
    told = asked(first_point(moments(rows(), 5.0), [0]), rows(), 1e-3)
    near, far = (next_point(told, [0], unit) for unit in (10.0, 1e-3))
    assert near.cut == pytest.approx(1.1 * near.residual)
    assert far.cut == pytest.approx(4.0 * far.residual)


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_how_many_residuals_are_inside_says_how_large_they_and_features_are(times):
    sites = rows()
    point = first_point(moments(sites, 5.0), [0])
    wrong = replace(point, turns=point.turns * np.array([1.0, times, times])[:, None], cut=0.11 * times)
    wrong = replace(wrong, residual=0.1 * times)
    for _ in range(2):
        wrong = next_point(asked(wrong, sites, 1e-3), [0])
    assert wrong.residual == pytest.approx(0.1, rel=0.05)
    for turn, (v, _) in zip(wrong.turns, sites, strict=True):
        assert ((turn @ v)[1:] ** 2).mean(axis=1) == pytest.approx([1, 1], rel=0.7)


def test_a_step_is_drawn_to_where_it_began_by_how_well_that_was_known():
    sites = rows()
    told = asked(first_point(moments(sites, 5.0), [0]), sites, 1e-3)
    point = told.point
    known = replace(told, point=replace(point, doubt=1e-12 * np.eye(2), own_doubt=0 * point.own_doubt))
    free, held = (next_point(each, [0]).weights for each in (told, known))
    assert np.abs(held[:, 1:] - point.weights[:, 1:]).max() < 1e-6 < np.abs(free - point.weights)[:, 1:].max()
    assert next_point(told, [0]).doubt.max() < point.doubt.max()


def test_residuals_are_cut_further_out_for_their_mean_if_they_are_seen_to_be_skewed():
    rng = np.random.default_rng(2)
    for skewed, times in ((False, 2.8), (True, 7.0)):
        sites = []
        for v, _ in rows():
            rest = rng.exponential(0.1, v.shape[1]) - 0.1 if skewed else 0.1 * rng.normal(size=v.shape[1])
            sites.append((v, 0.5 * v[1] + rest))
        point = first_point(moments(sites, 5.0), [0])
        found = next_point(a_step_on(point, sites), [0], 10.0)
        assert found.level == pytest.approx(times * found.residual)


def a_step_on(point, sites):
    """Scores a step on."""
    return asked(next_point(asked(point, sites, 0.1), [0]), sites, 0.1)


def test_moments_say_all_only_where_their_noise_is_small():
    sites = rows()
    for noise, wanted in ((0.0, True), (1e-2, True), (5.0, False), (100.0, False)):
        sums = moments(sites, noise)
        assert silent(sums, first_point(sums, [0])) is wanted


def test_a_site_without_rows_and_moments_of_nothing_leave_a_point_that_can_be_asked_at():
    sums = moments(rows(), 5.0)
    empty = replace(sums, groups=sums.groups * np.array([1.0, 0.0, 1.0])[:, None, None])
    for each in (empty, replace(sums, groups=0 * sums.groups, whole=0 * sums.whole)):
        for random in ([0], [1], [0, 1, 2]):
            point = first_point(each, random)
            point.block(DESIGN, "site").arrays(SCHEMA)
            told = asked(point, rows(), 1.0)
            next_point(told, random, 1.0).block(DESIGN, "site").arrays(SCHEMA)
