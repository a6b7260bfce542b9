"""The ladder's mu against the covariance of the whole view, written down anew in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import InvalidInput
from cape.privacy.ladder import MOST_PARTS, Ladder, ladder
from tests.slices import examples

EVERY = [(s, c, m) for s in range(1, 7) for c in range(s) for m in range(c + 1, s + 1)]


def patterns(sites: int, colluding: int, min_sites: int):
    """How many are in the sum, how many of them collude, and how many honest ones reveal nothing."""
    for survivors in range(min_sites, sites + 1):
        for bad in range(max(0, colluding - (sites - survivors)), colluding + 1):
            for late in range(survivors - bad + 1):
                yield survivors, bad, late


def loss(
    sites: int, colluding: int, min_sites: int, survivors: int, bad: int, late: int, short=1
) -> Fraction:
    """Return mu² of one pattern at sensitivity = sigma = 1, from the joint covariance of all that is seen.

    Site by site and part by part, from the construction alone: the sum over the survivors, and every part
    that is revealed. What colluders know of their own is subtracted from the sum. `short` shrinks the last
    part.
    """
    tolerated = sites - min_sites
    needed = [Fraction(1, sites - d - colluding) for d in range(tolerated + 1)]
    variances = [needed[0], *(b - a for a, b in pairwise(needed))]
    if tolerated:
        variances[-1] *= short
    stays = sites - survivors  # parts 1, ..., stays are needed for so many losses
    honest = survivors - bad
    revealed = [
        variances[part]
        for site in range(honest)
        for part in range(stays + 1, tolerated + 1)
        if site >= late  # the first ones reveal nothing
    ]
    # The view is (sum, revealed parts): each revealed part is in the sum with weight 1.
    size = 1 + len(revealed)
    covariance = [[Fraction(0)] * size for _ in range(size)]
    covariance[0][0] = honest * sum(variances)
    for i, variance in enumerate(revealed, 1):
        covariance[i][i] = covariance[0][i] = covariance[i][0] = variance
    shift = [Fraction(1), *([Fraction(0)] * len(revealed))]
    solved = solve(covariance, shift)
    return sum((a * b for a, b in zip(shift, solved, strict=True)), Fraction(0))


def solve(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Return the solution of a positive definite system, by elimination from the last row up."""
    a, b = [row[:] for row in matrix], right[:]
    size = len(b)
    for pivot in range(size - 1, -1, -1):
        for row in range(pivot):
            if a[row][pivot]:
                factor = a[row][pivot] / a[pivot][pivot]
                b[row] -= factor * b[pivot]
                for column in range(pivot + 1):
                    if a[pivot][column]:
                        a[row][column] -= factor * a[pivot][column]
    x: list[Fraction] = []
    for row in range(size):
        x.append((b[row] - sum(a[row][i] * x[i] for i in range(row))) / a[row][row])
    return x


@pytest.mark.parametrize(("sites", "colluding", "min_sites"), EVERY)
def test_every_pattern_costs_what_its_whole_view_shows_and_at_most_mu(sites, colluding, min_sites):
    rungs = ladder(sites, colluding, min_sites)
    base = 1 / math.sqrt(sites - colluding)
    worst = Fraction(0)
    for survivors, bad, late in patterns(sites, colluding, min_sites):
        seen = loss(sites, colluding, min_sites, survivors, bad, late)
        assert rungs.mu(1.0, base, survivors, bad, late) ** 2 == pytest.approx(float(seen), rel=1e-12)
        assert seen <= 1
        everything_left = survivors == min_sites  # then nothing is revealed, and nobody can be late
        assert (seen == 1) == (bad == colluding and (late == 0 or everything_left))
        worst = max(worst, seen)
    assert rungs.mu(1.0, base) ** 2 == pytest.approx(float(worst), rel=1e-12)


def test_no_pattern_of_up_to_six_sites_is_left_out():
    assert sum(1 for case in EVERY for _ in patterns(*case)) == 673


def test_a_last_part_that_is_too_small_is_noticed():
    cases = [case for case in EVERY if case[2] < case[0]]
    for case in cases:
        short = Fraction(97, 100)
        assert max(loss(*case, *pattern, short) for pattern in patterns(*case)) > 1


@pytest.mark.parametrize(
    ("sites", "colluding", "min_sites", "before"), [(4, 1, 3, 1.41), (10, 1, 7, 1.29), (30, 9, 20, 1.65)]
)
def test_nobody_lost_leaves_the_curators_noise_times_the_colluders(sites, colluding, min_sites, before):
    rungs = ladder(sites, colluding, min_sites)
    over = float(rungs.left(sites)) / (sites - colluding)
    assert over == pytest.approx(sites / (sites - colluding))
    assert math.sqrt(sites / (min_sites - colluding)) == pytest.approx(before, abs=0.01), "made for the worst"


@given(data=st.data())
@examples(200)
def test_every_loss_leaves_enough_and_little_more(data):
    sites = data.draw(st.integers(1, 1000))
    colluding = data.draw(st.integers(0, sites - 1))
    min_sites = data.draw(st.integers(colluding + 1, sites))
    lost = data.draw(st.integers(0, sites - min_sites))
    rungs = ladder(sites, colluding, min_sites)
    honest = sites - colluding
    assert rungs.losses[0] == 0
    assert rungs.losses[-1] == sites - min_sites
    assert len(rungs.losses) <= MOST_PARTS + 1
    left = (honest - lost) * rungs.variance(rungs.level(lost))
    assert left >= honest
    if sites - min_sites <= MOST_PARTS or not lost:
        assert left == honest
    else:
        assert left <= honest * (honest / (min_sites - colluding)) ** (1 / MOST_PARTS) * (1 + 1e-9)
        if 2 * min_sites > sites + colluding:
            assert left < 1.06 * honest


@given(st.integers(2, 400), st.data())
@examples(50)
def test_parts_add_up_to_at_least_their_levels(sites, data):
    colluding = data.draw(st.integers(0, sites - 2))
    rungs = ladder(sites, colluding, data.draw(st.integers(colluding + 1, sites)))
    total = Fraction(1)
    for level, part in enumerate(rungs.parts, 1):
        total += Fraction(part) ** 2
        assert total >= rungs.variance(level)
        assert float(total / rungs.variance(level)) == pytest.approx(1, rel=1e-14)


def test_a_site_that_reveals_nothing_leaves_more():
    rungs = ladder(5, 1, 3)
    assert rungs.left(5) == 5
    assert rungs.left(5, late=2) == 3 + 2 * Fraction(4, 2)
    assert rungs.left(4) == 4 * Fraction(4, 3)
    assert rungs.left(3, late=3) == rungs.left(3)  # nothing is taken off when as many are lost as may be


@pytest.mark.parametrize("losses", [(), (1,), (0, 0), (0, 2, 1), (0, 3)])
def test_levels_that_make_no_sense_are_refused(losses):
    with pytest.raises(InvalidInput, match=r"losses must ascend from 0|an honest site must be left"):
        Ladder(4, 1, losses)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 1, 1), "min_sites must be an integer at least 2"),
        ((4, 4, 4), "colluding must be an integer at least 0 and at most 3"),
        ((4, 1, 5), "min_sites must be an integer at least 2 and at most 4"),
    ],
)
def test_parties_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        ladder(*arguments)


def test_a_sum_over_too_few_sites_has_no_mu():
    with pytest.raises(InvalidInput, match="lost must be an integer at least 0 and at most 1"):
        ladder(4, 1, 3).mu(1.0, 1.0, survivors=2)


def test_mu_is_linear_in_the_sensitivity_and_in_one_over_the_noise():
    for survivors, late in product((3, 4, 5), (0, 1)):
        one = ladder(5, 1, 3).mu(1.0, 1.0, survivors, late=late)
        assert ladder(5, 1, 3).mu(6.0, 2.0, survivors, late=late) == pytest.approx(3 * one)
