"""All marginals of a table in one release: which residuals are measured, with how much noise, at which cost.

*Basis.* Column i has n_i values. Let U_i be n_i x (n_i - 1) with orthonormal columns that are orthogonal to
1. A row with values v adds the vector f_B(v) = ⊗_{i in B} U_i[v_i] to the coordinates of the set B of columns
(f_{} = 1: the number of rows). The coordinates of all subsets of A give the marginal on A, exactly:

    marginal_A = sum_{B within A} (⊗_{i in B} U_i) z_B ⊗ (⊗_{j in A, not B} 1/n_j)

Isotropic noise of standard deviation s_B on z_B is noise of covariance s_B² ⊗ (I - 11'/n_i) on the residual,
because U U' = I - 11'/n. Coordinates of different sets share no noise.

Claim (cost). With mu² = 1 / s_B² summed as below, a release of all z_B is mu-GDP for one row, exactly.
Reason. <U[v], U[w]> is 1 - 1/n if v = w and -1/n if not. So |f_B(v)|² = p_B = prod_{i in B} (1 - 1/n_i), and
for rows that differ in the columns D

    |f_B(v) - f_B(w)|² = q_B(D) = 2 p_B [1 - prod_{i in B and D} (-1/(n_i - 1))],   0 if B and D are disjoint.

- *add-remove*, and a row that `where` or a free slot of a person leaves out: sum_B p_B / s_B².
- *replace-one*, all rows count: max over D of sum_B q_B(D) / s_B²; z_{} is the public number of rows.
- *replace-one*, the number of rows that count is private: the larger of the two, with z_{} among the sums.

Columns with the same n_i that are treated alike are exchangeable: only how many of each kind are in D
matters. Where these numbers are too many to go through, the maximum is bounded from above (`_bound`).

Claim (scales). Let the errors that matter be sum_B V_B s_B², V_B = sum_{A containing B} weight_A prod_{i in
B} (n_i - 1) prod_{i in A, not B} 1/n_i: the weighted total variance of the marginals. For a single neighbour
relation c_B the best scales at mu = 1 are s_B² = sqrt(c_B / V_B) T, T = sum_B sqrt(c_B V_B), and the total
variance is T². For several, it is the same with c_B = sum_e lambda_e c_B(e), lambda the distribution over
relations that maximises T, which is concave.
Reason. Cauchy-Schwarz; Lagrangian duality, as both sides are convex in s². With g_e = sum_B c_B(e) sqrt(V_B /
c_B) / T, the mean of g_e under lambda is 1, and scales that are made larger by max_e sqrt(g_e) hold for every
relation: the total variance is at most max_e g_e times the least that is possible. That ratio is brought
to about 1 + 1e-4 (`Scales.gap` says it).
Among all unbiased linear releases with Gaussian noise none has less, for add-remove (Xiao and others,
ResidualPlanner, 2023); an independent convex solver agrees on small tables for both relations.

Tested in tests/unit/privacy/test_residuals.py, tests/unit/analyses/test_sensitivity.py and by tables.optimal.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Columns",
    "Relation",
    "Scales",
    "groups_of",
    "optimal_scales",
    "scales_effort",
    "subsets",
    "total_variance",
    "worst_case",
]

Floats = NDArray[np.float64]
Relation = Literal["add-remove", "replace-one", "open"]
"""Which tables are neighbours: "open" is replace-one with a private number of rows that count."""

Columns = tuple[int, ...]
"""A set of columns, by place, rising."""
_Kinds = tuple[int, ...]
"""How many columns of each kind a set has."""

_MOST_RELATIONS = 1 << 16  # neighbour relations that are gone through
_MOST_NUMBERS = 1 << 24  # of them, over all groups of sets
_GAP = 1e-4
_STEPS = 4000
_WORK = 1 << 29  # products in all of these steps
_ROUNDS = 30


@dataclass(frozen=True)
class Scales:
    """The noise of each set of columns at mu = 1.

    Attributes:
        std: set of columns -> standard deviation of the noise in each coordinate.
        total: the weighted total variance of the marginals.
        gap: how many times the least possible total variance that is, at most.
        exact: whether the worst pair of rows was found, rather than bounded.
    """

    std: Mapping[Columns, float]
    total: float
    gap: float
    exact: bool


@dataclass(frozen=True)
class _Kind:
    """Exchangeable columns: so many, of n values each."""

    many: int
    values: int

    @property
    def differing(self) -> float:
        """The factor of a column in which rows differ."""
        return -1 / (self.values - 1)

    def sums(self, among: int) -> Floats:
        """Return sum over sets of `among` columns of the product of factors, by how many columns differ."""
        m, c, t = among, self.many, self.differing
        return np.array(
            [
                sum(math.comb(d, a) * math.comb(c - d, m - a) * t**a for a in range(m + 1))
                for d in range(c + 1)
            ]
        )


@dataclass(frozen=True)
class _Problem:
    """Sets of columns by how many of each kind they have, and what counts of each such group.

    Attributes:
        kinds: the kinds of columns.
        groups: the groups of sets that are measured.
        sets: how many sets each group has.
        matters: V_B, summed over a group.
        values: relation, p_B.
    """

    kinds: tuple[_Kind, ...]
    groups: tuple[_Kinds, ...]
    sets: Floats
    matters: Floats
    relation: Relation

    @cached_property
    def members(self) -> NDArray[np.int64]:
        """The kind of each column of a set of each group; the number of kinds stands for no column."""
        most = max(map(sum, self.groups))
        found = np.full((len(self.groups), most), len(self.kinds))
        for row, group in zip(found, self.groups, strict=True):
            used = [k for k, m in enumerate(group) if m for _ in range(m)]
            row[: len(used)] = used
        return found

    @cached_property
    def norms(self) -> Floats:
        """p_B of each group."""
        each = np.array([*(1 - 1 / kind.values for kind in self.kinds), 1.0])
        return np.asarray(each[self.members].prod(axis=1))

    def alone(self) -> Floats:
        """Return what one row adds, squared, in each group: the relation add-remove."""
        return self.sets * self.norms

    @property
    def many(self) -> int:
        """How many numbers of differing columns there are."""
        return math.prod(kind.many + 1 for kind in self.kinds)

    def apart(self, differing: NDArray[np.int64]) -> Floats:
        """Return how far rows are apart, squared, in each group, for rows of numbers of differing columns."""
        norms, found = self.norms, np.empty((len(differing), len(self.groups)))
        tables = [
            [kind.sums(m)[differing[:, k]] for m in range(max(g[k] for g in self.groups) + 1)]
            for k, kind in enumerate(self.kinds)
        ]
        for j, group in enumerate(self.groups):
            product = np.ones(len(differing))
            for k, m in enumerate(group):
                if m:
                    product = product * (tables[k][m] / math.comb(self.kinds[k].many, m))
            found[:, j] = 2 * norms[j] * self.sets[j] * (1 - product)
        return np.maximum(found, 0.0)

    def every(self) -> NDArray[np.int64]:
        """Return all numbers of differing columns, but none."""
        grids = np.indices([kind.many + 1 for kind in self.kinds]).reshape(len(self.kinds), -1).T
        return np.asarray(grids[1:], np.int64)


def optimal_scales(
    values: Sequence[int],
    workload: Mapping[Columns, float],
    relation: Relation,
    alike: Sequence[object] | None = None,
) -> Scales:
    """Return the scales that make the weighted total variance of marginals least at mu = 1.

    Args:
        values: how many values each column has, at least 2.
        workload: the marginals that matter, with their weights, all positive.
        relation: which tables are neighbours.
        alike: a label for each column; those with the same label and number of values are taken to be
            exchangeable if the workload treats them alike. By default, all.
    """
    labels = tuple(alike) if alike is not None else (None,) * len(values)
    keys = list(zip(values, labels, strict=True))
    weights = _by_kind(keys, workload)
    if weights is None:  # no symmetry
        keys = [(each, place) for place, each in enumerate(values)]
        weights = _by_kind(keys, workload)
        assert weights is not None
    order = list(dict.fromkeys(keys))
    many = Counter(keys)
    kinds = tuple(_Kind(many[key], key[0]) for key in order)
    groups, matters, gap, total, exact = _solved(kinds, tuple(sorted(weights.items())), relation)
    by_group = dict(zip(groups, matters, strict=True))
    place = {key: i for i, key in enumerate(order)}
    kind_of = [place[key] for key in keys]
    std = {}
    for columns in _within(workload):
        group = _group([kind_of[i] for i in columns], len(kinds))
        if group in by_group:
            std[columns] = by_group[group]
    return Scales(std, total, gap, exact)


def groups_of(kinds: Iterable[int], ways: int) -> int:
    """Return how many groups of sets of at most so many columns there are, given how many each kind has."""
    found = [1] + [0] * ways
    for many in kinds:
        found = [sum(found[m - k] for k in range(min(many, m) + 1)) for m in range(ways + 1)]
    return sum(found)


def scales_effort(kinds: Collection[int], groups: int) -> float:
    """Return a bound on the seconds of CPU that `optimal_scales` takes, for kinds of so many columns."""
    if len(kinds) < 2:
        return 0.0
    relations = math.prod(many + 1 for many in kinds)
    if relations <= min(_MOST_RELATIONS, _MOST_NUMBERS // groups):
        return 1e-9 * relations * groups**2 + 1e-4 * groups
    return 4e-4 * groups


def worst_case(values: Sequence[int], std: Mapping[Columns, float], relation: Relation) -> float:
    """Return mu for sets of columns with these standard deviations, by going through all sets that differ.

    Slow and plain: 2^columns steps. A set that is not among them is not released, or public.
    """
    norm = {b: math.prod(1 - 1 / values[i] for i in b) for b in std}
    alone = sum(norm[b] / std[b] ** 2 for b in std)
    if relation == "add-remove":
        return math.sqrt(alone)
    worst = alone if relation == "open" else 0.0
    for many in range(1, len(values) + 1):
        for differing in itertools.combinations(range(len(values)), many):
            moved = 0.0
            for b in std:
                product = math.prod(-1 / (values[i] - 1) for i in b if i in differing)
                moved += 2 * norm[b] * (1 - product) / std[b] ** 2
            worst = max(worst, moved)
    return math.sqrt(worst)


def total_variance(
    values: Sequence[int], workload: Mapping[Columns, float], std: Mapping[Columns, float]
) -> float:
    """Return the weighted total variance of marginals whose residuals have these standard deviations."""
    total = 0.0
    for columns, weight in workload.items():
        for chosen in subsets(columns):
            inside = math.prod(values[i] - 1 for i in chosen)
            outside = math.prod(values[i] for i in columns if i not in chosen)
            total += weight * std.get(chosen, 0.0) ** 2 * inside / outside
    return total


def subsets(columns: Columns) -> list[Columns]:
    """Return all subsets of a set of columns, the smallest first."""
    return [c for many in range(len(columns) + 1) for c in itertools.combinations(columns, many)]


def _within(workload: Mapping[Columns, float]) -> list[Columns]:
    """Return all sets that marginals are made of, the smallest first."""
    found = {chosen for columns in workload for chosen in subsets(columns)}
    return sorted(found, key=lambda b: (len(b), b))


def _group(kinds: Sequence[int], many: int) -> _Kinds:
    found = [0] * many
    for kind in kinds:
        found[kind] += 1
    return tuple(found)


def _by_kind(
    keys: Sequence[tuple[int, object]], workload: Mapping[Columns, float]
) -> dict[_Kinds, float] | None:
    """Return the weight of every group of marginals; None if exchanging columns would change the workload."""
    order = list(dict.fromkeys(keys))
    place, many = {key: i for i, key in enumerate(order)}, Counter(keys)
    kind_of = [place[key] for key in keys]
    found: dict[_Kinds, float] = {}
    counted: Counter[_Kinds] = Counter()
    for columns, weight in workload.items():
        group = _group([kind_of[i] for i in columns], len(order))
        if found.setdefault(group, weight) != weight:
            return None
        counted[group] += 1
    for group, seen in counted.items():
        if seen != math.prod(math.comb(many[key], m) for key, m in zip(order, group, strict=True)):
            return None
    return found


_Solved = tuple[tuple[_Kinds, ...], tuple[float, ...], float, float, bool]


@lru_cache(maxsize=64)
def _solved(
    kinds: tuple[_Kind, ...], weights: tuple[tuple[_Kinds, float], ...], relation: Relation
) -> _Solved:
    """Return the groups of sets, their noise, the gap, the total variance, and whether it is exact."""
    problem = _problem(kinds, weights, relation)
    if not problem.groups:
        return (), (), 1.0, 0.0, True
    if relation == "add-remove" or not kinds:
        rows, exact = problem.alone()[None, :], True
        share, total, worst = _maximised(rows, problem.matters)
    elif problem.many <= min(_MOST_RELATIONS, _MOST_NUMBERS // len(problem.groups)):
        rows, exact = problem.apart(problem.every()), True
        if relation == "open":
            rows = np.vstack([problem.alone(), rows])
        share, total, worst = _maximised(rows, problem.matters)
    else:
        exact = False
        share, total, worst = _spread(problem)
    squares = np.sqrt(share / problem.matters) * total * worst
    return problem.groups, tuple(np.sqrt(squares).tolist()), worst, total**2 * worst, exact


def _problem(
    kinds: tuple[_Kind, ...], weights: tuple[tuple[_Kinds, float], ...], relation: Relation
) -> _Problem:
    matters: dict[_Kinds, float] = {}
    for marginal, weight in weights:
        used = [k for k, m in enumerate(marginal) if m]
        for chosen in itertools.product(*(range(marginal[k] + 1) for k in used)):
            group = [0] * len(kinds)
            of_sets = weight
            for k, m in zip(used, chosen, strict=True):
                group[k] = m
                n, c = kinds[k].values, kinds[k].many
                # of each set of this group, the marginals of that one that contain it
                of_sets *= math.comb(c - m, marginal[k] - m) * (n - 1.0) ** m / n ** (marginal[k] - m)
                of_sets *= math.comb(c, m)
            matters[tuple(group)] = matters.get(tuple(group), 0.0) + of_sets
    groups = tuple(
        g for g in sorted(matters, key=lambda g: (sum(g), g)) if any(g) or relation != "replace-one"
    )
    sets = [math.prod(math.comb(kind.many, m) for kind, m in zip(kinds, g, strict=True)) for g in groups]
    return _Problem(
        kinds, groups, np.array(sets, np.float64), np.array([matters[g] for g in groups]), relation
    )


def _maximised(rows: Floats, matters: Floats) -> tuple[Floats, float, float]:
    """Return c = sum lambda_e c(e) for the lambda that maximises T, T, and the largest g_e.

    Over few relations at a time; those with the largest g_e join until none is above 1.
    """
    if len(rows) == 1:
        share = rows[0]
        return share, float(np.sqrt(share * matters).sum()), 1.0
    active = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), 64)).astype(int))
    active = np.union1d(active, rows.argmax(axis=0))
    mass = np.full(len(active), 1 / len(active))
    for _ in range(_ROUNDS):
        mass = _climbed(rows[active], matters, mass)
        share = mass @ rows[active]
        total = float(np.sqrt(share * matters).sum())
        ratios = rows @ np.sqrt(matters / share) / total
        worst = float(ratios.max())
        fresh = np.setdiff1d(np.argsort(ratios)[-16:], active)
        if worst <= 1 + _GAP:
            break
        if fresh.size:
            kept = mass > 1e-9
            active = np.concatenate([active[kept], fresh])
            mass = np.concatenate([mass[kept] * 0.9, np.full(len(fresh), 0.1 / len(fresh))])
    return share, total, max(worst, 1.0)


def _climbed(rows: Floats, matters: Floats, mass: Floats) -> Floats:
    """Return the distribution over these relations that maximises T, nearly.

    lambda_e g_e², brought to 1, never has a smaller T: it maximises a minorant, by Jensen's inequality.
    """
    for _ in range(min(_STEPS, _WORK // rows.size + 1)):
        share = mass @ rows
        ratios = rows @ np.sqrt(matters / share) / np.sqrt(share * matters).sum()
        if ratios.max() <= 1 + _GAP / 4:
            break
        mass = mass * ratios**2
        mass /= mass.sum()
    return mass


def _spread(problem: _Problem) -> tuple[Floats, float, float]:
    """Return the same where relations are too many: for rows that differ at random, and with a bound.

    If each column differs with probability theta, independently, the mean of q_B is 2 p_B [1 - prod_{i in B}
    (1 - theta n_i / (n_i - 1))]: a distribution over relations like any other. Where the number of rows is
    private, a row comes or goes with another probability. Those with the largest T are taken, and the largest
    g_e is bounded. With 60 columns or more, two ways, that is within 2% of the least.
    """
    ratio, alone = np.array([1 - kind.differing for kind in problem.kinds]), problem.alone()
    norms, members = problem.norms, problem.members

    def share(theta: float, coming: float) -> Floats:
        product = np.append(1 - theta * ratio, 1.0)[members].prod(axis=1)
        return np.asarray((1 - coming) * 2 * norms * problem.sets * (1 - product) + coming * alone)

    def total(theta: float, coming: float) -> float:
        return float(np.sqrt(np.maximum(share(theta, coming), 0.0) * problem.matters).sum())

    theta, coming = 0.5, 0.1 if problem.relation == "open" else 0.0
    for _ in range(3 if coming else 1):
        theta = _best(partial(_swapped, total, coming))
        coming = _best(partial(total, theta)) if coming else 0.0
    mean, most = share(theta, coming), total(theta, coming)
    weights = np.sqrt(problem.matters / mean) / most
    worst = max(_bound(problem, weights), float(alone @ weights) if coming else 0.0)
    return mean, most, max(worst, 1.0)


def _swapped(of: Callable[[float, float], float], second: float, first: float) -> float:
    return of(first, second)


def _best(of: Callable[[float], float]) -> float:
    """Return the probability at which a function is largest, nearly."""
    from scipy.optimize import minimize_scalar

    return float(minimize_scalar(lambda x: -of(x), bounds=(1e-3, 0.999), method="bounded").x)


def _bound(problem: _Problem, weights: Floats) -> float:
    """Return an upper bound on sum_B q_B(D) / s_B² over all D; `weights` are 1/s² of each group.

    With x_i = 1 for columns in D and r_i = n_i / (n_i - 1), sets of one and two columns add a quadratic
    a'x - x'Mx/2 with M >= 0 off its diagonal of zeros. As x_i² = x_i, adding diag(d) to M and d/2 to a
    changes nothing; for a d that leaves no negative eigenvalue it is concave, and over the cube [0, 1]^k it
    lies below its tangent at any point. A larger set adds at most 2 p_B n/(n - 1) / s_B², n its smallest
    number of values.
    """
    from scipy.optimize import minimize

    kind_of = np.repeat(np.arange(len(problem.kinds)), [kind.many for kind in problem.kinds])
    values = np.array([problem.kinds[k].values for k in kind_of], np.float64)
    r, norms = values / (values - 1), problem.norms
    linear, pairs, rest = np.zeros(len(kind_of)), np.zeros((len(kind_of), len(kind_of))), 0.0
    for j, row in enumerate(problem.members.tolist()):
        used = [k for k in row if k < len(problem.kinds)]
        weight = 2 * norms[j] * weights[j]
        if len(used) == 1:
            linear[kind_of == used[0]] += weight
        elif len(used) == 2:
            one, other = kind_of == used[0], kind_of == used[1]
            pairs[np.ix_(one, other)] = weight
            pairs[np.ix_(other, one)] = weight
        elif used:
            least = min(problem.kinds[k].values for k in used)
            rest += weight * problem.sets[j] * least / (least - 1)
    np.fill_diagonal(pairs, 0.0)
    linear = r * (linear + pairs.sum(axis=1))
    pairs = pairs * np.outer(r, r)
    diagonal = np.zeros(len(r))
    for _ in range(50):  # of the matrix of rank one that is nearest
        size, vectors = np.linalg.eigh(pairs + np.diag(diagonal))
        diagonal = np.maximum(size[-1], 0.0) * vectors[:, -1] ** 2
    diagonal += max(0.0, -float(np.linalg.eigvalsh(pairs + np.diag(diagonal))[0])) * (1 + 1e-6) + 1e-12
    matrix, slope = pairs + np.diag(diagonal), linear + diagonal / 2
    best = minimize(
        lambda x: (x @ matrix @ x / 2 - slope @ x, matrix @ x - slope),
        np.full(len(r), 0.5),
        jac=True,
        bounds=[(0.0, 1.0)] * len(r),
        method="L-BFGS-B",
    )
    x = np.clip(best.x, 0.0, 1.0)
    upward = slope - matrix @ x
    here = slope @ x - x @ matrix @ x / 2
    beyond = np.maximum(upward, 0.0) @ (1 - x) + np.maximum(-upward, 0.0) @ x
    return float(here + beyond) + rest
