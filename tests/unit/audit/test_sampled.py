"""Rows that are sampled: the mixtures by hand, which rows were drawn, and what the test must reject."""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from scipy import integrate, stats

from cape.audit.cases import Case, cases
from cape.audit.game import Game, play
from cape.audit.sampled import apart, log_ratio
from cape.audit.search import find
from cape.audit.view import Watch
from cape.audit.world import SAMPLED, SCHEMA, Remembered, analysis_of, frame, stream_of
from cape.blocks import gradient
from cape.blocks.sampling import sample
from cape.blocks.table import Table
from cape.core.errors import CapeError
from cape.engine.calibration import RESOLUTION
from cape.engine.consortium import Consortium
from cape.engine.stages import slack
from cape.noise import SecureStream
from cape.noise.stream import KEY_BYTES
from cape.privacy import Budget, noise_for_mu
from tests.unit.audit.planted import no_sample

NAME = "neural-network, sampled"
MU, DELTA = 2.0, 1e-5
BUDGET = Budget.of(MU, DELTA)
STEPS, RATE = len(analysis_of(NAME).stages()), SAMPLED[NAME]["sampling"]
TARGET = "site-00"


def noise_for(adjacency):
    return noise_for_mu(MU, RATE, STEPS, slack(DELTA), adjacency=adjacency)


@pytest.fixture(scope="module")
def tables():
    return find(NAME, "replace-one", BUDGET, 1)


def by_hand(z, moved, rate):
    """Return the density of a mixture, by scipy."""
    normal = stats.multivariate_normal
    return (1 - rate) * normal.pdf(z, np.zeros(len(moved))) + rate * normal.pdf(z, moved)


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.9, 1.0])
@pytest.mark.parametrize("away", [1.0, 0.0])  # of 0: the row is not there
def test_the_ratio_is_that_of_two_mixtures(rate, away):
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=4), away * rng.normal(size=4)
    for z in rng.normal(size=(20, 4)):
        expected = math.log(by_hand(z, second, rate) / by_hand(z, first, rate))
        assert log_ratio(z, first, second, rate) == pytest.approx(expected, abs=1e-12)


def test_without_sampling_it_is_the_ratio_of_two_gaussians():
    rng = np.random.default_rng(2)
    first, second, z = rng.normal(size=(3, 5))
    shift = second - first
    assert log_ratio(z, first, second, 1.0) == pytest.approx(shift @ (z - first) - shift @ shift / 2)
    assert apart(first, second, 1.0) == pytest.approx(shift @ shift)


def test_a_view_that_is_far_away_does_not_overflow():
    z, first = np.array([800.0, 0.0]), np.array([2.0, 0.0])
    assert log_ratio(z, first, -first, 0.4) == pytest.approx(math.log(0.6) - math.log(0.4) - 1598)


@pytest.mark.parametrize("second", [-1.1, 0.0, 0.7])
def test_how_far_apart_is_the_integral(second):
    first = 1.1
    one, two = np.array([first, 0.0]), np.array([second, 0.0])

    def inside(x):
        z = np.array([x])
        a, b = (by_hand(z, np.array([moved]), 0.4) for moved in (first, second))
        return (b - a) * math.log(b / a)

    expected, _ = integrate.quad(inside, -12, 12)
    assert apart(one, two, 0.4) == pytest.approx(expected, rel=1e-6)
    assert apart(two, one, 0.4) == pytest.approx(expected, rel=1e-6)


def slope(true, assumed, runs=40_000):
    """Return `slope_of` ratios that assume shifts of one length, on runs with those of another."""
    rng = np.random.default_rng(3)
    present = np.arange(runs) % 2 == 1
    ratio = np.zeros(runs)
    for _ in range(STEPS):
        taken = rng.random(runs) < RATE
        z = rng.normal(size=runs) + true * np.where(present, -1, 1) * taken
        ratio += log_ratio(z[:, None], np.array([assumed]), np.array([-assumed]), RATE)
    return slope_of(ratio, present)


def slope_of(ratios, present):
    """Return by how many standard deviations log-ratios are too timid (above 0) or too bold (below).

    Where L is right, 1 / (1 + exp(-L)) is the chance of the second table, given L.
    """
    chance = 1 / (1 + np.exp(-ratios))
    information = (ratios**2 * chance * (1 - chance)).sum()
    return (ratios * (present - chance)).sum() / math.sqrt(information)


def test_the_ratio_says_how_sure_one_may_be_and_a_wrong_scale_does_not():
    true = 1 / noise_for("replace-one")
    assert abs(slope(true, true)) < 4
    assert slope(true, 0.9 * true) > 4
    assert slope(true, 1.1 * true) < -4


def one_run(found, swapped=False, number=0):
    """Return the stages of one run, and the tables of both worlds."""
    one, two = found.tables.sites(Remembered)
    world, neighbours = (two, one) if swapped else (one, two)
    watch = Watch(TARGET, ["site-02"])
    watch.start(world, neighbours, found.tables.shared)
    key = stream_of("test", number)
    consortium = Consortium(world, SCHEMA, BUDGET, colluding=1, scheme="cape", stream=key, observer=watch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        consortium.release(analysis_of(NAME), share=1.0)
    return watch.stages


@pytest.mark.slow(1.5)
def test_the_worst_pair_is_found_and_each_row_adds_what_it_may(tables):
    assert tables.distance == pytest.approx(2 * math.sqrt(STEPS) / noise_for("replace-one"), rel=1e-3)
    assert tables.distance <= 2 * math.sqrt(STEPS) / noise_for("replace-one")
    for stage in one_run(tables):
        for added in (stage.draw.row, stage.draw.other):
            length = np.linalg.norm(added) / RESOLUTION / math.sqrt(2) * noise_for("replace-one")
            assert 0.999 < length <= 1


@pytest.mark.parametrize("swapped", [False, True])
def test_the_rows_that_were_drawn_are_those_of_the_stream(tables, swapped):
    """Drawn again from the same key, by the rows' numbers, and added up over tables of single rows."""
    shared = len(tables.tables.one) - 1
    mine = tables.tables.two if swapped else tables.tables.one
    other = tables.tables.one if swapped else tables.tables.two
    seen = set()
    for number in range(2):
        stages, again = one_run(tables, swapped, number), stream_of("test", number)
        for step, stage in enumerate(stages):
            key = again.fork(f"run {step + 1}").fork(f"sample {TARGET}").bytes(KEY_BYTES)
            drawn = sample(SecureStream(key), shared + 1, RATE)
            assert stage.draw.taken == (shared in drawn)
            assert stage.draw.rate == RATE

            def adds(rows, stage=stage):
                whole = Table("alone", frame(rows), SCHEMA)
                with mock.patch.object(gradient, "sample", lambda stream, rows, rate: np.arange(rows)):
                    sums = whole.sums(stage.query.blocks, stream_of("not read"))
                return stage.calibration.encode(sums[0])

            rest = [mine[row] for row in drawn if row < shared]
            assert np.array_equal(stage.exact[TARGET], adds([mine[row] for row in drawn]))
            assert np.array_equal(adds(rest) + stage.draw.row * stage.draw.taken, stage.exact[TARGET])
            assert np.abs(stage.draw.row - adds(mine[shared:])).max() <= 2  # each sum is rounded by itself
            assert np.abs(stage.draw.other - adds(other[shared:])).max() <= 2
            assert np.array_equal(stage.other, adds(rest) + stage.draw.other * stage.draw.taken)
            seen.add(stage.draw.taken)
    assert seen == {True, False}


@pytest.mark.parametrize(
    "wrong",
    [lambda stream, rows, rate: np.arange(rows), lambda stream, rows, rate: np.arange(0)],
    ids=["all", "none"],
)
def test_a_site_that_draws_other_rows_than_its_stream_says_is_an_error(tables, wrong):
    with (
        mock.patch.object(gradient, "sample", wrong),
        pytest.raises(CapeError, match="not the sum over the rows that it drew"),
    ):
        play(Game(NAME, "pooled", tables.tables, BUDGET), range(4), 1)


def test_a_sum_that_is_one_step_off_is_an_error(tables):
    real = gradient.clipped_sum

    def off(*asked, **how):
        found = real(*asked, **how)
        return replace(found, sums=found.sums + (how["rows"] is not None))

    with (
        mock.patch.object(gradient, "clipped_sum", off),
        pytest.raises(CapeError, match="not the sum over the rows that it drew"),
    ):
        play(Game(NAME, "pooled", tables.tables, BUDGET), range(4), 1)


@pytest.mark.slow(2.5)
def test_on_real_runs_the_ratio_has_the_law_that_the_design_says(tables):
    """And has it not where all rows are used."""
    game = Game(NAME, "pooled", tables.tables, BUDGET)
    played = play(game, range(100), 5)
    assert played.claim_mu == pytest.approx(MU)
    assert 0.85 * MU < played.attained < 0.9 * MU
    assert abs(played.squares - played.count) < 4 * math.sqrt(2 * played.count)
    assert abs(slope_of(played.ratios, played.present)) < 4
    centre = played.attained**2 / 2
    assert abs(centred(played, centre)) < 4
    with no_sample():
        assert centred(play(game, range(40), 5), centre) > 4


def centred(played, centre):
    """Return by how many standard errors the ratios, towards the truth, are above this centre."""
    towards = played.ratios * np.where(played.present, 1, -1)
    return (towards.mean() - centre) / (towards.std() / math.sqrt(towards.size))


@pytest.mark.slow(3)
def test_under_the_other_relation_the_row_is_there_or_not():
    found = find(NAME, "add-remove", BUDGET, 1)
    assert len(found.tables.two) == len(found.tables.one) - 1
    assert found.distance == pytest.approx(math.sqrt(STEPS) / noise_for("add-remove"), rel=1e-3)
    played = play(Game(NAME, "pooled", found.tables, BUDGET, neighbours="add-remove"), range(40), 2)
    assert 0.5 * MU < played.attained < MU
    assert abs(slope_of(played.ratios, played.present)) < 4


def test_without_the_accountant_these_rows_are_left_out(monkeypatch):
    names = {case.name for case in cases(fast=False) if case.analysis in SAMPLED}
    assert names == {f"cape/{NAME}", f"pooled/{NAME}, add-remove"}
    monkeypatch.setattr(sys.modules[Case.__module__], "find_spec", lambda name: None)
    assert not any(case.analysis in SAMPLED for case in cases(fast=False))
