"""Ratios of hazards between groups, from tables of who is at risk and who has an event.

In stratum h and bin k, with events d_g and time at risk E_g of group g, log-hazard ratios b against the first
group (b = 0) are those of Cox's partial likelihood in which all events of a bin see the same rows at risk:

    U_g(b) = sum (d_g - p_g d) = 0,  p_g = E_g exp(b_g) / sum E exp(b),

which is what a regression with hazards that are constant in each bin gives. E is the mean of those at risk at
both ends of the bin, and those at its start where times are ends of bins (Breslow's ties).

*Noise.* Counts without constraints have no bias (`RiskTable.free`): U is their linear function at the fitted
counts, and its noise has an exact covariance N there. Newton's steps find where U is 0; b has the noise
I^-1 N I^-1, I = sum d (diag(p) - p p').

*Sampling.* Residuals of rows are known: a row of group g that leaves in bin k has delta (e_g - p) less what
was expected of it until then, e_g - p times exp(b_g) d / sum E exp(b) in each bin. S is the sum of their
squares, and I^-1 S I^-1 the robust error, which holds whether hazards are proportional or not.

Where noise hides who is at risk, late or in small strata, p is that of all strata together, and as before.
Events there have noise, and no bias: all follow-up counts.
Tested in tests/unit/analyses/survival/test_hazard_ratios.py against statsmodels, and by truth.ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cape.analyses.survival.risk_table import RiskTable, Slopes
from cape.core.arrays import Flags, Floats, Integers
from cape.stats.estimates import Estimate, unknown

__every_ = ["Baseline", "HazardRatios", "hazard_ratios", "logarithms"]

MOST = 20.0  # of a log-hazard ratio: further apart means that a group has no event
_SEEN, _CLEAR = 1.0, 2.0  # standard deviations of noise in the time at risk: of one stratum, of all
_EVENTS = 1.5  # standard deviations of noise: of a group with fewer events nothing is known
_STEPS, _LONGEST, _CLOSE = 200, 1.0, 1e-10


@dataclass(frozen=True)
class _Stratum:
    """What is known of one stratum, by group and bin.

    Attributes:
        at_risk: the time at risk; where noise hides it, as it is divided among groups in all strata together.
        clear: in which bins noise does not hide it.
    """

    tables: Sequence[RiskTable]
    events: Floats
    at_risk: Floats
    free_events: Floats
    free_at_risk: Floats
    clear: Flags

    @classmethod
    def of(cls, tables: Sequence[RiskTable], divided: Floats) -> _Stratum:
        at_risk, clear = _at_risk(tables), _clear([tables], _SEEN)
        free = [table.free or table for table in tables]
        events = np.array([table.deaths for table in tables])
        whole = np.maximum(at_risk.sum(0), np.maximum(events.sum(0), 1.0))
        return cls(
            tables,
            events,
            np.where(clear, at_risk, whole * divided),
            np.array([each.deaths for each in free]),
            np.where(clear, _at_risk(free), whole * divided),
            clear,
        )

    def shares(self, b: Floats) -> tuple[Floats, Floats]:
        """Return p by group and bin, and what hazards of the first group are per event."""
        weighted = self.at_risk * np.exp(b)[:, None]
        whole = weighted.sum(0)
        return weighted / whole, 1 / whole

    def scores(self, b: Floats) -> tuple[Floats, Floats]:
        """Return U and I of all groups."""
        p, inverse = self.shares(b)
        events = self.events.sum(0)
        hazard = events * inverse
        moved = np.exp(b)[:, None] * (self.free_at_risk - self.at_risk)
        drift = hazard * (moved - p * moved.sum(0))
        score = (self.free_events - p * self.free_events.sum(0) - drift).sum(1)
        had = p * self.free_events.sum(0)
        return score, np.diag(had.sum(1)) - had @ p.T

    def noise(self, b: Floats, elsewhere: Floats) -> Floats:
        """Return the covariance of the noise in U; `elsewhere`, by group, contrast and bin, is how the scores
        of strata that are hidden change with the time at risk of all."""
        p, inverse = self.shares(b)
        hazard = self.events.sum(0) * inverse
        many, bins = len(b), self.tables[0].bins
        found = np.zeros((many, many))
        for place, table in enumerate(self.tables):
            own = (np.arange(many) == place)[:, None] - p
            direct = np.zeros((many, table.events.shape[0], bins))
            by_exposure = np.zeros((many, bins))
            direct[:] = own[:, None, :]
            by_exposure[:] = elsewhere[place] - (self.clear * hazard) * math.exp(b[place]) * own
            later = _later(table)
            slopes = Slopes(direct + (by_exposure @ later[:, :-1])[:, None, :], by_exposure @ later)
            found += table.blur.covariance(slopes)
        return found

    def spread(self, b: Floats) -> Floats:
        """Return the sum over rows of the squares of their residuals."""
        p, inverse = self.shares(b)
        hazard, many = self.events.sum(0) * inverse, len(b)
        found = np.zeros((many, many))
        for place, table in enumerate(self.tables):
            own = (np.arange(many) == place)[:, None] - p
            due = math.exp(b[place]) * hazard * own
            whole = np.cumsum(due, axis=1)
            before = whole - (0.0 if table.at_edges else 0.5) * due
            had = own - before
            found += (had * table.deaths) @ had.T
            found += (before * table.censored[:-1]) @ before.T
            found += float(table.at_risk[-1]) * np.outer(whole[:, -1], whole[:, -1])
        return found

    def baseline(self, b: Floats) -> Baseline:
        """Return the hazards of the first group."""
        p, inverse = self.shares(b)
        events, bins = self.events.sum(0), self.tables[0].bins
        hazard = events * inverse
        reached = np.tril(np.ones((bins, bins)))
        noise = np.zeros((bins, bins))
        for place, table in enumerate(self.tables):
            direct = np.repeat((reached * inverse)[:, None, :], table.events.shape[0], 1)
            by_exposure = -reached * hazard * inverse * math.exp(b[place])
            later = _later(table)
            slopes = Slopes(direct + (by_exposure @ later[:, :-1])[:, None, :], by_exposure @ later)
            noise += table.blur.covariance(slopes)
        return Baseline(hazard, np.cumsum(hazard**2 / np.maximum(events, 1.0)), np.diag(noise).copy(), p)


@dataclass(frozen=True)
class Baseline:
    """The hazards of the first group in one stratum, of a bin of length 1.

    Attributes:
        hazards: by bin.
        sampling, privacy: variances of the cumulative hazard at the end of each bin, at given ratios.
        shares: of those at risk, weighted by their hazards, by group and bin.
    """

    hazards: Floats
    sampling: Floats
    privacy: Floats
    shares: Floats


def _later(table: RiskTable) -> Floats:
    """Return how the time at risk in each bin changes with rows that leave in each cell."""
    later = np.triu(np.ones((table.bins, table.bins + 1)))
    if not table.at_edges:
        later[np.arange(table.bins), np.arange(table.bins)] = 0.5
    return later


def _at_risk(tables: Sequence[RiskTable]) -> Floats:
    """Return the time at risk by group and bin."""
    whole = np.array([table.at_risk for table in tables])
    return whole[:, :-1] if tables[0].at_edges else (whole[:, :-1] + whole[:, 1:]) / 2


def _clear(strata: Sequence[Sequence[RiskTable]], least: float) -> Flags:
    """Return in which bins, from the first on, the time at risk of all of these is above so much noise."""
    free = np.sum([_at_risk([table.free or table for table in each]).sum(0) for each in strata], 0)
    fitted = np.sum([_at_risk(each).sum(0) for each in strata], 0)
    noise = math.sqrt(len(strata) * len(strata[0])) * strata[0][0].exposure_noise
    return np.logical_and.accumulate((free > least * noise) & (fitted > 0))


@dataclass(frozen=True)
class _Together:
    """The time at risk of all strata together, by group and bin, up to where noise hides it."""

    at_risk: Floats
    bins: int

    @classmethod
    def of(cls, strata: Sequence[Sequence[RiskTable]]) -> _Together | None:
        """Return it; None where noise hides it from the first bin on."""
        known = int(_clear(strata, _CLEAR).sum())
        free = np.sum([_at_risk([table.free or table for table in each]) for each in strata], 0)
        return cls(np.maximum(free[:, :known], 0.0), strata[0][0].bins) if known else None

    @property
    def _last(self) -> Integers:
        """For each bin the one whose division among groups it has: itself, or the last one that is known."""
        return np.asarray(np.minimum(np.arange(self.bins), self.at_risk.shape[1] - 1))

    @property
    def divided(self) -> Floats:
        """Which part each group has, by bin."""
        return np.asarray((self.at_risk / self.at_risk.sum(0))[:, self._last])

    def slopes(self, b: Floats, events: Floats) -> Floats:
        """Return how U changes with the time at risk of each group, by that group, contrast and bin.

        So many events in each bin are compared with those at risk in all strata.
        """
        weighted = self.at_risk * np.exp(b)[:, None]
        p, known = weighted / weighted.sum(0), self.at_risk.shape[1]
        hazard = np.bincount(self._last, events, minlength=known) / weighted.sum(0)
        found = np.zeros((len(b), len(b), self.bins))
        for place in range(len(b)):
            own = (np.arange(len(b)) == place)[:, None] - p
            found[place, :, :known] = -hazard * math.exp(b[place]) * own
        return found


@dataclass(frozen=True)
class HazardRatios:
    """Log-hazards of groups against the first, with the covariances of their errors, 0 for the first.

    Attributes:
        known: which groups have events that noise does not hide; of the others all is 0.
        information: of the log-hazards.
        baselines: one for each stratum, with shares of the known groups alone.
    """

    known: tuple[int, ...]
    values: Floats
    sampling: Floats
    privacy: Floats
    information: Floats
    baselines: tuple[Baseline, ...]


def hazard_ratios(strata: Sequence[Sequence[RiskTable]]) -> HazardRatios | None:
    """Return ratios from the tables of each stratum; None if noise hides all of them, or the first group."""
    known = [place for place in range(len(strata[0])) if _has_events([each[place] for each in strata])]
    while len(known) > 1 and known[0] == 0:
        found = _solved([[each[place] for place in known] for each in strata])
        if isinstance(found, _Solved):
            return found.among(known, len(strata[0]))
        del known[found]
    return None


def _has_events(tables: Sequence[RiskTable]) -> bool:
    seen = [table.seen_events for table in tables]
    return sum(events for events, _ in seen) > _EVENTS * math.hypot(*(noise for _, noise in seen))


@dataclass(frozen=True)
class _Solved:
    values: Floats
    sampling: Floats
    privacy: Floats
    information: Floats
    baselines: tuple[Baseline, ...]

    def among(self, known: Sequence[int], many: int) -> HazardRatios:
        """Return what was found of some groups as that of so many."""
        values, places = np.zeros(many), np.ix_(known, known)
        values[list(known)] = self.values

        def whole(square: Floats) -> Floats:
            found = np.zeros((many, many))
            found[places] = square
            return found

        sampling, privacy = whole(self.sampling), whole(self.privacy)
        information = whole(self.information)
        return HazardRatios(tuple(known), values, sampling, privacy, information, self.baselines)


def _solved(strata: Sequence[Sequence[RiskTable]]) -> _Solved | int:
    """Return ratios, or the place of a group that has none."""
    together = _Together.of(strata)
    if together is None:
        return 0
    parts = [_Stratum.of(each, together.divided) for each in strata]
    b = np.zeros(len(strata[0]))
    for _ in range(_STEPS):
        both = [part.scores(b) for part in parts]
        score, information = (np.sum([each[place] for each in both], 0) for place in (0, 1))
        values, vectors = np.linalg.eigh(information[1:, 1:])
        if not values[0] > 1e-9 * max(float(values.sum()), 1e-9):
            return 1 + int(np.argmax(np.abs(vectors[:, 0])))
        change = vectors @ ((vectors.T @ score[1:]) / values)
        longest = float(np.abs(change).max())
        b[1:] += change * min(1.0, _LONGEST / max(longest, 1e-300))
        if not np.abs(b).max() < MOST:
            return int(np.argmax(np.abs(b)))
        if longest < _CLOSE:
            break
    else:
        return int(np.argmax(np.abs(b)))
    inverse = np.zeros_like(information)
    inverse[1:, 1:] = (vectors / values) @ vectors.T
    hidden = np.sum([~part.clear * part.free_events.sum(0) for part in parts], 0)
    elsewhere = together.slopes(b, hidden)
    spread = np.sum([part.spread(b) for part in parts], 0)
    noise = np.sum([part.noise(b, elsewhere) for part in parts], 0)
    return _Solved(
        b,
        inverse @ spread @ inverse,
        inverse @ noise @ inverse,
        information,
        tuple(each.baseline(b) for each in parts),
    )


def logarithms(ratios: HazardRatios | None, labels: Sequence[str]) -> tuple[Estimate, ...]:
    """Return log-hazard ratios of all groups but the first, under these labels."""
    known = () if ratios is None else ratios.known
    found = [unknown(label, -MOST, MOST) for label in labels]
    for place in known[1:]:
        assert ratios is not None  # it knows of groups
        drawn, noise = (
            math.sqrt(max(float(each[place, place]), 0.0)) for each in (ratios.sampling, ratios.privacy)
        )
        found[place - 1] = Estimate(labels[place - 1], float(ratios.values[place]), drawn, noise)
    return tuple(found)
