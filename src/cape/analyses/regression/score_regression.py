"""Regressions by clipped scores: what all of them have in common.

What is asked stands in `score_stages`, with the proof of how far one row moves it in `score_query`; what the
answers say in `score_regression_estimate`; and what is wrong with them in `score_faults`. A family is a
declaration (`Likelihood`). All that follows a released sum is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cape.analyses.regression.fewer import fewer
from cape.analyses.regression.inference import largest
from cape.analyses.regression.marginals import Marginals
from cape.analyses.regression.score_faults import note_of, score_faults
from cape.analyses.regression.score_query import MOST_WEIGHTS
from cape.analyses.regression.score_regression_estimate import Fitted, Named, fitted_of, plain_design
from cape.analyses.regression.score_stages import ScoreStages
from cape.analyses.regression.score_typical import crowded, over_typical
from cape.blocks import Design, typical
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.data import Schema
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise
from cape.stats.score_steps import BENT, BENT_SECOND, ScoreStep, errors

__all__ = ["MOST_MOVED", "ScoreRegression"]

# An assumption, which results name where it matters: no column changes the predictor by more than 20 as it
# goes through its range. Odds of e^20 are 5e8 to 1, and no table has the rows to tell them from larger ones.
MOST_MOVED = 20.0


@dataclass(frozen=True, init=False)
class ScoreRegression(ScoreStages):
    """A regression whose coefficients are found by steps of clipped scores.

    Attributes:
        predictor: what is linear in the features, in words.
        bent: how far the curvature may leave the last step off, in parts of it.
        unsettled: standard errors that a last step may leave: more are worth a warning.
    """

    slopes: ClassVar[bool] = True
    predictor: ClassVar[str] = "predictors"
    bent: ClassVar[float] = BENT
    unsettled: ClassVar[float] = 0.5

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what one step where nothing is known says by itself."""
        schema = answer.schema
        point, design, family = self._supposed(schema)
        step = self._read(answer, self._scores(point, design, family, None, schema), point)
        return self._result([step], None, design, family, schema)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask how rows are spread over columns, and then for scores at what was found, each time."""
        return self._result(*(yield from self._steps(schema, neighbours)), schema)

    def _result(
        self,
        steps: list[ScoreStep],
        marginals: Marginals | None,
        design: Design,
        family: Any,
        schema: Schema,
    ) -> AnalysisResult:
        """Return the model of what these steps say."""
        raise NotImplementedError

    def _moved(self, schema: Schema) -> float:
        """Return by how much a column changes predictors at most as it goes through its range."""
        return MOST_MOVED

    def _middle(self, schema: Schema) -> float:
        """Return around what predictors are expected to be."""
        return 0.0

    def _possible(self, design: Design, schema: Schema) -> Floats:
        """Return the largest weights that are possible, if no column moves predictors further than that."""
        units = Units(plain_design(design), schema)
        moved = self._moved(schema)
        most = np.concatenate([[moved + abs(self._middle(schema))], largest(units, moved)])
        return np.asarray(np.linalg.pinv(self._frame(len(units.names)).T) @ most)

    def _named(self, units: Units) -> Named:
        """Return what weights stand for; without an intercept the first coefficient is not one."""
        first = int(self.intercept)
        return Named(
            units.matrix @ self._frame(len(units.names)).T,
            ("intercept", *units.names),
            ("", *units.owners),
            tuple((first + i, name) for i, name in enumerate(units.names)),
        )

    def _by_x(self, weights: Floats, units: Units) -> Floats:
        """Return weights of (1, x)."""
        return np.asarray(self._frame(len(units.names)).T @ weights)

    @property
    def _kept(self) -> slice:
        """Which coefficients are estimates."""
        return slice(0 if self.intercept else 1, None)

    def _fitted(
        self, steps: list[ScoreStep], marginals: Marginals | None, design: Design, schema: Schema
    ) -> Fitted:
        """Return the estimates with their errors."""
        units, most = Units(plain_design(design), schema), self._possible(design, schema)
        bent = max(BENT_SECOND, self.bent) if len(steps) in (2, 3) else self.bent
        return fitted_of(
            steps,
            marginals,
            units,
            self._named(units),
            errors(steps[-1], most, bent),
            target=self.target,
            kept=self._kept,
            most=most,
            allowed=lambda weights: self._allowed(weights, steps[-1], schema),
            by_x=lambda weights: self._by_x(weights, units),
        )

    def _faults(self, fitted: Fitted, empty: str = "") -> tuple[str, ...]:
        """Return what is wrong with the data, or the fit, as sentences; with a warning of what spoils it.

        `empty` is what is said already of categories in which nobody is.
        """
        return score_faults(
            fitted,
            self.target,
            self.predictor,
            self.unsettled,
            self._slopes_of,
            lambda weights: self._by_x(weights, fitted.units),
            empty,
        )

    def _slopes_of(self, weights: Floats, width: int) -> Floats:
        """Return the weights of features, a row for each predictor, among those of (1, x) of this width."""
        return weights.reshape(-1, width)[:, 1:]

    def _note(self, fitted: Fitted) -> str:
        """Return what the estimates are."""
        return note_of(fitted, self._assumed(fitted.units.schema))

    def _assumed(self, schema: Schema) -> str:
        """Return what is taken to be possible where noise hides everything."""
        most = f"{self._moved(schema):.3g}"
        return f"no column changes {self.predictor} by more than {most} as it goes through its range"

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the error of each coefficient beside sampling, after all steps over typical rows.

        How far the last step may end from where scores add up to 0 is left out: a release counts the most.
        """
        steps, _, design, _ = self._over_typical(schema, noise, rows, neighbours)
        named = self._named(Units(plain_design(design), schema))
        found = errors(steps[-1], self._possible(design, schema))
        privacy = named.to @ (found.noise + found.clipped + found.hidden) @ named.to.T
        each = zip(named.labels, np.sqrt(np.maximum(np.diag(privacy), 0.0)).tolist(), strict=True)
        return dict(list(each)[self._kept])

    def _steepest(self, schema: Schema) -> dict[str, float]:
        """Return how steep slopes can be."""
        return typical.steepest(schema, self.target, self.features)

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be."""
        return self._steepest(schema)

    def _over_typical(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours
    ) -> tuple[list[ScoreStep], Marginals | None, Design, Any]:
        """Return steps over typical rows, if the last one has this noise."""
        schema = crowded(schema, self._columns())
        talk, shares = self._steps(schema, neighbours), self.stages()
        public = rows if neighbours == "replace-one" and not schema.open else None
        planned = self.query(schema, neighbours)
        unit = noise[0][1] / planned.flat_scales[1] / planned.sensitivity * math.sqrt(shares[-1])
        return over_typical(talk, shares, schema, rows, unit=unit, public=public)

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return a bound on the seconds until the next question, with what `query` decomposes."""
        many = self._many(schema)
        asked = (
            1e-7 * many**2 + 1.5e-10 * many**3 if many <= MOST_WEIGHTS else 0.0
        )  # more are refused at once
        return super().effort(schema, results) + asked

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield regressions on fewer features, then on each alone, then the target by each category."""
        return fewer(self, schema, self.target, self.features)

    def keys(self) -> dict[str, Any]:
        found = dict(super().keys())
        if self.cap == "auto":
            del found["cap"]
        elif not isinstance(self.cap, str):
            found["cap"] = {name: list(ends) for name, ends in self.cap}
        return found
