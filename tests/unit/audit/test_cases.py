"""The table itself: everything is played, every row can flag something, and every row must see something."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from cape.audit.bounds import Errors, mu_bound
from cape.audit.cases import FLOOR, FLOOR_FAST, Case, cases
from cape.audit.table import CHECKS, ERROR
from cape.audit.world import ANALYSES, OWN, STUDIES, analysis_of
from tests.checkout import ROOT

SCHEMES = ("cape", "cape-gaussian", "conventional", "local", "pooled")
BOTH = [(case, fast) for fast in (False, True) for case in cases(fast)]


def shown(case: Case, fast: bool) -> float:
    """Return the bound of an adversary that is never wrong."""
    tests = sum(len(each.tests) for each in cases(fast))
    return mu_bound(Errors(0, case.runs, 0, case.runs), ERROR / tests)


@pytest.mark.parametrize(("case", "fast"), BOTH, ids=[f"{case.name} {fast}" for case, fast in BOTH])
def test_an_adversary_that_is_never_wrong_would_be_above_the_claim(case, fast):
    assert shown(case, fast) > 1.1 * case.mu


def test_forty_runs_at_mu_3_would_not_do():
    assert shown(replace(cases(False)[0], runs=40), False) < 3


def test_every_row_has_a_floor_but_where_there_is_nothing_to_see():
    for case, fast in BOTH:
        if case.flag or case.look == "support":
            assert case.needed(fast) == 0
            continue
        assert 0.05 < case.needed(fast) < case.reach, case.name
        if case.powered:
            assert case.needed(fast) == (FLOOR_FAST if fast else FLOOR)
    assert [case.name for case in cases(False) if not case.flag and not case.needed(False)] == [
        "pooled/mean, support"
    ]


def test_a_floor_rises_with_the_runs_and_stays_below_what_there_is():
    floors = [Case("", "mean", "cape", runs, powered=False).allowed for runs in (60, 300, 1000, 100_000)]
    assert floors == sorted(set(floors))
    assert floors[-1] < 0.99
    assert Case("", "mean", "cape", 60, powered=False, mu=0.2).allowed == 0


def test_every_analysis_is_played_under_every_scheme():
    for scheme in SCHEMES:
        played = {case.analysis for case in cases(False) if case.scheme == scheme and not case.flag}
        assert played >= {*ANALYSES, *OWN, "mean twice", "mean and histogram"}


def test_functions_of_ones_own_are_played():
    assert {analysis_of(name).kind for name in OWN} == {"custom-sum", "gradient-descent"}


def test_what_was_tight_is_tight():
    """Every analysis with one question under cape, and six of them under the other schemes.

    No two rows of a mixed model, and of regressions whose later steps depend on earlier ones, move sums as
    far as their bounds say.
    """
    tight = {case.name for case in cases(False) if case.powered and not case.flag}
    many = {"k-means", "neural-network", "gradient-descent", "glm", "cox", "survival-regression"}
    many |= {"logistic-regression", "mixed-model", "evaluate"}
    assert tight >= {f"cape/{name}" for name in {*ANALYSES, *OWN} - many}
    for scheme in SCHEMES[1:]:
        assert tight >= {
            f"{scheme}/{name}"
            for name in ("count", "mean", "histogram", "covariance", "linear-regression", "pca")
        }


@pytest.mark.parametrize("name", STUDIES)
def test_the_shares_of_a_study_are_the_whole_budget(name):
    assert len(STUDIES[name]) > 1
    assert sum(Fraction(repr(share)) for _, share in STUDIES[name]) == 1


@pytest.mark.parametrize("fast", [False, True])
def test_releases_are_composed_in_both_tables(fast):
    composed = [case for case in cases(fast) if case.analysis in STUDIES]
    assert {case.scheme for case in composed if not case.flag} >= {"cape", "pooled"}
    assert not [case for case in composed if case.flag]


def test_tests_are_counted_as_they_are_made():
    table = {case.name: len(case.tests) for case in cases(False)}
    assert table["cape/mean"] == 3
    assert table["none/mean"] == 2
    assert table["pooled/mean, support"] == 1
    assert sum(table.values()) == 3 * len(table) - 3
    assert {check for case in cases(False) for check in case.tests} == {*CHECKS}
    assert math.isclose(ERROR, 0.05)


def test_the_page_says_how_near_each_row_without_power_must_come():
    page = " ".join((ROOT / "docs" / "audit.md").read_text(encoding="utf-8").split())
    for case in cases(False):
        if not case.powered and case.needed(False):
            assert f"| {case.reach:.2f} | {case.needed(False):.2f} |" in page, case.name
