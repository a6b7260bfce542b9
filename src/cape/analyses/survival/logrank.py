"""Whether groups differ in survival: the log-rank test and its weighted forms, with noise in their P value.

What the noise does to the statistic is in `logrank_estimate`; which sums are asked for, in `OfTimes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cape.analyses.survival.hazard_ratios import hazard_ratios, logarithms
from cape.analyses.survival.logrank_estimate import WEIGHTINGS, Contrast, Weighting, contrast
from cape.analyses.survival.logrank_model import LogRankModel
from cape.analyses.survival.of_times import OfTimes
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.query import AnalysisResult, Answer, Neighbours, Query
from cape.stats.estimates import Estimate

__all__ = ["LogRank"]


@dataclass(frozen=True, init=False)
class LogRank(OfTimes):
    """Whether the categories of `by` differ in survival.

    >>> LogRank("years", "died", by="arm"), LogRank("years", "died", by="arm", strata="site")

    The log-rank test; with `weighting` "peto" or "fleming-harrington" (powers p and q) its weighted forms.
    With `strata` events are expected within each category of that column, or of several. The P value counts
    privacy noise. Every stratum has noise of its own: few large ones cost little. The same sums give the
    hazard ratio of each group against the first, which is that of `Cox` with groups as its feature.

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
        weighting = Weighting(self.weighting, self.p, self.q)
        parts = [found for each in strata if (found := contrast(each, weighting)) is not None]
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
        compared = hazard_ratios(strata)
        ratios = logarithms(compared, [f"{self.by}={value} log hazard ratio" for value in values[1:]])
        blurred = math.sqrt(len(strata)) * float(tables[0].exposure_noise.max())
        events = [table.seen_events for table in tables]
        model = LogRankModel(
            self.by,
            self.sentence,
            answer.schema,
            tuple(estimates),
            ratios,
            sizes,
            total,
            total.test,
            self.name,
            blurred,
            (sum(count for count, _ in events), math.hypot(*(noise for _, noise in events))),
        )
        return AnalysisResult([*estimates, *ratios], model)

    @property
    def name(self) -> str:
        """What the test is called."""
        if self.weighting == "fleming-harrington":
            return f"Fleming and Harrington's test (p = {self.p:g}, q = {self.q:g})"
        return "Peto and Peto's test" if self.weighting == "peto" else "log-rank test"

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
