"""What the steps of a Cox regression say: coefficients with errors, the baseline, concordance, and a test."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import gammaincc, ndtri

from cape.analyses.regression.inference import largest
from cape.analyses.regression.joint import Joint, WaldTest, rows_of
from cape.analyses.regression.limited import Capped, Limited
from cape.analyses.survival.cox_separated import Separated, opened, separated_values
from cape.analyses.survival.cox_steps import Fit, Scored
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.data import Schema
from cape.stats.estimates import Estimate
from cape.stats.score_steps import Errors, errors

__all__ = ["CoxBaseline", "Estimated", "concordance"]

# Of the last step: how far it may be off. The mean at risk, and with it the curvature, changes with weights
# more than a regression's does: chosen on half of the settings of `python -m benchmarks truth`.
BENT = 0.35
_NORMAL = np.abs(ndtri((np.arange(2000) + 0.5) / 2000))


@dataclass(frozen=True)
class CoxBaseline:
    """The hazard of a row at the centre, by cell, and what errors of its sums are made of.

    Attributes:
        hazards: by cell.
        sampling, privacy: variances of the cumulative hazard at the end of each cell, at given coefficients.
        means: of x - centre over those at risk, by cell.
    """

    hazards: tuple[float, ...]
    sampling: tuple[float, ...]
    privacy: tuple[float, ...]
    means: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Estimated:
    """What a fit says; `moved` is by how much a column changes log-hazards at most."""

    fit: Fit
    schema: Schema
    moved: float

    @property
    def last(self) -> Scored:
        """The last step."""
        return self.fit.scored[-1]

    @cached_property
    def units(self) -> Units:
        """Between x and the columns' units."""
        return Units(self.fit.design, self.schema)

    @cached_property
    def errors(self) -> Errors:
        """The weights of x with the covariances of their errors."""
        possible = largest(self.units, self.moved)
        found = errors(self.last.step, possible, BENT, alike=False)
        if self.fit.clear:
            return found
        return replace(found, hidden=np.diag(possible**2), pull=np.eye(len(possible)))

    @property
    def weights(self) -> Floats:
        """The weights of x."""
        return self.errors.weights

    @property
    def _to(self) -> Floats:
        return self.units.matrix[1:, 1:]

    def _of(self, covariance: Floats) -> Floats:
        return np.asarray(self._to @ covariance @ self._to.T)

    @cached_property
    def _covariances(self) -> tuple[Floats, Floats]:
        """Of the coefficients, from sampling and from privacy; without noise all of it is the former's."""
        found = self.errors
        sampling = self._of(found.sampling)
        privacy = self._of(found.noise + found.clipped + found.unsettled + found.hidden)
        if not self.last.step.score_noise:
            return sampling + privacy, np.zeros_like(privacy)
        return sampling, privacy

    @cached_property
    def _standard_errors(self) -> Floats:
        total = np.diag(sum(self._covariances))
        return np.maximum(np.sqrt(np.maximum(total, 0.0)), 1e-150)

    @cached_property
    def joint(self) -> Joint:
        """The coefficients together."""
        names = self.units.names
        return Joint(
            names,
            ((-math.inf, math.inf),) * len(names),
            tuple(map(float, self._to @ self.weights)),
            rows_of(self._covariances[1] + np.diag([self._wider.get(name, 0.0) for name in names])),
            rows_of(self._covariances[0]),
            owners=self.units.owners,
        )

    @cached_property
    def separated(self) -> list[Separated]:
        """Values at which noise hides whether there are any events, though many rows have them."""
        return separated_values(self.fit, self.weights, self.units, self.schema)

    @cached_property
    def _open(self) -> dict[str, float]:
        """On which side coefficients have no end, and where that is taken to be."""
        most = np.abs(self._to) @ largest(self.units, self.moved)
        ends = dict(zip(self.units.names, map(float, most), strict=True))
        return {label: side * ends[label] for each in self.separated for label, side in each.sides}

    @property
    def _wider(self) -> dict[str, float]:
        """The variance that makes the intervals of these as wide on both sides."""
        values = dict(zip(self.units.names, map(float, self._to @ self.weights), strict=True))
        return {label: ((end - values[label]) / 2) ** 2 for label, end in self._open.items()}

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """The coefficients."""
        sampling, privacy = (np.sqrt(np.maximum(np.diag(each), 0.0)) for each in self._covariances)
        values = self._to @ self.weights
        each = zip(self.units.names, values, sampling, privacy, strict=True)
        found = [Estimate(label, float(value), float(s), float(p)) for label, value, s, p in each]
        return tuple(opened(one, self._open[one.label]) if one.label in self._open else one for one in found)

    @property
    def left(self) -> float:
        """By how many standard errors steps that had not arrived may have left estimates off."""
        apart = np.sqrt(np.maximum(np.diag(self._of(self.errors.unsettled)), 0.0))
        return float((apart / self._standard_errors).max())

    @property
    def pulled(self) -> Floats:
        """Which part of each coefficient is what is taken to be possible."""
        return np.clip(np.abs(np.diag(self.errors.pull)), 0.0, 1.0)

    @property
    def hidden(self) -> Floats:
        """Which part of each coefficient is hidden: by noise, or since its error is all that is possible."""
        pulled = self.pulled
        possible = np.abs(self._to) @ largest(self.units, self.moved)
        return np.asarray(np.maximum(pulled, 1 / (1 + (possible / self._standard_errors) ** 2)))

    @property
    def limited(self) -> Limited:
        """What was capped and shortened."""
        beyond, marginals = self.last.step.point.beyond, self.fit.marginals
        moved = np.sqrt(np.maximum(np.diag(self._of(self.errors.clipped)), 0.0)) / self._standard_errors
        numbers = {} if marginals is None else marginals.numbers
        return Limited(
            tuple(Capped.of(name, one) for name, one in numbers.items() if any(one.capped)),
            0.0 if beyond is None else beyond.rows,
            tuple((name, float(each)) for name, each in zip(self.units.names, moved, strict=True)),
        )

    @property
    def baseline(self) -> CoxBaseline:
        """The baseline with the errors of its sums at given coefficients."""
        hazards = self.fit.hazards
        shape = (hazards.strata, -1)
        rates, events = hazards.rates.reshape(shape), np.maximum(hazards.events.reshape(shape), 1.0)
        share = rates / events
        privacy = [
            np.diag(np.cumsum(np.cumsum(np.outer(one, one) * doubt, axis=0), axis=1))
            for one, doubt in zip(share, hazards.doubt, strict=True)
        ]
        return CoxBaseline(
            tuple(map(float, hazards.rates)),
            tuple(map(float, np.cumsum(rates**2 / events, axis=1).reshape(-1))),
            tuple(map(float, np.maximum(np.concatenate(privacy), 0.0))),
            rows_of(hazards.offsets),
        )

    @property
    def events_noise(self) -> float:
        """The noise in the number of events, which all steps together say; 0 where there is none."""
        if not self.last.step.score_noise:
            return 0.0
        return math.sqrt(max(float(sum(each.sum() for each in self.fit.hazards.doubt)), 0.0))

    @property
    def _spread(self) -> Floats:
        """The covariance of x over those at risk, as events see them."""
        step = self.last.step
        back = np.linalg.inv(step.point.turn)
        return np.asarray(back @ step.likely @ back.T) / self.fit.hazards.total

    @property
    def concordance(self) -> Estimate:
        """Return the probability that of two rows the one with the larger hazard has the event first.

        Under the model that is the mean of 1 / (1 + exp(-|d|)) over differences d of two rows' log-hazards
        (Gönen and Heller). These are taken to be normal, with the released variance of the features at risk.
        """
        return concordance(self.weights, self._spread, self.errors.sampling, self.errors.noise)

    @property
    def proportional(self) -> WaldTest | None:
        """The test that hazards are proportional, if it was asked for.

        The scaled Schoenfeld residuals' slope in g is 0 then: scores weighted by g have mean 0, and variance
        (curvature) times the mean of g² over events, beside noise.
        """
        block, step = self.last.block, self.last.step
        if not block.trend:
            return None
        g, width, hazards = np.array(block.trend), len(block.weights), self.fit.hazards
        scores, noise = (block.bound * each for each in self.last.array("trend"))
        mean = float(hazards.events @ g**2) / hazards.total
        excess = 0.0 if step.point.beyond is None else step.point.beyond.excess
        variance = step.likely * mean + (noise**2 + mean * excess**2 / width) * np.eye(width)
        if not np.linalg.eigvalsh(variance)[0] > 0:
            return WaldTest(self.units.names, math.nan, width, math.nan)
        found = float(scores @ np.linalg.solve(variance, scores))
        return WaldTest(self.units.names, found, width, float(gammaincc(width / 2, found / 2)))


def concordance(weights: Floats, spread: Floats, sampling: Floats, noise: Floats) -> Estimate:
    """Return the concordance of weights with these errors, of features with this covariance at risk."""
    raw = float(weights @ spread @ weights)
    variance = max(raw - float(np.trace(spread @ (noise + sampling))), 0.0)
    slope = spread @ weights / math.sqrt(max(raw, 1e-300))
    apart = [math.sqrt(max(float(slope @ each @ slope), 0.0)) for each in (sampling, noise)]
    steep = (_agreed(math.sqrt(raw) + 1e-4) - _agreed(max(math.sqrt(raw) - 1e-4, 0.0))) / 2e-4
    return Estimate(
        "concordance", _agreed(math.sqrt(variance)), steep * apart[0], steep * apart[1], (0.5, 1.0)
    )


def _agreed(spread: float) -> float:
    """Return the concordance if log-hazards are normal with this standard deviation."""
    return float(np.mean(1 / (1 + np.exp(-math.sqrt(2) * spread * _NORMAL))))
