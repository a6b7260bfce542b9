"""What all sites say together of one quantity: effects of a meta-analysis as estimates.

How each is computed is in `stats/meta_analysis.py`; effects of sites come from `site_effects`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cape.analyses.sites.site_effects import SiteEffects
from cape.show.tables import Estimated
from cape.stats.estimates import Estimate, unknown
from cape.stats.meta_analysis import Synthesis

__all__ = ["Quantity", "quantity", "site_of"]


@dataclass(frozen=True)
class Quantity:
    """One quantity: at each site, of all of them together, and without each in turn.

    Attributes:
        label: what it is.
        columns: those of which a site must have enough rows.
        sites: the estimate of each site.
        synthesis: what they say together; None if fewer than two are known.
        combined: fixed effect, random effects, prediction, tau² and I².
        without: the mean of random effects without each site; empty if there are two.
    """

    label: str
    columns: tuple[str, ...]
    sites: tuple[Estimate, ...]
    synthesis: Synthesis | None
    combined: tuple[Estimate, ...]
    without: tuple[Estimate, ...]

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """All of its numbers."""
        return (*self.sites, *self.combined, *self.without)

    @property
    def fixed(self) -> Estimate:
        """The effect that all sites share, if they agree."""
        return self.combined[0]

    @property
    def random(self) -> Estimate:
        """The mean of the effects of all sites that there could be."""
        return self.combined[1]

    @property
    def prediction(self) -> Estimate:
        """The effect at a new site."""
        return self.combined[2]

    @property
    def tau2(self) -> Estimate:
        """The variance between sites."""
        return self.combined[3]

    @property
    def i2(self) -> Estimate:
        """The part of the variance of sites' estimates, noise left out, that is due to differences."""
        return self.combined[4]

    @property
    def weights(self) -> tuple[float, ...]:
        """The part that each site has in the mean of random effects; 0 where noise hides it."""
        if self.synthesis is None:
            return (0.0,) * len(self.sites)
        tau2 = self.synthesis.tau2
        held = {each.site: 1 / (each.total + tau2) for each in self.synthesis.effects}
        total = sum(held.values())
        return tuple(held.get(site_of(each), 0.0) / total for each in self.sites)


def site_of(estimate: Estimated) -> str:
    """Return the site that a label names."""
    return estimate.label.rpartition(" | ")[2].partition("=")[2]


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
        site = site_of(estimate)
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
