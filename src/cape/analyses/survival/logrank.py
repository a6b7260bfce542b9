"""Whether groups differ in survival: the log-rank test and its weighted forms, with noise in their P value.

In stratum h and bin k, with events d, exposures E and pi_g = E_g / E, the contrast of group g is U_g = sum w
(d_g - pi_g d). Under equal hazards it has mean 0 and the hypergeometric covariance V of the log-rank test
from sampling. Weights w are 1 (log-rank), Peto and Peto's survival (modified, prod(1 - d / (E + 1))), or
Fleming and Harrington's S^p (1 - S)^q of the survival before the bin.

*Noise.* Counts without constraints have no bias (`RiskTable.free`); U is their linear function at the fitted
counts, sum w (d_g - pi_g d) - w (d / E) (E_g - pi_g E), whose noise has an exact covariance N. Then U' (V +
N)^-1 U is chi-square with one degree of freedom less than there are groups. Without noise it is the usual
statistic. Bins count from the first until the exposure of all groups together is hardly above its noise.
Tested in tests/unit/analyses/survival/test_logrank.py against lifelines, and by survival.logrank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import chdtrc

from cape.analyses.survival.of_times import OfTimes
from cape.analyses.survival.risk_table import RiskTable
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.query import AnalysisResult, Answer, Neighbours, Query
from cape.show import Figure, Intervals, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import LEVEL, between, count, p_said, rounded
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate
from cape.stats.independence import Independence

__all__ = ["LogRank", "LogRankModel"]

WEIGHTINGS = ("logrank", "peto", "fleming-harrington")
_CLEAR = 1.0  # noise in the exposure of all groups, in standard deviations, that it must exceed


@dataclass(frozen=True, init=False)
class LogRank(OfTimes):
    """Whether the categories of `by` differ in survival.

    >>> LogRank("years", "died", by="arm"), LogRank("years", "died", by="arm", strata="site")

    The log-rank test; with `weighting` "peto" or "fleming-harrington" (powers p and q) its weighted forms.
    With `strata` events are expected within each category of that column, or of several. The P value counts
    privacy noise. Every stratum has noise of its own: few large ones cost little.

    **Sensitivity** sqrt(2) under replace-one, 1 under add-remove, or a little less: `OfTimes` has the proof.
    """

    kind: ClassVar[str] = "log-rank"
    example: ClassVar[dict[str, Any]] = {"time": "age", "event": "disease", "by": "sex", "bins": 4}
    by: str
    strata: tuple[str, ...]
    weighting: str
    p: float
    q: float

    def __init__(
        self,
        time: str,
        event: str,
        *,
        by: str,
        strata: str | Iterable[str] = (),
        edges: Iterable[float] | None = None,
        bins: int | None = None,
        weighting: str = "logrank",
        p: float | None = None,
        q: float | None = None,
        at_edges: bool = False,
    ) -> None:
        within = (strata,) if isinstance(strata, str) else tuple(strata)
        group, *rest = self._set_times(time, event, (by, *within), edges, bins, at_edges)
        if weighting not in WEIGHTINGS:
            told = f"weighting must be one of {', '.join(WEIGHTINGS)}, not {check.show(weighting)}"
            raise InvalidInput(told)
        bent = weighting == "fleming-harrington"
        if not bent and (p is not None or q is not None):
            raise InvalidInput('p and q are the powers of weighting="fleming-harrington"; leave them out')
        powers = [check.real("p and q", each or 0.0, least=0.0) for each in (p, q)]
        if bent and powers == [0.0, 0.0]:
            raise InvalidInput('weighting="fleming-harrington" needs a power p or q above 0, as in p=1')
        self._set(by=group, strata=tuple(rest), weighting=weighting, p=powers[0], q=powers[1])

    @property
    def groups(self) -> tuple[str, ...]:
        return (*self.strata, self.by)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        if len(schema.category(self.by).values) < 2:
            raise InvalidInput(
                f"column {self.by!r} has one category in the schema, and a test needs two groups"
            )
        return replace(super().query(schema, neighbours), l1=None)  # its test counts on Gaussian noise

    def finish(self, answer: Answer) -> AnalysisResult:
        values = answer.schema.category(self.by).values
        tables = self.risk_tables(answer)
        strata = [tables[i : i + len(values)] for i in range(0, len(tables), len(values))]
        parts = [found for each in strata if (found := self._contrast(each)) is not None]
        many = len(values)
        total = Contrast.added(parts, many)
        estimates = [
            Estimate(
                f"{self.by}={value} observed - expected",
                float(total.moved[i]),
                math.sqrt(max(float(total.sampling[i, i]), 0.0)),
                math.sqrt(max(float(total.noise[i, i]), 0.0)),
            )
            for i, value in enumerate(values)
        ]
        sizes = tuple(float(sum(each[i].total for each in strata)) for i in range(many))
        model = LogRankModel(
            self.by, self.sentence, answer.schema, tuple(estimates), sizes, total, total.test, self.name
        )
        return AnalysisResult(estimates, model)

    @property
    def name(self) -> str:
        """What the test is called."""
        if self.weighting == "fleming-harrington":
            return f"Fleming and Harrington's test (p = {self.p:g}, q = {self.q:g})"
        return "Peto and Peto's test" if self.weighting == "peto" else "log-rank test"

    def _weights(self, events: Floats, exposed: Floats) -> Floats:
        if self.weighting == "peto":
            return np.asarray(np.cumprod(1 - events / (exposed + 1)), np.float64)
        if self.weighting == "fleming-harrington":
            before = np.append(1.0, np.cumprod(1 - events / exposed)[:-1])
            return np.asarray(before**self.p * (1 - before) ** self.q)
        return np.ones(len(events))

    def _contrast(self, tables: Sequence[RiskTable]) -> Contrast | None:
        """Return the contrasts of one stratum; None if noise hides it from the first bin on."""
        many, bins, kinds = len(tables), tables[0].bins, tables[0].events.shape[0]
        free = [table.free or table for table in tables]
        blurred = math.sqrt(many) * tables[0].exposure_noise
        together = np.sum([table.exposed for table in free], 0)
        exposures = np.array([table.exposed for table in tables])
        hidden = (together <= _CLEAR * blurred) | (exposures.sum(0) <= 0)
        known = int(np.argmax(hidden)) if hidden.any() else bins
        if not known:
            return None
        exposed = exposures.sum(0)[:known]
        events = np.minimum(np.sum([table.deaths for table in tables], 0)[:known], exposed)
        shares, weights = exposures[:, :known] / exposed, self._weights(events, exposed)
        had = np.array([table.deaths[:known] for table in free])
        at_risk = np.array([table.exposed[:known] for table in free])
        hazard = weights * events / exposed
        observed, expected = weights * had, weights * had.sum(0) * shares
        drift = hazard * (at_risk - shares * at_risk.sum(0))
        term = weights**2 * events * (exposed - events) / np.maximum(exposed - 1, 0.5)
        sampling = np.diag((shares * term).sum(1)) - (shares * term) @ shares.T
        noise = np.zeros((many, many))
        for place, table in enumerate(tables):
            own = (np.arange(many) == place)[:, None] - shares
            direct, by_exposure = np.zeros((many, kinds, bins)), np.zeros((many, bins))
            direct[:, :, :known] = (weights * own)[:, None, :]
            by_exposure[:, :known] = -hazard * own
            noise += table.blur.covariance(table.chained(direct, by_exposure))
        return Contrast(observed.sum(1), (expected + drift).sum(1), sampling, noise)

    def describe(self) -> str:
        within = f", within {' and '.join(self.strata)}" if self.strata else ""
        return f"{self.name} of {self.time} until {self.event} by {self.by}{within}"

    def title(self, label: str, schema: Schema) -> str:
        return schema.title(label)

    def keys(self) -> dict[str, Any]:
        found = {**self._time_keys(), "by": self.by}
        if self.strata:
            found["strata"] = list(self.strata)
        if self.weighting != "logrank":
            found["weighting"] = self.weighting
        if self.weighting == "fleming-harrington":
            found |= {"p": self.p, "q": self.q}
        return found


@dataclass(frozen=True)
class Contrast:
    """Weighted events of each group, observed and expected, and the covariances of their differences."""

    observed: Floats
    expected: Floats
    sampling: Floats
    noise: Floats

    @classmethod
    def added(cls, parts: Sequence[Contrast], many: int) -> Contrast:
        """Return the sum over strata."""
        found = cls(np.zeros(many), np.zeros(many), np.zeros((many, many)), np.zeros((many, many)))
        for part in parts:
            found = cls(
                found.observed + part.observed,
                found.expected + part.expected,
                found.sampling + part.sampling,
                found.noise + part.noise,
            )
        return found

    @property
    def moved(self) -> Floats:
        """Observed less expected events."""
        return self.observed - self.expected

    @property
    def test(self) -> Independence | None:
        """The test, with one degree of freedom less than there are groups; None if nothing is known."""
        moved, covariance = self.moved[:-1], (self.sampling + self.noise)[:-1, :-1]
        freedom = int(np.linalg.matrix_rank(covariance, hermitian=True))  # without groups that are empty
        if not freedom:
            return None
        statistic = float(moved @ np.linalg.pinv(covariance, hermitian=True) @ moved)
        return Independence(statistic, freedom, float(chdtrc(freedom, statistic)))


@dataclass(frozen=True, repr=False)
class LogRankModel(Shown):
    """A log-rank test, and how many events groups had beside how many were expected."""

    by: str
    sentence: str
    schema: Schema
    estimates: tuple[Estimate, ...]
    sizes: tuple[float, ...]
    contrast: Contrast
    test: Independence | None
    name: str

    @property
    def p_value(self) -> float | None:
        """The P value, which counts the noise; None if noise hides all groups."""
        return None if self.test is None else self.test.p_value

    def tables(self) -> Sequence[Table]:
        """Return rows, observed and expected events of each group, and their difference."""
        values = self.schema.category(self.by).values
        contrast, rows = self.contrast, []
        each = zip(values, self.sizes, contrast.observed, contrast.expected, self.estimates, strict=True)
        for value, size, seen, due, apart in each:
            error = apart.standard_error
            moved = f"{rounded(apart.value, error)} ({between(apart.interval(), error)})" if error else "-"
            title = self.schema.title(f"{self.by}={value}")
            rows.append((title, f"{size:,.0f}", f"{seen:,.1f}", f"{due:,.1f}", moved))
        noisy = any(apart.privacy for apart in self.estimates)
        caption = "Rows and events have privacy noise, which may make them negative." if noisy else ""
        head = ("", "rows", "events observed", "expected", f"observed - expected ({LEVEL:.0%} interval)")
        return [
            Table(head, tuple(rows), caption=caption),
            listed(self.estimates, self.schema.title, folded=True),
        ]

    def figures(self) -> Sequence[Figure]:
        """Return observed less expected events."""
        marks = tuple(Mark.of(e, self.schema.title(e.label)) for e in self.estimates)
        return [Figure((Intervals(marks, "Observed less expected events", line=0.0),), DOTS)]

    def notes(self) -> Sequence[str]:
        """Return the test."""
        if self.test is None:
            return [f"There is too much noise for a {self.name}, or there are no events."]
        return [
            f"{self.name[0].upper()}{self.name[1:]}, privacy noise counted: chi-square = "
            f"{self.test.statistic:.2f} with {count(self.test.freedom, 'degree')} of freedom, "
            f"{p_said(self.test.p_value)}."
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        test = None if self.test is None else vars(self.test)
        return plain(
            {
                "by": self.by,
                "test": test,
                "name": self.name,
                "rows": list(self.sizes),
                "observed": self.contrast.observed.tolist(),
                "expected": self.contrast.expected.tolist(),
            }
        )
