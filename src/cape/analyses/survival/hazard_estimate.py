"""What the steps of a parametric regression of hazards say: coefficients with errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cape.analyses.regression.inference import Unsure, ends
from cape.analyses.regression.joint import Joint, rows_of
from cape.analyses.regression.scores import Belief
from cape.analyses.survival.hazard_steps import HazardStep
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.stats.estimates import Estimate

__all__ = ["Told"]

_Z2 = 3.8415  # z² of 95%, the level that standard errors are right for


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
