"""How well a public model predicts rows, best those that it was not fitted on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cape.analyses.evaluate.bins import Bins, cell_edges, how_many, smoothed
from cape.analyses.evaluate.errors import ERRORS_WEIGHT, ErrorSums
from cape.analyses.evaluate.errors_model import ErrorModel
from cape.analyses.evaluate.risk import Losses, RankSums, RiskTable
from cape.analyses.evaluate.risk_model import RiskModel
from cape.analyses.influence import STAGES
from cape.analyses.moments import Weights
from cape.analyses.predictor import Predictor, supposed
from cape.blocks import Design
from cape.blocks.predicted import Errors, ErrorSquares, RiskCounts, Risks
from cape.blocks.typical import vectors
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Schema
from cape.engine.arguments import joined
from cape.engine.query import (
    Analysis,
    AnalysisResult,
    Answer,
    Conversation,
    Neighbours,
    Noise,
    Query,
)
from cape.stats.estimates import Estimates, warn_of_unknown

__all__ = ["Evaluate"]

_MOST_BINS = 200
_STAGES = (0.1, 0.9)  # of the share, for cells of risk and for bins
_RANKS, _LOSSES = 2.0, 2.0  # the scales of ranks and of squared errors
_TYPICAL = 1024  # rows
_EARLIEST = 10_000


@dataclass(frozen=True, init=False)
class Evaluate(Analysis):
    """How well a model, released before or given from outside, predicts the rows that count.

    >>> Evaluate(model, where="held_out"), Evaluate(model, where="held_out", threshold=0.2)
    >>> Evaluate({"target": "ill", "link": "logit", "intercept": -4.1, "coefficients": {"age": 0.05}})

    For a target of two categories: the AUC, the Brier score, and at a threshold sensitivity, specificity and
    predictive values, with the ROC curve, a calibration plot and the confusion matrix; all from one table of
    counts by bins of predicted risk and by outcome, with sums of ranks inside of bins and of squared errors.
    A first stage counts risks in narrow cells, so that bins have about equal numbers of rows. For a number:
    root mean squared error and R². Sites predict from the model's public coefficients, cells cut to their
    bounds; rows that miss a cell are left out.

    On rows that the model was fitted on, all of this is too good. `[person]` with `keep_apart = 0.2` gives a
    study the column `held_out`: fit with `where="not held_out"`, evaluate with `where="held_out"`.

    In a study file `model` is the number of an earlier analysis, a JSON file, or a table of coefficients.

    **Sensitivity.** *Risks*, first stage: a row adds 1 to one cell: sqrt(2) under replace-one, 1 under
    add-remove and against a row that misses a cell. Second stage, whatever its bins and ranks are: a row adds
    1 to one of 2 B counts, a rank in [-1, 1], at scale 2, to one of 2 B entries, and a squared error in [0,
    1], at scale 2, to one number. Alone that is 1 + 1/4 + 1/4 at most: sqrt(3/2) under add-remove. Two rows
    of one bin and outcome differ by 2²/4 + 1/4 at most, all others by 2 + 2/4 + 1/4: sqrt(11/4) under
    replace-one.
    *Errors*: sums of t, t² and the count with weights 1, 5/2 and 1/2 move by 4 (`moments`), and that of e² in
    [0, 1], with weight 16, by 16: sqrt(20) under both. The second stage adds two squares in [0, 1]: sqrt(2).

    Args:
        model: a release, its model, or a mapping with target, link, intercept and coefficients; in a study
            file the number of an earlier analysis of the same study.
        threshold: the risk from which on a row counts as predicted to have the event; 0.5 by default.
        bins: how many bins of predicted risk, about equally full; by default 20, and fewer, down to 5, where
            noise outweighs the rows of a bin. Or their `edges`, between 0 and 1.
    """

    kind: ClassVar[str] = "evaluate"
    example: ClassVar[dict[str, Any]] = {
        "model": {
            "target": "disease",
            "link": "logit",
            "intercept": -1.0,
            "coefficients": {"age": 0.02},
        },
        "bins": 4,
    }
    model: Predictor | int
    threshold: float | None
    bins: int | None
    edges: tuple[float, ...] | None
    after: tuple[str, tuple[str, ...], str] | None = field(repr=False)
    """Target, features and link of the earlier analysis that `model` numbers."""

    def __init__(
        self,
        model: Any,
        *,
        threshold: float | None = None,
        bins: int | None = None,
        edges: Iterable[float] | None = None,
    ) -> None:
        if isinstance(model, int) and not isinstance(model, bool):
            found: Predictor | int = check.integer("model", model, least=1, most=_EARLIEST)
        else:
            found = Predictor.of(model)
        if edges is not None and bins is not None:
            raise InvalidInput("either edges or bins must be given, not both")
        if edges is not None and (isinstance(edges, (str, bytes)) or not isinstance(edges, Iterable)):
            raise InvalidInput(
                f"edges must be risks that rise, as in [0.05, 0.1, 0.2], not {check.show(edges)}"
            )
        cut = None
        if edges is not None:
            ends = sorted({0.0, 1.0, *(check.real("edges", edge, least=0.0, most=1.0) for edge in edges)})
            if not 3 <= len(ends) <= _MOST_BINS + 1:
                raise InvalidInput(f"edges must be 1 to {_MOST_BINS - 1} risks between 0 and 1")
            cut = tuple(ends[1:-1])
        self._set(
            model=found,
            threshold=None if threshold is None else _risk("threshold", threshold),
            bins=None if bins is None else check.integer("bins", bins, least=2, most=_MOST_BINS),
            edges=cut,
            after=None,
        )

    @property
    def follows(self) -> int | None:
        return self.model if isinstance(self.model, int) else None

    def told(self, analysis: Analysis, model: Any = None) -> Evaluate:
        target, features = getattr(analysis, "target", None), getattr(analysis, "features", None)
        link = getattr(analysis, "link", None) or _LINKS.get(analysis.kind)
        if getattr(analysis, "offset", None) is not None:
            raise InvalidInput(f"model = {self.model} has an offset, and cannot be evaluated")
        if not isinstance(target, str) or not features or not isinstance(link, str):
            raise InvalidInput(
                f"model = {self.model} must be the number of a linear or logistic regression, or of a GLM; "
                f"analysis {self.model} is of kind {analysis.kind!r}"
            )
        after = target, tuple(features), link
        if model is None:
            return self.changed(after=after)
        if isinstance(model, Mapping):  # what results.json holds of a model
            model = {**model, "target": target, "features": list(features), "link": link}
        found = Predictor.of(model)
        if (found.target, found.features, found.link) != after:
            raise InvalidInput(f"the model of analysis {self.model} must be that of {analysis.describe()}")
        return self.changed(model=found, after=after)

    def _about(self) -> tuple[str, tuple[str, ...], str]:
        if isinstance(self.model, Predictor):
            return self.model.target, self.model.features, self.model.link
        if self.after is None:
            raise InvalidInput(
                f"model = {self.model} refers to an analysis of a study file; give the release itself here"
            )
        return self.after

    def _weights(self, schema: Schema) -> tuple[float, ...]:
        if isinstance(self.model, Predictor):
            return self.model.weights(schema)
        return supposed(*self._about(), schema)

    def _cells(self, schema: Schema) -> tuple[float, ...]:
        weights = np.array(self._weights(schema))
        mean, covariance = vectors(self._design(), schema)
        middle = float(weights[0] + weights[1:] @ mean)
        spread = math.sqrt(max(float(weights[1:] @ covariance @ weights[1:]), 0.0))
        return cell_edges(middle, spread, self._about()[2], (*(self.edges or ()), self._threshold))

    def _counts(self, schema: Schema) -> RiskCounts:
        """Return the block of the first stage."""
        return RiskCounts(self._design(), self._weights(schema), self._about()[2], self._cells(schema))

    def _binned(self, schema: Schema, shares: Floats, rows: float, noise: float) -> Bins:
        """Return the bins, from the shares of rows below edges of cells and the noise in a bin's counts."""
        cells = self._cells(schema)
        if self.edges:
            return Bins.at(cells, shares, (*self.edges, self._threshold))
        return Bins.at_quantiles(cells, shares, self.bins or how_many(rows, noise), self._threshold)

    def _typical_bins(self, schema: Schema, rows: float, noise: float) -> Bins:
        (counts,) = self._counts(schema).typical(schema, _TYPICAL)
        return self._binned(schema, np.append(0.0, np.cumsum(counts)) / counts.sum(), rows, noise)

    @property
    def _threshold(self) -> float:
        return 0.5 if self.threshold is None else self.threshold

    def _of_risks(self, schema: Schema) -> bool:
        target = self._about()[0]
        column = schema[target]
        if isinstance(column, Category):
            if len(column.values) != 2:
                raise InvalidInput(
                    f"target {target!r} must have two categories to be evaluated, not {len(column.values)}"
                )
            return True
        if (self.threshold, self.bins, self.edges) != (None, None, None):
            raise InvalidInput(f"threshold, bins and edges are for risks; target {target!r} is a number")
        return False

    def _design(self) -> Design:
        if isinstance(self.model, Predictor):
            return self.model.design()
        target, features, _ = self._about()
        return Design(features, target, cube=True)

    @property
    def decisive(self) -> int:  # type: ignore[override]
        """The stage of counts by bin and outcome, or of errors."""
        return 0 if self._of_numbers else 1

    @property
    def _of_numbers(self) -> bool:
        return self._about()[2] in ("identity", "log", "inverse")

    def stages(self) -> tuple[float, ...]:
        return STAGES if self._of_numbers else _STAGES

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """As by default, and the smoothing of the first stage's counts, which inverts a matrix of cells."""
        return super().effort(schema, results) + sum(2e-8 * size**3 for size in results[:1])

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the sums of errors; of risks the last stage, as typical rows would make it."""
        design, link = self._design(), self._about()[2]
        if self._of_risks(schema):
            return self._of_bins(schema, neighbours, self._typical_bins(schema, math.inf, 0.0))
        if not self._of_numbers:
            raise InvalidInput(f"the target of a model with link {link!r} must have two categories")
        errors = Errors(design, self._weights(schema), link)
        errors.arrays(schema)
        weights = Weights(1.0, 2.5, 0.5)
        moved = weights.moved(neighbours, design.missing(schema)) + ERRORS_WEIGHT
        return Query((errors,), ((*weights.scales, 1 / math.sqrt(ERRORS_WEIGHT)),), math.sqrt(moved))

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for cells and then for bins of risks; or for errors, and then for squares of influences."""
        if self._of_risks(schema):
            return (yield from self._conduct_risks(schema, neighbours))
        answer = yield self.query(schema, neighbours)
        sums = ErrorSums.of(answer, self._design().columns)
        if not sums.known:
            return self._errors(answer, sums, None)
        last = yield self.last(schema, sums)
        return self._errors(answer, sums, sums.spreads(last))

    def _conduct_risks(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        block = self._counts(schema)
        block.arrays(schema)
        first = Query((block,), ((1.0,),), math.sqrt(2 if neighbours == "replace-one" else 1))
        answer = yield first
        (counts,), (noise,) = answer.sums[0], answer.noise[0]
        total = self._total(answer)
        shares = smoothed(np.asarray(counts), noise, total)
        moved = self._moved(neighbours) / first.sensitivity
        later = noise * moved * math.sqrt(_STAGES[0] / _STAGES[1])
        bins = self._binned(schema, shares, float(counts.sum()) if total is None else total, later)
        last = yield self._of_bins(schema, neighbours, bins)
        return self._said(last, bins)

    def _total(self, answer: Answer) -> float | None:
        """Return the number of rows that count, if it is public."""
        missing = any(answer.schema[name].missing for name in self._design().columns)
        return None if answer.rows is None or missing else float(answer.rows)

    @staticmethod
    def _moved(neighbours: Neighbours) -> float:
        rest = 1 / _LOSSES**2
        return math.sqrt((2 + 2 / _RANKS**2 if neighbours == "replace-one" else 1 + 1 / _RANKS**2) + rest)

    def _of_bins(self, schema: Schema, neighbours: Neighbours, bins: Bins) -> Query:
        block = Risks(
            self._design(), self._weights(schema), self._about()[2], bins.edges, bins.starts, bins.ranks
        )
        block.arrays(schema)
        return Query((block,), ((1.0, _RANKS, _LOSSES),), self._moved(neighbours))

    def last(self, schema: Schema, sums: ErrorSums) -> Query:
        """Return the query for the squares of influences: each in [0, 1]."""
        forms = sums.forms()
        block = ErrorSquares(self._design(), self._weights(schema), self._about()[2], sums.target.mean, forms)
        return Query((block,), ((1.0,),), math.sqrt(len(forms)))

    def finish(self, answer: Answer) -> AnalysisResult:
        schema = answer.schema
        if not self._of_risks(schema):
            sums = ErrorSums.of(answer, self._design().columns)
            normal = [2 * sums.likely_mean**2, 4 * (4 * sums.likely_mean) ** 2] if sums.known else None
            return self._errors(answer, sums, normal)
        return self._said(answer, self._typical_bins(schema, math.inf, 0.0))

    def _typical(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Estimates:
        if not self._of_risks(schema):
            return super()._typical(schema, noise, rows, neighbours)
        bins = self._typical_bins(schema, rows, noise[0][0])
        (block,) = self._of_bins(schema, neighbours, bins).blocks
        public = rows if neighbours == "replace-one" and not schema.open else None
        answer = Answer((block.typical(schema, rows),), tuple(map(tuple, noise)), public, schema)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            return Estimates.of(self._said(answer, bins).estimates)

    def _said(self, answer: Answer, bins: Bins) -> AnalysisResult:
        schema = answer.schema
        (counts, ranks, (loss,)), noise = answer.sums[0], answer.noise[0]
        table = RiskTable(
            bins.ends,
            np.asarray(counts),
            noise[0],
            self._threshold,
            bins.predicted,
            RankSums(np.asarray(ranks), noise[1], bins.reach),
            Losses(float(loss), noise[2], self._total(answer)),
        )
        estimates = [table.auc(), table.brier(), *table.shares()]
        warn_of_unknown(estimates)
        target = self._about()[0]
        event = schema.category(target).values[1]
        model = RiskModel(target, event, schema, table, tuple(estimates), self.edges is not None)
        return AnalysisResult(estimates, model)

    def _errors(self, answer: Answer, sums: ErrorSums, spreads: list[float] | None) -> AnalysisResult:
        target = self._about()[0]
        estimates = sums.estimates(answer.schema.number(target), spreads)
        warn_of_unknown(estimates)
        model = ErrorModel(
            target, answer.schema, sums.target.count, tuple(estimates), sums.target.count_noise
        )
        return AnalysisResult(estimates, model)

    def describe(self) -> str:
        if isinstance(self.model, int) and self.after is None:
            return f"evaluation of the model of analysis {self.model}"
        target, features, _ = self._about()
        return f"evaluation of the model of {target} on {joined(features)}"

    def title(self, label: str, schema: Schema) -> str:
        return label

    def keys(self) -> dict[str, Any]:
        model = self.model if isinstance(self.model, int) else self.model.to_dict()
        rest: Mapping[str, Any] = {"threshold": self.threshold, "bins": self.bins, "edges": self.edges}
        return {"model": model, **{key: value for key, value in rest.items() if value is not None}}


def _risk(name: str, value: Any) -> float:
    risk = check.real(name, value, above=0.0, most=1.0)
    if risk == 1:
        raise InvalidInput(f"{name} must be a risk below 1")
    return risk


_LINKS = {"linear-regression": "identity", "logistic-regression": "logit"}
