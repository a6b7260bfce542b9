"""What the steps of a Cox regression say: coefficients with errors, the baseline, concordance, and a test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaincc, ndtri

from cape.analyses.regression.inference import Unsure, ends
from cape.analyses.regression.joint import Joint, WaldTest, rows_of
from cape.analyses.regression.scores import Belief
from cape.analyses.survival.baseline import Baseline
from cape.analyses.survival.cox_steps import HazardStep
from cape.blocks import Martingale
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.engine.query import Answer
from cape.stats.estimates import Estimate

__all__ = ["CoxBaseline", "Told"]

_Z2 = 3.8415  # z² of 95%, the level that standard errors are right for
_NORMAL = np.abs(ndtri((np.arange(2000) + 0.5) / 2000))


@dataclass(frozen=True)
class CoxBaseline:
    """The cumulative hazard of a row at the centre, at the end of each cell, and what its errors are made of.

    Attributes:
        hazards: by cell.
        sampling, privacy: variances of their logarithms, by cell.
        means: of x - centre over those at risk, by cell.
    """

    hazards: tuple[float, ...]
    sampling: tuple[float, ...]
    privacy: tuple[float, ...]
    means: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Told:
    """The last step, what is likely, and what is known if nothing draws coefficients to 0."""

    units: Units
    last: HazardStep
    likely: Belief
    free: Belief
    possible: Floats
    limits: Floats

    @property
    def _to(self) -> Floats:
        """From level and weights to coefficients."""
        found = self.units.matrix[1:].copy()
        found[:, 0] = 0.0
        return found

    @cached_property
    def joint(self) -> Joint:
        """The coefficients together."""
        to, bread = self._to, self._to @ self.last.bread
        drawn = np.abs(to @ self.free.pull) @ self.possible
        possible = np.maximum(self.possible, np.abs(self.free.mean))
        pulls = np.column_stack([to @ self.free.pull * possible, to @ self.last.left])
        spread_noise = self.last.spread_noise
        return Joint(
            self.units.names,
            tuple(ends(self.limits, to @ self.likely.mean, drawn)),
            tuple(map(float, to @ self.free.mean)),
            rows_of(to @ self.free.noise @ to.T),
            rows_of(bread @ self.last.spread @ bread.T),
            rows_of(to @ self.last.sampling @ to.T),
            rows_of(math.sqrt(2) * spread_noise * bread @ bread.T) if spread_noise > 0 else (),
            rows_of(pulls),
        )

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Likely values, with the intervals of estimates that expect no more than what is possible."""
        values = self._to @ self.likely.mean
        found = []
        for place, (label, at) in enumerate(zip(self.units.names, self._intervals, strict=True)):
            squared = at.squared(_Z2)
            sampling = math.sqrt(max(squared - at.privacy, 0.0))
            found.append(
                Estimate(
                    label,
                    float(values[place]),
                    sampling,
                    math.hypot(math.sqrt(max(at.privacy, 0.0)), at.bias),
                    self.joint.within[place],
                    at,
                )
            )
        return tuple(found)

    @property
    def _intervals(self) -> list[Unsure]:
        joint = self.joint
        doubt = np.diag(np.array(joint.doubt)) if joint.doubt else np.zeros(len(joint.values))
        bias = np.abs(np.array(joint.pulls)).sum(axis=1)
        errors = (np.diag(np.array(each)) for each in (joint.sampling, joint.privacy))
        return [
            Unsure(*(float(n) for n in each)) for each in zip(joint.values, *errors, doubt, bias, strict=True)
        ]

    @property
    def far(self) -> float:
        """What the last step may have left, in standard errors."""
        left = np.abs(self._to @ self.last.left)
        errors = np.array([math.sqrt(max(at.squared(_Z2), 1e-300)) for at in self._intervals])
        return float((left / errors).max())

    def baseline(self, baseline: Baseline) -> CoxBaseline:
        """Return the baseline with the errors of its hazards at given coefficients."""
        return CoxBaseline(
            tuple(map(float, baseline.hazards)),
            tuple(map(float, 1 / np.maximum(baseline.events, 1.0))),
            tuple(map(float, baseline.doubt)),
            rows_of(baseline.means),
        )

    def concordance(self, baseline: Baseline) -> Estimate:
        """Return the probability that of two rows the one with the larger hazard has the event first.

        Under the model that is the mean of 1 / (1 + exp(-|d|)) over differences d of two rows' log-hazards
        (Gönen and Heller). These are taken to be normal, with the released variance of the features at risk.
        """
        weights = self.free.mean[1:]
        noise, sampling = self.free.noise[1:, 1:], self.last.sampling[1:, 1:]
        spread = baseline.spread
        raw = float(weights @ spread @ weights)
        variance = max(raw - float(np.trace(spread @ (noise + sampling))), 0.0)
        slope = spread @ weights / math.sqrt(max(raw, 1e-300))
        errors = [math.sqrt(max(float(slope @ each @ slope), 0.0)) for each in (sampling, noise)]
        steep = (_agreed(math.sqrt(raw) + 1e-4) - _agreed(max(math.sqrt(raw) - 1e-4, 0.0))) / 2e-4
        return Estimate(
            "concordance",
            _agreed(math.sqrt(variance)),
            steep * errors[0],
            steep * errors[1],
            (0.5, 1.0),
        )

    def proportional(self, block: Martingale, answer: Answer, baseline: Baseline) -> WaldTest | None:
        """Return the test that hazards are proportional, if it was asked for.

        The scaled Schoenfeld residuals' slope in g is 0 then: scores weighted by g have mean 0, and variance
        (curvature) times the mean of g² over events, beside noise.
        """
        if not block.trend:
            return None
        g, width = np.array(block.trend), len(block.weights)
        scores, noise = block.bound * answer.sums[0][7], block.bound * answer.noise[0][7]
        mean = float(baseline.events @ g**2) / baseline.total
        values, vectors = np.linalg.eigh(self.last.trusting.curvature[1:, 1:])
        variance = (vectors * np.maximum(values, 0.0)) @ vectors.T * mean + noise**2 * np.eye(width)
        if not np.linalg.eigvalsh(variance)[0] > 0:
            return WaldTest(self.units.names, math.nan, width, math.nan)
        found = float(scores @ np.linalg.solve(variance, scores))
        return WaldTest(self.units.names, found, width, float(gammaincc(width / 2, found / 2)))


def _agreed(spread: float) -> float:
    """Return the concordance if log-hazards are normal with this standard deviation."""
    return float(np.mean(1 / (1 + np.exp(-math.sqrt(2) * spread * _NORMAL))))
