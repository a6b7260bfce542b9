"""Releases without delta in the audit: the ratio, the noise's scale, and what is flagged."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest

from cape.analyses import KINDS
from cape.audit.bounds import laplace_scale
from cape.audit.cases import Case, cases
from cape.audit.game import Game, Played, play
from cape.audit.search import find
from cape.audit.table import judge
from cape.privacy import Budget, laplace
from tests.unit.audit.planted import less_noise

CASE = Case("pure", "count", "cape", 20_000, 1.0, 0.0, powered=False, direct=True, pure=1.0)


def played(ratio_scale: float = 1.0, runs: int = 20_000, sizes: float = 1.0) -> Played:
    """Games of one count with Laplace noise of this scale, where scale 1 costs epsilon 1."""
    random = np.random.default_rng(2)
    present = np.arange(2 * runs) % 4 >= 2
    noise = random.laplace(size=2 * runs) * ratio_scale
    seen = noise + present
    ratios = np.abs(seen) - np.abs(seen - 1)
    views = np.rint(seen * 2**20).astype(np.int64)[:, None]
    squares = float(np.abs(noise).sum()) * sizes
    return Played(present, ratios, views, 1.0, squares, 2 * runs, laplace.dominating_mu(1.0), 1.0)


def test_the_bound_comes_near_the_claim_and_does_not_pass_it():
    row = judge(CASE, played(), 0, 3, False)
    assert row.flagged == ()
    assert 0.85 < row.ratio < 1
    assert row.ratio >= row.needed > 0.7
    assert row.ok


@pytest.mark.parametrize(("scale", "flag"), [(0.95, "noise scale"), (0.8, "likelihood ratio")])
def test_too_little_noise_is_flagged(scale, flag):
    row = judge(CASE, played(scale), 0, 3, False)
    assert flag in row.flagged
    assert not row.ok


def test_tables_further_apart_than_the_claim_are_flagged():
    far = played()
    far = Played(far.present, far.ratios, far.views, 1.1, far.squares, far.count, far.claim_mu, 1.0)
    assert "attained" in judge(CASE, far, 0, 3, False).flagged


def test_the_interval_for_a_scale_holds_it():
    random = np.random.default_rng(5)
    inside = 0
    for _ in range(400):
        low, high = laplace_scale(float(np.abs(random.laplace(size=50)).sum()), 50, 0.1)
        inside += low < 1 < high
    assert inside / 400 == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 400))


def test_laplace_rows_are_played_in_both_tables():
    for fast in (True, False):
        rows = [case for case in cases(fast) if case.pure]
        assert {"cape/count, no delta"} <= {case.name for case in rows}
        assert all(case.budget == Budget(2.0) for case in rows)
        assert all(case.needed(fast) > 0.3 for case in rows)


@pytest.mark.slow(4.0)
def test_a_real_release_attains_its_epsilon_and_smaller_noise_is_seen():
    with mock.patch.dict(KINDS["histogram"].example, {"bins": 1024}):
        found = find("histogram", "add-remove", Budget(2.0), 3, 3)
        game = Game("histogram", "cape", found.tables, Budget(2.0), neighbours="add-remove")
        right = play(game, range(8), 7)
        with less_noise():
            wrong = play(game, range(8), 7)
    assert right.claim_epsilon == 2.0
    assert 1.99 < right.attained <= 2.0
    assert right.ratios.max() == pytest.approx(right.attained)
    low, high = laplace_scale(right.squares, right.count, 1e-3)
    assert low < 1 < high
    assert laplace_scale(wrong.squares, wrong.count, 1e-3)[1] < 1
