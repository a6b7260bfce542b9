"""Every planted bug is flagged, by the check that it is said to be flagged by, and the real code by none.

Few runs: each row is judged at the error that the command gives to a test in a table of three rows.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from cape.audit.cases import Case, cases
from cape.audit.pool import Job, Search
from cape.audit.report import PLANTED as SAID
from cape.audit.table import judge
from tests.unit.audit.planted import PLANTED, Bug

TESTS = 9
SEED = 11
ALL = {case.name: case for case in cases(fast=True)}


def row_of(case: Case, runs: int, bug: Bug = nullcontext, seed: int = SEED):
    case = replace(case, runs=runs)
    found = Search(case, seed)()
    with bug():
        played = Job(case, found, 0, 2 * runs, seed)()
    return judge(case, played, found.tried, TESTS, True)


def test_the_report_says_how_many_bugs_are_planted():
    assert len(PLANTED) == 15
    assert "fifteen bugs" in SAID


@pytest.mark.quick_cases("a float sampler", seconds=8.4)
@pytest.mark.parametrize("name", PLANTED)
def test_a_bug_is_flagged(name):
    planted = PLANTED[name]
    row = row_of(planted.case, planted.case.runs, planted.bug)
    assert row.must_flag in row.flagged, row
    assert row.ok
    assert row.verdict.startswith("flagged by")


@pytest.mark.quick_cases("none/mean-150", seconds=8.4)
@pytest.mark.parametrize(("name", "runs"), [("none/mean", 150), ("theorem 1, S = 30, S_C = 9", 300)])
def test_what_does_not_keep_its_claim_is_flagged(name, runs):
    assert {case for case, row in ALL.items() if row.flag} == {"none/mean", "theorem 1, S = 30, S_C = 9"}
    row = row_of(ALL[name], runs)
    assert row.must_flag in row.flagged, row
    assert row.ok


@pytest.mark.quick_cases("pooled/mean, support-150", seconds=3.7)
@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("cape/mean", 250),
        ("cape/mean, one may be lost", 150),
        ("cape/mean, a site lost", 150),
        ("cape/mean, a site silent", 150),
        ("cape-gaussian/mean", 300),
        ("cape/neural-network", 60),
        ("cape/neural-network, sampled", 40),
        ("cape/mean twice", 100),
        ("cape/custom-sum", 150),
        ("cape/mean, 4 rows a person", 150),
        ("pooled/mean, support", 150),
    ],
)
def test_the_real_code_is_not(name, runs):
    row = row_of(replace(ALL[name], powered=False), runs)
    assert row.flagged == ()
    assert row.ok, row  # it reaches the floor that so few runs allow, too
    assert row.mu_bound < row.claim_mu
    assert row.epsilon_bound < row.claim_epsilon


@pytest.mark.parametrize(
    ("spare", "silent", "attained"),
    [(1, "", 1), (1, "mask", 1), (1, "unmask", 3 / 3.5), (2, "mask", 1), (2, "unmask", 3 / (1 + 2 * 3))],
)
def test_the_claim_is_met_exactly_unless_surplus_noise_stays(spare, silent, attained):
    """4 sites, one colluding: with `spare` lost, 3 - spare honest sites share the noise of 3."""
    case = replace(ALL["cape/mean, a site lost"], spare=spare, silent=silent)
    found = Search(case, SEED)()
    played = Job(case, found, 0, 8, SEED)()
    assert played.claim_mu == pytest.approx(case.mu)
    assert (played.attained / found.distance) ** 2 == pytest.approx(attained, rel=1e-3)


@pytest.mark.slow(1.8)
def test_a_bug_that_is_not_flagged_is_a_failure():
    row = row_of(PLANTED["a reused mask"].case, 100)  # nothing planted: nothing to find
    assert not row.ok
    assert row.verdict == "NOT FLAGGED"


def test_a_claim_without_power_is_a_failure():
    row = row_of(ALL["pooled/mean"], 20)
    assert not row.ok
    assert row.verdict == "NO POWER"


def test_a_claim_that_is_broken_is_a_failure():
    row = row_of(replace(ALL["none/mean"], flag=""), 150)
    assert not row.ok
    assert row.verdict.startswith("FLAGGED by likelihood ratio")
