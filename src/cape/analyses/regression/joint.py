"""Coefficients together: their covariance, tests of several at once, and linear combinations.

A combination a of the coefficients has the squared errors a'(sampling)a and a'(privacy)a; where the first was
released with noise, that noise is a'(doubt)a, and the interval counts it: see `inference.Unsure`. A
coefficient is the simplest combination, so tables, tests and combinations agree.

*Several at once.* Wald's test of "all of these are 0" looks at the combination that stands out most, a = C^-1
b with C their covariance: its square over its squared error is b'C^-1 b, which is chi-square with as many
degrees of freedom as there are coefficients. F would allow for a residual variance from few rows; here rows
are many, and noise is normal with a known variance. That sampling errors are seen through noise is counted as
in intervals, with Hotelling's term for several, so that the test of one coefficient is the one in the table.
Tested in tests/unit/analyses/regression/test_joint.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

from cape.analyses.regression.inference import Unsure
from cape.blocks.terms import same
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.engine.arguments import joined
from cape.show.numbers import p_said
from cape.show.plain import plain
from cape.stats.estimates import Estimate, unknown

__all__ = ["Joint", "Matrix", "Tested", "WaldTest", "rows_of"]

Rows = tuple[tuple[float, ...], ...]
_Z2 = 3.8415  # z² of 95%, the level that standard errors are right for
_SMALL = 1e-3  # of an error: not worth an interval of its own


def rows_of(matrix: Floats) -> Rows:
    """Return a matrix as tuples, which can be compared."""
    return tuple(tuple(map(float, row)) for row in np.asarray(matrix))


@dataclass(frozen=True)
class Matrix:
    """A square matrix whose rows and columns have names: `matrix["age", "chol"]`, `numpy.asarray(matrix)`."""

    labels: tuple[str, ...]
    rows: Rows

    def __getitem__(self, names: tuple[str, str]) -> float:
        one, two = (_place(name, self.labels) for name in names)
        return self.rows[one][two]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.rows, np.float64 if dtype is None else dtype)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return plain({"labels": self.labels, "rows": self.rows})


@dataclass(frozen=True)
class WaldTest:
    """Whether several coefficients are all 0: chi-square, its degrees of freedom and P; NaN if not known."""

    labels: tuple[str, ...]
    statistic: float
    freedom: int
    p: float

    def __str__(self) -> str:
        if math.isnan(self.p):
            return f"{joined(self.labels)}: not known"
        return (
            f"{joined(self.labels)}: chi-square {self.statistic:.2f} on {self.freedom} degrees of freedom, "
            f"{p_said(self.p)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return plain(
            {"labels": self.labels, "statistic": self.statistic, "freedom": self.freedom, "p": self.p}
        )


@dataclass(frozen=True)
class Joint:
    """Coefficients and the covariances of their errors, in the users' units.

    Attributes:
        labels: their names, the intercept first if there is one.
        within: the bounds of each: what an unknown one is reported with.
        values: the estimates; empty if nothing is known.
        privacy: the covariance from noise.
        sampling: that from having sampled rows, as it was released; noise may make it indefinite.
        clear: the same, positive semidefinite; `sampling` if not given.
        doubt: a'(doubt)a is the noise of a'(sampling)a; none if not given.
        pulls: a column for each thing that may be wrong beside; a moves by at most the sum of |a'(pulls)|.
        owners: which feature each belongs to; "" for the intercept.
    """

    labels: tuple[str, ...]
    within: tuple[tuple[float, float], ...]
    values: tuple[float, ...] = ()
    privacy: Rows = ()
    sampling: Rows = ()
    clear: Rows = ()
    doubt: Rows = ()
    pulls: Rows = ()
    owners: tuple[str, ...] = ()

    @property
    def estimates(self) -> list[Estimate]:
        """The coefficients, one after the other."""
        each = zip(np.eye(len(self.labels)), self.labels, self.within, strict=True)
        return [self._combined(a, label, within) for a, label, within in each]

    @property
    def covariance(self) -> Matrix:
        """The covariance of all coefficients, from sampling and noise; NaN where nothing is known.

        Its diagonal has the squared standard errors.
        """
        if not self.values:
            return Matrix(self.labels, rows_of(np.full((len(self.labels),) * 2, math.nan)))
        found = self._together
        size = np.sqrt(np.maximum(np.diag(found), 1e-300))
        errors = np.array([estimate.standard_error for estimate in self.estimates])
        return Matrix(self.labels, rows_of(found / np.outer(size, size) * np.outer(errors, errors)))

    def test(self, *names: str) -> WaldTest:
        """Return the test of whether these are all 0: coefficients, or terms with all of theirs."""
        places = self._places(names)
        labels, many = tuple(self.labels[i] for i in places), len(places)
        each = self.estimates
        if not self.values or any(
            each[i].at is not None and not isinstance(each[i].at, Unsure) for i in places
        ):
            return WaldTest(labels, math.nan, many, math.nan)
        values, together = np.array(self.values)[places], self._together[np.ix_(places, places)]
        if not (np.isfinite(values).all() and np.isfinite(together).all()):  # LAPACK may not return
            return WaldTest(labels, math.nan, many, math.nan)
        a = np.zeros(len(self.labels))
        a[places] = np.linalg.lstsq(together, values, rcond=None)[0]
        found = self._interval(a).statistic(many)
        return WaldTest(labels, found, many, float(gammaincc(many / 2, found / 2)))

    def combination(self, times: Mapping[str, float]) -> Estimate:
        """Return the sum of coefficients times numbers, with its interval."""
        if not isinstance(times, Mapping) or not times:
            raise InvalidInput(
                f"a combination must map coefficients to numbers, as in {{'age': 10}}, not {times!r}"
            )
        a = np.zeros(len(self.labels))
        for name, number in times.items():
            a[_place(name, self.labels)] = check.real(f"combination[{name!r}]", number)
        label = " + ".join(name if number == 1 else f"{number:g} {name}" for name, number in times.items())
        ends = [sorted((t * low, t * high)) for t, (low, high) in zip(a, self.within, strict=True) if t]
        return self._combined(a, label, (sum(low for low, _ in ends), sum(high for _, high in ends)))

    def _combined(self, a: Floats, label: str, within: tuple[float, float]) -> Estimate:
        low, high = within
        if not self.values:
            return unknown(label, low, high)
        interval = self._interval(a)
        squared = interval.squared(_Z2)
        error, privacy, bias = math.sqrt(squared), math.sqrt(interval.privacy), interval.bias
        sampling = math.sqrt(max(squared - interval.privacy, 0.0))
        if bias > _SMALL * error:
            if bias + error >= (high - low) / 2:
                return unknown(label, low, high)
            value = min(max(interval.value, low), high)
            interval = Unsure(value, interval.sampling, interval.privacy, interval.doubt, bias)
            return Estimate(label, value, sampling, math.hypot(privacy, bias), within, interval)
        at = interval if interval.doubt > _SMALL * squared else None
        return Estimate(label, interval.value, sampling, privacy, at=at)

    def _interval(self, a: Floats) -> Unsure:
        pulls = np.array(self.pulls)
        return Unsure(
            float(a @ np.array(self.values)),
            float(a @ np.array(self.sampling) @ a),
            max(float(a @ np.array(self.privacy) @ a), 0.0),
            float(a @ np.array(self.doubt) @ a) if self.doubt else 0.0,
            float(np.abs(a @ pulls).sum()) if pulls.size else 0.0,
        )

    @property
    def _together(self) -> Floats:
        return np.asarray(np.array(self.privacy) + np.array(self.clear or self.sampling))

    def _places(self, names: Sequence[str]) -> list[int]:
        if not names:
            raise InvalidInput(f"a test must name coefficients: {joined(self.labels)}")
        places: list[int] = []
        for name in names:
            of = [i for i, term in enumerate(self.owners) if same(term, name)]
            of = of or [i for i, label in enumerate(self.labels) if label.startswith(f"{name}=")]
            places += of if of and name not in self.labels else [_place(name, self.labels)]
        return list(dict.fromkeys(places))


def _place(name: str, labels: Sequence[str]) -> int:
    if name not in labels:
        raise InvalidInput(f"there is no coefficient {name!r}; there are {joined(list(labels))}")
    return list(labels).index(name)


class Tested:
    """A model whose `joint` estimates are tested and combined."""

    if TYPE_CHECKING:
        joint: Joint

    @property
    def covariance(self) -> Matrix:
        """The covariance of the estimates, from sampling and noise, in the columns' units."""
        return self.joint.covariance

    def test(self, *names: str) -> WaldTest:
        """Return Wald's test of whether these coefficients are all 0.

        A name is that of a coefficient, or of a column of categories, which stands for all of its own.

        >>> model.test("age", "stage")
        """
        return self.joint.test(*names)

    def combination(self, times: Mapping[str, float]) -> Estimate:
        """Return a sum of coefficients, each times a number, with an interval.

        >>> model.combination({"age": 10, "sex=male": 1})
        """
        return self.joint.combination(times)
