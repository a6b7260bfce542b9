"""Linear regression: second moments, a ridge that their noise sets, and coefficients with errors.

The first stage asks for second moments, which give coefficients and predictions: `inference` and `ridge`. Two
small ones after it ask how far rows move the coefficients: sampling errors without a model, `sandwich`.
Where clipped scores are expected to have the smaller error, these are asked for instead: `linear_scores`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from cape.analyses.regression.fewer import fewer
from cape.analyses.regression.formula import target_and_features
from cape.analyses.regression.inference import Unsure
from cape.analyses.regression.linear_estimate import Reading
from cape.analyses.regression.linear_model import LinearModel
from cape.analyses.regression.marginals import Cap, checked_cap
from cape.analyses.regression.moments import XX, XY, YY, SecondMoments, X, Y
from cape.analyses.regression.reference import INTERCEPT
from cape.analyses.regression.sandwich import Meat, sensitivity
from cape.analyses.tensor_sums import joint
from cape.blocks import Design, Term
from cape.blocks.terms import parse
from cape.blocks.units import Units
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from cape.data.expected import Expected
from cape.data.schema import Column
from cape.engine.arguments import joined, regression
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.show import Table
from cape.show.numbers import number

__all__ = ["Errors", "LinearRegression"]


_TERMS = (Y, YY, X, XY, XX)
_WEIGHTS = (0.2, 1.0, 0.3, 0.75, 1.0)
_TERMS_THROUGH_MIDDLE = (YY, XY, XX)
_WEIGHTS_THROUGH_MIDDLE = (1.0, 0.75, 1.0)
_PAID = 0.3  # the weight of y² where it is not free
_GUESS, _ERRORS = 0.02, 0.07  # parts of the share for sampling errors: noise in the rest grows by 4.8%
_LESS = 0.9  # of the error: what clipped scores must be expected to save
# Rows over noise, per root of the number of columns: below that intervals of clipped scores may cover too
# little where a target is mostly 0 with a few large values (.53 to .82 at half of it), and those of second
# moments do not. On the populations `benchmarks.truth_data.CHOSEN_ON` half would do.
_LEAST_ROWS = 200.0
_NARROW = 1 / 20  # SDs of cells, in widths of their bounds
_MOST_WIDTH = 40  # columns of rows as sites see them: two plans to choose between take a second
_MOST_DOUBT, _DOUBT = 0.6, 0.25  # the noise of a squared error, as a part of it, in a guess and in the end
Errors = Literal["robust", "classical"]
Method = Literal["auto", "moments", "scores"]


@dataclass(frozen=True, init=False)
class LinearRegression(Analysis):
    """The target as a linear function of the features, by least squares over complete rows.

    >>> fitted = consortium.release(LinearRegression("chol", ["age", "sex"]), share=0.2)
    >>> fitted.model.coefficients, fitted.interval(0.95)["age"]
    >>> fitted.model.predict({"age": [50], "sex": ["female"]})

    There are two ways of asking for least squares. *Second moments* need one question, whose noise follows
    the bounds of columns. *Clipped scores*, the steps of a `GLM` of the family "gaussian", cut columns at
    caps and follow the data: their noise is far smaller where bounds are wide. With `method="auto"` the one
    with the smaller expected error is taken, by rows, budget and columns as they are expected (`chosen`); a
    study's document names scores, so that all sites are asked the same.

    Two sets of coefficients come out of second moments. *Estimates* are least squares less what noise does to
    them, each with an interval that counts sampling and noise: see `inference`, and `sandwich` for how
    sampling errors are found. *Predictions* are those of a ridge regression, whose ridge the noise sets: see
    `ridge`. They differ where noise is large, and predictions are then the middle of the target's bounds
    rather than noise. A row whose features are
    longer than `norm`, in units of half their bounds, is shortened to it, here and in predictions; by
    default none is.

    **Sensitivity** sqrt(5.00125) under replace-one. With weights w = 1/5, 1, v = 3/10, r = 3/4 and 1 on the
    sums of y, y², x, xy and xx', two rows of length 1 with opposite targets, -1 and 1, and x·z = (r - v) / 2
    move them by 2 + 2 (r + v) + (r - v)² / 2 + 4 w, squared, and no two rows further: y² is free up to about
    1. Without an intercept 2 (1 + r/2)², sqrt(3.78125). Under add-remove the weights add up, y² having 3/10:
    2.55, 2.05 without an intercept, and an eighth more for the count.

    *Choice.* For weights r on xy, v on x and 1 on xx' one row moves the sums by 2 (1 + (r + v) / 2)² or a
    little more, squared, and the noise in the normal equations for coefficients w and an intercept b has a
    variance proportional to that times |w|²/2 + 1/r + b²/v an entry. With |w| between 1 and 2 and |b|
    around 1/3, as rows of length 1 have them whose target fills its bounds, r between 0.6 and 1 and v
    between 0.2 and 0.4 are within a few percent of the best. The sum of y is what is left where noise hides
    all else: it gets more than what is free.

    Args:
        target: a numeric column.
        features: numeric columns, or categories: one 0 or 1 for each value but the first; interactions such
            as "age:sex" and splines such as "spline(bmi, 4)" (`cape.blocks.terms`).
        formula: target and features in one text, as in "sbp ~ age * sex + spline(bmi, 4) + site".
        intercept: if False, the prediction where all features are in the middle of their bounds (or in their
            first category) is the middle of the target's.
        ridge: "auto", or what is added to the mean of xx', with ||x|| <= 1, for predictions; it is raised
            where noise needs more.
        norm: the length that rows are shortened to.
        errors: "robust", sampling errors that hold whatever residuals are like, for which two more stages
            take 9% of the budget share; or "classical", those of residuals with the same variance everywhere,
            which need no further stage and are too small where that is wrong.
        method: "moments", "scores", or "auto": what has the smaller expected error where the number of rows
            is known beforehand, else second moments. A `ridge` and classical errors need second moments.
        cap: with scores "auto", "none", or where columns are cut, as in {"nodes": (0, 24)}.
    """

    kind: ClassVar[str] = "linear-regression"
    example: ClassVar[dict[str, Any]] = {"target": "chol", "features": ["age"]}
    slopes: ClassVar[bool] = True
    decisive: ClassVar[int] = 0
    target: str
    features: tuple[str, ...]
    intercept: bool
    ridge: float | Literal["auto"]
    norm: float | None
    errors: Errors
    method: Method
    cap: Cap

    def __init__(
        self,
        target: str | None = None,
        features: Sequence[str] | str | None = None,
        *,
        formula: str | None = None,
        intercept: bool = True,
        ridge: float | Literal["auto"] = "auto",
        norm: float | None = None,
        errors: Errors = "robust",
        method: Method = "auto",
        cap: Any = "auto",
    ) -> None:
        target, features = target_and_features(target, features, formula)
        told = regression(target, features, intercept=intercept, ridge=ridge, norm=norm)
        self._set(**told, errors=errors, method=method, cap=checked_cap(cap))
        if not isinstance(errors, str) or errors not in ("robust", "classical"):
            raise InvalidInput(f"errors must be 'robust' or 'classical', not {errors!r}")
        if not isinstance(method, str) or method not in ("auto", "moments", "scores"):
            raise InvalidInput(f"method must be 'auto', 'moments' or 'scores', not {method!r}")
        if method == "scores" and not self._free:
            raise InvalidInput("method 'scores' has no ridge and no classical errors: leave them out")
        if method != "scores" and self.cap != "auto":
            raise InvalidInput("only method 'scores' cuts columns at caps: leave cap out")
        _ = self.design  # refuses a target among the features

    @property
    def clustered(self) -> bool:  # type: ignore[override]
        """Whether sampling errors allow for several rows of a person."""
        return self.errors == "robust"

    @property
    def _free(self) -> bool:
        """Whether nothing that only second moments have was asked for."""
        return self.ridge == "auto" and self.errors == "robust"

    @property
    def _curved(self) -> bool:
        """Whether there are splines, whose knots caps would move."""
        return any(each.spline is not None for name in self.features for each in parse(name).factors)

    @property
    def _asked(self) -> LinearRegression:
        """It as it is asked: with the method "scores", for clipped scores."""
        from cape.analyses.regression.linear_scores import LinearByScores

        return self.made(LinearByScores) if self.method == "scores" else self

    def over(self, schema: Schema) -> Analysis:
        """Return it as it is asked with noise."""
        return self._asked

    def exactly(self) -> Analysis:
        """Return it as it is asked without noise."""
        return self._asked.exactly() if self.method == "scores" else self

    def chosen(self, schema: Schema, noise: float, rows: int, neighbours: Neighbours) -> Self:
        """Return it with the method "scores" in place of "auto", if its expected error is smaller.

        Where nothing is expected of a column, half of that is for cells in a narrow part of its bounds.
        """
        width = self.design.width(schema)
        few = rows < _LEAST_ROWS * math.sqrt(1 + width) * noise
        if self.method != "auto" or not self._free or width > _MOST_WIDTH or few or self._curved:
            return self
        saved: list[float] = []
        for each in _shapes(schema, self.design.columns):
            moments, scores = self._both(each, noise, rows, neighbours)
            saved += [math.log(scores[name] / moments[name]) for name in moments if name in scores]
        less = bool(saved) and sum(saved) / len(saved) < math.log(_LESS)
        return self.changed(method="scores") if less else self

    def _both(
        self, schema: Schema, noise: float, rows: int, neighbours: Neighbours
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the whole error of each slope that second moments and clipped scores are expected to have.

        `noise` is that of totals for a sensitivity of 1, paid with the whole share.
        """
        found: list[dict[str, float]] = []
        asked = (self.changed(method="moments"), self.changed(method="scores")._asked)
        for each in asked:
            query, part = each.query(schema, neighbours), each.stages()[each.decisive]
            std = noise * query.sensitivity / math.sqrt(part)
            by_block = [[std * scale for scale in scales] for scales in query.scales]
            if each is asked[0]:  # with the furthest that a ridge could move them, which intervals count
                sampled = each.drawn(schema, by_block, rows, neighbours)
                found.append(Analysis.expected(each, schema, by_block, rows, neighbours))
            else:
                found.append(each.expected(schema, by_block, rows, neighbours))
        moments, scores = (
            {name: math.hypot(error, sampled[name]) for name, error in each.items() if name != INTERCEPT}
            for each in found
        )
        return moments, scores

    @property
    def design(self) -> Design:
        return Design(self.features, self.target, self.norm)

    @property
    def _terms(self) -> tuple[Term, ...]:
        return _TERMS if self.intercept else _TERMS_THROUGH_MIDDLE

    def _check(self, schema: Schema) -> None:
        if isinstance(schema[self.target], Category):
            raise InvalidInput(
                f"target {self.target!r} must have bounds; for two categories use LogisticRegression"
            )

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        self._check(schema)
        terms = self._terms
        weights: tuple[float, ...] = _WEIGHTS if self.intercept else _WEIGHTS_THROUGH_MIDDLE
        if neighbours == "add-remove":
            weights = tuple(_PAID if term == YY else w for term, w in zip(terms, weights, strict=True))
        return joint(self.design, terms, weights, schema, neighbours)

    def stages(self) -> tuple[float, ...]:
        """Return the parts of second moments and, for robust errors, of the two questions after them."""
        return (1.0,) if self.errors == "classical" else (1 - _GUESS - _ERRORS, _GUESS, _ERRORS)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for second moments and then, if they show any coefficient, for its sampling error."""
        asked = self.query(schema, neighbours)
        answer = yield asked
        read = self._read(answer)
        if self.errors == "classical" or read.known is None or not read.shown:
            return self._result(read)
        known, shares = read.known, self.stages()
        unit = answer.noise[0][0] / asked.scales[0][0] / asked.sensitivity * math.sqrt(shares[0])
        persons = schema.rows_of_person  # the unit is that of a person's rows, which these sums count as one
        unit *= persons * sensitivity(len(known.values) - (not self.intercept), neighbours)
        for share, doubt in zip(shares[1:], (_MOST_DOUBT, _DOUBT), strict=True):
            noise = unit / math.sqrt(share)
            meat = Meat.of(known, noise, doubt, centred=self.intercept, persons=persons)
            answer = yield meat.query(self.design, schema, neighbours)
            known = meat.read(answer, read.sums.count)
            if meat.whole and meat.length**2 * noise <= _DOUBT:
                break
        return self._result(replace(read, known=known))

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what second moments say by themselves, with classical errors."""
        return self._result(self._read(answer))

    def _read(self, answer: Answer) -> Reading:
        sums = SecondMoments.of(answer, self.design, self._terms)
        ridge = None if self.ridge == "auto" else float(self.ridge) * sums.count
        units = Units(self.design, answer.schema)
        return Reading.of(sums, units, self.target, intercept=self.intercept, ridge=ridge)

    def _result(self, read: Reading) -> AnalysisResult:
        sums, found, known, units, joint = read.sums, read.fit, read.known, read.units, read.joint
        estimates = joint.estimates
        column = units.schema.number(self.target)
        raw = column.half * units.values(np.concatenate([[found.intercept], found.weights]))
        raw[0] += column.middle
        model = LinearModel(
            self.target,
            self.design,
            units.schema,
            tuple(estimates),
            float(raw[0]),
            dict(zip(units.names, map(float, raw[1:]), strict=True)),
            (found.intercept, *map(float, found.weights)),
            sums.count,
            found.ridge / sums.count if sums.count > 0 else math.inf,
            column.half * math.sqrt(found.loss),
            math.nan if known is None else column.half * math.sqrt(known.residual),
            math.nan if known is None else known.explained,
            math.nan if known is None else known.noise / max(known.smallest, 1e-300),
            joint,
            self.errors,
            read.faults,
            sums.count_noise,
        )
        return AnalysisResult(estimates, model)

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of each coefficient, and how far a ridge moves it where there is one.

        A release counts the furthest that a ridge could move a coefficient, because it does not know the true
        ones; those of typical rows are known.
        """
        read = self._read(self.typical(schema, noise, rows, neighbours))
        each = zip(read.joint.estimates, read.moved, strict=True)
        return {
            e.label: math.hypot(math.sqrt(e.at.privacy), moved) if isinstance(e.at, Unsure) else e.privacy
            for e, moved in each
        }

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be, less the furthest that a ridge could move them."""
        read = self._read(self.typical(schema, noise, rows, neighbours))
        far = {e.label: e.at.bias if isinstance(e.at, Unsure) else 0.0 for e in read.joint.estimates}
        steep = super().limits(schema, noise, rows, neighbours)
        return {label: limit - far[label] for label, limit in steep.items()}

    def outlook(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Sequence[Table]:
        """Return the error of clipped scores beside that of second moments, if it is smaller by a tenth."""
        if not self._free:
            return ()
        asked = self.query(schema, neighbours)
        unit = noise[0][0] / asked.flat_scales[0] / asked.sensitivity * math.sqrt(self.stages()[0])
        moments, scores = self._both(schema, unit, rows, neighbours)
        names = [name for name in moments if name in scores]
        if not names or not all(scores[name] < _LESS * moments[name] for name in names):
            return ()
        lines = tuple((schema.title(n), number(moments[n]), number(scores[n])) for n in names)
        title = 'Standard errors of coefficients: method = "scores" has less, and caps columns'
        return (Table(("", "moments", "scores"), lines, title),)

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield regressions on fewer features, then on each alone, then the target by each category."""
        return fewer(self, schema, self.target, self.features)

    def keys(self) -> dict[str, Any]:
        found = dict(super().keys())
        for key in ("method", "cap"):
            if found[key] == "auto":
                del found[key]
        if not isinstance(self.cap, str):
            found["cap"] = {name: list(ends) for name, ends in self.cap}
        return found

    def describe(self) -> str:
        return f"linear regression of {self.target} on {joined(self.features)}"


def _shapes(schema: Schema, columns: Sequence[str]) -> list[Schema]:
    """Return the schema and, if nothing is expected of some numbers, the same with narrow ones."""
    found: dict[str, Column] = {}
    for name in columns:
        column = schema[name]
        if isinstance(column, Number) and column.expected is None:
            found[name] = replace(column, expected=Expected(column.middle, _NARROW * 2 * column.half))
    return [schema, schema.changed(found)] if found else [schema]
