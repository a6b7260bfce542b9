"""The search finds tables as far apart as is claimed, and none further."""

from __future__ import annotations

import pytest

from cape.analyses.registry import KINDS
from cape.audit.search import find
from cape.audit.world import ANALYSES, OWN, STUDIES, analysis_of, asked_of
from cape.privacy import Budget

BUDGET = Budget.of(3.0, 1e-5)
NAMES = [*ANALYSES, *OWN, *STUDIES]
LOOSE = {
    "evaluate": 0.98,  # no cell of the example's model is quite at the end of a bin
    "mixed-model": 0.9,  # the proof adds up the worst of each part
}
ONE_STAGE = [name for name in NAMES if all(len(asked.stages()) == 1 for asked, _ in asked_of(name))]


def test_analyses_are_those_of_the_registry():
    assert all(analysis_of(name).kind in KINDS for name in ANALYSES)


@pytest.mark.one_in(2, seconds=0.07)
@pytest.mark.parametrize("name", ONE_STAGE)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_worst_pair_is_found(name, neighbours):
    found = find(name, neighbours, BUDGET, 1)
    assert LOOSE.get(name, 0.99) * BUDGET.mu < found.distance <= BUDGET.mu
    one, two = found.tables.one, found.tables.two
    assert one[:-1] == two[: len(one) - 1]
    assert len(two) == len(one) - (neighbours == "add-remove")


@pytest.mark.one_in(8, seconds=1.0)
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(ONE_STAGE) - {"k-means"}))
def test_questions_that_follow_answers_are_searched_too(name):
    found = find(name, "replace-one", BUDGET, 1)
    assert 0.7 * BUDGET.mu < found.distance <= BUDGET.mu


def test_the_search_repeats():
    assert find("mean", "replace-one", BUDGET, 4) == find("mean", "replace-one", BUDGET, 4)


def test_every_kind_of_analysis_is_audited() -> None:
    assert {said["kind"] for said in ANALYSES.values()} == set(KINDS)
