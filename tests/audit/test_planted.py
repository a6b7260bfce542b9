"""Every planted bug is flagged, by the check that it is said to be flagged by, and the real code by none.

Few runs: each row is judged at the error that the command gives to a test in a table of three rows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cape.audit.cases import Case, cases
from cape.audit.pool import Job, Search
from cape.audit.table import judge

TESTS = 9
SEED = 11
RUNS = {
    "bug: noise scale -5%": 450,
    "bug: a site's noise left out": 300,
    "bug: a reused mask": 600,
    "bug: a skipped composition": 300,
    "bug: no sample is drawn": 60,
    "bug: noise that ignores the share": 250,
    "bug: a deployed site's noise -10%": 60,
    "bug: a deployed site's noise is public": 60,
    "bug: a float sampler": 150,
    "none/mean": 150,
    "theorem 1, S = 30, S_C = 9": 300,
}
ALL = {case.name: case for case in cases(fast=True)}


def row_of(case: Case, runs: int):
    case = replace(case, runs=runs)
    found = Search(*case.search, SEED)()
    played = Job(case, found, 0, 2 * runs, SEED)()
    return judge(case, played, found.tried, TESTS, True, 0.0)


def test_what_must_be_flagged_is_all_here():
    assert set(RUNS) == {name for name, case in ALL.items() if case.flag}
    assert {case.bug for case in ALL.values() if case.bug} == {
        "noise scale -5%",
        "a site's noise left out",
        "a reused mask",
        "a float sampler",
        "a skipped composition",
        "no sample is drawn",
        "noise that ignores the share",
        "a deployed site's noise -10%",
        "a deployed site's noise is public",
    }


@pytest.mark.parametrize("name", RUNS)
def test_it_is_flagged(name):
    row = row_of(ALL[name], RUNS[name])
    assert row.must_flag in row.flagged, row
    assert row.ok
    assert row.verdict.startswith("flagged by")


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("cape/mean", 250),
        ("cape-gaussian/mean", 300),
        ("cape/neural-network", 60),
        ("cape/neural-network, sampled", 40),
        ("cape/mean twice", 100),
        ("cape/custom-sum", 150),
        ("pooled/mean, support", 150),
    ],
)
def test_the_real_code_is_not(name, runs):
    row = row_of(replace(ALL[name], powered=False), runs)
    assert row.flagged == ()
    assert row.ok, row  # it reaches the floor that so few runs allow, too
    assert row.mu_bound < row.claim_mu
    assert row.epsilon_bound < row.claim_epsilon


def test_a_bug_that_is_not_flagged_is_a_failure():
    honest = replace(ALL["bug: a reused mask"], bug="")  # nothing planted: nothing to find
    row = row_of(honest, 100)
    assert not row.ok
    assert row.verdict == "NOT FLAGGED"


def test_a_claim_without_power_is_a_failure():
    row = row_of(ALL["pooled/mean"], 30)
    assert not row.ok
    assert row.verdict == "NO POWER"


def test_a_claim_that_is_broken_is_a_failure():
    row = row_of(replace(ALL["none/mean"], flag=""), 150)
    assert not row.ok
    assert row.verdict.startswith("FLAGGED by likelihood ratio")
