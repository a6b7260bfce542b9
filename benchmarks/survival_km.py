"""Survival curves and log-rank tests: how far off, how often they cover and reject, and the data they need.

Five sites of which one may collude, at delta 1e-6. People are drawn anew each time. Most releases are made of
exact counts, which get the noise of the release by the analysis itself; in `survival.coverage` one in fifty
is a whole release of `Consortium`. Rules are one-sided binomial tests at .05 over the number of cells.

`survival.km`: errors are those of the curve at 20 edges, against the curve of the same rows without noise;
the worst of four populations counts. Both central mechanisms have a trusted curator's noise in counts of
events and of censored rows by bin (a row in one of them, as here), or in a dyadic tree of each, made
consistent by least squares and brought to the public total; the curve is made falling by isotonic regression.
Beside it: the same number of bins at quantiles of the exits, which a first stage with a fifth of the budget
finds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import binom
from sklearn.isotonic import IsotonicRegression

from benchmarks.harness import Result, bench
from cape import privacy
from cape.analyses import KaplanMeier, LogRank
from cape.analyses.survival.curve import SurvivalCurve
from cape.analyses.survival.risk_table import risk_tables
from cape.blocks.survival import woven
from cape.core.errors import TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.consortium import Consortium
from cape.engine.query import Analysis, Answer
from cape.noise import SecureStream
from cape.privacy import Budget

__all__ = ["COVERED", "Cell", "broken"]

Floats = NDArray[np.float64]
Random = np.random.Generator
Rows = tuple[Floats, NDArray[np.bool_]]
"""Times until 1, and whether they end with the event."""

SIZES, EPSILONS, DELTA = (600, 3000, 30_000), (1.0, 3.0), 1e-6
RUNS = 400
BINS = 20
EDGES = np.linspace(0.0, 1.0, BINS + 1)
_SITES, _COLLUDING = 5, 1
_WHOLE = 50  # one release in so many is whole
_LEAST, _MOST = 0.93, 0.985
SCHEMA = Schema(
    time=Number(0, 1, missing=False),
    event=Category(("no", "yes"), missing=False),
    arm=Category(("a", "b"), missing=False),
)


@dataclass(frozen=True)
class Population:
    """How people are drawn, their true survival, and the share whose quantile is asked for."""

    draw: Callable[[Random, int], Rows]
    survival: Callable[[float], float]
    prob: float = 0.5

    @property
    def quantile(self) -> float:
        return float(brentq(lambda t: self.survival(t) - (1 - self.prob), 0.0, 9.0))

    @property
    def mean(self) -> float:
        return float(quad(self.survival, 0.0, 1.0)[0])


def _until(events: Floats, ends: Floats) -> Rows:
    ends = np.minimum(ends, 1.0)
    return np.minimum(events, ends), events <= ends


POPULATIONS = {
    "steady": Population(
        lambda rng, n: _until(rng.exponential(1 / 1.2, n), rng.uniform(0.3, 2.0, n)),
        lambda t: math.exp(-1.2 * t),
    ),
    "rare": Population(
        lambda rng, n: _until(rng.exponential(10.0, n), rng.uniform(0.5, 2.0, n)),
        lambda t: math.exp(-0.1 * t),
        0.05,
    ),
    "ageing, censored at the end only": Population(
        lambda rng, n: _until(0.6 * rng.weibull(1.5, n), np.ones(n)),
        lambda t: math.exp(-((t / 0.6) ** 1.5)),
    ),
    "steep, heavily censored": Population(
        lambda rng, n: _until(rng.exponential(0.25, n), rng.exponential(0.4, n)), lambda t: math.exp(-4 * t)
    ),
}


def counted(rows: Rows, edges: Floats = EDGES) -> Floats:
    """Return how many were censored and had the event in each bin; the last cell is for those who stay."""
    times, had = rows
    stays = ~had & (times >= edges[-1])
    bins = len(edges) - 1
    place = np.clip(np.searchsorted(edges, times) - 1, 0, bins - 1)
    found = np.zeros((2, bins + 1))
    found[0, :bins] = np.bincount(place[~had & ~stays], minlength=bins)
    found[0, bins] = stays.sum()
    found[1, :bins] = np.bincount(place[had], minlength=bins)
    return found


def spread(epsilon: float, sites: bool = True) -> float:
    """Return the noise in each released number, of five sites or of a trusted curator."""
    grown = _SITES / (_SITES - _COLLUDING) if sites else 1.0
    return math.sqrt(2 * grown) * woven(BINS + 1).norm / float(privacy.mu(epsilon, DELTA))


def finished(analysis: Analysis, counts: Floats, epsilon: float, rng: Random) -> Any:
    """Return what the analysis makes of group x event x cell of counts with noise."""
    noise = spread(epsilon) if epsilon < math.inf else 0.0
    released = counts @ woven(counts.shape[-1]).matrix.T + noise * rng.normal(size=counts.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        return analysis.finish(Answer(((released,),), ((noise,),), int(counts.sum()), SCHEMA))


def released(analysis: Analysis, rows: Rows, arm: NDArray[np.int64], epsilon: float, run: int) -> Any:
    """Return the whole release of five sites."""
    times, had = rows
    frame = pl.DataFrame(
        {
            "time": times,
            "event": np.where(had, "yes", "no"),
            "arm": np.array(["a", "b"])[arm],
        }
    )
    sites = {f"site {i}": frame[i::_SITES] for i in range(_SITES)}
    key = SecureStream(f"survival {run}".encode().rjust(32))
    consortium = Consortium(sites, SCHEMA, Budget(epsilon, DELTA), colluding=_COLLUDING, stream=key)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        return consortium.release(analysis, 1.0)


@dataclass
class Cell:
    """One number at one setting: whether intervals held the truth, and what their errors came from."""

    hits: list[bool] = field(default_factory=list)
    sampling: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)  # errors from noise, and from the width of bins

    def add(self, estimate: Any, truth: float, coarse: float = 0.0) -> None:
        low, high = estimate.interval()
        self.hits.append(bool(low - 1e-12 <= truth <= high + 1e-12))
        self.sampling.append(estimate.sampling)
        self.others.append(math.hypot(estimate.privacy, coarse))

    @property
    def rate(self) -> float:
        return float(np.mean(self.hits))


def broken(cells: dict[str, Cell]) -> Result:
    """Return how many cells cover too seldom, or too often where sampling dominates."""
    found, level = {}, 0.05 / len(cells)
    for name, cell in cells.items():
        hits, runs = sum(cell.hits), len(cell.hits)
        drawn = float(np.median(cell.sampling)) > float(np.median(cell.others))
        low = binom.cdf(hits, runs, _LEAST) < level
        if low or (drawn and binom.sf(hits - 1, runs, _MOST) < level):
            found[f"{name}: too {'low' if low else 'high'}"] = round(cell.rate, 3)
    rates = [cell.rate for cell in cells.values()]
    detail = {
        "cells": len(cells),
        "runs": RUNS,
        "lowest": {n: round(c.rate, 3) for n, c in sorted(cells.items(), key=lambda kv: kv[1].rate)[:5]},
        "median": round(float(np.median(rates)), 3),
        "broken": found,
    }
    return Result(float(len(found)), 0.0, "lower", unit="cells", detail=detail)


def curves() -> dict[str, Cell]:
    """Curve, median and restricted mean of one group, and the difference of means of two."""
    cells: dict[str, Cell] = {}
    for place, (name, people) in enumerate(POPULATIONS.items()):
        one = KaplanMeier("time", "event", quantiles=(people.prob,))
        two = KaplanMeier("time", "event", by="arm")
        for rows in SIZES:
            for epsilon in EPSILONS:
                rng = np.random.default_rng([place, rows, int(epsilon)])
                setting = f"{name}, n = {rows}, epsilon = {epsilon:g}"
                for run in range(RUNS):
                    drawn, arm = people.draw(rng, rows), rng.integers(0, 2, rows)
                    if run % _WHOLE == 0:
                        estimates = released(one, drawn, arm, epsilon, run).estimates
                    else:
                        estimates = finished(one, counted(drawn)[None], epsilon, rng).estimates
                    for edge in (1, 5, 10, 15, 20):
                        cell = cells.setdefault(f"{setting}, survival at {EDGES[edge]:g}", Cell())
                        cell.add(estimates[edge - 1], people.survival(float(EDGES[edge])))
                    middle, mean = estimates[BINS], estimates[BINS + 1]
                    width = 1 / BINS
                    cells.setdefault(f"{setting}, quantile", Cell()).add(middle, people.quantile, width)
                    cells.setdefault(f"{setting}, mean", Cell()).add(mean, people.mean)
                    groups = np.array([counted((drawn[0][arm == g], drawn[1][arm == g])) for g in (0, 1)])
                    apart = finished(two, groups, epsilon, rng).estimates[-1]
                    cells.setdefault(f"{setting}, difference of means", Cell()).add(apart, 0.0)
    return cells


COVERED: list[Callable[[], dict[str, Cell]]] = [curves]
"""What `survival.coverage` adds up."""


@bench("survival.coverage")
def coverage() -> Result:
    """How many cells of curves, medians and restricted means cover too seldom or too often."""
    return broken({name: cell for part in COVERED for name, cell in part().items()})


def _tree(bins: int) -> Floats:
    """Return the intervals of a dyadic tree over bins, each a row, scaled to a longest column of 1."""
    levels, rows = math.ceil(math.log2(bins)), []
    for level in range(levels + 1):
        width = 2 ** (levels - level)
        rows += [[start <= i < start + width for i in range(bins)] for start in range(0, bins, width)]
    return np.array(rows, np.float64) / math.sqrt(levels + 1)


def _central(counts: Floats, matrix: Floats, noise: float, rng: Random) -> Floats:
    """Return the falling curve of counts that a curator released by a matrix for each series."""
    noisy = [matrix @ series + noise * rng.normal(size=len(matrix)) for series in counts]
    inverse = np.linalg.inv(matrix.T @ matrix)
    found = np.array([inverse @ matrix.T @ each for each in noisy])
    found += inverse.sum(1) * (counts.sum() - found.sum()) / (2 * inverse.sum())
    censored, events = found
    at_risk = np.cumsum((censored + events)[::-1])[::-1][:-1]
    share = np.where(at_risk > 1, events[:-1] / np.maximum(at_risk, 1.0), 0.0)
    fall = IsotonicRegression(increasing=False, y_min=0, y_max=1)
    return np.asarray(fall.fit_transform(np.arange(BINS), np.cumprod(1 - np.minimum(share, 1.0))))


def _curve(counts: Floats, edges: Floats, noise: float, rng: Random, *, at_edges: bool) -> SurvivalCurve:
    released = counts @ woven(counts.shape[1]).matrix.T + noise * rng.normal(size=counts.shape)
    (table,) = risk_tables(released[None], noise, float(counts.sum()), at_edges)
    return SurvivalCurve(edges, table)


def _adaptive(rows: Rows, epsilon: float, rng: Random) -> Floats:
    """Return the curve at the edges from bins that a first stage has chosen, a fifth of the budget."""
    fine = np.linspace(0.0, 1.0, 65)
    first, second = spread(epsilon) / math.sqrt(0.2), spread(epsilon) / math.sqrt(0.8)
    counts = counted(rows, fine)
    table = _curve(counts, fine, first, rng, at_edges=True).table
    exits = np.cumsum(table.deaths + table.censored[:-1])
    wanted = np.linspace(0, exits[-1], BINS + 1)[1:-1]
    inner = fine[1:][np.searchsorted(exits, wanted).clip(max=63)]
    edges = np.unique(np.concatenate([[0.0], inner, [1.0]]))
    curve = _curve(counted(rows, edges), edges, second, rng, at_edges=False)
    logs = np.log(np.maximum(curve.survival, 1e-9))
    return np.exp(np.interp(EDGES[1:], edges, logs))


@bench("survival.km")
def km() -> Result:
    """The mean absolute error of the curve over that of the better central mechanism: see above."""
    rows, epsilon = 1000, 1.0
    detail: dict[str, Any] = {"runs": RUNS, "rows": rows, "epsilon": epsilon}
    ratios = []
    ours, curator = spread(epsilon), spread(epsilon, sites=False) / woven(BINS + 1).norm
    for place, (name, people) in enumerate(POPULATIONS.items()):
        rng, errors = np.random.default_rng([7, place]), {}
        for _ in range(RUNS):
            drawn = people.draw(rng, rows)
            counts = counted(drawn)
            truth = _curve(counts, EDGES, 0.0, rng, at_edges=True).survival[1:]
            found = {
                "ours": _curve(counts, EDGES, ours, rng, at_edges=True).survival[1:],
                "central, flat": _central(counts, np.eye(BINS + 1), curator, rng),
                "central, dyadic tree": _central(counts, _tree(BINS + 1), curator, rng),
                "adaptive edges": _adaptive(drawn, epsilon, rng),
            }
            for mechanism, curve in found.items():
                errors.setdefault(mechanism, []).append(float(np.abs(curve - truth).mean()))
        means = {mechanism: round(float(np.mean(each)), 5) for mechanism, each in errors.items()}
        ratios.append(means["ours"] / min(means["central, flat"], means["central, dyadic tree"]))
        detail[name] = {**means, "ratio": round(ratios[-1], 3)}
    return Result(max(ratios), 1.3, "lower", detail=detail)


def _arms(rng: Random, rows: int, share: float, ratio: float = 1.0, *, earlier: bool = False) -> Floats:
    """Return counts of two arms; `ratio` is the second one's hazard ratio, which may be censored earlier."""
    arm = (rng.random(rows) < share).astype(int)
    events = rng.exponential(1 / 1.2, rows) / np.where(arm == 1, ratio, 1.0)
    ends = np.where((arm == 1) & earlier, rng.uniform(0.1, 1.0, rows), rng.uniform(0.3, 2.0, rows))
    times, had = _until(events, ends)
    return np.array([counted((times[arm == each], had[arm == each])) for each in (0, 1)])


@bench("survival.logrank")
def logrank() -> Result:
    """How many of these do not hold: sizes of .04 to .06 at 228 rows, and twice the data at 2,000 rows.

    The data is how many times 2,000 rows the test needs at epsilon 1 for the 80% power that they have without
    noise, found by interpolating in the power at 1 to 2.5 times as many.
    """
    runs, analysis = 4000, LogRank("time", "event", by="arm")
    settings: dict[str, dict[str, Any]] = {
        "equal arms": {"share": 0.5},
        "unequal arms": {"share": 0.3},
        "unequal arms, one censored earlier": {"share": 0.3, "earlier": True},
    }
    sizes = {}
    for place, (name, options) in enumerate(settings.items()):
        rng = np.random.default_rng([11, place])
        found = [finished(analysis, _arms(rng, 228, **options), 1.0, rng).model.p_value for _ in range(runs)]
        sizes[name] = sum(p is not None and p < 0.05 for p in found) / runs
    rows, wanted, tries, multiples = 2000, 0.8, 1000, [1.0, 1.25, 1.5, 1.75, 2.0, 2.5]
    events = 0.577 * rows  # of these people
    ratio = math.exp(-2 * (float(ndtri(0.975)) + float(ndtri(wanted))) / math.sqrt(events))
    powers = {}
    for epsilon in (math.inf, 1.0):
        for multiple in multiples[:1] if epsilon == math.inf else multiples:
            rng, hits = np.random.default_rng([13, int(100 * multiple)]), 0
            for _ in range(tries):
                counts = _arms(rng, int(multiple * rows), 0.5, ratio)
                hits += finished(analysis, counts, epsilon, rng).model.p_value < 0.05
            powers[f"epsilon {epsilon:g}, {multiple:g} times"] = hits / tries
    plain = powers.pop("epsilon inf, 1 times")
    private = list(powers.values())
    needed = float(np.interp(plain, private, multiples)) if private[-1] >= plain else math.inf
    wrong = sum(not 0.04 <= size <= 0.06 for size in sizes.values()) + (needed > 2.0)
    detail = {
        "runs": runs,
        "size at 228 rows": sizes,
        "power without noise": plain,
        "power": powers,
        "times the data": round(needed, 2),
        "published": "size below .15",
    }
    return Result(float(wrong), 0.0, "lower", unit="bars", detail=detail)
