"""The numbers of a release, held as columns; an `Estimate` is a view of one."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cape.core import check
from cape.core.errors import InvalidInput, TooNoisyWarning, outside
from cape.stats.law import GAUSSIAN, Law

__all__ = [
    "Estimate",
    "Estimates",
    "Interval",
    "Labels",
    "error_beside",
    "is_hidden",
    "is_unknown",
    "unknown",
    "warn_of_unknown",
]

Floats = NDArray[np.float64]
Interval = Callable[[float], tuple[float, float]]
_ANYWHERE = (-math.inf, math.inf)
_SHOWN = 10  # of a long column, where all of it is printed


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number with its error: from having sampled people, and from privacy noise.

    `law` is that of the privacy noise; None stands for that of the release, a Gaussian where there is none.
    `at` overrides the interval of Gaussian sampling error plus that noise where a better one is known;
    `within` cuts the interval to what is possible (a count is not negative).
    """

    label: str
    value: float
    sampling: float
    privacy: float
    within: tuple[float, float] = _ANYWHERE
    at: Interval | None = None
    law: Law | None = None

    @property
    def standard_error(self) -> float:
        """Of both kinds together."""
        return math.hypot(self.sampling, self.privacy)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval that covers the population's value at this level."""
        level = check.probability("level", level)
        if self.at is not None:
            low, high = self.at(level)
        else:
            reach = float((self.law or GAUSSIAN).quantile((1 + level) / 2, self.privacy, self.sampling))
            low, high = self.value - reach, self.value + reach
        least, most = self.within  # an interval beyond what is possible ends there, at both ends
        return min(max(low, least), most), max(min(high, most), least)


@dataclass(frozen=True)
class _Anywhere:
    """An interval that is the same at every level: all that is possible."""

    low: float
    high: float

    def __call__(self, level: float) -> tuple[float, float]:
        return self.low, self.high


def unknown(label: str, low: float, high: float, value: float | None = None) -> Estimate:
    """Return an estimate of which only the bounds are known; `value` is their middle if it is not given."""
    half = high / 2 - low / 2
    middle = low + half if value is None else value
    return Estimate(label, middle, 0.0, half, (low, high), _Anywhere(low, high))


def is_unknown(estimate: Estimate) -> bool:
    """Return whether only the bounds of an estimate are known: its value says nothing."""
    return isinstance(estimate.at, _Anywhere)


def is_hidden(estimate: Estimate) -> bool:
    """Return whether noise hides a number: its interval is all that is possible."""
    (low, high), (least, most) = estimate.interval(), estimate.within
    return is_unknown(estimate) or low <= least < most <= high


def error_beside(error: float, ends: tuple[float, float]) -> float:
    """Return the standard error to show beside an interval with these ends: NaN where one of them is open.

    A number that may be as large as one likes has no standard error, such as a median that a curve may not
    reach.
    """
    return error if all(map(math.isfinite, ends)) else math.nan


def warn_of_unknown(estimates: Sequence[Estimate]) -> None:
    """Warn, once, of all estimates that noise hides."""
    hidden = [estimate.label for estimate in estimates if is_unknown(estimate)]
    if hidden:
        more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
        grouped = any("=" in label.partition(" | ")[2] for label in hidden)
        empty = ", or nobody is in it: leave an empty group out with where" if grouped else ""
        warnings.warn(
            f"there is too much noise to say anything about {hidden[0]!r}{more}: the interval is all that is "
            f"possible; use a larger share, more epsilon, more rows or fewer columns{empty}",
            TooNoisyWarning,
            stacklevel=outside(),
        )


class Labels(Sequence[str]):
    """Labels that are written when they are looked at: a table of counts may have a million."""

    @abstractmethod
    def write(self, place: int) -> str:
        """Return the label at a place from 0 on."""

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        found = range(len(self))[place]
        return self.write(found) if isinstance(found, int) else [self.write(each) for each in found]


class Estimates(Sequence[Estimate]):
    """Estimates as columns, all of one length; an error or a bound that is one number holds for all.

    Attributes:
        labels: what each number is.
        values: the numbers.
        sampling: the error of each from having sampled people.
        privacy: the error of each from privacy noise.
        within: the smallest and the largest possible value of each.
        at: the intervals, by place, that do not follow from these.
        shapes: the law of the privacy noise of each, by its shape (`Law`); NaN for that of the release.
    """

    def __init__(
        self,
        labels: Sequence[str],
        values: ArrayLike,
        sampling: ArrayLike,
        privacy: ArrayLike,
        within: tuple[ArrayLike, ArrayLike] = _ANYWHERE,
        at: Mapping[int, Interval] | None = None,
        law: Law | ArrayLike | None = None,
    ) -> None:
        def column(given: ArrayLike) -> Floats:
            return np.broadcast_to(np.asarray(given, np.float64), (len(labels),))

        if np.shape(values) != (len(labels),):
            raise InvalidInput(f"{len(labels)} labels need as many values, not {np.shape(values)}")
        self.labels, self.values = labels, column(values)
        self.sampling, self.privacy = column(sampling), column(privacy)
        self.within = column(within[0]), column(within[1])
        self.at = dict(at or {})
        self.shapes = column(math.nan if law is None else law.shape if isinstance(law, Law) else law)

    @classmethod
    def of(cls, estimates: Iterable[Estimate]) -> Estimates:
        """Return estimates as columns."""
        if isinstance(estimates, cls):
            return estimates
        each = tuple(estimates)
        return cls(
            [e.label for e in each],
            [e.value for e in each],
            [e.sampling for e in each],
            [e.privacy for e in each],
            ([e.within[0] for e in each], [e.within[1] for e in each]),
            {place: e.at for place, e in enumerate(each) if e.at is not None},
            [math.nan if e.law is None else e.law.shape for e in each],
        )

    def under(self, law: Law) -> Estimates:
        """Return them with this law of the noise where none is stated."""
        shapes = np.where(np.isnan(self.shapes), law.shape, self.shapes)
        return Estimates(self.labels, self.values, self.sampling, self.privacy, self.within, self.at, shapes)

    @property
    def standard_errors(self) -> Floats:
        """Of both kinds of error together."""
        return np.array(list(map(math.hypot, self.sampling.tolist(), self.privacy.tolist())))

    def intervals(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the lower and the upper ends of the intervals at this level."""
        level = check.probability("level", level)
        reach = np.empty(len(self))
        shapes = np.where(np.isnan(self.shapes), math.inf, self.shapes)
        for shape in set(shapes.tolist()):
            these = shapes == shape
            noise, sampling = self.privacy[these], self.sampling[these]
            reach[these] = Law(shape).quantile((1 + level) / 2, noise, sampling)
        lows, highs = self.values - reach, self.values + reach
        for place, interval in self.at.items():
            lows[place], highs[place] = interval(level)
        return np.clip(lows, *self.within), np.clip(highs, *self.within)

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> Estimate: ...
    @overload
    def __getitem__(self, place: slice) -> Estimates: ...
    def __getitem__(self, place: int | slice) -> Estimate | Estimates:
        low, high = self.within
        if isinstance(place, slice):
            at = {i: self.at[j] for i, j in enumerate(range(len(self))[place]) if j in self.at}
            chosen = self.values[place], self.sampling[place], self.privacy[place]
            return Estimates(self.labels[place], *chosen, (low[place], high[place]), at, self.shapes[place])
        place = range(len(self))[place]
        return Estimate(
            self.labels[place],
            float(self.values[place]),
            float(self.sampling[place]),
            float(self.privacy[place]),
            (float(low[place]), float(high[place])),
            self.at.get(place),
            None if math.isnan(self.shapes[place]) else Law(float(self.shapes[place])),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Estimates):
            return isinstance(other, (tuple, list)) and list(self) == list(other)
        mine, theirs = ((e.values, e.sampling, e.privacy, e.shapes, *e.within) for e in (self, other))
        same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(mine, theirs, strict=True))
        return same and self.at == other.at and list(self.labels) == list(other.labels)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        more = f", and {len(self) - _SHOWN:,} more" if len(self) > _SHOWN else ""
        return f"Estimates({list(self[:_SHOWN])!r}{more})"
