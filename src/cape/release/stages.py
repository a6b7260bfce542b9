"""How a share is divided among the queries of one analysis, and how much noise each of them gets.

Claim. The stages of an analysis together cost at most the mu that its share of the budget buys.
Reason. Without sampling, stage i is given the part p_i of the share, so mu_i² = p_i share mu²; the parts are
fractions that add up to exactly 1, and mu² adds. With Poisson sampling all stages are alike, and their
noise is that of `privacy.covered_noise`: the whole run is covered by one Gaussian release of mu² = share
mu², but for a slack that the promise adds to delta.
Tested in tests/release/test_stages.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from cape import check
from cape.errors import InvalidInput
from cape.privacy import covered_noise
from cape.privacy.subsampling import Relation
from cape.release.calibration import Calibration, calibrate
from cape.release.query import Analysis, Query
from cape.release.schemes import Scheme
from cape.release.setting import Setting

__all__ = ["Stages"]

_SLACK = Fraction(1, 1000)  # of delta, given up by a run with sampling so that it adds to other releases


@dataclass(frozen=True)
class Stages:
    """One analysis at one share: what each of its queries is paid, and the noise that this buys."""

    setting: Setting
    scheme: Scheme
    share: Fraction
    parts: tuple[Fraction, ...]
    sampling: float

    @classmethod
    def of(cls, analysis: Analysis, setting: Setting, scheme: Scheme, share: float) -> Stages:
        """Return the stages of an analysis."""
        given = [Fraction(check.real("stages", part, above=0.0)) for part in analysis.stages()]
        if not given:
            raise InvalidInput("an analysis must have at least one stage")
        sampling = check.real("sampling", analysis.sampling, above=0.0, most=1.0)
        if sampling < 1 and len(set(given)) > 1:
            raise InvalidInput("an analysis that samples must have stages of equal size")
        if sampling < 1 and setting.published:
            raise InvalidInput("the paper's calibration knows no sampling; use calibration='exact'")
        total = sum(given)
        return cls(setting, scheme, Fraction(repr(share)), tuple(part / total for part in given), sampling)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def slack(self) -> float:
        """What sampling adds to delta, and the random graph of masks in each stage after the first."""
        graphs = (len(self) - 1) * self.scheme.failure(self.setting.parties)
        return graphs + (0.0 if self.sampling == 1 else self._given_up)

    @property
    def _given_up(self) -> float:
        return float(_SLACK) * self.setting.budget.delta

    def cost(self, asked: int) -> Fraction:
        """Return the share that is spent once `asked` stages have begun."""
        if not asked or self.scheme.name == "none":
            return Fraction(0)
        return self.share * (1 if self.sampling < 1 else sum(self.parts[:asked], Fraction(0)))

    def local_std(self, stage: int, query: Query) -> float | None:
        """Return a site's noise per unit of sensitivity in one stage."""
        setting = self.setting
        if self.sampling == 1:
            return setting.local_std(self.scheme, float(self.share * self.parts[stage]))
        if query.norm is None:
            raise InvalidInput("a query over a sample must say how much one record alone can add")
        relation: Relation = "replace" if setting.neighbours == "replace-one" else "add-or-remove"
        whole = setting.budget.cost(self.share).mu
        multiplier = covered_noise(whole, self.sampling, len(self), self._given_up, relation=relation)
        return self.scheme.local_std(query.sensitivity / query.norm / multiplier, setting.parties)

    def calibrate(self, stage: int, query: Query) -> tuple[Calibration, float]:
        """Return the grid and noise of a stage, and that noise per unit of sensitivity (0 for none)."""
        local_std = self.local_std(stage, query)
        return calibrate(query, self.setting.schema, local_std), local_std or 0.0
