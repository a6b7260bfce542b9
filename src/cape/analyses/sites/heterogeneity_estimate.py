"""What all sites say together of one quantity: effects of a meta-analysis as estimates.

How each is computed is in `stats/meta_analysis.py`; effects of sites come from `site_effects`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cape.analyses.sites.heterogeneity_model import Quantity
from cape.analyses.sites.site_effects import SiteEffects
from cape.stats.estimates import Estimate, unknown
from cape.stats.meta_analysis import Synthesis

__all__ = ["quantity"]


def quantity(found: SiteEffects) -> Quantity:
    """Return what all sites say together of one quantity."""
    low, high = found.within
    ends = found.within if math.isfinite(high - low) else _ends(found)
    # a site whose estimate has no error has nothing that varies: it would count for all others
    known = tuple(each for each in found.effects if each is not None and each.total > 0)
    label = found.label
    all_of_them = Synthesis(known, ((high - low) / 2) ** 2)
    without = []
    for estimate in found.estimates if len(found.estimates) > 2 else ():  # of two, one would be left
        site = estimate.label.rpartition(" | ")[2].partition("=")[2]
        rest, written = all_of_them.without(site), f"{label} | without {site}"
        without.append(unknown(written, *ends) if rest.many < 2 else _mean(written, rest, found.within))
    if len(known) < 2:
        nothing = [
            unknown(f"{label} | {name}", *ends) for name in ("fixed effect", "random effects", "prediction")
        ]
        nothing.append(unknown(f"{label} | tau²", 0.0, (ends[1] - ends[0]) ** 2 / 4))
        nothing.append(unknown(f"{label} | I²", 0.0, 1.0))
        return Quantity(label, found.columns, found.estimates, None, tuple(nothing), tuple(without))
    tau2 = all_of_them.tau2
    sampling, privacy = all_of_them.errors(tau2)
    combined = (
        Estimate(
            f"{label} | fixed effect",
            _within(all_of_them.fixed, found.within),
            *all_of_them.errors(0.0),
            found.within,
            _Interval(all_of_them, "fixed"),
        ),
        _mean(f"{label} | random effects", all_of_them, found.within),
        Estimate(
            f"{label} | prediction",
            _within(all_of_them.random, found.within),
            math.hypot(sampling, math.sqrt(tau2)),
            privacy,
            found.within,
            _Interval(all_of_them, "prediction"),
        ),
        Estimate(
            f"{label} | tau²",
            tau2,
            *all_of_them.tau2_errors,
            (0.0, all_of_them.most),
            _Interval(all_of_them, "tau2"),
        ),
        _share(f"{label} | I²", all_of_them),
    )
    return Quantity(label, found.columns, found.estimates, all_of_them, combined, tuple(without))


def _ends(found: SiteEffects) -> tuple[float, float]:
    """Return the values that sites could have, where the quantity itself has no bounds."""
    finite = [abs(end) for each in found.estimates for end in each.interval() if math.isfinite(end)]
    most = max(finite, default=1.0)
    return -most, most


def _mean(label: str, synthesis: Synthesis, within: tuple[float, float]) -> Estimate:
    sampling, privacy = synthesis.errors(synthesis.tau2)
    value = _within(synthesis.random, within)
    return Estimate(label, value, sampling, privacy, within, _Interval(synthesis, "random"))


def _share(label: str, synthesis: Synthesis) -> Estimate:
    """Return I², whose errors are those of tau², at the typical sampling variance."""
    tau2 = synthesis.moment_tau2
    value = synthesis.i2(tau2)
    slope = (1 - value) ** 2 / max(synthesis.typical, 1e-300)
    sampling, privacy = (min(slope * error, 1.0) for error in synthesis.tau2_errors)
    return Estimate(label, value, sampling, privacy, (0.0, 1.0), _Interval(synthesis, "i2"))


def _within(value: float, ends: tuple[float, float]) -> float:
    return min(max(value, ends[0]), ends[1])


@dataclass(frozen=True)
class _Interval:
    """An interval of a synthesis."""

    synthesis: Synthesis
    of: str

    def __call__(self, level: float) -> tuple[float, float]:
        if self.of == "i2":
            low, high = self.synthesis.tau2_interval(level)
            return self.synthesis.i2(low), self.synthesis.i2(high)
        found: tuple[float, float] = getattr(self.synthesis, f"{self.of}_interval")(level)
        return found
