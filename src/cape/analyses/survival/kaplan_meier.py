"""Survival curves, and what is read off them: quantiles, restricted means, incidences of several events."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cape.analyses.survival.curve import SurvivalCurve
from cape.analyses.survival.incidence import Incidence
from cape.analyses.survival.kaplan_meier_model import Group, KaplanMeierModel, titled
from cape.analyses.survival.of_times import OfTimes, edge_names
from cape.core import check
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Schema
from cape.engine.query import AnalysisResult, Answer, Neighbours, Noise, Query
from cape.show import Table
from cape.stats.estimates import Estimate, Estimates, unknown, warn_of_unknown

__all__ = ["KaplanMeier"]


@dataclass(frozen=True, init=False)
class KaplanMeier(OfTimes):
    """Survival curves, of each category of `by`, at public edges.

    >>> KaplanMeier("years", "died", by="arm", edges=[1, 2, 5, 10])

    `event` is a column of categories: the first value is a row that was censored, the second one that had the
    event. With more values, all but the first are events that compete: the curve is that of people without
    any, and each event has its cumulative incidence (Aalen and Johansen). Edges are the times at which the
    curve is given; `bins` cuts the bounds into equal parts instead. More bins add little noise.

    Besides the curve there are its quantiles (the time by which a share of people have had the event), the
    mean time until the event or `horizon` (restricted mean survival time), its difference to the first
    group, and in the model bands, numbers at risk and Nelson and Aalen's cumulative hazard. Intervals count
    sampling and privacy noise. Within bins hazards are taken to be constant; with `at_edges` times are taken
    to be the ends of their bins, as they are if they were recorded in whole years and edges are whole years.

    **Sensitivity** sqrt(2) under replace-one, 1 under add-remove, or a little less; 2 and 1 in the L1 norm
    under Laplace noise: `OfTimes` has the proof.
    """

    kind: ClassVar[str] = "kaplan-meier"
    example: ClassVar[dict[str, Any]] = {"time": "age", "event": "disease", "by": "sex", "bins": 4}
    by: str | None
    quantiles: tuple[float, ...]
    horizon: float | None

    def __init__(
        self,
        time: str,
        event: str,
        *,
        by: str | None = None,
        edges: Iterable[float] | None = None,
        bins: int | None = None,
        quantiles: Iterable[float] = (0.5,),
        horizon: float | None = None,
        at_edges: bool = False,
    ) -> None:
        groups = self._set_times(time, event, () if by is None else (by,), edges, bins, at_edges)
        self._set(
            by=groups[0] if groups else None,
            quantiles=_shares(quantiles),
            horizon=None if horizon is None else check.real("horizon", horizon, above=0.0),
        )

    @property
    def groups(self) -> tuple[str, ...]:
        return () if self.by is None else (self.by,)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        self._until(schema)
        return super().query(schema, neighbours)

    def _until(self, schema: Schema) -> float:
        """Return the horizon of restricted means."""
        last = self.times(schema).edges[-1]
        if self.horizon is not None and self.horizon > last:
            raise InvalidInput(f"horizon must be at most the last edge, {last:g}, not {self.horizon:g}")
        return last if self.horizon is None else self.horizon

    def finish(self, answer: Answer) -> AnalysisResult:
        schema, times = answer.schema, self.times(answer.schema)
        until, edges, causes = self._until(schema), np.array(times.edges), times.causes(schema)
        values = (None,) if self.by is None else schema.category(self.by).values
        groups, estimates = [], []
        for value, table in zip(values, self.risk_tables(answer), strict=True):
            start = "" if value is None else f"{self.by}={value}, "
            curve = SurvivalCurve(edges, table)
            found = self._of_group(curve, start, edge_names(times.edges), until, causes)
            groups.append(Group("" if value is None else f"{self.by}={value}", curve, *found))
            estimates += [e for part in found for e in part]
        differences = self._differences(groups, until)
        estimates += differences
        warn_of_unknown(estimates)
        model = KaplanMeierModel(
            self.time, self.event, schema, tuple(groups), tuple(differences), until, tuple(map(str, causes))
        )
        return AnalysisResult(estimates, model)

    def _of_group(
        self, curve: SurvivalCurve, start: str, edges: list[str], until: float, causes: tuple[Any, ...]
    ) -> tuple[tuple[Estimate, ...], ...]:
        """Return the curve, its quantiles, its restricted mean and the incidences of several events."""
        at = [f"{start}{self.time} > {edge}" for edge in edges]
        by = {p: f"{start}{self.time} quantile {p:g}" for p in self.quantiles}
        mean = f"{start}{self.time} mean to {until:g}"
        several = causes if len(causes) > 1 else ()
        had = [[f"{start}{self.event}={cause} by {edge}" for edge in edges] for cause in several]
        quantiles = tuple(curve.quantile(label, p) for p, label in by.items())
        if not curve.known:
            return (
                tuple(unknown(label, 0.0, 1.0) for label in at),
                quantiles,
                (unknown(mean, 0.0, until),),
                tuple(unknown(label, 0.0, 1.0) for labels in had for label in labels),
            )
        return (
            tuple(curve.estimates(at)),
            quantiles,
            (curve.area(until).estimate(mean),),
            tuple(e for i, labels in enumerate(had) for e in Incidence(curve, i).estimates(labels)),
        )

    def _differences(self, groups: Sequence[Group], until: float) -> list[Estimate]:
        """Return how much longer each group's restricted mean is than the first group's."""
        found = []
        for group in groups[1:]:
            label = f"{group.label} - {groups[0].label}, {self.time} mean to {until:g}"
            if group.curve.known and groups[0].curve.known:
                found.append(group.curve.area(until).less(groups[0].curve.area(until), label))
            else:
                found.append(unknown(label, -until, until))
        return found

    def _typical(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Estimates:
        """As by default, but a quantile that may lie beyond the last edge can be anywhere on the axis."""
        low, *_, high = self.times(schema).edges
        found = [
            replace(each, privacy=(high - low) / 2) if math.isinf(each.interval()[1]) else each
            for each in super()._typical(schema, noise, rows, neighbours)
        ]
        return Estimates.of(found)

    def outlook(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Sequence[Table]:
        """Return how wide the curve's interval will be at each edge."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            model = self.finish(self.typical(schema, noise, rows, neighbours)).model
        return [model.widths()] if isinstance(model, KaplanMeierModel) else []

    def describe(self) -> str:
        by = "" if self.by is None else f" by {self.by}"
        return f"survival curves of {self.time} until {self.event}{by}"

    def title(self, label: str, schema: Schema) -> str:
        return titled(label, schema)

    def keys(self) -> dict[str, Any]:
        found = self._time_keys()
        if self.by is not None:
            found["by"] = self.by
        if self.quantiles != (0.5,):
            found["quantiles"] = list(self.quantiles)
        return found | ({} if self.horizon is None else {"horizon": self.horizon})


def _shares(given: Any) -> tuple[float, ...]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        given = (given,)
    shares = tuple(check.probability("quantiles", share) for share in given)
    if len({f"{share:g}" for share in shares}) != len(shares):
        raise InvalidInput(f"quantiles must be different, as in (0.25, 0.5), not {list(shares)!r}")
    return shares
