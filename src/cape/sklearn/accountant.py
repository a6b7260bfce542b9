"""What several fits cost together.

Claim. Fits that one accountant with a limit is charged for are together (epsilon, delta)-private with the
limit's pair, also if each is chosen after the results of others, on the same rows, and whichever kinds of
noise they have. The pair that `total` returns, with or without a limit, holds for fits of these costs that
were settled beforehand; where there is a limit it is never above it.
Reason. A fit with Gaussian noise is mu-GDP, with the mu of its own budget, and mu² adds; one with Laplace
noise is pure, and its epsilon adds. What a fit over samples, or among so many sites that not all of them
share masks, adds to delta beside that is what its releases will promise (`Consortium.promise`), and adds as
well. All fits have one adjacency. The three sums are exact fractions, an `Amount`; the limit is an
`Allowance`, as a steward has it. A choice among the three after seeing results would gain from one frontier
for all, so there are 17 fixed pairs of totals, with a part of delta each, and a part for what is beside them
(proof in `cape.privacy.accounting`). A limit without delta admits pure fits only, and nothing beside them.
`total`: pure fits are together one pure release, the others one Gaussian release, and their privacy losses
are convolved exactly, at what is left of delta. An allowance asks for at least as much room as that, at its
own epsilon and delta, so the total stays within it.
A fit is charged before it releases anything, under a lock, and a charge above the limit is refused. Copies
are the same accountant, so that clones of an estimator share it.
Tested in tests/unit/sklearn/test_accountant.py.
"""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from typing import Any, NoReturn

from cape.core import check
from cape.core.errors import BudgetExceeded, InvalidInput
from cape.privacy import Budget, gaussian
from cape.privacy.accounting import Allowance, Amount
from cape.privacy.budget import BESIDE

__all__ = ["BudgetAccountant", "accountant_of"]

_STEPS = 50  # of a bisection
_NOTHING = Fraction(0)
_BESIDE_TOLD = f", where samples and masks may add {BESIDE:g} of delta"
_BLOCKS: list[BudgetAccountant] = []  # of this process: also fits in threads that a block starts are charged


class BudgetAccountant:
    """A limit that several fits share, on the same rows or on different ones.

    >>> accountant = BudgetAccountant(epsilon=3, delta=1e-6)
    >>> PCA(2, epsilon=1, bounds_X=(0, 1), accountant=accountant).fit(X)
    >>> accountant.total(), accountant.remaining()

    As a context, `with BudgetAccountant(3, 1e-6):`, it is charged for every fit in the block that has no
    accountant of its own, in all threads of the process. Other processes are not charged: use n_jobs=1.

    Epsilons of fits with Laplace noise, which have no delta, add up, and so does mu² of those with Gaussian
    noise. A limit leaves little room for both kinds together: keep to one of them. What fits over samples,
    and masks among very many sites, add to delta may be at most a part of the limit's, `BESIDE` in
    `cape.privacy.budget`, 1/2000.

    Args:
        epsilon: the limit; by default there is none, and costs are only added up.
        delta: what epsilons of fits with Gaussian noise are stated at; with 0, only fits without delta are
            accepted, among so few sites that their masks cannot fail.
    """

    def __init__(self, epsilon: float = math.inf, delta: float = 1e-6) -> None:
        self.epsilon = check.real("epsilon", epsilon, above=0.0, infinite=True)
        none = not isinstance(delta, bool) and delta == 0
        self.delta = 0.0 if none else check.probability("delta", delta)
        self._limit = None if math.isinf(self.epsilon) else Allowance(self.epsilon, self.delta)
        self._spent: Amount | None = Amount()  # None once a fit had no noise
        self._fits = 0
        self._neighbours: str | None = None
        self._lock = threading.Lock()

    def charge(
        self, budget: Budget | None, neighbours: str = "replace-one", extra: Fraction = _NOTHING
    ) -> None:
        """Add the cost of one fit, or raise `BudgetExceeded`.

        Args:
            budget: what the fit spends; None for a fit without noise.
            neighbours: costs are of one adjacency, as the same pair says less under "add-remove".
            extra: what samples and sparse graphs of masks add to delta, as the fit's releases promise it.
        """
        with self._lock:
            if self._neighbours not in (None, neighbours):
                raise InvalidInput(
                    f"fits of one accountant must have the same neighbours; it has fits of "
                    f"{self._neighbours!r}, and this one is of {neighbours!r}: use another accountant"
                )
            if not self.delta and budget is not None and not budget.pure:
                raise BudgetExceeded(
                    f"a fit with delta = {budget.delta:g} exceeds an accountant without delta: give the fit "
                    "delta=0, if its model can do without, or the accountant a delta such as 1e-6"
                )
            if not self.delta and budget is not None and extra:
                raise BudgetExceeded(
                    f"a fit whose masks fail to hide a site with a chance of {float(extra):.2g} exceeds an "
                    "accountant without delta: give the accountant a delta such as 1e-6, or use fewer sites"
                )
            spent = None if budget is None or self._spent is None else self._spent + _cost(budget, extra)
            if self._limit is not None and (spent is None or not self._limit.covers(spent)):
                raise BudgetExceeded(
                    f"a fit {_told(budget, extra)} would exceed the accountant's limit of {self._limit}"
                    + (_BESIDE_TOLD if extra else "")
                    + ": remaining() says what is left"
                )
            self._spent, self._fits, self._neighbours = spent, self._fits + 1, neighbours

    def total(self) -> tuple[float, float]:
        """Return (epsilon, delta) of all fits together; delta is 0 if none of them has one.

        If all fits are pure, it is the chance that masks among very many sites fail, if there is one.
        """
        spent = self._spent
        if spent is None:
            return math.inf, self.delta
        if not spent.mu_squared:
            return float(spent.pure), _above(spent.extra) if self._fits else self.delta
        left = self.delta - _above(spent.extra)
        if not spent.pure:
            return gaussian.epsilon(left, math.sqrt(spent.mu_squared)) if left > 0 else math.inf, self.delta
        return spent.epsilon(self.delta), self.delta

    def remaining(self, fits: int = 1) -> tuple[float, float]:
        """Return (epsilon, delta) that each of so many further fits may have.

        They are without delta if the accountant, or all fits so far, have none, else with Gaussian noise.
        A fit over samples is refused, too, once what such fits add to delta is all that may be beside.
        """
        many = check.integer("fits", fits, least=1)
        if self._limit is None or self._spent is None:
            return self.epsilon, self.delta
        if not self.delta or (self._spent.pure and not self._spent.mu_squared):
            return _below((Fraction(repr(self.epsilon)) - self._spent.pure) / many), 0.0
        left = (_most(self._limit, self._spent.pure) - self._spent.mu_squared) / many
        return (Budget.of(math.sqrt(left), self.delta).epsilon if left > 0 else 0.0), self.delta

    def __len__(self) -> int:
        return self._fits

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> BudgetAccountant:
        _BLOCKS.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        last = max(i for i, each in enumerate(_BLOCKS) if each is self)
        del _BLOCKS[last]

    def __copy__(self) -> BudgetAccountant:
        return self

    def __deepcopy__(self, _: Any) -> BudgetAccountant:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a BudgetAccountant cannot be pickled: the copy would spend the budget again. Set "
            "accountant=None first, and use n_jobs=1 in searches"
        )

    def __repr__(self) -> str:
        epsilon, delta = self.total()
        limit = "no limit" if self._limit is None else f"limit {self.epsilon:g}"
        at = f"at delta = {delta:g}" if delta else "without delta"
        return f"BudgetAccountant({self._fits} fits: epsilon = {epsilon:.4g} {at}; {limit})"


def _cost(budget: Budget, extra: Fraction) -> Amount:
    """Return what a fit costs that spends a whole budget, and adds something to delta."""
    if budget.pure:
        return Amount(extra=extra, pure=budget.part(1))
    return Amount(Fraction(budget.mu) ** 2, extra)


def _told(budget: Budget | None, extra: Fraction) -> str:
    if budget is None:
        return "without noise"
    return f"of epsilon = {budget.epsilon:g} " + (
        ("without delta" if budget.pure else f"at delta = {budget.delta:g} (mu = {budget.mu:.4g})")
        + (f" that adds {float(extra):.2g} to delta" if extra else "")
    )


def _above(extra: Fraction) -> float:
    """Return a number that is not below it."""
    found = float(extra)
    return math.nextafter(found, math.inf) if Fraction(found) < extra else found


def _below(epsilon: Fraction) -> float:
    """Return a number that is not above it, also as its decimals are read."""
    found = float(epsilon)
    while found > 0 and Fraction(repr(found)) > epsilon:
        found = math.nextafter(found, 0.0)
    return found


def _most(limit: Allowance, pure: Fraction) -> Fraction:
    """Return the largest mu² that a limit covers beside pure fits, or a little less."""
    low, high = 0.0, Budget(limit.epsilon, limit.delta).mu
    if limit.covers(Amount(Fraction(high) ** 2, pure=pure)):
        return Fraction(high) ** 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        within = limit.covers(Amount(Fraction(middle) ** 2, pure=pure))
        low, high = (middle, high) if within else (low, middle)
    return Fraction(low) ** 2


def accountant_of(given: Any) -> BudgetAccountant | None:
    """Return the accountant that was given, or that of the block around the fit, or None."""
    if given is None:
        return next(reversed(_BLOCKS), None)
    if not isinstance(given, BudgetAccountant):
        raise InvalidInput(f"accountant must be a cape.sklearn.BudgetAccountant, not {type(given).__name__}")
    return given
