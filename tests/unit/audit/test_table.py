"""What a row says of runs that are made up: what flags it, what makes it blind, and what it must reach."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from cape.audit import game as game_module
from cape.audit.cases import Case, cases
from cape.audit.game import Game, Played, play
from cape.audit.pool import Job, Search
from cape.audit.search import Found, find
from cape.audit.table import ROUNDING, judge
from cape.engine.calibration import RESOLUTION
from cape.engine.stages import Setting
from tests.unit.audit.planted import Bug, share_ignored, skipped_composition

CASE = Case("pooled/ecdf", "ecdf", "pooled", 1000, powered=False)
FULL = {case.name: case for case in cases(fast=False)}
TESTS, SEED = 400, 11
FOUND: dict[object, Found] = {}


def made_up(case=CASE, **changed) -> Played:
    """Return runs with the ratios that a release with the claimed mu has, and its one number as the view."""
    rng = np.random.default_rng(1)
    present = np.arange(2 * case.runs) // 2 % 2 == 1
    z = rng.normal(size=present.size) + case.mu * present
    views = np.rint(z * RESOLUTION).astype(np.int64)[:, None]
    budget = case.budget
    squares = float(((z - case.mu * present) ** 2).sum())
    found = Played(
        present,
        case.mu * z - case.mu**2 / 2,
        views,
        case.mu**2,
        squares,
        present.size,
        budget.mu,
        budget.epsilon,
    )
    return replace(found, **changed)


def row_of(played, case=CASE):
    return judge(case, played, 1, TESTS, False)


def test_runs_as_claimed_hold_and_reach_the_floor():
    row = row_of(made_up())
    assert row.verdict == "holds", row
    assert row.needed == CASE.allowed == 0.74
    assert row.tests == 3


@pytest.mark.parametrize("above", [2 * ROUNDING, 1e-3, 0.4])
def test_tables_further_apart_than_the_claim_are_flagged_without_any_luck(above):
    row = row_of(made_up(moved=(CASE.mu * (1 + above)) ** 2))
    assert row.flagged == ("attained",)
    assert row.verdict == "FLAGGED by attained"
    assert not row.ok


def test_rounding_is_not():
    assert row_of(made_up(moved=(CASE.mu * (1 + ROUNDING / 2)) ** 2)).ok


@pytest.mark.parametrize(
    "changed",
    [
        {"ratios": np.full(2 * CASE.runs, np.nan)},
        {"ratios": np.append(made_up().ratios[1:], np.inf)},
        {"views": np.zeros((2 * CASE.runs, 3), np.int64)},
        {"views": np.zeros((2 * CASE.runs, 0), np.int64)},
        {"views": None},
        {"moved": np.nan},
        {"squares": np.nan},
    ],
    ids=["nan", "inf", "same", "empty", "none", "moved", "squares"],
)
def test_what_is_no_evidence_is_a_failure(changed):
    row = row_of(made_up(**changed))
    assert row.verdict == "BLIND"
    assert not row.ok
    planted = replace(CASE, flag="attained")
    assert not row_of(made_up(planted, **{"moved": 100.0} | changed), planted).ok


def test_an_adversary_that_guesses_is_a_failure():
    rng = np.random.default_rng(2)
    guessed = made_up(
        ratios=rng.normal(size=2 * CASE.runs), views=rng.integers(1 << 20, size=(2 * CASE.runs, 3))
    )
    row = row_of(guessed)
    assert row.flagged == ()
    assert row.verdict == "NO POWER"


def played_of(case: Case, bug: Bug = nullcontext) -> Played:
    if case.search not in FOUND:
        FOUND[case.search] = Search(case, SEED)()
    with bug():
        return Job(case, FOUND[case.search], 0, 2 * case.runs, SEED)()


@pytest.mark.slow(4)
def test_a_skipped_composition_is_flagged_in_a_row_with_few_runs():
    """In one that the bounds alone would let pass."""
    case = replace(FULL["pooled/k-means"], runs=12)
    row = row_of(played_of(case, skipped_composition), case)
    assert row.mu_bound < row.claim_mu
    assert "attained" in row.flagged
    assert not row.ok


@pytest.mark.slow(2.4)
def test_the_least_tables_of_k_means_are_within_reach():
    case = replace(FULL["pooled/k-means"], runs=8)
    assert case.reach * case.mu < played_of(case).attained <= case.mu


@pytest.mark.parametrize("name", ["pooled/mean twice", "conventional/mean and histogram"])
def test_releases_of_one_study_are_seen_together(name):
    case = replace(FULL[name], runs=60)
    played = played_of(case)
    assert played.claim_mu == pytest.approx(case.mu)
    assert 0.99 * case.mu < played.attained <= case.mu
    assert row_of(played, case).flagged == ()


@pytest.mark.slow_cases("cape", "cape-gaussian", seconds=0.94)
@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian", "conventional", "local", "pooled"])
def test_noise_that_ignores_the_share_is_seen_under_every_scheme(scheme):
    case = replace(FULL[f"{scheme}/mean twice"], runs=40)
    played = played_of(case, share_ignored)
    assert played.claim_mu == pytest.approx(case.mu)
    assert played.attained == pytest.approx(np.sqrt(2) * case.mu, rel=1e-2)
    assert "attained" in row_of(played, case).flagged


def test_a_release_may_not_promise_itself_more_than_the_budget():
    """Noise for twice the budget, and a promise that says so: the budget is the claim all the same."""
    real = Setting.local_std

    case = FULL["pooled/mean"]
    tables = find("mean", "replace-one", case.budget, SEED).tables
    with mock.patch.object(Setting, "local_std", lambda of, scheme, share: real(of, scheme, share) / 2):
        played = play(Game("mean", "pooled", tables, case.budget), range(40), SEED)
    assert played.claim_mu == pytest.approx(case.mu)
    assert "attained" in row_of(played, case).flagged


def test_a_study_plays_all_of_its_releases():
    case = FULL["pooled/mean and histogram"]
    tables = find(case.analysis, "replace-one", case.budget, SEED).tables
    seen = []
    real = game_module.evidence

    def evidence(scheme, stages, target, swapped):
        seen.append([type(stage.query.blocks[0]).__name__ for stage in stages])
        return real(scheme, stages, target, swapped)

    with mock.patch.object(game_module, "evidence", evidence):
        play(Game(case.analysis, "pooled", tables, case.budget), range(4), SEED)
    assert len(seen) == 4
    assert all(len(run) == 2 and run[0] != run[1] for run in seen)
