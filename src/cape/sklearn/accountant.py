"""What several fits cost together.

Claim. Fits that one accountant is charged for are together (epsilon, delta)-private, with the pair that
`total` returns, which stays within the limit.
Reason. A fit is mu-GDP, with the mu of its own budget, and mu² adds over fits, also adaptive ones on the same
rows. The sum is kept as an exact fraction. A fit is charged before it releases anything, under a lock, and a
charge above the limit is refused. Copies are the same accountant, so that clones of an estimator share it.
Tested in tests/sklearn/test_accountant.py.
"""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from typing import Any, NoReturn

from cape import check
from cape.errors import BudgetExceeded, InvalidInput
from cape.privacy import Budget, gaussian

__all__ = ["BudgetAccountant", "accountant_of"]

_BLOCKS: list[BudgetAccountant] = []  # of this process: also fits in threads that a block starts are charged


class BudgetAccountant:
    """A limit that several fits share, on the same rows or on different ones.

    >>> accountant = BudgetAccountant(epsilon=3, delta=1e-6)
    >>> PCA(2, epsilon=1, bounds_X=(0, 1), accountant=accountant).fit(X)
    >>> accountant.total(), accountant.remaining()

    As a context, `with BudgetAccountant(3, 1e-6):`, it is charged for every fit in the block that has no
    accountant of its own, in all threads of the process. Other processes are not charged: use n_jobs=1.

    Args:
        epsilon: the limit; by default there is none, and costs are only added up.
        delta: what epsilons are stated at, above 0: noise is Gaussian, and has no finite epsilon at 0.
    """

    def __init__(self, epsilon: float = math.inf, delta: float = 1e-6) -> None:
        self.epsilon = check.real("epsilon", epsilon, above=0.0, infinite=True)
        self.delta = check.probability("delta", delta)
        self._limit = None if math.isinf(self.epsilon) else Fraction(Budget(self.epsilon, self.delta).mu) ** 2
        self._spent: Fraction | None = Fraction(0)  # None once a fit had no noise
        self._fits = 0
        self._lock = threading.Lock()

    def charge(self, mu: float) -> None:
        """Add the cost of one fit, or raise `BudgetExceeded`; mu is infinite for a fit without noise."""
        with self._lock:
            cost = None if math.isinf(mu) else Fraction(mu) ** 2
            spent = None if cost is None or self._spent is None else self._spent + cost
            if self._limit is not None and (spent is None or spent > self._limit):
                raise BudgetExceeded(
                    f"a fit of mu = {mu:.4g} would exceed the accountant's limit of epsilon = "
                    f"{self.epsilon:g} at delta = {self.delta:g}: remaining() says what is left"
                )
            self._spent, self._fits = spent, self._fits + 1

    def total(self) -> tuple[float, float]:
        """Return (epsilon, delta) of all fits together."""
        if self._spent is None:
            return math.inf, self.delta
        return (gaussian.epsilon(self.delta, math.sqrt(self._spent)) if self._spent else 0.0), self.delta

    def remaining(self, fits: int = 1) -> tuple[float, float]:
        """Return (epsilon, delta) that each of so many further fits may have."""
        many = check.integer("fits", fits, least=1)
        if self._limit is None or self._spent is None:
            return self.epsilon, self.delta
        left = (self._limit - self._spent) / many
        return (gaussian.epsilon(self.delta, math.sqrt(left)) if left > 0 else 0.0), self.delta

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
        return f"BudgetAccountant({self._fits} fits: epsilon = {epsilon:.4g} at delta = {delta:g}; {limit})"


def accountant_of(given: Any) -> BudgetAccountant | None:
    """Return the accountant that was given, or that of the block around the fit, or None."""
    if given is None:
        return next(reversed(_BLOCKS), None)
    if not isinstance(given, BudgetAccountant):
        raise InvalidInput(f"accountant must be a cape.sklearn.BudgetAccountant, not {type(given).__name__}")
    return given
