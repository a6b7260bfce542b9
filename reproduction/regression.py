"""The paper's linear regressions: capeFM as published, what it is compared with, and the product's own.

*As published.* Three sums, of y², -2 y x and xx', each with noise for the nominal (epsilon, delta) as if it
were released alone, of sensitivity 1, 4 and sqrt(2); the minimiser of the noisy quadratic is kept finite by
the box |w_d| <= 1, which the paper does not mention. Noise in all entries of the D x D matrix is the same as
noise over sqrt(2) above the diagonal of a symmetric one, which is what is released here.

*At equal true (epsilon, delta).* The same noise, its shape unchanged, scaled so that the exact accountant
finds (epsilon, delta) for all three sums together, colluders and correlated noise included.

*The product.* `cape.LinearRegression`: ring masks, joint calibration, a ridge that the noise sets.

Everything but the methods of a trusted curator goes through `cape.Consortium`. `Shortcut` replaces the
messages of a scheme by exact sums and one draw of the total's noise, which has the same distribution:
tests/unit/reproduction/test_regression.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cape.analyses.regression.linear import LinearRegression
from cape.analyses.tensor_sums import joint
from cape.blocks import Design, Term
from cape.blocks.block import T_BITS
from cape.core.errors import TooNoisyWarning
from cape.data import Number, Schema
from cape.engine.calibration import RESOLUTION
from cape.engine.consortium import Consortium
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Query
from cape.engine.result import Release
from cape.engine.schemes import SCHEMES, Cost, Outcome, Parties, Scheme, Task
from cape.noise import SecureStream, discrete_gaussian
from cape.privacy import Budget, gaussian
from cape.show import Shown, Table
from cape.show.numbers import number
from cape.show.plain import plain
from cape.stats.estimates import Estimate
from cape.stats.matrices import symmetric
from reproduction import datasets
from reproduction.calibration import release_as_published
from reproduction.figure import Cell, Row
from reproduction.literature import Curator
from reproduction.literature.data import Pooled
from reproduction.literature.functional import LEAST_SQUARES
from reproduction.literature.noise import laplace_sums

__all__ = [
    "COMPARED",
    "SITES",
    "Experiment",
    "FunctionalMechanism",
    "Quadratic",
    "Shortcut",
    "Sweep",
    "compute",
    "experiment",
    "in_the_box",
]

Floats = NDArray[np.float64]
Calibration = Literal["published", "equal"]

SITES = 5
COMPARED = ("cape-gaussian", "conventional", "local")
CURATED = ("objective-perturbation", "output-perturbation-published")
FUNCTIONAL = ("dp-fm", "dp-fm-tight")
_MOST_ROWS = 30_000  # made-up data for all N is the first N of so many
_NOMINAL = 4  # a budget of 4 epsilon, of which 1/16 is nominally epsilon: what it truly costs must fit
_CODES = ("state", "fold")  # of Crime: numbers that mean nothing; the product's analysis leaves them out
_TERMS = (Term(0, (0.0, 0.0, 1.0)), Term(1, (0.0, 1.0)), Term(2))
_SENSITIVITIES = (1.0, 2.0, math.sqrt(2))  # of the sums of y², y x and xx', each alone


@dataclass(frozen=True, eq=False)
class Experiment:
    """Data at five sites, as the paper scales it: ||x|| <= 1, |y| <= 1."""

    data: datasets.Dataset
    sites: Mapping[str, Any]
    schema: Schema

    @property
    def own_features(self) -> tuple[str, ...]:
        """The features that the product's analysis uses."""
        return tuple(name for name in self.data.names if name not in _CODES)

    def loss(self, weights: Floats) -> float:
        """Return the true loss: the mean over the data of (y - x·w)²."""
        return float(np.square(self.data.y - self.data.X @ weights).mean())

    def error(self, weights: Floats) -> float | None:
        """Return err_w = |w - w*|/D, where w* is known."""
        truth = self.data.weights
        return None if truth is None else float(np.linalg.norm(weights - truth)) / len(truth)

    def pooled(self) -> Pooled:
        """Return all rows as a curator has them, on the grid that sites use."""
        grid = 1 << T_BITS
        x, y = (np.trunc(each * grid) / grid for each in (self.data.X, self.data.y))
        return Pooled(x, y, self.data.rows, intercept=False)


@lru_cache(maxsize=4)
def _whole(name: str, width: int, seed: int) -> datasets.Dataset:
    if name == "synthetic":
        return datasets.synthetic_regression(_MOST_ROWS, width, seed)
    if name == "unit-rows":
        made = datasets.synthetic_regression(_MOST_ROWS, width, seed)
        X = made.X / (np.linalg.norm(made.X, axis=1, keepdims=True) * (1 + 2.0**-50))
        return replace(made, X=X, y=X @ made.weights)
    if name == "twitter":
        return datasets.load_twitter(rows=20_000)
    crime = datasets.load_crime(columns="paper")
    X, y = datasets.as_in_the_paper(crime.X, crime.y)
    return replace(crime, X=X, y=y)


@lru_cache(maxsize=8)
def experiment(name: str, width: int, rows: int, seed: int) -> Experiment:
    """Return the first rows of one of the paper's data sets, split evenly.

    "unit-rows" is "synthetic" with each row scaled to length 1 by itself, and y made from that.
    """
    part = _whole(name, width, seed).take(rows)
    schema = Schema({column: Number(-1.0, 1.0, missing=False) for column in (*part.names, part.target)})
    return Experiment(part, part.split(SITES), schema)


@lru_cache(maxsize=8)
def _coefficients(name: str, width: int, rows: int, seed: int) -> tuple[int, ...]:
    return tuple(LEAST_SQUARES.coefficients(experiment(name, width, rows, seed).pooled()))


@dataclass(frozen=True, eq=False, repr=False)
class Quadratic(Shown):
    """A noisy mean loss: constant + first·w + w'second w."""

    constant: float
    first: Floats
    second: Floats

    def __call__(self, w: Floats) -> float:
        """Return its value."""
        return float(self.constant + self.first @ w + w @ self.second @ w)

    def tables(self) -> list[Table]:
        """Return the linear part, and the diagonal of the quadratic one."""
        rows = tuple(
            (f"w[{i}]", number(float(a)), number(float(b)))
            for i, (a, b) in enumerate(zip(self.first, np.diag(self.second), strict=True))
        )
        return [Table(("", "linear", "quadratic"), rows)]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return plain({"constant": self.constant, "first": self.first, "second": self.second})


@dataclass(frozen=True)
class FunctionalMechanism(Analysis):
    """The sums that capeFM releases, with noise in the paper's proportions.

    `alone` calibrates each of the three as if the others were not released, as the paper does; otherwise the
    sensitivity is that of all together.
    """

    kind: ClassVar[str] = "functional-mechanism"
    target: str
    features: tuple[str, ...]
    alone: bool

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the sums of y², yx and xx'."""
        weights = tuple(1 / each**2 for each in _SENSITIVITIES)
        together = joint(Design(self.features, self.target, 1.0), _TERMS, weights, schema, neighbours)
        return replace(together, sensitivity=1.0) if self.alone else together

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return the minimiser in the box, without errors, and the noisy loss as the model."""
        _, yy, xy, square, *cross = answer.sums[0]
        assert answer.rows is not None
        above = cross[0] if cross else np.zeros(0)
        loss = Quadratic(
            float(yy[0]) / answer.rows, -2 * xy / answer.rows, symmetric(square, above) / answer.rows
        )
        found = in_the_box(loss)
        named = zip(self.features, found, strict=True)
        return AnalysisResult([Estimate(name, float(w), math.nan, math.nan) for name, w in named], loss)

    def expected(
        self,
        schema: Schema,
        noise: Sequence[Sequence[float]],
        rows: int,
        neighbours: Neighbours = "replace-one",
    ) -> dict[str, float]:
        """Return that nothing is known of the error beforehand."""
        return dict.fromkeys(self.features, math.nan)

    def describe(self) -> str:
        """Return one line."""
        return f"capeFM for {self.target} on {len(self.features)} features"


def in_the_box(loss: Quadratic) -> Floats:
    """Return where a quadratic is least within |w_d| <= 1; where it is not convex, a local minimum.

    The descent starts at 0, so that it ends no higher than the zero predictor, by the noisy loss.
    """
    second = loss.second + loss.second.T
    size = float(np.abs(second).max()) + float(np.abs(loss.first).max()) or 1.0  # units do not matter

    def value(w: Floats) -> tuple[float, Floats]:
        return (
            float(loss.first @ w + w @ second @ w / 2) / size,
            np.asarray((loss.first + second @ w) / size),
        )

    width = len(loss.first)
    found = minimize(
        value,
        np.zeros(width),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-1.0, 1.0)] * width,
        options={"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-11, "maxcor": 30},
    )
    return np.asarray(found.x, np.float64)


class Shortcut(Scheme):
    """Exact sums and one draw of the noise that a scheme leaves in the total, without its messages."""

    rounds = ("message",)

    def __init__(self, scheme: str) -> None:
        self._like = SCHEMES[scheme]()
        self.name = self._like.name  # type: ignore[misc]  # it says what it stands for

    def local_std(self, mu: float, parties: Parties) -> float | None:
        """Return a site's own noise, as the scheme has it."""
        return self._like.local_std(mu, parties)

    def cost_mu(self, local_std: float, parties: Parties) -> float:
        """Return what the scheme costs."""
        return self._like.cost_mu(local_std, parties)

    def total_std(self, local_std: float, parties: Parties) -> float:
        """Return the noise in the total."""
        return self._like.total_std(local_std, parties)

    def noisy(self, rows: Mapping[str, int], drop: Mapping[str, str]) -> set[str]:
        """Return nobody: the noise of all sites together is drawn at once."""
        return set()

    def run(self, task: Task) -> Outcome:
        """Return the sums of the sites that the scheme would ask, and noise as all of theirs together."""
        names = tuple(task.vectors)
        if self.name == "local":
            names = (max(names, key=lambda name: (task.rows[name], name)),)
        std = RESOLUTION * math.sqrt(len(names))
        total = np.sum([task.vectors[name] for name in names], axis=0)
        noise = discrete_gaussian(std, total.size, task.keys)
        return Outcome(total + noise, std, names, Cost(0, 0, 0, 0.0))


@dataclass(frozen=True)
class Sweep:
    """One panel: a data set, and what is varied while all else stays."""

    data: str
    width: int
    variable: Literal["epsilon", "samples", "delta"]
    values: tuple[float, ...]
    fast: tuple[float, ...]
    reference: str
    rows: int = 0
    epsilon: float = 0.0
    delta: float = 0.0

    def cells(self, figure: str, fast: bool, runs: Sequence[int]) -> Iterator[Cell]:
        """Return one cell for each value and run."""
        for x in self.fast if fast else self.values:
            at = {"rows": self.rows, "epsilon": self.epsilon, "delta": self.delta}
            at["rows" if self.variable == "samples" else self.variable] = x
            rows = int(at["rows"])
            seconds = (0.4 if fast else 0.7) * (0.3 + rows * self.width / 1e6)
            for run in runs:
                yield Cell.of(
                    figure,
                    run,
                    seconds,
                    sweep=self.reference,
                    data=self.data,
                    width=self.width,
                    rows=rows,
                    epsilon=float(at["epsilon"]),
                    delta=float(at["delta"]),
                    x=float(x),
                    drawn=0 if self.data in ("crime", "twitter") else runs[0],
                    shortcut=fast,
                )

    @property
    def held(self) -> str:
        """What stays, for a title."""
        parts = {"samples": f"N = {self.rows:,}", "epsilon": f"ε = {self.epsilon:g}"}
        parts |= {"delta": f"δ = {self.delta:g}"}
        return ", ".join(text for name, text in parts.items() if name != self.variable)


def compute(cell: Cell) -> list[Row]:
    """Return what every algorithm makes of one setting in one run."""
    key = cell.text("data"), cell.integer("width"), cell.integer("rows"), cell.integer("drawn")
    of = experiment(*key)
    setting = _Run(of, cell, key)
    with threadpool_limits(1), warnings.catch_warnings():  # two processes share the cores
        warnings.simplefilter("ignore", TooNoisyWarning)
        rows = [*setting.published(), *setting.equal(), *setting.alike()]
    common: Row = {name: cell[name] for name in ("sweep", "x", "data", "width", "rows", "epsilon", "delta")}
    return [common | row for row in rows]


class _Run:
    """All algorithms at one setting."""

    def __init__(self, of: Experiment, cell: Cell, key: tuple[str, int, int, int]) -> None:
        self._of, self._cell, self._key = of, cell, key
        self._epsilon, self._delta = cell.number("epsilon"), cell.number("delta")

    def published(self) -> Iterator[Row]:
        """Return capeFM, conv, local and dp-fm as published."""
        asked = FunctionalMechanism(self._of.data.target, self._of.data.names, alone=True)
        together = replace(asked, alone=False).query(self._of.schema, "replace-one").sensitivity
        for scheme in COMPARED:
            budget = Budget(_NOMINAL * self._epsilon, self._delta)
            release = self._release(asked, scheme, budget, 1 / _NOMINAL**2, "paper")
            true = gaussian.epsilon(self._delta, release.guarantee.mu * together)
            yield self._quadratic("published", scheme, release, true)
        for method in FUNCTIONAL:
            yield self._laplace(method)

    def equal(self) -> Iterator[Row]:
        """Return the same at the true (epsilon, delta), dp-fm with what its authors do after the noise."""
        asked = FunctionalMechanism(self._of.data.target, self._of.data.names, alone=False)
        budget = Budget(self._epsilon, self._delta)
        for scheme in COMPARED:
            release = self._release(asked, scheme, budget, 1.0, "exact")
            yield self._quadratic("equal", scheme, release, release.guarantee.epsilon)
        for method in FUNCTIONAL:
            yield self._curated("equal", method)

    def alike(self) -> Iterator[Row]:
        """Return what is the same in both: the product, perturbation, least squares and predicting 0."""
        of = self._of
        own = LinearRegression(of.data.target, of.own_features, intercept=False, norm=1.0, errors="classical")
        release = self._release(own, "cape", Budget(self._epsilon, self._delta), 1.0, "exact")
        found = dict(zip(of.own_features, release.model.weights[1:], strict=True))
        weights = np.array([found.get(name, 0.0) for name in of.data.names])
        yield self._row("both", "cape", weights, release.guarantee.epsilon)
        for method in CURATED:
            yield self._curated("both", method)
        exact = np.asarray(np.linalg.lstsq(of.data.X, of.data.y, rcond=None)[0], np.float64)
        yield self._row("both", "none", exact, math.inf)
        yield self._row("both", "zero", np.zeros(of.data.X.shape[1]), 0.0)

    def _release(
        self,
        asked: Analysis,
        scheme: str,
        budget: Budget,
        share: float,
        calibration: Literal["exact", "paper"],
    ) -> Release:
        consortium = Consortium(
            self._of.sites,
            self._of.schema,
            budget,
            min_sites=len(self._of.sites),  # as in the paper: nobody is lost
            stream=self._stream(f"{calibration} {scheme} {asked.kind}"),
        )
        way = Shortcut(scheme) if self._cell["shortcut"] else SCHEMES[scheme]()
        if calibration == "paper":
            return release_as_published(consortium, asked, share, way)
        return consortium.release(asked, share, scheme=way)

    def _stream(self, label: str) -> SecureStream:
        return self._cell.stream(label)

    def _quadratic(self, calibration: str, scheme: str, release: Release, true: float) -> Row:
        weights = np.array([estimate.value for estimate in release.estimates])
        return self._row(calibration, scheme, weights, true, release.model(weights))

    def _laplace(self, method: str) -> Row:
        """Return dp-fm as published: Laplace noise on every coefficient, and the box."""
        width = self._of.data.X.shape[1]
        sensitivity = LEAST_SQUARES.sensitivities[method](width)
        stream = self._stream(f"box {method}")
        sums = _coefficients(*self._key)
        noisy, _ = laplace_sums(sums, LEAST_SQUARES.bits, sensitivity, self._epsilon, stream)
        first, second = LEAST_SQUARES.parts(noisy, width)
        n = self._of.data.rows
        loss = Quadratic(float(noisy[0]) / n, first / n, second / n)
        weights = in_the_box(loss)
        return self._row("published", method, weights, self._epsilon, loss(weights))

    def _curated(self, calibration: str, method: str) -> Row:
        of = self._of
        curator = Curator(
            of.sites, of.schema, Budget(self._epsilon, self._delta), stream=self._stream(method)
        )
        asked = LinearRegression(of.data.target, of.data.names, intercept=False, norm=1.0, errors="classical")
        release = curator.release(asked, 1.0, method=method)
        return self._row(calibration, method, np.array(release.model.weights[1:]), self._epsilon)

    def _row(
        self, calibration: str, algorithm: str, weights: Floats, true: float, noisy: float | None = None
    ) -> Row:
        return {
            "calibration": calibration,
            "algorithm": algorithm,
            "true_epsilon": None if math.isinf(true) else true,
            "loss": self._of.loss(weights),
            "noisy_objective": noisy,
            "err_w": self._of.error(weights),
        }
