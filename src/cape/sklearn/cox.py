"""Cox regression with scikit-learn's interface, over times and events as scikit-survival has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, validate_data

from cape.analyses.survival.cox import Cox
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Category, Number
from cape.sklearn.base import PrivateEstimator, Target, model_of
from cape.sklearn.bounds import box, warn_of

__all__ = ["CoxRegression"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class CoxRegression(PrivateEstimator):
    """Cox regression across sites: `cape.Cox` over arrays.

    >>> CoxRegression(epsilon=3.0, bounds_X=(0, 1), follow_up=10.0).fit(X, y).predict(X)

    `y` is an array with two columns, time and whether the event happened then (0 or 1), or a structured array
    of these with any names, the event first, as scikit-survival has it.

    Args:
        epsilon: what one fit may cost each person. At epsilon = infinity, with a warning, nothing is
            private.
        delta: beside epsilon, 1e-6 if it is None: noise is Gaussian, which cannot do without.
        bounds_X: (low, high) of the features, numbers or arrays with one for each. What lies outside is cut.
        data_norm: the longest that a row of X may be, in its own units; longer ones are shortened.
        follow_up: the time until which rows are followed; those that stay longer are censored then.
        bins: of equal width, with a constant baseline hazard each.
        edges: the ends of bins instead; the last is the end of follow-up.
        max_iter: how many steps, "auto" for five.
        n_sites, colluding, scheme, neighbours, random_state, accountant: see `LinearRegression`.

    Attributes:
        coef_: log-hazards per unit of each feature.
        hazard_ratios_: their exponentials.
        concordance_: released, under the model.
        release_, guarantee_: the release, and its guarantee.
    """

    data_norm: float | None = None
    follow_up: float | None = None
    bins: int = 20
    edges: Sequence[float] | None = None
    max_iter: Any = "auto"

    def fit(self, X: Any, y: Any, *, sites: Any = None) -> CoxRegression:
        """Release the coefficients. `sites` has a label for each row: which site holds it."""
        X = validate_data(self, X, dtype=np.float64)
        time, event = _outcomes(y)
        check_consistent_length(X, time)
        taken: list[str] = []
        self._box = box(X, self.bounds_X, self.data_norm, taken)
        last = self._last(time, taken)
        warn_of(taken)
        names = self._names()
        when = self._target()
        had = when + "'"
        targets: dict[str, Target] = {
            # what stays beyond the end of follow-up is known to do so, whenever it leaves
            when: (Number(0.0, 2 * last, missing=False), pl.Series(np.minimum(time, 2 * last))),
            had: (
                Category(("no", "yes"), missing=False),
                pl.Series(np.where(event, "yes", "no")),
            ),
        }
        edges = np.linspace(0.0, last, self.bins + 1)[1:] if self.edges is None else self.edges
        analysis = Cox(
            when, had, names, edges=[float(edge) for edge in edges], rounds=self.max_iter, norm=self._box.norm
        )
        (release,) = self._release(X, self._box, targets, sites, [analysis])
        self.release_ = release
        self._model = model_of(release)
        self.coef_ = np.array([self._model.coefficients[name] for name in names])
        self.hazard_ratios_ = np.exp(np.minimum(self.coef_, 700.0))
        self.concordance_ = self._model.concordance.value
        return self

    def _last(self, time: Floats, taken: list[str]) -> float:
        """Return the end of follow-up, which is taken from the data if nothing says it."""
        if self.edges is not None:
            if self.follow_up is not None:
                raise InvalidInput("edges say the end of follow-up: give either edges or follow_up")
            return check.real("edges", list(self.edges)[-1], above=0.0)
        check.integer("bins", self.bins, least=1)
        if self.follow_up is not None:
            return check.real("follow_up", self.follow_up, above=0.0)
        taken.append("follow_up")
        return max(float(time.max()), 1e-9)

    def predict(self, X: Any) -> Floats:
        """Return the log-hazard of each row, against one with the features of a typical event."""
        cells = self._box.cut(self._rows(X))
        return np.asarray(self._model.log_hazards(cells))

    def predict_survival(self, X: Any, times: Any) -> Floats:
        """Return the survival of each row at times until the end of follow-up, (rows, times)."""
        cells = self._box.cut(self._rows(X))
        return np.asarray(self._model.predict_survival(cells, times))

    def score(self, X: Any, y: Any) -> float:
        """Return the concordance of predictions with rows that are not private: Harrell's C."""
        log, (time, event) = self.predict(X), _outcomes(y)
        check_consistent_length(log, time)
        first = event[:, None] & (time[:, None] < time)
        if not first.any():
            raise InvalidInput("a concordance needs a row with an event before another row leaves")
        apart = np.sign(log[:, None] - log)
        return float(((apart + 1) / 2)[first].mean())


def _outcomes(y: Any) -> tuple[Floats, NDArray[np.bool_]]:
    """Return times and events."""
    found = np.asarray(y)
    if found.dtype.names is not None and len(found.dtype.names) == 2:
        event, time = (np.asarray(found[name]) for name in found.dtype.names)
    elif found.ndim == 2 and found.shape[1] == 2:
        time, event = found[:, 0], found[:, 1]
    else:
        raise InvalidInput(
            "y must have two columns, time and event, or be a structured array of event and time"
        )
    time, event = np.asarray(time, np.float64), np.asarray(event, np.float64)
    if not np.isfinite(time).all() or (time < 0).any():
        raise InvalidInput("times in y must be finite numbers of 0 or more")
    if not np.isin(event, (0.0, 1.0)).all():
        raise InvalidInput("events in y must be 0 or 1, or False or True")
    return time, event == 1
