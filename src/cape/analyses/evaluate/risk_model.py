"""How predicted risks are shown: measures, the confusion matrix, the ROC curve and a calibration plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cape.analyses.evaluate.risk import RiskTable
from cape.core.arrays import Floats
from cape.data import Schema
from cape.show import Figure, Line, Mark, Shown, Table
from cape.show.figures import DOTS
from cape.show.numbers import LEVEL, between, number, rounded
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate
from cape.stats.proportions import quantile

__all__ = ["RiskModel"]

_CROWDED = 0.25  # a bin with more of all rows than this is pointed at


@dataclass(frozen=True, repr=False, eq=False)
class RiskModel(Shown):
    """What a released table of predicted risks by outcome says of a model.

    Attributes:
        table: the released counts, and what follows from them.
        estimates: AUC, Brier score, and sensitivity, specificity and predictive values at the threshold.
        given: whether bins end at edges that were given.
    """

    target: str
    event: Any
    schema: Schema
    table: RiskTable
    estimates: tuple[Estimate, ...]
    given: bool = False

    @property
    def confusion(self) -> Floats:
        """The confusion matrix at the threshold: outcomes down, predictions across, the event last."""
        return self.table.confusion()

    def _counts(self) -> list[list[str]]:
        """Return the confusion matrix: possible counts, each with its interval where it has noise."""
        return [
            [_counted(count, noise) for count, noise in zip(row, self.table.confusion_noise, strict=True)]
            for row in self.confusion.tolist()
        ]

    @property
    def roc(self) -> tuple[Floats, Floats]:
        """1 - specificity and sensitivity at every edge, the highest threshold first."""
        points = self.table.roc()
        return np.array([x for x, _ in points]), np.array([y.value for _, y in points])

    def tables(self) -> list[Table]:
        """Return the measures, the confusion matrix, and the bins of the calibration plot."""
        title = self.schema.title(f"{self.target}={self.event}")
        (tn, fp), (fn, tp) = self._counts()
        at = f"{self.table.threshold:g}"
        noise = f"The count of each bin has noise with a standard deviation of {self.table.noise:.3g}."
        caption = noise if self.table.noise else ""
        matrix = Table(
            ("", f"predicted below {at}", f"predicted {at} or more"),
            (("without the event", tn, fp), ("with the event", fn, tp)),
            f"Confusion matrix ({title})",
            f"Counts with {LEVEL:.0%} intervals of their noise." if self.table.noise else "",
        )
        rows = []
        for i, (mean, share) in enumerate(zip(self.table.predicted, self.table.observed(), strict=True)):
            low, high = self.table.edges[i : i + 2]
            cells = ("hidden", "") if share is None else _cells(share)
            counts = (f"{cell:,.0f}" for cell in self.table.counts[i])
            rows.append(
                (f"{number(float(low))} to {number(float(high))}", *counts, number(float(mean)), *cells)
            )
        head = ("predicted risk", "without", "with", "mean prediction", "observed", "95% interval")
        return [listed(self.estimates), matrix, Table(head, tuple(rows), "Calibration", caption, folded=True)]

    def figures(self) -> Sequence[Figure]:
        """Return the ROC curve, and the calibration plot."""
        found = []
        points = self.table.roc()
        if points:
            at = tuple(x for x, _ in points)
            marks = tuple(Mark.of(y) for _, y in points)
            line = Line(at, marks, "1 - specificity", "sensitivity", (0.0, 1.0), diagonal=True)
            found.append(Figure((line,), _ROC))
        seen = [
            (p, o) for p, o in zip(self.table.predicted, self.table.observed(), strict=True) if o is not None
        ]
        if len(seen) > 1:
            marks = tuple(Mark.of(share) for _, share in seen)
            at = tuple(float(p) for p, _ in seen)
            line = Line(at, marks, "mean predicted risk", "share of events", (0.0, 1.0), diagonal=True)
            found.append(Figure((line,), _CALIBRATION))
        return found

    def notes(self) -> Sequence[str]:
        """Return how risks were counted, and what their order inside of bins does to the AUC."""
        table = self.table
        where = "edges that were given" if self.given else "released quantiles"
        found = [f"Risks are counted in {table.bins} bins, which end at {where} and at the threshold."]
        if not table.known:
            return found
        found[0] += (
            f" By noisy ranks, the order of risks inside of bins adds {table.inside:+.2g} to the AUC; the "
            f"interval allows for a bias of {table.bias:.1g}."
        )
        shares = table.counts.sum(axis=1) / table.totals.sum()
        if float(shares.max()) > (_CROWDED if self.given else max(_CROWDED, 2 / table.bins)):
            low = int(shares.argmax())
            ends = " to ".join(number(float(edge)) for edge in table.edges[low : low + 2])
            advice = ": give edges that divide it" if self.given else ""
            found.append(f"About {min(shares.max(), 1):.0%} of the rows are in one bin, {ends}{advice}.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        false, true = self.roc
        return plain(
            {
                "target": self.target,
                "event": self.event,
                "threshold": self.table.threshold,
                "edges": self.table.edges,
                "counts": self.table.counts,
                "noise": self.table.noise,
                "mean_prediction": self.table.predicted,
                "ranks": self.table.ranks.sums,
                "ranks_noise": self.table.ranks.noise,
                "ranks_reach": self.table.ranks.reach,
                "confusion": self.confusion,
                "roc": {"false_positive_rate": false, "true_positive_rate": true},
            }
        )


def _counted(count: float, noise: float) -> str:
    value, reach = max(count, 0.0), quantile(LEVEL) * noise
    if not noise:
        return f"{value:,.0f}"
    return f"{value:,.0f} ({max(count - reach, 0.0):,.0f} to {max(count + reach, 0.0):,.0f})"


def _cells(share: Estimate) -> tuple[str, str]:
    error = share.standard_error
    return rounded(share.value, error), between(share.interval(), error)


_ROC = f"ROC curve, at the edges of the bins of predicted risk. {DOTS}"
_CALIBRATION = (
    "Calibration: the share of events among rows by their predicted risk; a calibrated model lies on the "
    f"diagonal. {DOTS}"
)
