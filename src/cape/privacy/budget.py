"""The budget, and the cost of a release: two frozen values.

Claim: releases paid for by budget shares of one `Budget` are, together, (epsilon, delta)-private.
Reason: a budget share f pays for a release with mu = sqrt(f) * mu(epsilon, delta'); mu² adds, so
shares that add up to at most 1 stay at or below mu(epsilon, delta'). delta' is less than delta by a part of
it, `BESIDE`, for what runs over samples and sparse graphs of masks add to delta: their sum is kept below that
part by who counts it (`cape.privacy.accounting`, `cape.engine.stages`). It costs 0.003% of epsilon. With
Laplace noise, the only kind that a budget without delta pays for, a share pays for a release with f times
epsilon, and epsilons add. Shares are fractions, read from a number's decimal form, so that ten times 0.1 is
exactly 1.
Tested in tests/unit/privacy/test_budget.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import TypeAlias

from cape.core import check
from cape.core.errors import BudgetExceeded, InvalidInput
from cape.privacy import gaussian
from cape.show.shown import Framed
from cape.show.tables import Table

BESIDE = 1 / 2000
"""The part of delta that Gaussian noise leaves to what samples and sparse graphs of masks add to it."""

_BELOW = 1 - BESIDE - 5e-10  # of delta: more than the relative error of `gaussian.delta`, twice over

__all__ = ["BESIDE", "Budget", "Guarantee"]

Share: TypeAlias = float | Fraction | Decimal


@dataclass(frozen=True)
class Guarantee:
    """A release, or several together, that is exactly mu-GDP: every (epsilon, delta) follows from mu."""

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check.real("mu", self.mu, least=0.0))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at this delta."""
        return gaussian.epsilon(delta, self.mu)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at this epsilon."""
        return gaussian.delta(epsilon, self.mu)

    def __add__(self, other: Guarantee) -> Guarantee:
        if not isinstance(other, Guarantee):
            return NotImplemented
        return Guarantee(gaussian.compose(self.mu, other.mu))

    def __str__(self) -> str:
        return f"mu = {self.mu:.4g} (epsilon = {self.epsilon(1e-5):.4g} at delta = 1e-05)"


@dataclass(frozen=True)
class Budget(Framed):
    """An (epsilon, delta) for several releases together, and the budget share that is spent.

    `Budget(epsilon=1.0)` has no delta: it is pure, and pays for Laplace noise only. A budget never changes:
    `spend` returns the one that is left.
    """

    epsilon: float
    delta: float = 0.0
    spent: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check.real("epsilon", self.epsilon, least=0.0))
        if isinstance(self.delta, bool) or self.delta != 0:
            object.__setattr__(self, "delta", check.probability("delta", self.delta))
        elif self.epsilon == 0:
            raise InvalidInput("epsilon must be above 0 in a budget without delta")
        check.real("spent", self.spent, least=0.0, most=1.0)
        object.__setattr__(self, "spent", min(_fraction(self.spent), Fraction(1)))

    @classmethod
    def of(cls, mu: float, delta: float) -> Budget:
        """Return the budget with this delta that pays for releases of this mu together, and hardly more."""
        return cls(gaussian.epsilon(delta * (1 - BESIDE), mu), delta)

    @property
    def pure(self) -> bool:
        """Whether there is no delta."""
        return self.delta == 0

    @property
    def mu(self) -> float:
        """The mu of the whole budget: what all releases together may cost.

        It leaves a part of delta to what is beside Gaussian noise, and is rounded down, so that the stated
        delta holds exactly despite the rounding of `gaussian`: a ledger with an allowance of the same
        (epsilon, delta) admits it.
        """
        if self.pure:
            raise InvalidInput(
                "a budget without delta pays for Laplace noise only; Gaussian noise needs one, such as 1e-6"
            )
        return gaussian.mu(self.epsilon, self.delta * _BELOW)

    @property
    def remaining(self) -> Fraction:
        """The budget share that is left, exactly."""
        return 1 - self.spent

    def cost(self, share: Share) -> Guarantee:
        """Return what a release paid for by this budget share may cost."""
        return Guarantee(self.mu * math.sqrt(_share(share)))

    def part(self, share: Share) -> Fraction:
        """Return the epsilon of a release with Laplace noise that this budget share pays for; exact."""
        return _share(share) * Fraction(repr(self.epsilon))

    def spend(self, share: Share) -> Budget:
        """Return the budget after a release paid for by `share`, or raise `BudgetExceeded`."""
        taken = _share(share)
        if taken > self.remaining:
            raise BudgetExceeded(
                f"share must be at most what is left, {float(self.remaining):.6g}, not {float(taken):.6g}"
            )
        return Budget(self.epsilon, self.delta, self.spent + taken)

    def tables(self) -> list[Table]:
        """Return what there was, what is spent and what is left."""
        shares = {"whole": Fraction(1), "spent": self.spent, "left": self.remaining}
        rows = [(name, f"{float(100 * share):.4g}%") for name, share in shares.items()]
        delta = "no delta" if self.pure else f"delta = {self.delta:.6g}"
        return [Table(("", "share"), tuple(rows), f"Budget: epsilon = {self.epsilon:.6g}, {delta}")]

    def __str__(self) -> str:
        whole = "no delta" if self.pure else f"delta = {self.delta:.6g} (mu = {self.mu:.4g})"
        return (
            f"epsilon = {self.epsilon:.6g}, {whole}:"
            f" {float(100 * self.spent):.4g}% spent, {float(100 * self.remaining):.4g}% left"
        )


def _share(share: Share) -> Fraction:
    check.real("share", share, above=0.0, most=1.0)
    return _fraction(share)


def _fraction(number: Share) -> Fraction:
    if isinstance(number, (Rational, Decimal)):
        return Fraction(number)
    return Fraction(repr(float(number)))
