"""Linear mixed models: coefficients that differ from site to site, from private sums by site."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cape.analyses.regression.formula import target_and_features
from cape.analyses.regression.inference import widest
from cape.analyses.sites.mixed_likelihood import MixedFit, ResidualVariance, fit
from cape.analyses.sites.mixed_model import MixedEffectsModel
from cape.analyses.sites.mixed_scores import fit_scores
from cape.analyses.sites.mixed_steps import SHARES, first_point, next_point, silent
from cape.analyses.sites.site_scores import Point, ScoreSums
from cape.analyses.sites.site_sums import SiteSums, site_query
from cape.blocks import Design, GroupedProducts
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Schema
from cape.data.schema import SITE
from cape.engine.arguments import joined, names, regression
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.stats.estimates import Estimate, unknown, warn_of_unknown

__all__ = ["MixedModel"]

INTERCEPT = "intercept"
_MOST_RANDOM = 3
_WEIGHTS = {"y": 0.6, "yy": 0.75, "x": 0.4, "xy": 0.75, "xx": 1.0}
_ADDED = {**_WEIGHTS, "yy": 0.3}  # under add-remove nothing is free


@dataclass(frozen=True, init=False)
class MixedModel(Analysis):
    """The target as a linear function of the features, with effects that differ from site to site.

    >>> MixedModel("sbp", ["age", "sex"]), MixedModel("sbp", ["age", "sex"], random=["intercept", "age"])

    y = x'b + z'u + e, where u is drawn for each site with an unknown covariance and e for each row. Fixed
    effects b, the variances tau² of the random effects and the residual variance are found by restricted
    maximum likelihood: without noise exactly as from the rows. Intervals count rows, sites and noise, and
    hold with few sites: see `mixed_likelihood`. The tau² of the intercept is that where features with random
    slopes are in the middle of their bounds, or in their first category.

    *Stages.* Second moments come first, with a tenth of the budget. Unless noise is hardly any part of the
    errors that they leave, scores follow, three times, each at a better point: features, centred at each site
    and whitened, times residuals that are cut at about their SD. Their noise does not grow with bounds: see
    `mixed_steps`, and `mixed_scores` for what is made of all of them.

    *What becomes public.* Each site's number of rows (unless that is public), its sums of target and
    features, and their products with the features in `random`; then scores of its own effects, their
    curvature, and where its features are; all else is summed over all sites. A row touches the sums of its
    own site only, and the noise that hides a person is that of any other release. Sites that collude take
    their own rows and noise off, and know no more of another site than its released numbers. A site that does
    not want to be told apart writes `by_site = false` in its policy, and refuses.

    **Sensitivity** of moments sqrt(6.76125) under replace-one where a row stays at its site, sqrt(3.43125)
    under add-remove: that of a linear regression with weights 3/5, 3/4, 2/5, 3/4 and 1 (under add-remove 3/10
    for y²) on the sums of y, y², x, xy and xx'. Proof in `site_sums`. Of scores at most sqrt(8.4), or
    sqrt(2.8): proof in `site_scores`.

    Args:
        target: a numeric column.
        features: numeric columns, or categories: one 0 or 1 for each value but the first; interactions and
            splines, as in a linear regression.
        formula: target and features in one text, as in "sbp ~ age * sex".
        random: what differs from site to site: "intercept" and features that are columns, at most three
            effects.
        by: the column that tells sites apart.
    """

    kind: ClassVar[str] = "mixed-model"
    example: ClassVar[dict[str, Any]] = {"target": "chol", "features": ["age"], "by": "sex"}
    slopes: ClassVar[bool] = True
    decisive: ClassVar[int] = 0
    target: str
    features: tuple[str, ...]
    random: tuple[str, ...]
    by: str

    def __init__(
        self,
        target: str | None = None,
        features: Sequence[str] | str | None = None,
        *,
        formula: str | None = None,
        random: Sequence[str] | str = (INTERCEPT,),
        by: str = SITE,
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
        if by == target or by in self.design.columns:
            raise InvalidInput(f"column {by!r} tells sites apart, and must be neither target nor feature")

    @property
    def design(self) -> Design:
        return Design(self.features, self.target)

    @property
    def _block(self) -> GroupedProducts:
        slopes = tuple(name for name in self.random if name != INTERCEPT)
        return GroupedProducts(self.design, self.by, slopes)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
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
        weights = _ADDED if neighbours == "add-remove" else _WEIGHTS
        return site_query(self._block, weights, schema, neighbours)

    def stages(self) -> tuple[float, ...]:
        """Return the shares of moments, and of three questions for scores."""
        return SHARES

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask for second moments and then, unless noise is hardly any part of errors, for scores."""
        asked = self.query(schema, neighbours)
        places = self._places(schema)
        answer = yield asked
        sums = SiteSums.of(answer, self._block)
        point = first_point(sums, places)
        if silent(sums, point):
            return self._result(schema, fit(sums, places))
        unit = answer.noise[0][0] / asked.scales[0][0] / asked.sensitivity * math.sqrt(SHARES[0] / SHARES[-1])
        told: list[ScoreSums] = []
        for left in reversed(range(len(SHARES) - 1)):
            told.append((yield from self._scores(point, sums, schema, neighbours)))
            point = next_point(told[-1], places, unit if left == 1 else math.inf) if left else point
        return self._result(schema, fit_scores(sums, told, places) or fit(sums, places))

    def _scores(
        self, point: Point, sums: SiteSums, schema: Schema, neighbours: Neighbours
    ) -> Generator[Query, Answer, ScoreSums]:
        query = point.query(self.design, self.by, schema, neighbours)
        answer = yield query
        return ScoreSums.of(answer, point.block(self.design, self.by), point, sums.counts)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what second moments say by themselves."""
        sums = SiteSums.of(answer, self._block)
        return self._result(answer.schema, fit(sums, self._places(answer.schema)))

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of each estimate after all stages, over typical rows."""
        talk = self.conduct(schema, neighbours)
        query = next(talk)
        unit = noise[0][0] / query.scales[0][0] / query.sensitivity * math.sqrt(SHARES[0])
        public = rows if neighbours == "replace-one" and not schema.open else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            for share in self.stages():
                each = unit / math.sqrt(share) * query.sensitivity
                sums = tuple(block.typical(schema, max(rows, 1)) for block in query.blocks)
                stds = tuple(tuple(each * scale for scale in scales) for scales in query.scales)
                try:
                    query = talk.send(Answer(sums, stds, public, schema))
                except StopIteration as told:
                    return {estimate.label: estimate.privacy for estimate in told.value.estimates}
        raise AssertionError("there are as many questions as shares")

    def _result(self, schema: Schema, found: MixedFit | None) -> AnalysisResult:
        units = Units(self.design, schema)
        places, column = self._places(schema), schema.number(self.target)
        labels = (INTERCEPT, *units.names)
        pull = column.half * units.matrix
        fixed, varying = self._unknown(units, places)
        left = unknown("residual variance", 0.0, column.half**2)
        if found is not None:
            shifts = [column.middle, *np.zeros(len(units.names)).tolist()]
            fixed = [_fixed(*each, found) for each in zip(labels, pull, shifts, strict=True)]
            varying = [
                _tau2(f"tau² {labels[place]}", found, order, _unit(place, pull, column.half))
                for order, place in enumerate(places)
            ]
            left = _residual(found, column.half**2)
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
            (False,) * len(sites) if found is None else found.used,
        )
        return AnalysisResult(estimates, model)

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
        return {
            "target": self.target,
            "features": list(self.features),
            "random": list(self.random),
            "by": self.by,
        }

    def _places(self, schema: Schema) -> list[int]:
        """Return the places of the random effects in (1, x)."""
        return [*([0] if INTERCEPT in self.random else []), *sorted(self._block.entries(schema))]


def _unit(place: int, pull: Floats, half: float) -> float:
    """Return the unit of a variance: the intercept is that in the middle of the bounds."""
    return half**2 if place == 0 else float(pull[place, place]) ** 2


def _fixed(label: str, row: Floats, shift: float, found: MixedFit) -> Estimate:
    row = found.row(row)
    value = shift + float(row @ found.values)
    total, privacy = float(row @ found.covariance @ row), float(row @ found.privacy @ row)
    at = found.mixture(row, shift)
    return Estimate(label, value, math.sqrt(max(total - privacy, 0.0)), math.sqrt(max(privacy, 0.0)), at=at)


def _tau2(label: str, found: MixedFit, place: int, unit: float) -> Estimate:
    sampling, privacy = found.tau2_errors(place)
    value = unit * float(found.between[place, place])
    return Estimate(label, value, unit * sampling, unit * privacy, (0.0, math.inf), found.tau2(place, unit))


def _residual(found: MixedFit, unit: float) -> Estimate:
    seen = found.observed
    total = found.residual * math.sqrt(2 / seen.freedom)
    drawn = min(found.residual * math.sqrt(2 / seen.rows), total)
    value = min(unit * found.residual, unit)
    at = ResidualVariance(value, seen.freedom, unit)
    privacy = math.sqrt(max(total**2 - drawn**2, 0.0))
    return Estimate("residual variance", value, unit * drawn, unit * privacy, (0.0, unit), at)
