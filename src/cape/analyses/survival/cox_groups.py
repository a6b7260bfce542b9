"""Cox regression on one category: from tables of who is at risk and who has an event, in one question.

Where groups are all that is known of rows, the sums of a log-rank test hold the whole partial likelihood of
times that are counted by bin (`hazard_ratios`). They are asked for once, with all of the budget, and need no
steps: at 686 rows and epsilon 1 the interval of a log-hazard ratio is .75 wide, where steps give 4.
Tested in tests/unit/analyses/survival/test_cox_groups.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from cape.analyses.regression.faults import events_only, sentence, warn
from cape.analyses.regression.joint import Joint, rows_of
from cape.analyses.regression.limited import Limited
from cape.analyses.survival.cox import Cox
from cape.analyses.survival.cox_estimate import CoxBaseline, concordance
from cape.analyses.survival.cox_model import CoxModel
from cape.analyses.survival.hazard_ratios import MOST, HazardRatios, hazard_ratios, logarithms
from cape.analyses.survival.logrank import LogRank
from cape.analyses.survival.risk_table import RiskTable
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.data import Category, Schema
from cape.engine.arguments import joined
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query

__all__ = ["CoxOfGroups"]

_HIDDEN, _SURE = 2.0, 5.0  # standard deviations of noise: events that it hides, and that it cannot
MOST_GROUPS = 50  # at 20 the intervals of tables are half as wide as those of steps


@dataclass(frozen=True, init=False)
class CoxOfGroups(Cox):
    """What `Cox` asks where its only feature is a category, and rows are at risk from the start.

    Times count as the middles of their bins. The interval is that of the regression on them.

    **Sensitivity** sqrt(2) under replace-one, 1 under add-remove, or a little less: `OfTimes` has the proof.
    """

    @classmethod
    def of(cls, cox: Cox, schema: Schema) -> Self | None:
        """Return what a regression asks, if it can be asked so."""
        asked = cox.entry is None and cox.norm is None and not cox.proportional and cox.rounds == "auto"
        if cox.laplace or not asked or schema.person is not None or len(cox.features) != 1:
            return None
        group, event = (schema.get(name) for name in (*cox.features, cox.event))
        if not isinstance(group, Category) or not 2 <= len(group.values) <= MOST_GROUPS:
            return None
        if (
            not isinstance(event, Category) or len(event.values) != 2
        ):  # others are censored, and not in tables
            return None
        return cox.made(cls)

    def over(self, schema: Schema) -> Analysis:
        return self

    def exactly(self) -> Analysis:
        """Return the regression by steps, which knows times to the digit."""
        return self.made(Cox).exactly()

    def stages(self) -> tuple[float, ...]:
        """Return the one stage."""
        return (1.0,)

    @property
    def _tables(self) -> LogRank:
        cut = {"bins": self.bins} if self.edges is None else {"edges": self.edges}
        return LogRank(self.time, self.event, by=self.features[0], strata=self.strata, **cut)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        self._asking(schema)  # refuses what does not fit the columns
        return self._tables.query(schema, neighbours)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        answer = yield self.query(schema, neighbours)
        return self.finish(answer)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return ratios of hazards, the baseline, and what is predicted."""
        schema, group = answer.schema, self.features[0]
        tables = self._tables.risk_tables(answer)
        values = schema.category(group).values
        strata = [tables[i : i + len(values)] for i in range(0, len(tables), len(values))]
        found = hazard_ratios(strata)
        known = () if found is None else found.known
        hidden = [schema.title(f"{group}={value}") for i, value in enumerate(values) if i not in known]
        sizes = np.array([[table.total for table in each] for each in strata])
        seen = [table.seen_events for each in strata for table in each]
        events = max(sum(count for count, _ in seen), 0.0)
        apart = _without_events(strata)
        faults = [f"{events_only(group, values[place], schema)}. Ratios may have no end" for place in apart]
        for text in faults:
            warn(text)
        if hidden and not apart:
            faults.append(
                f"nothing is known of the hazard of {joined(hidden)}: noise hides it, or there are no "
                "events. More rows, a larger share or epsilon, or fewer strata would help"
            )
            warn(faults[-1])
        units, width = Units(self._design, schema), len(values) - 1
        estimates = logarithms(found, units.names)
        ratios = np.array([each.value for each in estimates])
        sampling = information = np.zeros((width, width))
        privacy = np.diag([0.0 if 1 + i in known else MOST**2 for i in range(width)])
        if found is not None:
            sampling, information = found.sampling[1:, 1:], found.information[1:, 1:]
            privacy = privacy + found.privacy[1:, 1:]
        to = units.matrix[1:, 1:]  # coefficients of weights of x
        back = np.linalg.inv(to)
        weights = back @ ratios
        x = units.rows({group: np.array(values, dtype=object)})
        centre = sizes.sum(0) @ x / max(float(sizes.sum()), 1e-300)
        ends = ((-math.inf, math.inf),) * width
        model = CoxModel(
            self.time,
            self.event,
            schema.category(self.event).values[1],
            self.strata,
            self._design,
            schema,
            estimates,
            tuple(map(float, weights)),
            tuple(map(float, centre)),
            self._follow_up(schema).times.edges,
            self._baseline(found, schema, x, centre, weights),
            Joint(
                units.names,
                ends,
                tuple(map(float, ratios)),
                rows_of(privacy),
                rows_of(sampling),
                owners=units.owners,
            ),
            concordance(
                weights,
                to.T @ information @ to / max(events, 1.0),
                back @ sampling @ back.T,
                back @ privacy @ back.T,
            ),
            None,
            0,
            events,
            float(sizes.sum()),
            Limited(),
            f"Not identified at this budget: {joined(hidden)}." if hidden else "",
            tuple(map(sentence, faults)),
            math.hypot(*(noise for _, noise in seen)),
        )
        return AnalysisResult(estimates, model)

    def _baseline(
        self, found: HazardRatios | None, schema: Schema, x: Floats, centre: Floats, weights: Floats
    ) -> CoxBaseline:
        """Return the hazard of a row at the centre; nothing is known of it where ratios are not."""
        if found is None:
            cells = self._follow_up(schema).many(schema) * self.bins
            nothing, width = (0.0,) * cells, x.shape[1]
            return CoxBaseline(nothing, nothing, (math.inf,) * cells, ((0.0,) * width,) * cells)
        times = math.exp(float((centre - x[0]) @ weights))
        parts = found.baselines
        return CoxBaseline(
            tuple(map(float, times * np.concatenate([each.hazards for each in parts]))),
            tuple(map(float, times**2 * np.concatenate([each.sampling for each in parts]))),
            tuple(map(float, times**2 * np.concatenate([each.privacy for each in parts]))),
            rows_of(np.concatenate([each.shares.T @ (x[list(found.known)] - centre) for each in parts])),
        )

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise of each coefficient over typical rows."""
        return Analysis.expected(self, schema, noise, rows, neighbours)

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return a bound on the seconds until the next question: there is none."""
        return 0.0

    def describe(self) -> str:
        return super().describe().rpartition(", in ")[0] + ", from tables of groups"


def _without_events(strata: Sequence[Sequence[RiskTable]]) -> list[int]:
    """Return the groups of many rows in which noise hides whether there are events, if others have some."""
    rows = np.array([[table.total for table in each] for each in strata]).sum(axis=0)
    seen = np.array([[table.seen_events for table in each] for each in strata])
    events, noise = seen[:, :, 0].sum(axis=0), np.sqrt((seen[:, :, 1] ** 2).sum(axis=0))
    even = max(float(events.sum()), 0.0) * np.maximum(rows, 0.0) / max(float(rows.sum()), 1.0)
    hidden = (events < _HIDDEN * noise) & (even > _SURE * noise + np.maximum(events, 0.0))
    return [int(place) for place in np.flatnonzero(hidden)] if not hidden.all() else []
