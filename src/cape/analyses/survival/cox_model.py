"""The model of a Cox regression: ratios of hazards, the baseline, predicted survival, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cape.analyses.regression.effects import effect_table, effects, forest, plainly, ratios_of
from cape.analyses.regression.joint import Joint, Tested, WaldTest
from cape.analyses.regression.limited import Limited
from cape.analyses.regression.misfit import hazards_misfit
from cape.analyses.survival.cox_estimate import CoxBaseline
from cape.blocks.design import Design
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined
from cape.show import Figure, Shown, Table
from cape.show.numbers import count, counted, number, p_said
from cape.show.plain import plain
from cape.stats.estimates import Estimate

__all__ = ["CoxModel"]


@dataclass(frozen=True, repr=False)
class CoxModel(Tested, Shown):
    """Hazards that are proportional to a baseline, their logarithms linear in the features.

    Attributes:
        estimates: log-hazards per unit of each feature.
        weights: the same for x - centre, with x as sites make it.
        centre: about the mean of x.
        edges: of the bins of time.
        baseline: the hazards by bin of a row at the centre, for each stratum in turn.
        joint: the estimates together, with the covariances of their errors.
        concordance: the probability that of two rows the one with the larger hazard has the event first,
            under the model.
        proportional: the test that hazards are proportional, if it was asked for.
        rounds: the steps that were made, after the first question; 0 if tables of groups were asked for.
        events: how many there are, as released.
        count: how many complete rows there are.
        limited: what was capped and shortened.
        faults: what is wrong with the data or the fit, in sentences.
        events_noise: the noise in the number of events.
    """

    time: str
    event: str
    had: Any
    strata: tuple[str, ...]
    design: Design
    schema: Schema
    estimates: tuple[Estimate, ...]
    weights: tuple[float, ...]
    centre: tuple[float, ...]
    edges: tuple[float, ...]
    baseline: CoxBaseline
    joint: Joint
    concordance: Estimate
    proportional: WaldTest | None
    rounds: int
    events: float
    count: float
    limited: Limited
    note: str
    faults: tuple[str, ...] = ()
    events_noise: float = 0.0

    def describe(self) -> str:
        """Return what was done."""
        of = f"Cox regression of {self.event} by {self.time} on {joined(self.design.features)}"
        return f"{of}, in {count(self.rounds + 1, 'step')}" if self.rounds else f"{of}, from tables of groups"

    @cached_property
    def coefficients(self) -> dict[str, float]:
        """Log-hazards per unit of each feature; of a category, against its first value."""
        return {each.label: each.value for each in self.estimates}

    @property
    def hazard_ratios(self) -> dict[str, float]:
        """By what hazards are multiplied for one unit more of each feature."""
        return ratios_of(self.coefficients)

    def log_hazards(self, data: Any) -> Floats:
        """Return log-hazards of each row against one at the centre: see `Units.rows` for what data may be."""
        x = Units(self.design, self.schema).rows(data)
        return np.asarray((x - np.array(self.centre)) @ np.array(self.weights))

    def cumulative_hazard(self, times: Any, stratum: Any = None) -> Floats:
        """Return the baseline's cumulative hazard at times, of a row at the centre."""
        at = self._times(times)
        hazards = np.array(self.baseline.hazards).reshape(-1, len(self.edges) - 1)[self._stratum(stratum)]
        return np.asarray(np.interp(at, self.edges, np.concatenate([[0.0], np.cumsum(hazards)])))

    def predict_survival(self, data: Any, times: Any, stratum: Any = None) -> Floats:
        """Return the survival of each row at each time, (rows, times); NaN where a feature is missing.

        Times are at most the last edge. With strata, `stratum` is the one whose baseline is used.
        """
        log = np.clip(self.log_hazards(data), -700.0, 700.0)
        return np.asarray(np.exp(-np.exp(log)[:, None] * self.cumulative_hazard(times, stratum)[None, :]))

    def baseline_survival(self, stratum: Any = None) -> list[Estimate]:
        """Return the survival of a row at the centre at the end of each bin, with intervals.

        The cumulative hazard is the sum of hazards h by bin; its variance is that at given weights, and m'Cm
        for the covariance C of weights, m the sum of h times the means of x - centre at risk.
        """
        bins, place = len(self.edges) - 1, self._stratum(stratum)
        cells = slice(place * bins, (place + 1) * bins)
        hazards = np.array(self.baseline.hazards)[cells]
        total = np.cumsum(hazards)
        sampling, privacy = (
            np.array(each)[cells] for each in (self.baseline.sampling, self.baseline.privacy)
        )
        units = Units(self.design, self.schema).unit
        moved = np.cumsum(hazards[:, None] * np.array(self.baseline.means)[cells], axis=0)
        clear, noise = np.array(self.joint.sampling), np.array(self.joint.privacy)
        found = []
        for at in range(bins):
            m = moved[at] * units
            drawn, blurred = (
                math.sqrt(max(each[at] + float(m @ of @ m), 0.0))
                for each, of in ((sampling, clear), (privacy, noise))
            )
            survival = math.exp(-float(total[at]))
            label = f"S({self.edges[at + 1]:g})"
            found.append(Estimate(label, survival, survival * drawn, survival * blurred, (0.0, 1.0)))
        return found

    def _times(self, times: Any) -> Floats:
        at = np.atleast_1d(np.asarray(times, np.float64))
        if at.ndim != 1 or not (np.isfinite(at).all() and (at >= 0).all() and (at <= self.edges[-1]).all()):
            raise InvalidInput(f"times must be numbers from 0 to the last edge, {self.edges[-1]:g}")
        return at

    def _stratum(self, stratum: Any) -> int:
        if not self.strata:
            if stratum is not None:
                raise InvalidInput("the regression has no strata; leave out stratum")
            return 0
        given = stratum if isinstance(stratum, tuple) else (stratum,)
        if len(given) != len(self.strata):
            raise InvalidInput(f"stratum must be one value of each of {joined(self.strata)}")
        place = 0
        for name, value in zip(self.strata, given, strict=True):
            values = list(self.schema.category(name).values)
            if value not in values:
                raise InvalidInput(
                    f"stratum must be one of {', '.join(map(repr, values))}, not {check.show(value)}"
                )
            place = place * len(values) + values.index(value)
        return place

    @property
    def title(self) -> str:
        """What stands above the table."""
        events = counted(self.events, self.events_noise, "event")
        return f"hazard of {self.schema.label(self.event)} = {self.had} ({events})"

    def tables(self) -> Sequence[Table]:
        """Return ratios of hazards and coefficients with errors."""
        return [effect_table(self.estimates, self.coefficients, self.schema, self.title, "hazard ratio")]

    def figures(self) -> Sequence[Figure]:
        """Return the ratios of hazards on one axis."""
        what = f"Hazard ratio of {self.schema.title(f'{self.event}={self.had}')}"
        return forest(self.estimates, self.schema, what, ratios=True)

    def notes(self) -> Sequence[str]:
        """Return what errors are, the concordance, and the test of proportional hazards."""
        low, high = self.concordance.interval()
        notes = [
            *self.faults,
            *self.limited.notes(self.schema, self.count),
            self._of_bins,
            f"Standard errors are robust{', and count the noise' if self.events_noise else ''}.",
            f"Concordance under the model, log-hazards taken to be normal: {number(self.concordance.value)} "
            f"({number(low)} to {number(high)}).",
        ]
        if self.strata:
            notes.append(f"Each value of {joined(self.strata)} has a baseline hazard of its own.")
        if self.proportional is not None:
            test = self.proportional
            said = (
                "not known"
                if math.isnan(test.p)
                else f"chi-square {test.statistic:.2f} on {count(test.freedom, 'degree')} of freedom, "
                f"{p_said(test.p)}"
            )
            noisy = ", noise counted" if self.events_noise else ""
            notes.append(f"Test of proportional hazards{noisy}: {said}.")
            notes += [self.misfit] if self.misfit else []
        return [*notes, self.note] if self.note else notes

    @property
    def _of_bins(self) -> str:
        """A sentence on the likelihood that is maximised: Cox's own only where all times are edges."""
        bins = count(len(self.edges) - 1, "bin")
        if not self.rounds:
            return f"Estimates are those of the partial likelihood with times in {bins}."
        return (
            f"Estimates are those of the partial likelihood with times in {bins}, in each of which the "
            "baseline hazard is constant."
        )

    @property
    def misfit(self) -> str:
        """A sentence where hazards are certainly not proportional, with what to ask instead; else nothing."""
        return hazards_misfit(self.proportional)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: coefficients and ratios per what `per` says, predictions per unit."""
        units = Units(self.design, self.schema)
        said = plainly(self.estimates, self.coefficients, self.schema)
        return plain(
            {
                "time": self.time,
                "event": self.event,
                "had": self.had,
                "strata": list(self.strata),
                "coefficients": said["coefficients"],
                "hazard_ratios": {e.label: e.ratio_to_dict() for e in effects(self.estimates, self.schema)},
                "covariance": self.covariance.to_dict(),
                "baseline": {
                    "edges": list(self.edges),
                    "hazards": list(self.baseline.hazards),
                    "centre": dict(
                        zip(units.names, units.back(np.array([self.centre]))[0].tolist(), strict=True)
                    ),
                },
                "predictions": {"coefficients": self.coefficients},
                "concordance": {
                    "value": self.concordance.value,
                    "standard_error": self.concordance.standard_error,
                },
                "proportional": None if self.proportional is None else self.proportional.to_dict(),
                "steps": self.rounds,
                "events": self.events,
                "rows": self.count,
                "limited": self.limited.to_dict(),
                "faults": list(self.faults),
                "misfit": self.misfit or None,
            }
        )
