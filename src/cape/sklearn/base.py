"""The base of every estimator: a fit splits rows over sites and spends one budget through a consortium.

Claim. A fit costs at most (epsilon, delta) for each row, or epsilon alone where its noise needs no delta, and
its attributes hold released values only, except those documented as taken from the data or computed for its
owner (`labels_` of a clustering).
Reason. All releases of a fit are those of one `Consortium` with that budget; everything else is computed from
them, from parameters, and from rows by themselves. Not protected: bounds that are taken from the data (a
warning), noise with a `random_state` (a warning), anything at epsilon = infinity (a warning), the number of
rows of each site under "replace-one", the names of features and the labels of classes. Tested in
tests/unit/sklearn/.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from cape.blocks.terms import quoted
from cape.core import check
from cape.core.errors import CapeError, IgnoredParameterWarning, InvalidInput, PrivacyLeakWarning, outside
from cape.data import Category, Number, Schema
from cape.engine.consortium import Consortium
from cape.engine.query import Analysis
from cape.engine.result import Release, ReleaseGuarantee
from cape.noise import SecureStream
from cape.privacy import Budget, laplace
from cape.sklearn.accountant import BudgetAccountant, accountant_of
from cape.sklearn.bounds import Box
from cape.sklearn.split import frames, split

__all__ = ["PrivateEstimator", "Target", "by_label", "ignore_weights", "model_of"]

Floats = NDArray[np.float64]
Target = tuple[Number | Category, pl.Series]

_DELTA = 1e-6  # by default, for Gaussian noise
_GAUSSIAN = ("cape-gaussian", "none")  # schemes that make no Laplace noise
_DIGITS = 12  # of a budget share, so that shares add up to at most 1


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The parameters of all estimators, and the release of one fit.

    `delta` is None for what suits the model: Laplace noise without delta, or Gaussian noise with 1e-6. A
    number above 0 asks for Gaussian noise, and 0 for Laplace noise, which some models refuse.

    Attributes:
        release_: what was released, with its guarantee, intervals and `summary()`.
        guarantee_: the guarantee of the whole fit, for everyone in X.
    """

    epsilon: float = 1.0
    delta: float | None = None
    bounds_X: Any = None  # noqa: N815 - scikit-learn's name for rows
    n_sites: int = 5
    colluding: int | None = None
    scheme: str = "cape"
    neighbours: Literal["replace-one", "add-remove"] = "replace-one"
    random_state: Any = None
    accountant: BudgetAccountant | None = None

    _ignored: ClassVar[Mapping[str, str]] = {}
    """Parameters of other libraries that have no effect here: name -> what to do instead."""
    _exact_only: ClassVar[frozenset[str]] = frozenset()
    """Which of them have an effect at epsilon = infinity."""
    _pure: ClassVar[bool] = False
    """Whether fits have Laplace noise, which needs no delta, if none is given."""

    def __post_init__(self) -> None:
        self._warn_of_ignored(self._ignored)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and warn of those that have no effect."""
        super().set_params(**params)
        self._warn_of_ignored(params)
        return self

    def _warn_of_ignored(self, names: Iterable[str]) -> None:
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            value = getattr(self, name, None)
            if name not in self._ignored or (self._exact and name in self._exact_only):
                continue
            if type(value) is not type(defaults[name]) or value != defaults[name]:
                warnings.warn(
                    f"{name} has no effect on {type(self).__name__}: {self._ignored[name]}",
                    IgnoredParameterWarning,
                    stacklevel=outside(),
                )

    @property
    def _exact(self) -> bool:
        """Whether results are to be those of scikit-learn: epsilon is infinite, and nothing is private."""
        return isinstance(self.epsilon, (int, float)) and self.epsilon == math.inf

    def interval(self, level: float = 0.95) -> dict[str, Any]:
        """Return (low, high) for each estimate, by name, counting sampling and noise; by class if several."""
        check_is_fitted(self)
        return _intervals(self.release_, level)

    def _rows(self, X: Any) -> Floats:
        """Return new rows once the estimator is fitted and they have the features that it was fitted to."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _names(self) -> tuple[str, ...]:
        """Return the names of features at the sites: their own, if distinct and none looks like a term."""
        own = tuple(map(str, getattr(self, "feature_names_in_", ())))
        plain = all(name and quoted(name) == name for name in own) and "intercept" not in own
        if own and len(set(own)) == len(own) and plain:
            return own
        return tuple(f"x{i}" for i in range(self.n_features_in_))

    def _target(self) -> str:
        """Return a name for a target that no feature has, nor starts with before an equals sign."""
        taken = {name.partition("=")[0] for name in self._names()}
        target = "y"
        while target in taken:
            target += "'"
        return target

    def _seed(self) -> int:
        """Return the seed of public randomness: initial weights, initial centres."""
        return 0 if self.random_state is None else int(check_random_state(self.random_state).randint(2**31))

    def _release(
        self, X: Floats, box: Box, targets: Mapping[str, Target], sites: Any, analyses: Sequence[Analysis]
    ) -> list[Release]:
        """Release the analyses, each for the same budget share, and set `guarantee_`."""
        epsilon = check.real("epsilon", self.epsilon, above=0.0, infinite=True)
        scheme = "none" if self._exact else self.scheme
        budget = Budget(1.0 if self._exact else epsilon, self._stated_delta(scheme))
        accountant = accountant_of(self.accountant)
        random = check_random_state(self.random_state)
        rows = split(len(X), self.n_sites, sites, random, public=self.neighbours == "replace-one")
        names = self._names()
        schema = dict(zip(names, box.columns(), strict=True)) | {
            name: column for name, (column, _) in targets.items()
        }
        tables = frames(X, box, names, {name: cells for name, (_, cells) in targets.items()}, rows)
        if budget.pure and scheme != "none":
            self._require_pure(Schema(schema), analyses)
        consortium = Consortium(
            tables,
            Schema(schema),
            budget,
            colluding=self.colluding,
            scheme=scheme,
            neighbours=self.neighbours,
            stream=None if self.random_state is None else _repeatable(random),
        )
        if self._exact:
            warnings.warn(
                "epsilon = infinity adds no noise: results protect nobody. Give a finite epsilon for "
                "people's rows",
                PrivacyLeakWarning,
                stacklevel=outside(),
            )
        share = math.floor(10**_DIGITS / len(analyses)) / 10**_DIGITS
        if accountant is not None:
            extra = sum((Fraction(consortium.promise(each, share).extra) for each in analyses), Fraction(0))
            accountant.charge(None if scheme == "none" else budget, self.neighbours, extra)
        releases = [consortium.release(each, share) for each in analyses]
        self.guarantee_: ReleaseGuarantee | None = _together(releases, budget)
        return releases

    def _stated_delta(self, scheme: str) -> float:
        """Return the delta of a fit: what was given, or what the model needs with this scheme."""
        if self.delta is not None:
            return self.delta
        return 0.0 if self._pure and scheme not in _GAUSSIAN else _DELTA

    def _require_pure(self, schema: Schema, analyses: Sequence[Analysis]) -> None:
        """Raise unless a fit can do without delta: before anything is charged or released."""
        asked = [each.under(laplace=True) for each in analyses]
        if any(each.sampling < 1 or each.query(schema, self.neighbours).l1 is None for each in asked):
            raise InvalidInput(
                f"{type(self).__name__} has Gaussian noise, which needs a delta above 0: give delta=1e-6, or "
                "leave delta out"
            )


def _together(releases: Sequence[Release], budget: Budget) -> ReleaseGuarantee:
    """Return the guarantee of all releases of a fit."""
    promise = releases[0].guarantee
    if len(releases) == 1:
        return promise
    promise = replace(promise, extra=math.fsum(release.guarantee.extra for release in releases))
    if promise.pure is not None:
        return replace(promise, mu=laplace.dominating_mu(budget.epsilon), pure=budget.epsilon)
    mu = math.sqrt(math.fsum(release.guarantee.mu**2 for release in releases))
    mu = mu if math.isinf(mu) else min(mu, budget.mu)  # the root may be rounded up
    return replace(promise, mu=mu)


def ignore_weights(X: Floats, sample_weight: Any) -> None:
    """Warn that weights of rows have no effect, and refuse those that do not fit the rows."""
    if sample_weight is None:
        return
    warnings.warn(
        "sample_weight has no effect: each row counts once, because a weight would multiply what one person "
        "can change. Leave it out",
        IgnoredParameterWarning,
        stacklevel=outside(),
    )
    weights = np.asarray(sample_weight, np.float64)
    if weights.shape not in ((), (len(X),)):
        raise InvalidInput(f"sample_weight must have one number for each row, not the shape {weights.shape}")
    if not weights.any():
        raise InvalidInput("sample_weight must not be zero for every row")


def model_of(release: Release) -> Any:
    """Return the model, or raise if noise hides everything."""
    if release.model is None:
        raise CapeError("noise hides the number of rows, and with it everything else: the budget is spent")
    return release.model


def by_label(labels: Sequence[str], releases: Sequence[Release]) -> Release | dict[str, Release]:
    """Return the only release, or several by label."""
    return releases[0] if len(releases) == 1 else dict(zip(labels, releases, strict=True))


def _repeatable(random: Any) -> SecureStream:
    warnings.warn(
        "random_state makes noise that can be reproduced, and so protects nobody: use it in simulations, "
        "not for people's rows",
        PrivacyLeakWarning,
        stacklevel=outside(),
    )
    return SecureStream(random.bytes(32))


def _intervals(release: Any, level: float) -> dict[str, Any]:
    if isinstance(release, dict):
        return {name: _intervals(each, level) for name, each in release.items()}
    return {estimate.label: estimate.interval(level) for estimate in release.estimates}
