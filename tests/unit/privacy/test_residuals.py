"""Scales of residuals: what they cost, that none are better, and numbers that are known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.linalg import helmert
from scipy.optimize import minimize

from cape.privacy import residuals
from cape.privacy.residuals import optimal_scales, total_variance, worst_case

RELATIONS = ("add-remove", "replace-one", "open")
EACH = pytest.mark.parametrize("relation", RELATIONS)


def every(columns, ways):
    return dict.fromkeys(itertools.combinations(range(columns), ways), 1.0)


@pytest.mark.parametrize(("relation", "total"), [("add-remove", 50.85), ("replace-one", 97.93)])
def test_known_totals(relation, total):
    found = optimal_scales((2, 3, 4), every(3, 2), relation)
    assert found.total == pytest.approx(total, abs=0.005)
    assert found.exact


@EACH
@pytest.mark.parametrize(
    ("values", "ways"), [((2, 3, 4), 2), ((2, 2, 2, 2, 2), 2), ((3, 3, 5, 2), 3), ((7,), 1), ((2, 9), 2)]
)
def test_one_person_costs_mu_1_and_the_total_is_that_of_the_scales(values, ways, relation):
    workload = every(len(values), ways)
    found = optimal_scales(values, workload, relation)
    assert worst_case(values, found.std, relation) == pytest.approx(1, rel=1e-9)
    assert total_variance(values, workload, found.std) == pytest.approx(found.total, rel=1e-9)
    assert 1 <= found.gap <= 1 + 1e-4
    assert (() in found.std) == (relation != "replace-one")


@EACH
def test_the_cost_is_that_of_vectors_of_rows(relation):
    """The formulas for p and q, against products of orthonormal contrasts of all pairs of rows."""
    values = (2, 3, 4)
    found = optimal_scales(values, {(0, 1): 3.0, (1, 2): 1.0, (0,): 0.2}, relation)
    rows = []
    for cell in itertools.product(*map(range, values)):
        parts = []
        for columns, std in found.std.items():
            vector = np.ones(1)
            for i in columns:
                vector = np.kron(vector, helmert(values[i])[:, cell[i]])
            parts.append(vector / std)
        rows.append(np.concatenate(parts))
    x = np.array(rows)
    alone = (x**2).sum(axis=1).max()
    apart = ((x[:, None] - x[None]) ** 2).sum(axis=2).max()
    wanted = {"add-remove": alone, "replace-one": apart, "open": max(alone, apart)}[relation]
    assert wanted == pytest.approx(1, rel=1e-9)


@EACH
def test_a_general_solver_finds_no_better_scales(relation):
    """Minimise the total over the logarithms of all variances, subject to the cost of every pair of rows."""
    values, workload = (2, 3, 3), every(3, 2)
    found = optimal_scales(values, workload, relation)
    sets = list(found.std)
    weight = np.array([total_variance(values, workload, {b: 1.0}) for b in sets])
    cost = []
    for many in range(4):
        for differing in itertools.combinations(range(3), many):
            norm = [math.prod(1 - 1 / values[i] for i in b) for b in sets]
            same = [math.prod(-1 / (values[i] - 1) for i in b if i in differing) for b in sets]
            cost.append([2 * p * (1 - t) for p, t in zip(norm, same, strict=True)])
    alone = [math.prod(1 - 1 / values[i] for i in b) for b in sets]
    rows = {"add-remove": [alone], "replace-one": cost[1:], "open": [*cost[1:], alone]}[relation]
    rows = np.array(rows)
    solved = minimize(
        lambda logs: (weight @ np.exp(logs), weight * np.exp(logs)),
        np.full(len(sets), 3.0),
        jac=True,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda logs: 1 - rows @ np.exp(-logs),
            "jac": lambda logs: rows * np.exp(-logs),
        },
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert solved.success
    assert found.total == pytest.approx(solved.fun, rel=2e-4)


def test_twice_add_remove_would_undercharge_binary_columns():
    """Replacing a row is not two changes of half the square: the worst rows differ in some columns only."""
    values = (2,) * 14
    found = optimal_scales(values, every(14, 2), "add-remove")
    cost = dict.fromkeys(range(1, 15), 0.0)
    for many in cost:
        for b, std in found.std.items():
            inside = sum(i < many for i in b)
            norm = 0.5 ** len(b)
            cost[many] += 2 * norm * (1 - (-1) ** inside) / std**2
    assert max(cost, key=cost.get) == 9
    assert max(cost.values()) > 2.05  # at mu = 1 under add-remove, the number of rows paid for as well


@pytest.mark.quick_cases("replace-one-values2-2", seconds=2)
@pytest.mark.parametrize(
    ("values", "ways"),
    [((2, 2, 2, 3, 3, 4, 5, 9, 2, 2, 6), 2), ((3, 2, 5, 2, 4, 2, 3, 8), 3), ((2,) * 9, 2)],
)
@pytest.mark.parametrize("relation", ["replace-one", "open"])
def test_a_bound_in_the_place_of_all_relations_is_safe_and_near(values, ways, relation, monkeypatch):
    workload = every(len(values), ways)
    exact = optimal_scales(values, workload, relation)
    residuals._solved.cache_clear()
    monkeypatch.setattr(residuals, "_MOST_RELATIONS", 1)
    bounded = optimal_scales(values, workload, relation)
    residuals._solved.cache_clear()
    assert not bounded.exact
    assert worst_case(values, bounded.std, relation) <= 1 + 1e-9
    assert exact.total / exact.gap <= bounded.total <= (1.08 if ways == 2 else 1.5) * exact.total


@pytest.mark.slow(2)
def test_a_hundred_different_columns_have_scales():
    values = tuple(range(2, 52)) * 2
    found = optimal_scales(values, every(100, 2), "replace-one")
    assert found.gap < 1.002
    assert not found.exact


def test_a_heavier_table_has_less_noise():
    plain = optimal_scales((3, 3, 3), every(3, 2), "replace-one")
    heavy = optimal_scales((3, 3, 3), every(3, 2) | {(0, 1): 10.0}, "replace-one")
    assert heavy.std[0, 1] < plain.std[0, 1] < heavy.std[1, 2]


def test_one_value_of_the_wrong_sign_would_be_noticed(monkeypatch):
    """The factor of a differing column is negative: with the other sign the cost comes out too small."""
    right = optimal_scales((4, 3), every(2, 2), "replace-one")
    residuals._solved.cache_clear()
    monkeypatch.setattr(residuals._Kind, "differing", property(lambda kind: 1 / (kind.values - 1)))
    wrong = optimal_scales((4, 3), every(2, 2), "replace-one")
    residuals._solved.cache_clear()
    assert worst_case((4, 3), wrong.std, "replace-one") > 1.1
    assert worst_case((4, 3), right.std, "replace-one") <= 1 + 1e-9


def test_relations_times_sets_are_limited_and_not_relations_alone(monkeypatch):
    values, workload = (2, 3, 4, 5, 6, 7), every(6, 3)
    monkeypatch.setattr(residuals, "_MOST_NUMBERS", 64 * 41 - 1)  # 2^6 relations, 41 sets that are released
    residuals._solved.cache_clear()
    bounded = optimal_scales(values, workload, "replace-one")
    monkeypatch.setattr(residuals, "_MOST_NUMBERS", 64 * 41)
    residuals._solved.cache_clear()
    assert not bounded.exact
    assert optimal_scales(values, workload, "replace-one").exact
    residuals._solved.cache_clear()
    assert worst_case(values, bounded.std, "replace-one") <= 1 + 1e-9


def test_fewer_steps_make_noise_larger_and_never_too_small(monkeypatch):
    values, workload = (2, 3, 4, 5, 6), every(5, 3)
    monkeypatch.setattr(residuals, "_WORK", 1)
    residuals._solved.cache_clear()
    hasty = optimal_scales(values, workload, "replace-one")
    residuals._solved.cache_clear()
    assert worst_case(values, hasty.std, "replace-one") <= 1 + 1e-9
