"""The search finds tables as far apart as is claimed, and none further."""

from __future__ import annotations

import itertools
import math

import pytest

from cape.analyses.registry import KINDS
from cape.audit import search
from cape.audit.cases import cases
from cape.audit.search import Found, find, questions
from cape.audit.world import ANALYSES, OWN, SCHEMA, STUDIES, analysis_of, asked_of, columns_of, stream_of
from cape.privacy import Budget

BUDGET = Budget.of(3.0, 1e-5)
NAMES = [*ANALYSES, *OWN, *STUDIES]
ONE_STAGE = [name for name in NAMES if all(len(asked.stages()) == 1 for asked, _ in asked_of(name))]
REACH = {
    case.analysis: min(case.reach, 0.96) for case in cases(False) if case.name == f"cape/{case.analysis}"
}


def test_analyses_are_those_of_the_registry():
    assert all(analysis_of(name).kind in KINDS for name in ANALYSES)


@pytest.mark.one_in(2, seconds=0.07)
@pytest.mark.parametrize("name", ONE_STAGE)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_worst_pair_is_found(name, neighbours):
    found = find(name, neighbours, BUDGET, 1)
    assert 0.99 * BUDGET.mu < found.distance <= BUDGET.mu
    one, two = found.tables.one, found.tables.two
    assert one[:-1] == two[: len(one) - 1]
    assert len(two) == len(one) - (neighbours == "add-remove")


@pytest.mark.one_in(8, seconds=1.5)
@pytest.mark.slow_cases("mixed-model", seconds=3.6)
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(ONE_STAGE) - {"k-means"}))
def test_questions_that_follow_answers_are_searched_too(name):
    found = find(name, "replace-one", BUDGET, 1)
    assert REACH[name] * BUDGET.mu < found.distance <= BUDGET.mu


@pytest.mark.slow(2.5)
def test_what_is_said_of_tables_that_steer_is_so_in_runs_that_the_search_did_not_see():
    found = find("mixed-model", "replace-one", BUDGET, 1)
    squares = []
    for run in range(100, 108):
        asked = questions("mixed-model", "replace-one", BUDGET, found.tables, run)
        pair = search._Pair((), asked, "replace-one", SCHEMA, 2)
        squares.append(pair.apart(found.tables.one[-1], found.tables.two[-1]) ** 2)
    assert math.isclose(math.sqrt(sum(squares) / len(squares)), found.distance, rel_tol=0.02)


def test_tables_that_a_lucky_run_favours_are_not_preferred(monkeypatch):
    """The first crowd is far apart in the run of its search alone, the others in all runs."""
    real = search._find

    def lucky(name, neighbours, budget, seed, crowd, *rest):
        found = real(name, neighbours, budget, seed, crowd, *rest)
        return Found(found.tables, 9.0 if crowd.narrow else 1.0, found.tried)

    monkeypatch.setattr(search, "_find", lucky)
    monkeypatch.setattr(search, "_MANY", (6,))
    found = find("pca", "replace-one", BUDGET, 1)
    assert 0.9 * BUDGET.mu < found.distance <= BUDGET.mu


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_pair_is_the_furthest_apart_of_all_rows_tried(neighbours):
    start = search._find("glm", neighbours, BUDGET, 2, search._Crowd(0), 3, False, None)
    asked = questions("glm", neighbours, BUDGET, start.tables)
    pair = search._Pair(columns_of("glm"), asked, neighbours, SCHEMA, 2)
    chosen = pair.search(stream_of("test"))
    every = [pair.apart(*each) for each in itertools.permutations(pair._known, 2)]
    assert pair.tried > 40
    assert pair.apart(*chosen) == max(every)


def test_other_rows_are_few_or_many_and_near_the_middle_in_every_choice_of_numbers():
    crowds = list(search._crowds(("age", "chol", "sex")))
    for size in search._MANY:
        assert {crowd.narrow for crowd in crowds if crowd.rows == size} == {
            (),
            ("age",),
            ("chol",),
            ("age", "chol"),
        }
    assert sum(crowd.rows == search._FEW for crowd in crowds) == search._FILLS
    assert len({crowd.number for crowd in crowds}) == len(crowds)
    rows = next(crowd for crowd in crowds if crowd.narrow == ("chol",)).draw(200, stream_of("test"))
    assert all(300 <= chol <= 400 for _, chol, *_ in rows)
    assert {18.0, 90.0} < {age for age, *_ in rows}


def test_the_search_repeats():
    assert find("mean", "replace-one", BUDGET, 4) == find("mean", "replace-one", BUDGET, 4)


def test_every_kind_of_analysis_is_audited() -> None:
    assert {said["kind"] for said in ANALYSES.values()} == set(KINDS)
