"""How well a public model predicts rows, best those that it was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cape.analyses.evaluate.errors import ERRORS_WEIGHT, ErrorSums
from cape.analyses.evaluate.errors_model import ErrorModel
from cape.analyses.evaluate.risk import RiskTable, default_edges
from cape.analyses.evaluate.risk_model import RiskModel
from cape.analyses.influence import STAGES
from cape.analyses.moments import Weights
from cape.analyses.predictor import Predictor, supposed
from cape.blocks import Design
from cape.blocks.predicted import Errors, ErrorSquares, Risks
from cape.blocks.typical import vectors
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Category, Schema
from cape.engine.arguments import joined
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Query
from cape.stats.estimates import warn_of_unknown

__all__ = ["Evaluate"]

_BINS, _MOST_BINS = 20, 200
_WITHIN = 4.0  # the scale of where in its bin a risk lies
_EARLIEST = 10_000


@dataclass(frozen=True, init=False)
class Evaluate(Analysis):
    """How well a model, released before or given from outside, predicts the rows that count.

    >>> Evaluate(model, where="held_out"), Evaluate(model, where="held_out", threshold=0.2)
    >>> Evaluate({"target": "ill", "link": "logit", "intercept": -4.1, "coefficients": {"age": 0.05}})

    For a target of two categories: the AUC, the Brier score, and at a threshold sensitivity, specificity and
    predictive values, with the ROC curve, a calibration plot and the confusion matrix; all from one table of
    counts by bins of predicted risk and by outcome. For a number: root mean squared error and R². Sites
    predict from the model's public coefficients, cells cut to their bounds; rows that miss a cell are left
    out.

    On rows that the model was fitted on, all of this is too good. `[person]` with `keep_apart = 0.2` gives a
    study the column `held_out`: fit with `where="not held_out"`, evaluate with `where="held_out"`.

    In a study file `model` is the number of an earlier analysis, a JSON file, or a table of coefficients.

    **Sensitivity.** *Risks*: a row adds 1 to one of 2 B counts and u in [-1, 1], at scale 4, to the entry of
    its bin. Two rows of one bin and different outcomes differ by 2 + 2²/16, of different bins by 2 + 2/16 at
    most: sqrt(9/4) under replace-one, sqrt(17/16) under add-remove and against a row that misses a cell.
    *Errors*: sums of t, t² and the count with weights 1, 5/2 and 1/2 move by 4 (`moments`), and that of e² in
    [0, 1], with weight 16, by 16: sqrt(20) under both. The second stage adds two squares in [0, 1]: sqrt(2).

    Args:
        model: a release, its model, or a mapping with target, link, intercept and coefficients; in a study
            file the number of an earlier analysis of the same study.
        threshold: the risk from which on a row counts as predicted to have the event; 0.5 by default.
        bins: how many bins of predicted risk, 20 by default, about equally full if rows are typical for the
            schema; or their `edges`, between 0 and 1. More bins make the AUC finer and noisier.
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
    decisive: ClassVar[int] = 0
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

    def _edges(self, schema: Schema) -> tuple[float, ...]:
        if self.edges:
            edges = (0.0, *self.edges, 1.0)
        else:
            weights = np.array(self._weights(schema))
            mean, covariance = vectors(self._design(), schema)
            middle = float(weights[0] + weights[1:] @ mean)
            spread = math.sqrt(max(float(weights[1:] @ covariance @ weights[1:]), 0.0))
            edges = default_edges(self.bins or _BINS, middle, spread, self._about()[2])
        return tuple(sorted({*edges, self._threshold}))

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

    def stages(self) -> tuple[float, ...]:
        return STAGES if self._about()[2] in ("identity", "log", "inverse") else (1.0,)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        design, link = self._design(), self._about()[2]
        if self._of_risks(schema):
            risks = Risks(design, self._weights(schema), link, self._edges(schema))
            risks.arrays(schema)
            inner = 1 / _WITHIN**2
            moved = 2 + 4 * inner if neighbours == "replace-one" else 1 + inner
            return Query((risks,), ((1.0, _WITHIN),), math.sqrt(moved))
        if len(self.stages()) == 1:
            raise InvalidInput(f"the target of a model with link {link!r} must have two categories")
        errors = Errors(design, self._weights(schema), link)
        errors.arrays(schema)
        weights = Weights(1.0, 2.5, 0.5)
        moved = weights.moved(neighbours, design.missing(schema)) + ERRORS_WEIGHT
        return Query((errors,), ((*weights.scales, 1 / math.sqrt(ERRORS_WEIGHT)),), math.sqrt(moved))

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for the table of risks; or for errors, and then for the squares of influences on them."""
        answer = yield self.query(schema, neighbours)
        if self._of_risks(schema):
            return self.finish(answer)
        sums = ErrorSums.of(answer, self._design().columns)
        if not sums.known:
            return self._errors(answer, sums, None)
        last = yield self.last(schema, sums)
        return self._errors(answer, sums, sums.spreads(last))

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
        (counts, within), (noise, within_noise) = answer.sums[0], answer.noise[0]
        table = RiskTable(
            np.array(self._edges(schema)),
            np.asarray(counts),
            np.asarray(within),
            noise,
            within_noise,
            self._threshold,
        )
        estimates = [table.auc(), table.brier(), *table.shares()]
        warn_of_unknown(estimates)
        target = self._about()[0]
        event = schema.category(target).values[1]
        return AnalysisResult(estimates, RiskModel(target, event, schema, table, tuple(estimates)))

    def _errors(self, answer: Answer, sums: ErrorSums, spreads: list[float] | None) -> AnalysisResult:
        target = self._about()[0]
        estimates = sums.estimates(answer.schema.number(target), spreads)
        warn_of_unknown(estimates)
        model = ErrorModel(target, answer.schema, sums.target.count, tuple(estimates))
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
