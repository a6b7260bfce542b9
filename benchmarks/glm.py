"""Generalised linear models: error beside a trusted curator's and without privacy, coverage, and time.

Tables are drawn anew each time and their true coefficients are known: features are normal, cut at three SDs,
and bounds of numeric targets are 10 to 30 SDs wide, as people choose them who do not know the data. Releases
are made of sums and noise by the analysis itself, without sites and grids: five sites, one of them colluding,
have noise sqrt(5/4) times a curator's. A time is that of a whole release of five sites.

`python -m benchmarks.glm RUNS [FAMILY ...]` prints every cell, on as many processes as there are cores.
"""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from benchmarks.harness import Result, bench, paired_seconds
from cape import privacy
from cape.analyses.regression.glm import GLM
from cape.blocks import Choices, Counts, Sandwich, Scores
from cape.blocks.block import Block
from cape.blocks.scores import counted
from cape.blocks.units import Units
from cape.data import Category, Number, Schema
from cape.engine.query import Answer
from cape.stats.estimates import Estimate
from tests.unit.analyses.regression.tables import influences, row_parts

Floats = NDArray[np.float64]
RUNS, WIDTH, DELTA, SITES = 400, 8, 1e-6, 5 / 4
SIZES, EPSILONS = (2_000, 50_000), (1.0, 3.0)
FAMILIES = (
    "gaussian",
    "logit",
    "probit",
    "cloglog",
    "poisson",
    "negative-binomial",
    "gamma",
    "multinomial",
    "ordinal",
)
LINKS = {"logit": "binomial", "probit": "binomial", "cloglog": "binomial"}
SLOPES = np.array([0.3 * (-1) ** i / (1 + i // 2) for i in range(WIDTH)])
SECOND = np.array([0.2 * (-1) ** (i // 2) / (1 + i // 2) for i in range(WIDTH)])
THRESHOLDS = np.array([-1.0, 0.2, 1.5])
INTERCEPT, ALPHA, SHAPE = 0.5, 0.5, 2.0
NUMBERS = {"gaussian": (-10, 10), "poisson": (0, 60), "negative-binomial": (0, 100), "gamma": (1e-3, 60)}


@dataclass(frozen=True)
class Case:
    """A family, with its tables and true coefficients, those of intercepts and thresholds among them."""

    family: str

    first: ClassVar[Floats] = SLOPES
    second: ClassVar[Floats] = SECOND
    thresholds: ClassVar[Floats] = THRESHOLDS
    intercept: ClassVar[float] = INTERCEPT
    bounds: ClassVar[Sequence[tuple[float, float]]] = [(-3.0, 3.0)] * WIDTH

    def features(self, rng: np.random.Generator, rows: int) -> Floats:
        return np.clip(rng.normal(size=(rows, WIDTH)), -3, 3)

    @property
    def names(self) -> list[str]:
        return [f"x{i}" for i in range(len(self.first))]

    @property
    def analysis(self) -> GLM:
        """True coefficients are those of columns up to their bounds: none is capped."""
        link = self.family if self.family in LINKS else None
        return GLM("y", self.names, LINKS.get(self.family, self.family), link, cap="none")

    @property
    def schema(self) -> Schema:
        levels = {"multinomial": 3, "ordinal": 4}.get(self.family, 2)
        target: Any = Category(tuple(range(levels)), missing=False)
        if self.family in NUMBERS:
            target = Number(*NUMBERS[self.family], missing=False)
        columns: dict[str, Any] = {
            name: Number(*ends, missing=False) for name, ends in zip(self.names, self.bounds, strict=True)
        }
        return Schema(columns | {"y": target})

    @property
    def truth(self) -> Floats:
        if self.family == "multinomial":
            return np.concatenate([[0.3], self.first, [-0.4], self.second])
        if self.family == "ordinal":
            return np.concatenate([self.thresholds, self.first])
        return np.concatenate([[self.intercept - (self.family == "cloglog")], self.first])

    @property
    def slopes(self) -> NDArray[np.bool_]:
        """Which coefficients are neither intercepts nor thresholds."""
        return np.isin(self.truth, np.concatenate([self.first, self.second]))

    def table(self, rng: np.random.Generator, rows: int) -> tuple[Floats, Floats]:
        x = self.features(rng, rows)
        truth, family = self.truth, self.family
        if family == "multinomial":
            odds = np.column_stack([np.ones(rows), x]) @ truth.reshape(2, -1).T
            p = np.exp(np.column_stack([np.zeros(rows), odds]))
            p /= p.sum(axis=1, keepdims=True)
            return x, (rng.random(rows)[:, None] > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1).astype(float)
        if family == "ordinal":
            latent = x @ self.first + rng.logistic(size=rows)
            return x, (latent[:, None] > self.thresholds).sum(axis=1).astype(float)
        eta = truth[0] + x @ truth[1:]
        mean = np.exp(eta)
        if family == "gaussian":
            return x, eta + rng.normal(size=rows)
        if family == "poisson":
            return x, rng.poisson(mean).astype(float)
        if family == "negative-binomial":
            return x, rng.negative_binomial(1 / ALPHA, 1 / (1 + ALPHA * mean)).astype(float)
        if family == "gamma":
            return x, np.maximum(rng.gamma(SHAPE, mean / SHAPE), 1e-3)
        p = {"logit": 1 / (1 + np.exp(-eta)), "probit": ndtr(eta), "cloglog": -np.expm1(-mean)}[family]
        return x, (rng.random(rows) < p).astype(float)

    def plain(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Maximum-likelihood coefficients, and their errors, by statsmodels."""
        import statsmodels.api as sm
        from statsmodels.miscmodels.ordinal_model import OrderedModel

        rows = sm.add_constant(x)
        if self.family == "multinomial":
            found = sm.MNLogit(y, rows).fit(disp=0)
            return found.params.T.ravel(), found.bse.T.ravel()
        if self.family == "ordinal":
            found = OrderedModel(y, x, distr="logit").fit(method="bfgs", disp=0, maxiter=200)
            ends = found.model.transform_threshold_params(found.params)[1:-1]
            errors = np.concatenate([np.full(len(ends), np.nan), found.bse[: len(self.first)]])
            return np.concatenate([ends, found.params[: len(self.first)]]), errors
        families, links = sm.families, sm.families.links
        family = {
            "gaussian": families.Gaussian(),
            "logit": families.Binomial(),
            "probit": families.Binomial(links.Probit()),
            "cloglog": families.Binomial(links.CLogLog()),
            "poisson": families.Poisson(),
            "negative-binomial": families.NegativeBinomial(alpha=ALPHA),
            "gamma": families.Gamma(links.Log()),
        }[self.family]
        fitted = sm.GLM(y, rows, family=family).fit(cov_type="HC0")
        return fitted.params, fitted.bse


class Skewed(Case):
    """Features as registries have them: one whose bounds are far beyond most values, one that most rows have,
    and one that is normal. The first moves predictors by 16 as it goes through its bounds.
    """

    first = np.array([0.2, 0.8, -0.4])
    second = np.array([0.1, -0.5, 0.3])
    thresholds = np.array([0.5, 1.8, 3.0])
    intercept = -0.5
    bounds = ((0.0, 80.0), (0.0, 1.0), (-3.0, 3.0))

    def features(self, rng: np.random.Generator, rows: int) -> Floats:
        usual, common = rng.exponential(size=rows), rng.random(rows) < 0.85
        return np.column_stack([usual, common, np.clip(rng.normal(size=rows), -3, 3)])


class Rows:
    """The rows of a table as sites make them, and the sums that a block asks for, to rounding."""

    def __init__(self, case: Case, x: Floats, y: Floats) -> None:
        self._case, self._raw, self._y = case, x, y

    def sums(self, block: Block) -> list[Floats]:
        schema, design = self._case.schema, block.vectors
        if isinstance(block, Counts):
            return [self._counts(block)]
        assert design is not None
        x = Units(replace(design, intercept=0.0), schema).rows(self._raw)
        if design.intercept:
            x = np.column_stack([np.full(len(x), design.intercept), x]) / math.hypot(1.0, design.intercept)
        if isinstance(block, Choices):
            return self._choices(block, np.ascontiguousarray(x.T))
        if isinstance(block, Scores):
            return self._scores(block, x)
        column = schema.number("y")
        t = (self._y - column.middle) / column.half
        if isinstance(block, Sandwich):
            w = influences(block, x, t)
            square = w.T @ w
            return [np.diag(square).copy(), square[np.triu_indices(len(square), 1)]]
        return [part.sum(axis=0) for part in row_parts(block, x, t)]

    def _counts(self, block: Counts) -> Floats:
        (axis,) = block.axes
        column = self._case.schema[axis.column]
        cells = self._y if axis.column == "y" else self._raw[:, self._case.names.index(axis.column)]
        if not isinstance(column, Number) or axis.edges is None:
            return np.bincount(cells.astype(int), minlength=len(column.values)).astype(float)  # type: ignore[union-attr]
        return np.histogram(np.clip(cells, column.low, column.high), axis.edges)[0].astype(float)

    def _scores(self, block: Scores, x: Floats) -> list[Floats]:
        u = x @ np.array(block.turn).T
        y = block.capped(self._y)
        g, h, lengths, told = block.at(x @ np.array(block.weights), y, np.ascontiguousarray(u.T), None)
        squares = (u * u).sum(axis=1)
        g = g * np.minimum(1.0, block.bound / np.maximum(lengths, 1e-300))
        h = h * np.minimum(1.0, block.curve / np.maximum(h * squares, 1e-300))
        found = [np.array([float(len(x))]), g @ u / block.bound]
        for each, unit in ((h, block.curve), (g * g, block.bound**2)):
            square = (u * each[:, None]).T @ u / unit
            found += [np.diag(square).copy(), square[np.triu_indices(len(square), 1)]]
        found += [counted(block.lengths, lengths).astype(float)] if block.lengths else []
        return found + ([np.array([told.sum()])] if block.deviance else [])

    def _choices(self, block: Choices, x: Floats) -> list[Floats]:
        rows = block.at(x, self._y.astype(int), None, 1.0)
        lengths = np.linalg.norm(rows.scores, axis=1)
        s = rows.scores * np.minimum(1, block.bound / lengths)[:, None]
        norms = np.linalg.norm(rows.roots @ rows.roots.transpose(0, 2, 1), axis=(1, 2))
        z = rows.roots * np.sqrt(np.minimum(1, block.curve / norms))[:, None, None]
        z = z.reshape(-1, block.size)
        deviance = block.shortened(rows.deviance).sum()
        found = _arrays(
            len(s), s.sum(axis=0) / block.bound, z.T @ z / block.curve, s.T @ s / block.bound**2, deviance
        )
        if block.lengths:
            found.insert(-1, np.histogram(lengths, [-1, *block.lengths, math.inf])[0].astype(float))
        return found


def _arrays(rows: int, score: Floats, curvature: Floats, spread: Floats, told: float) -> list[Floats]:
    above = np.triu_indices(len(score), 1)
    found = [np.array([float(rows)]), score]
    for square in (curvature, spread):
        found += [np.diag(square).copy(), square[above]]
    return [*found, np.array([told])]


def conducted(case: Case, rows: Rows, count: int, mu: float, rng: np.random.Generator) -> Sequence[Estimate]:
    """The estimates of one release at this mu."""
    analysis = case.analysis
    conversation = analysis.conduct(case.schema, "replace-one")
    query = next(conversation)
    for share in analysis.stages():
        unit = query.sensitivity / mu / math.sqrt(share)
        noise = tuple(tuple(unit * scale for scale in scales) for scales in query.scales)
        sums = tuple(
            tuple(a + s * rng.normal(size=a.shape) for a, s in zip(rows.sums(block), each, strict=True))
            for block, each in zip(query.blocks, noise, strict=True)
        )
        try:
            query = conversation.send(Answer(sums, noise, count, case.schema))
        except StopIteration as stop:
            return stop.value.estimates  # type: ignore[no-any-return]
    raise AssertionError("it asked more often than it has stages")


@dataclass(frozen=True)
class Run:
    """Errors of one table: without privacy, of a curator, and of sites, for each epsilon; and what covers."""

    plain: Floats
    curator: dict[float, Floats]
    sites: dict[float, Floats]
    covered: dict[float, NDArray[np.bool_]]
    widths: dict[float, Floats]


def run(case: Case, rows: int, seed: int, epsilons: Sequence[float] = EPSILONS, curator: bool = False) -> Run:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, rows])
    x, y = case.table(rng, rows)
    plain, _ = case.plain(x, y) if curator else (case.truth, np.ones(len(case.truth)))
    made, found = Rows(case, x, y), Run(plain - case.truth, {}, {}, {}, {})
    for epsilon in epsilons:
        mu = float(privacy.mu(epsilon, DELTA))
        for kept, noise in ((found.curator, 1.0), (found.sites, SITES)):
            if kept is found.curator and not curator:
                continue
            told = conducted(case, made, rows, mu / math.sqrt(noise), np.random.default_rng([seed, 1]))
            kept[epsilon] = np.array([each.value for each in told]) - case.truth
            if kept is found.sites:
                ends = np.array([each.interval(0.95) for each in told])
                found.covered[epsilon] = (ends[:, 0] <= case.truth) & (case.truth <= ends[:, 1])
                sampling = np.array([each.sampling for each in told])
                found.widths[epsilon] = (ends[:, 1] - ends[:, 0]) / 3.92 / np.maximum(sampling, 1e-9)
    return found


def runs(case: Case, rows: int, many: int, **how: Any) -> list[Run]:
    """As many runs, on all cores."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(partial(run, case, rows, **how), range(many), chunksize=4))


def curated(family: str, many: int, rows: int = 50_000, epsilon: float = 1.0) -> tuple[float, float]:
    """The squared error of slopes at five sites, over a curator's, and over that without privacy."""
    case = Case(family)
    found, slopes = runs(case, rows, many, epsilons=(epsilon,), curator=True), case.slopes

    def squared(errors: list[Floats]) -> float:
        return float(np.mean(np.square(errors)[:, slopes]))

    sites = squared([each.sites[epsilon] for each in found])
    return (
        sites / squared([each.curator[epsilon] for each in found]),
        sites / squared([each.plain for each in found]),
    )


@bench("glm.curator")
def curator() -> Result:
    """The worst family beside its bars: 1.35 times a curator's squared error, 1.5 times the non-private."""
    found = {family: curated(family, RUNS // 4) for family in FAMILIES}
    worst = max(max(curator / 1.35, plain / 1.5) for curator, plain in found.values())
    detail = {family: [round(each, 3) for each in both] for family, both in found.items()}
    return Result(worst, 1.0, "lower", detail=detail)


def cells(case: Case, many: int) -> Iterator[tuple[str, float, float, float]]:
    """For each size, epsilon and coefficient: the share that covers, and the width beside sampling's."""
    family = case.family
    for rows in SIZES:
        found = runs(case, rows, many)
        for epsilon in EPSILONS:
            shares = np.mean([each.covered[epsilon] for each in found], axis=0)
            widths = np.median([each.widths[epsilon] for each in found], axis=0)
            for place, (share, width) in enumerate(zip(shares, widths, strict=True)):
                yield f"{family} {place}, n = {rows}, epsilon = {epsilon:g}", float(share), float(width), rows


@bench("glm.coverage")
def coverage() -> Result:
    """How many cells cover too little or, where sampling dominates, too much, by one-sided binomial tests."""
    return _judged([cell for family in FAMILIES for cell in cells(Case(family), RUNS)])


@bench("glm.skewed")
def skewed() -> Result:
    """The same for features that are skewed or unbalanced, with bounds far beyond most values."""
    return _judged([cell for family in FAMILIES for cell in cells(Skewed(family), RUNS)])


def _judged(found: list[tuple[str, float, float, float]]) -> Result:
    level, wrong = 0.05 / len(found), []
    for name, share, width, _ in found:
        hits = round(share * RUNS)
        low = binom.cdf(hits, RUNS, 0.93) < level
        high = width < 1.1 and binom.sf(hits - 1, RUNS, 0.985) < level
        if low or high:
            wrong.append(f"{name}: {share:.3f}")
    least = min(found, key=lambda cell: cell[1])
    return Result(len(wrong), 0, "lower", unit="cells", detail={"wrong": wrong, "least": least[:2]})


@bench("glm.time")
def seconds() -> Result:
    """A release of 100,000 x 20 counts at five sites, over the fit of statsmodels."""
    import polars as pl
    import statsmodels.api as sm

    from cape import Budget
    from cape.engine.consortium import Consortium

    rng = np.random.default_rng(1)
    x = np.clip(rng.normal(size=(100_000, 20)), -3, 3)
    y = rng.poisson(np.exp(0.5 + x @ np.full(20, 0.1))).astype(float)
    names = [f"x{i}" for i in range(20)]
    frame = pl.DataFrame(x, schema=names).with_columns(y=pl.Series(y))
    schema = Schema(
        {name: Number(-3, 3, missing=False) for name in names} | {"y": Number(0, 60, missing=False)}
    )
    sites = {f"site {i}": frame[i * 20_000 : (i + 1) * 20_000] for i in range(5)}

    def ours() -> None:
        consortium = Consortium(sites, schema, Budget(1.0, 1e-6), colluding=1)
        consortium.release(GLM("y", names, "poisson"), 1.0)

    def reference() -> None:
        sm.GLM(y, sm.add_constant(x), family=sm.families.Poisson()).fit()

    mine, theirs = paired_seconds(ours, reference, repeat=5)
    return Result(
        mine / theirs, 2.0, "lower", detail={"ours": round(mine, 3), "statsmodels": round(theirs, 3)}
    )


if __name__ == "__main__":
    many = int(sys.argv[1])
    for family in sys.argv[2:] or FAMILIES:
        began = time.perf_counter()
        print(family, "over a curator, over no privacy:", *(f"{r:.3f}" for r in curated(family, many // 4)))
        for made in (Case, Skewed):
            for name, share, width, _ in cells(made(family), many):
                print(f"{made.__name__} {name}: covers {share:.3f}, {width:.2f} times sampling's width")
        print(f"{time.perf_counter() - began:.0f} seconds", flush=True)
