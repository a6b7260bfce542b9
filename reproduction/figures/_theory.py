"""What the paper's appendix proves, put into numbers: noise, gain, unequal sites, sensitivities, composition.

Nothing here is random and nothing takes long, so there are no cells: claims are computed as they are made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from cape.privacy import correlated, gaussian, paper
from reproduction.figure import Claim
from reproduction.figures._guarantee import PAIRS
from reproduction.literature.functional import LEAST_SQUARES, LOGISTIC

__all__ = ["composition", "gain", "pooled", "sensitivities", "spread_of_rows", "unequal"]

_PARTS = (40, 5)  # rows and sites of the enumeration
_MANY = 100.0  # times: "orders of magnitude"


def pooled() -> list[Claim]:
    """Lemma 1: the same expected error as a trusted curator, at the same tau_s and at the same privacy."""
    equal = [correlated.aggregate_std(1.0 / math.sqrt(p.sites), "paper", p.sites) ** 2 for p in PAIRS]
    ours = [correlated.pooled_ratio(1.0, "paper", p.sites, p.colluding) for p in PAIRS]
    ring = [p.sites / (p.sites - p.colluding) for p in PAIRS]
    at = [f"S = {p.sites}, S_C = {p.colluding}" for p in PAIRS]
    told = "; ".join(f"{a:.2f} and {b:.2f} at {c}" for a, b, c in zip(ours, ring, at, strict=True))
    where = "Lemma 1, Appendix D"
    return [
        Claim(
            where,
            "CAPE leaves the same noise as the pooled data at the same tau_s: tau_cape² = tau_pool².",
            f"{' and '.join(f'{each:.3f}' for each in equal)} times the pooled variance at S = "
            f"{' and '.join(str(p.sites) for p in PAIRS)}.",
            all(abs(each - 1.0) < 1e-9 for each in equal),
        ),
        Claim(
            where,
            "CAPE has the same error as the pooled data at the same true (ε, δ).",
            f"The paper's noise and ring masks leave {told} times the pooled variance.",
            all(each <= 1.0 + 1e-9 for each in ours),
            "With colluding sites a tau_s buys less privacy than the same noise of a curator.",
        ),
    ]


def gain() -> list[Claim]:
    """Proposition 1: G = S, at the same tau_s and at the same privacy."""
    sizes = [p.sites for p in PAIRS]
    same = [s / correlated.aggregate_std(1.0 / math.sqrt(s), "paper", s) ** 2 for s in sizes]
    true = [correlated.gain(1.0, "paper", p.sites, p.colluding) for p in PAIRS]
    told = "; ".join(
        f"{each:.2f} with the paper's noise and {p.sites - p.colluding} with ring masks at S = {p.sites}, "
        f"S_C = {p.colluding}"
        for each, p in zip(true, PAIRS, strict=True)
    )
    where = "Proposition 1, Appendix E"
    return [
        Claim(
            where,
            "The gain over the conventional scheme in variance is G = S at the same tau_s.",
            f"{' and '.join(f'{each:.2f}' for each in same)} at S = {' and '.join(map(str, sizes))}.",
            all(math.isclose(g, s, rel_tol=1e-9) for g, s in zip(same, sizes, strict=True)),
        ),
        Claim(
            where,
            "The gain is S at the same true (ε, δ).",
            f"{told}.",
            all(math.isclose(g, s, rel_tol=1e-9) for g, s in zip(true, sizes, strict=True)),
            "It is (S + 1) S_H/(S + S_H), and S_H = S - S_C with ring masks.",
        ),
    ]


def spread_of_rows(sizes: tuple[int, ...]) -> float:
    """Return H(n) = N²/S³ sum 1/N_s²: the variance of CAPE over the pooled one, for sites of these sizes."""
    rows, sites = sum(sizes), len(sizes)
    return rows**2 / sites**3 * math.fsum(1.0 / each**2 for each in sizes)


def unequal() -> Claim:
    """The remark on unequal sizes."""
    rows, sites = _PARTS
    found = {sizes: spread_of_rows(sizes) for sizes in _partitions(rows, sites)}
    least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    bound = rows**2 / sites**3 * (1.0 / (rows - sites + 1) ** 2 + sites - 1)
    kept = all(1 - 1e-12 <= value <= bound * (1 + 1e-12) for value in found.values())
    return Claim(
        "Remark in Section 3.3, Appendix F",
        "With unequal sites the variance is 1 to N²/S³ (1/(N - S + 1)² + S - 1) times the pooled one, and "
        "least when all are equal.",
        f"All {len(found):,} ways to put N = {rows} rows at S = {sites} sites: {found[least]:.3g} at sizes "
        f"{', '.join(map(str, least))} to {found[most]:.3g} at {', '.join(map(str, most))}; the bound is "
        f"{bound:.3g}.",
        kept and len(set(least)) == 1,
    )


def _partitions(rows: int, sites: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    most = rows if most is None else most
    if sites == 1:
        if 1 <= rows <= most:
            yield (rows,)
        return
    for first in range(min(most, rows - sites + 1), 0, -1):
        for rest in _partitions(rows - first, sites - 1, first):
            yield (first, *rest)


def sensitivities() -> list[Claim]:
    """The L2 sensitivities of the arrays, against dp-fm's: linear (Section 4.3) and logistic (Appendix H)."""
    one, other = np.eye(2)
    row = [np.outer(each, each) for each in (one, other)]
    linear = {"1": 1.0, "4": 2 * np.linalg.norm(one + one), "√2": np.linalg.norm(row[0] - row[1])}
    logistic = {"1": np.linalg.norm(one), "√2/8": np.linalg.norm(row[0] - row[1]) / 8}
    return [
        _against("Section 4.3", "linear", LEAST_SQUARES.sensitivities, linear, "2(D + 1)²"),
        _against("Appendix H", "logistic", LOGISTIC.sensitivities, logistic, "D²/4 + 3D"),
    ]


def _against(where: str, kind: str, of: dict, arrays: dict, printed: str) -> Claim:  # type: ignore[type-arg]
    largest = float(max(arrays.values()))
    ratios = {d: of["dp-fm"](d) / largest for d in (2, 20, 50)}
    tight = {d: of["dp-fm-tight"](d) / largest for d in (2, 20, 50)}
    first = next(d for d in itertools.count(2) if of["dp-fm"](d) / largest >= _MANY)
    told, told_tight = (
        ", ".join(f"{ratio:.3g} at D = {d}" for d, ratio in each.items()) for each in (ratios, tight)
    )
    reached = ", ".join(f"{name} (reached: {float(value):.4g})" for name, value in arrays.items())
    return Claim(
        where,
        f"{kind.capitalize()} regression: dp-fm's sensitivity {printed} is orders of magnitude larger than "
        "those of the arrays, for any D > 1.",
        f"N times those of the arrays: {reached}. dp-fm's over the largest: {told}; {_MANY:g} times from D = "
        f"{first} on. With ||x|| <= 1 used in dp-fm as well: {told_tight}.",
        first <= 2,
        "Larger at every D > 1, but not by orders of magnitude for small D; and most of it comes from "
        "ignoring ||x|| <= 1 in dp-fm, not from the arrays.",
    )


def composition(together: float, arrays: int) -> Claim:
    """Theorem 2: all arrays together are (epsilon, delta)-private, each with noise for (epsilon, delta)."""
    delta, told, over = 1e-5, [], 0
    for epsilon in (0.1, 0.5, 1.0, 10.0):
        alone = 1.0 / paper.classical_tau(epsilon, delta)
        true = gaussian.epsilon(delta, alone * together)
        over += true > epsilon
        told.append(f"{epsilon:g} is truly {true:.3g}")
    return Claim(
        "Theorem 2, Appendix G",
        "Releasing all arrays, each with Gaussian noise for (ε, δ), is (ε, δ)-differentially private.",
        f"{arrays} arrays of linear regression at one curator, δ = {delta:g}: ε = {'; '.join(told)}.",
        over == 0,
        "The proof applies the guarantee of one array to all: their costs add up. Where ε is below 1 the "
        "classical formula wastes about as much noise as that.",
    )
