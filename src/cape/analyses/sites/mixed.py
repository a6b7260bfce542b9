"""Linear mixed models: coefficients that differ from site to site, from private sums by site."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cape.analyses.regression.formula import target_and_features
from cape.analyses.regression.inference import largest, widest
from cape.analyses.regression.limited import NOTHING, Capped, Limited
from cape.analyses.regression.marginals import Cap, Marginals, check_cap, checked_cap, marginals_query
from cape.analyses.regression.score_query import check_few
from cape.analyses.sites.mixed_likelihood import MixedFit, fit
from cape.analyses.sites.mixed_model import MixedEffectsModel
from cape.analyses.sites.mixed_observed import observed
from cape.analyses.sites.mixed_points import PARTS, SHARES, Point, cap_of, first_point
from cape.analyses.sites.mixed_steps import Step, next_point
from cape.analyses.sites.site_scores import SiteScoreSums, site_score_query
from cape.analyses.sites.site_sums import require_groups
from cape.blocks import Design, typical
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Schema
from cape.data.schema import SITE
from cape.engine.arguments import joined, names, regression
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.stats.estimates import Estimate, unknown, warn_of_unknown
from cape.stats.score_norms import FALLS, FALLS_UNCAPPED

__all__ = ["MixedModel"]

INTERCEPT = "intercept"
_MOST_RANDOM = 3
_MOST_WEIGHTS = 1000  # matrices of all pairs are made, for every stage of a request
_NORMAL = 3.0  # the kurtosis of residuals where nothing is known of it
_ROWS = 1024  # typical ones, for plans
_LEAST = 1e-12  # of the mean of (1, x)(1, x)': what rounding may hide


@dataclass(frozen=True, init=False)
class MixedModel(Analysis):
    """The target as a linear function of the features, with effects that differ from site to site.

    >>> MixedModel("sbp", ["age", "sex"]), MixedModel("sbp", ["age", "sex"], random=["intercept", "age"])

    y = x'b + z'u + e, where u is drawn for each site with an unknown covariance and e for each row. Fixed
    effects b, the variances tau² of the random effects and the residual variance are found by restricted
    maximum likelihood: without noise as from the rows. The tau² of the intercept is that where
    features with random slopes are in the middle of their bounds, or in their first category.

    Estimates are those of the same model without privacy, on the capped columns, whether the model is right
    or not. Intervals count rows, sites and noise: rows by a sandwich within sites, whatever residuals are
    like; sites as a sample of more of them, also where there are few (`mixed_likelihood`).

    *Stages.* A first stage looks at each column by itself: numbers are capped at a released quantile, about
    1% of rows on each side, where their bounds are much wider than the data (`cap`), and what was capped is
    said. Then scores are asked for, four times, each at better coefficients of each site: residuals times
    features that are centred at each site and whitened. Scores that are longer than a bound are shortened to
    it; a histogram of their lengths says which bound makes the whole error smallest, and what it left out
    counts in intervals. See `mixed_points` and `mixed_steps`, and `mixed_observed` for what is made of the
    last.

    *What becomes public.* Each site's number of rows (unless that is public), its scores of its own effects,
    their spread, and their products with features; all else is summed over all sites. A row touches the sums
    of its own site only, and the noise that hides a person is that of any other release. Sites that collude
    take their own rows and noise off, and know no more of another site than its released numbers. A site that
    does not want to be told apart writes `by_site = false` in its policy, and refuses.

    **Sensitivity** of scores: see `site_scores`; of the first stage: see `marginals`.

    Args:
        target: a numeric column.
        features: numeric columns, or categories: one 0 or 1 for each value but the first; interactions and
            splines, as in a linear regression.
        formula: target and features in one text, as in "sbp ~ age * sex".
        random: what differs from site to site: "intercept" and features that are columns, at most three
            effects.
        by: the column that tells sites apart.
        cap: "auto", "none", or where columns are cut, as in {"sbp": (80, 220)}.
    """

    kind: ClassVar[str] = "mixed-model"
    example: ClassVar[dict[str, Any]] = {"target": "chol", "features": ["age"], "by": "sex"}
    slopes: ClassVar[bool] = True
    target: str
    features: tuple[str, ...]
    random: tuple[str, ...]
    by: str
    cap: Cap

    def __init__(
        self,
        target: str | None = None,
        features: Sequence[str] | str | None = None,
        *,
        formula: str | None = None,
        random: Sequence[str] | str = (INTERCEPT,),
        by: str = SITE,
        cap: Any = "auto",
    ) -> None:
        target, features = target_and_features(target, features, formula)
        asked = regression(target, features, intercept=True, ridge="auto", norm=None)
        varying = names((random,) if isinstance(random, str) else random)
        for name in varying:
            if name != INTERCEPT and name not in asked["features"]:
                raise InvalidInput(
                    f"random must name 'intercept' or features, not {check.show(name)}; there are "
                    f"{joined([INTERCEPT, *asked['features']])}"
                )
        if not isinstance(by, str):
            raise InvalidInput(f"by must be a column's name, not {check.show(by)}")
        self._set(target=asked["target"], features=asked["features"], random=varying, by=by)
        self._set(cap=checked_cap(cap))
        if by == target or by in self.design.columns:
            raise InvalidInput(f"column {by!r} tells sites apart, and must be neither target nor feature")

    @property
    def design(self) -> Design:
        return Design(self.features, self.target)

    def _design(self, marginals: Marginals | None) -> Design:
        """Return how a row becomes a vector: its cells cut at caps."""
        cut = () if marginals is None else marginals.cut(self.design.sources)
        return Design(self.features, self.target, cut=cut)

    def _check(self, schema: Schema) -> None:
        """Raise `InvalidInput` for columns that the model does not fit."""
        require_groups(schema, self.by)
        check_few(1 + self.design.width(schema), _MOST_WEIGHTS)
        if isinstance(schema[self.target], Category):
            raise InvalidInput(f"target {self.target!r} must have bounds, and the schema gives it categories")
        for name in self.random:
            if name != INTERCEPT and not self.design.alone(name, schema):
                raise InvalidInput(
                    f"random must name columns without interactions, and no splines: not {check.show(name)}"
                )
        if len(self._places(schema)) > _MOST_RANDOM:
            raise InvalidInput(
                f"random must have at most {_MOST_RANDOM} effects, counting each category but the first"
            )
        check_cap(self.cap, self.design.columns, schema)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return a question like the last one, where nothing is known yet."""
        self._check(schema)
        point, design, cap = self._begin(None, schema, 0.01, 1e4)
        block = replace(point, edges=()).block(design, self.by, cap)
        return site_score_query(block, PARTS[-1], schema, neighbours)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what one step where nothing is known says by itself."""
        schema = answer.schema
        point, design, cap = self._begin(None, schema, 0.01, 1e4)
        point = replace(point, edges=())
        sums = SiteScoreSums.of(answer, point.block(design, self.by, cap))
        return self._result(Step.of(point, sums), None, _NORMAL, schema)

    def stages(self) -> tuple[float, ...]:
        """Return the shares of the first stage, and of the questions for scores."""
        return SHARES

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask how rows are spread over columns, and then for scores at what was found, each time."""
        self._check(schema)
        columns = self.design.columns
        asked = marginals_query(columns, schema, neighbours)
        answer = yield asked
        marginals = Marginals.of(answer, columns, self.cap)
        unit = answer.noise[0][0] / asked.sensitivity * math.sqrt(SHARES[0])  # noise for the whole share
        total = max(float(np.mean([float(sums[0].sum()) for sums in answer.sums])), 1.0)
        if answer.rows is not None:
            total = min(total, float(answer.rows)) if total > 1 else float(answer.rows)
        falls = FALLS if self.cap == "auto" else FALLS_UNCAPPED

        def noise(place: int) -> float:
            return unit * PARTS[place].moved(neighbours) / math.sqrt(SHARES[place + 1])

        point, design, cap = self._begin(marginals, schema, noise(0), total)
        kurtosis, step = _NORMAL, None
        for place, parts in enumerate(PARTS):
            block = point.block(design, self.by, cap)
            last = place + 1 == len(PARTS)
            if not unit and not last:
                point = replace(point, bound=block.longest(schema))
                block = point.block(design, self.by, cap)
            answer = yield site_score_query(block, parts, schema, neighbours)
            sums = SiteScoreSums.of(answer, block)
            step = Step.of(point, sums, step)
            if sums.lengths is not None:
                kurtosis = sums.lengths.kurtosis(falls)
            if not last:
                point = next_point(step, noise(place + 1), falls, last=place + 2 == len(PARTS))
        assert step is not None
        return self._result(step, marginals, kurtosis, schema)

    def _begin(
        self, marginals: Marginals | None, schema: Schema, noise: float, total: float
    ) -> tuple[Point, Design, tuple[float, float] | None]:
        """Return where to ask first, how a row becomes a vector, and caps of the target."""
        design, column = self._design(marginals), schema.number(self.target)
        if marginals is None:
            x = typical.rows(design, schema, _ROWS)
            y, chance = typical.Shape(column).at((np.arange(_ROWS) + 0.5) / _ROWS), np.full(_ROWS, 1 / _ROWS)
        else:
            x = marginals.rows(design, schema)
            y, chance = marginals.target(self.target)
            y = (y - column.middle) / column.half
        v = np.hstack([np.ones((len(x), 1)), x])
        level = float(y @ chance)
        variance = max(float((y - level) ** 2 @ chance), _LEAST)
        point = first_point(
            v.T @ v / len(v) + _LEAST * np.eye(v.shape[1]),
            self._places(schema),
            len(schema.category(self.by).values),
            level,
            variance,
            noise,
            total,
        )
        ends = None
        if marginals is not None and any(marginals.numbers[self.target].capped):
            ends = marginals.numbers[self.target].low, marginals.numbers[self.target].high
        return point, design, cap_of(schema, self.target, ends)

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of each estimate after all stages, over typical rows."""
        planned = self.query(schema, neighbours)
        unit = noise[0][1] / planned.flat_scales[1] / planned.sensitivity * math.sqrt(SHARES[-1])
        talk = self.conduct(schema, neighbours)
        query = next(talk)
        public = rows if neighbours == "replace-one" and not schema.open else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            for share in self.stages():
                each = unit / math.sqrt(share) * query.sensitivity
                sums = tuple(block.typical(schema, max(rows, 1)) for block in query.blocks)
                stds = tuple(tuple(each * scale for scale in scales) for scales in query.scales)
                try:
                    query = talk.send(Answer(sums, stds, public, schema))
                except StopIteration as stop:
                    return {estimate.label: estimate.privacy for estimate in stop.value.estimates}
        raise AssertionError("there are as many questions as shares")

    def _result(
        self, step: Step, marginals: Marginals | None, kurtosis: float, schema: Schema
    ) -> AnalysisResult:
        design = self._design(marginals)
        units = Units(design, schema)
        places, column = self._places(schema), schema.number(self.target)
        labels = (INTERCEPT, *units.names)
        reference = self._reference(design, schema, places)
        seen = observed(step, np.append(2.0, largest(units, 2.0)), reference, kurtosis)
        found = None if seen is None else fit(seen)
        fixed, varying = self._unknown(units, places)
        left = unknown("residual variance", 0.0, column.half**2)
        limited = NOTHING
        if found is not None:
            pull = column.half * units.matrix
            shown = pull.copy()
            shown[:, places] = pull[:, places] @ np.linalg.inv(reference)
            shifts = [column.middle, *np.zeros(len(units.names)).tolist()]
            fixed = [_fixed(*each, found) for each in zip(labels, shown, shifts, strict=True)]
            varying = [
                _tau2(f"tau² {labels[place]}", found, order, _unit(place, pull, column.half))
                for order, place in enumerate(places)
            ]
            left = _residual(found, column.half**2)
            limited = self._limited(fixed, shown, found, marginals)
            nothing = self._unknown(units, places)
            known = zip((*fixed, left), (*nothing[0], unknown(left.label, 0.0, column.half**2)), strict=True)
            *fixed, left = [_within(one, bounds) for one, bounds in known]
        estimates = [*fixed, *varying, left]
        warn_of_unknown(estimates)
        sites = tuple(map(str, schema.category(self.by).values))
        model = MixedEffectsModel(
            self.target,
            self.by,
            schema,
            tuple(estimates),
            len(fixed),
            len(varying),
            sites,
            (False,) * len(sites) if found is None else step.used,
            limited,
            step.sums.total,
        )
        return AnalysisResult(estimates, model)

    def _reference(self, design: Design, schema: Schema, places: Sequence[int]) -> Floats:
        """Return what makes an intercept in the middle of the schema's bounds of one in that of caps."""
        found, names = np.eye(len(places)), design.names(schema)
        if 0 not in places:
            return found
        cut = dict(design.cut)
        for order, place in enumerate(places):
            name = names[place - 1] if place else INTERCEPT
            if place and name in cut:
                bounds, ends = schema.number(name), cut[name]
                found[0, order] = (bounds.middle - ends.middle) / ends.half / design.length(schema)
        return found

    def _limited(
        self, fixed: Sequence[Estimate], shown: Floats, found: MixedFit, marginals: Marginals | None
    ) -> Limited:
        """Return what was capped and shortened."""
        numbers = {} if marginals is None else marginals.numbers
        capped = tuple(
            Capped.of(name, numbers[name])
            for name in self.design.columns
            if name in numbers and any(numbers[name].capped)
        )
        moved = []
        for each, row in zip(fixed, shown, strict=True):
            moved.append((each.label, found.limited(row) / max(each.standard_error, 1e-300)))
        return Limited(capped, found.observed.beyond, tuple(moved))

    def _unknown(self, units: Units, places: Sequence[int]) -> tuple[list[Estimate], list[Estimate]]:
        """Return fixed effects and variances of which nothing is known but their bounds."""
        column = units.schema.number(self.target)
        fixed = []
        for label, most in zip((INTERCEPT, *units.names), column.half * widest(units, 2.0, 1.0), strict=True):
            middle = column.middle if label == INTERCEPT else 0.0
            fixed.append(unknown(label, middle - float(most), middle + float(most)))
        varying = []
        for place in places:
            span = (
                2 * column.half / float(units.high[place - 1] - units.low[place - 1])
                if place
                else 2 * column.half
            )
            varying.append(unknown(f"tau² {(INTERCEPT, *units.names)[place]}", 0.0, span**2))
        return fixed, varying

    def describe(self) -> str:
        return (
            f"linear mixed model of {self.target} on {joined(self.features)}, with {joined(self.random)} by "
            f"{self.by}, for which sums become public"
        )

    def keys(self) -> dict[str, Any]:
        found = {
            "target": self.target,
            "features": list(self.features),
            "random": list(self.random),
            "by": self.by,
        }
        if self.cap == "none":
            return found | {"cap": "none"}
        if self.cap != "auto":
            return found | {"cap": {name: list(ends) for name, ends in self.cap}}
        return found

    def _places(self, schema: Schema) -> list[int]:
        """Return the places of the random effects in (1, x)."""
        slopes = {each for name in self.random if name != INTERCEPT for each in Design((name,)).names(schema)}
        labels = self.design.names(schema)
        found = [place for place, name in enumerate(labels, start=1) if name in slopes]
        return [*([0] if INTERCEPT in self.random else []), *found]


def _unit(place: int, pull: Floats, half: float) -> float:
    """Return the unit of a variance: the intercept is that in the middle of the bounds."""
    return half**2 if place == 0 else float(pull[place, place]) ** 2


def _fixed(label: str, row: Floats, shift: float, found: MixedFit) -> Estimate:
    value, sampling, privacy, mixture = found.fixed(row, shift)
    return Estimate(label, value, sampling, privacy, at=mixture)


def _within(estimate: Estimate, nothing: Estimate) -> Estimate:
    """Return an estimate, or that nothing is known where errors are as wide as what is possible."""
    low, high = nothing.within
    return nothing if estimate.standard_error >= (high - low) / 2 else estimate


def _tau2(label: str, found: MixedFit, place: int, unit: float) -> Estimate:
    sampling, privacy = found.tau2_errors(place)
    value = unit * float(found.between[place, place])
    return Estimate(label, value, unit * sampling, unit * privacy, (0.0, math.inf), found.tau2(place, unit))


def _residual(found: MixedFit, unit: float) -> Estimate:
    seen, value = found.observed, min(unit * found.residual, unit)
    return Estimate("residual variance", value, value * seen.drawn, value * seen.blurred, (0.0, unit))
