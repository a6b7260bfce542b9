"""Differences of the means of groups, from the counts, sums and squares of all groups in one release.

*How the release is shared.* With weights a, b, c (one over the squared scale) on the sums of t, of t² and
on the count, noise leaves the variance D² (1/a + m²/c) / n² in the mean m of a group of n, D² the
sensitivity squared. Under replace-one a row that moves to another group changes a column by 2 (a + b + c),
and one that stays by 4 a: everything up to b + c = a is free, and beyond it noise in the sum of t grows
faster than any other falls (for c alone, 2 (a + c) (1/a + m²/c) is least at c = |m| a <= a). So a = 1 and b
+ c = 1. What squares are given is taken from counts: with b = 1/4 the error of a mean is sqrt((1 + 4 m²/3)
/ (1 + m²)) times that of the best release of sums and counts alone, b = 0, c = 1: 1.00 at the middle of the
bounds, 1.03 half way, 1.08 at a bound.
Columns that never miss a cell count the same people, and their counts are averaged: with c = 3/4 / sqrt(k)
each, the average of k counts has the weight 3/4 sqrt(k), and more is left for squares. Under add-remove D² is
a + b + c, and b stays 1/4.
*Laplace noise.* In the L1 norm, with u, w and v one over the scales, a row that moves to another group
changes a column by 2 (u + w + v): nothing is free. As in `Mean`, v = 0.6 (0.6 k^(-1/3) if k columns share
the count), and w = 1/4, more than there, because tests divide by the variance.

Claim. One row moves the sums, each divided by its scale, by at most the root of `Difference.moved`; in the
L1 norm by `Difference.moved_l1`.
Reason. A row of one group adds a t² + b t⁴ + c for each column, at most R = the sum of a + b + c (|t| = 1).

- *Added or removed*: R.
- *Replaced, in the same group*: columns move independently, by `Weights.moved` each.
- *Replaced, into another group*: groups share no number, so the squares of the two rows add: 2 R.
- *Replaced, group missing, or by a row that does not count* (the schema is open): R.

In the L1 norm a row holds at most R1 = the sum of u + w + v. Added, removed or replaced by a row that does
not count it moves the sums by R1, replaced in any way by 2 R1 (the triangle inequality), which two rows of
different groups with |t| = 1 attain.

Tested in tests/unit/analyses/test_sensitivity.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cape.analyses.columns import OfColumns
from cape.analyses.compare.difference_estimate import comparison
from cape.analyses.compare.difference_model import DifferenceModel
from cape.analyses.moments import Weights, by_missing
from cape.blocks import Block, Moments
from cape.core import check
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined, names
from cape.engine.query import AnalysisResult, Answer, Neighbours, Noise, Query
from cape.show import Table
from cape.stats.estimates import Estimates, warn_of_unknown
from cape.stats.moments import Sums
from cape.stats.welch import Standardised

__all__ = ["Difference"]

_LARGEST = 1e6
_COUNT = 0.75
_KURTOSIS = 6.0  # of cells, which is not asked for: what an SMD's sampling error allows for
_EFFECT = 0.35  # the SMD that a plan supposes: between what is called small and medium
_SQUARES = 0.25

_EFFECTS = (0.0, 0.2, 0.5, 0.8)
_OUTLOOK = "Noise of standardised mean differences, by their size"


@dataclass(frozen=True, init=False)
class Difference(OfColumns):
    """Differences of the means of groups: Welch's t-test, for more than two groups his analysis of variance.

    >>> Difference("sbp", by="diabetes"), Difference("sbp", "chol", by="stage")
    >>> Difference("sbp", by="stage", contrasts={"late or not": {"I": -0.5, "II": -0.5, "III": 1}})

    For each column the mean of each group, the difference of each two (the later category of the schema less
    the earlier one), with P values that count the noise, and the standardised mean difference: over the
    root of the mean of both variances. `contrasts` are sums of weights times the means of groups, by name;
    weights add up to 0. Rows whose group or cell is missing are left out.

    **Sensitivity** 2 sqrt(columns) under replace-one. Under add-remove sqrt(2 columns), and less for
    several columns that never miss a cell. Proof at the head of the module.
    """

    kind: ClassVar[str] = "difference"
    example: ClassVar[dict[str, Any]] = {"columns": ["chol"], "by": "disease"}
    by: str
    contrasts: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]

    def __init__(
        self, *columns: str, by: str, contrasts: Mapping[str, Mapping[Any, float]] | None = None
    ) -> None:
        names((*columns, by))
        self._set(columns=names(columns), by=by, contrasts=_contrasts(contrasts))

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        if len(schema.category(self.by).values) < 2:
            raise InvalidInput(
                f"column {self.by!r} has one category in the schema, and a difference needs two or more"
            )
        self._weights(schema)
        blocks: list[Block] = []
        scales: list[tuple[float, ...]] = []
        for part in by_missing(self.columns, schema):
            blocks.append(Moments(part, by=self.by))
            missing = schema.number(part[0]).missing
            scales.append(_weights(neighbours, missing, len(part), self.laplace).scales)
        moved = math.sqrt(self.moved(schema, neighbours))
        return Query(tuple(blocks), tuple(scales), moved, l1=self.moved_l1(schema, neighbours))

    def moved(self, schema: Schema, neighbours: Neighbours) -> float:
        """Return the most that one row changes the sums, squared: proof at the head of the module."""
        held, within = 0.0, 0.0
        for part in by_missing(self.columns, schema):
            missing = schema.number(part[0]).missing
            weights = _weights(neighbours, missing, len(part), self.laplace)
            held += len(part) * weights.norm
            within += len(part) * weights.moved("replace-one", missing)
        return held if neighbours == "add-remove" else max(within, 2 * held)

    def moved_l1(self, schema: Schema, neighbours: Neighbours) -> float:
        """Return the most that one row changes the sums in the L1 norm: proof at the head of the module."""
        held = 0.0
        for part in by_missing(self.columns, schema):
            weights = _weights(neighbours, schema.number(part[0]).missing, len(part), self.laplace)
            held += len(part) * weights.norm_l1
        return held if neighbours == "add-remove" else 2 * held

    def finish(self, answer: Answer) -> AnalysisResult:
        schema, sums = answer.schema, self._sums(answer)
        values = schema.category(self.by).values
        comparisons = [
            comparison(name, self.by, schema.number(name), values, sums[name], self._weights(schema))
            for name in self.columns
        ]
        estimates = [estimate for each in comparisons for estimate in each.estimates]
        warn_of_unknown(estimates)
        return AnalysisResult(
            estimates, DifferenceModel(self.by, schema, tuple(comparisons), self._sizes(sums, values))
        )

    def _sizes(
        self, sums: Mapping[str, Sequence[Sums]], values: Sequence[Any]
    ) -> tuple[tuple[Any, float, float], ...]:
        """Return the rows of each group in the column that has most of them, with their noise."""
        found = []
        for place, value in enumerate(values):
            most = max((sums[name][place] for name in self.columns), key=lambda each: each.count)
            found.append((value, float(most.count), float(most.count_noise)))
        return tuple(found)

    def _typical(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Estimates:
        """As by default, but for SMDs of a common size: the larger one is, the more noise in SDs counts."""
        found = []
        for each in super()._typical(schema, noise, rows, neighbours):
            if isinstance(each.at, Standardised):
                ratio = replace(each.at, difference=_EFFECT * math.sqrt(each.at.variance))
                found.append(replace(each, privacy=ratio.error(ratio.blurred, ratio.noise)))
            else:
                found.append(each)
        return Estimates.of(found)

    def outlook(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Sequence[Table]:
        """Return the noise of standardised mean differences by their size, which nobody states."""
        lines = []
        for each in super()._typical(schema, noise, rows, neighbours):
            if isinstance(each.at, Standardised):
                ratios = [replace(each.at, difference=d * math.sqrt(each.at.variance)) for d in _EFFECTS]
                errors = (f"{ratio.error(ratio.blurred, ratio.noise):.2g}" for ratio in ratios)
                lines.append((self.title(each.label, schema), *errors))
        head = ("noise of", *(f"SMD {effect:g}" for effect in _EFFECTS))
        return [Table(head, tuple(lines), _OUTLOOK)] if lines else []

    def describe(self) -> str:
        return f"differences of the mean of {joined(self.columns)} by {self.by}"

    def keys(self) -> dict[str, Any]:
        named = {title: dict(weights) for title, weights in self.contrasts}
        return {"columns": list(self.columns), "by": self.by, **({"contrasts": named} if named else {})}

    def _weights(self, schema: Schema) -> list[tuple[str, list[float]]]:
        """Return the weight of each group in each contrast."""
        values = list(map(str, schema.category(self.by).values))
        found = []
        for title, weights in self.contrasts:
            for value, _ in weights:
                if value not in values:
                    raise InvalidInput(
                        f"contrast {title!r} names no category of {self.by!r}: {check.show(value)}"
                        f"{hint(value, values)}"
                    )
            found.append((title, [dict(weights).get(value, 0.0) for value in values]))
        return found

    def _sums(self, answer: Answer) -> dict[str, list[Sums]]:
        """Return the noisy sums of each column, by group."""
        found: dict[str, list[Sums]] = {}
        blocks = zip(answer.sums, answer.noise, strict=True)
        for part in by_missing(self.columns, answer.schema):
            (counts, first, second), (count_noise, first_noise, second_noise) = next(blocks)
            if not answer.schema.number(part[0]).missing:  # all of them count the same people
                counts = counts.mean(axis=1, keepdims=True).repeat(len(part), axis=1)
                count_noise /= math.sqrt(len(part))
            for i, name in enumerate(part):
                by_group = zip(
                    counts[:, i].tolist(), first[:, i].tolist(), second[:, i].tolist(), strict=True
                )
                noise = count_noise, first_noise, second_noise
                found[name] = [Sums(*each, *noise, _KURTOSIS, law=answer.law) for each in by_group]
        return found


def _weights(neighbours: Neighbours, missing: bool, columns: int, laplace: bool) -> Weights:
    if laplace:
        return Weights.of_l1(1.0, _SQUARES, 0.6 if missing else 0.6 / columns ** (1 / 3))
    count = _COUNT if missing else _COUNT / math.sqrt(columns)
    return Weights(1.0, _SQUARES if neighbours == "add-remove" else 1 - count, count)


def _contrasts(given: Any) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    """Return contrasts as plain data, or raise `InvalidInput`."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not all(isinstance(each, Mapping) for each in given.values()):
        raise InvalidInput(
            "contrasts must be names with a weight for each group, as in "
            f'{{"late": {{"I": -1, "III": 1}}}}, not {check.show(given)}'
        )
    found = []
    for title, weights in given.items():
        if not isinstance(title, str) or not title:
            raise InvalidInput(f"a contrast's name must be text, not {check.show(title)}")
        each = tuple((str(value), check.real("weight", weight)) for value, weight in weights.items())
        largest = max((abs(weight) for _, weight in each), default=0.0)
        if not largest > 0 or abs(sum(weight for _, weight in each)) > 1e-9 * largest:
            raise InvalidInput(f"the weights of contrast {title!r} must add up to 0, and not all be 0")
        if largest > _LARGEST or largest < 1 / _LARGEST:
            raise InvalidInput(f"the weights of contrast {title!r} must be at most {_LARGEST:g}")
        found.append((title, each))
    return tuple(found)
