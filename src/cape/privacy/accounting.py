"""What a release costs, under which adjacency that is stated, and how much of it is allowed.

Claim. Sums and comparisons of amounts never err on the low side. A sum has one adjacency and one unit; what
an `Allowance` of (epsilon, delta) covers is (epsilon, delta)-private, exactly, with mu² and extra the exact
sums, also if each release was chosen after the answers of those before it.

Reason. mu² of Gaussian releases adds, and so does epsilon of pure ones. Pure releases beside Gaussian ones:
the sum of their epsilons is one pure release, whose privacy loss and that of a Gaussian one are convolved
exactly (`cape.privacy.laplace`): never above adding the two epsilons. A pure epsilon is never converted to a
mu. An allowance without delta covers pure releases only.
Order. Whoever asks chooses the next release after seeing answers. Up to a mu² and a pure epsilon that are
fixed beforehand that gains nothing: a step of either kind, and what may still be spent, are dominated by
their part of the Gaussian release and of the randomised response with those totals. A *choice* between such
pairs gains: at one frontier at the whole delta, a coordinator who turns to pure releases when the loss is
high has 1.9 times that delta after two Gaussian releases, and 20 times after 80. So there are 17 pairs, each
with a delta of its own, and what all pairs may lose adds up: Gaussian releases alone have what `extra` leaves
of delta less 1e-10 of delta, and beside pure ones of up to i/16 of epsilon a sixteenth of that 1e-10 each.
Pure releases alone lose no delta. Both kinds in one ledger leave little room, then: a site does well to keep
to one of them.
Beside. A choice between more mu and more `extra` gains as well: whoever asks for a run over samples where the
loss is low, which it nearly always is, and for Gaussian releases where it is high, has the delta of both. At
one frontier delta(epsilon, mu) + extra <= delta that is 1.98 times delta. So `extra` has a fixed part of
delta, `BESIDE`, whether it is used or not, and the pairs above share the rest; a `Budget` leaves that part,
and so fits the allowance of its own epsilon and delta. That is enough: let V(p, q) be the most, over what may
still be chosen, of p P(T) - e^epsilon q Q(T), where p and q are the likelihoods of what was seen under two
adjacent tables. V is convex and homogeneous, V(0, q) = 0 and V(p, 0) <= p: a mixture of functions (p - s q)+
of total weight at most 1. By a release whose every hockey-stick divergence is at most that of a dominating
one plus e, V becomes at most what it becomes by the dominating one, plus e p. So, release by release, all of
them are private as without `extra`, with the sum of `extra`, at most BESIDE delta, added to delta once.
From add-remove to replace-one: replacing a record is removing one and adding another. A test of level a
between D and D' = D - x + y passes through D - x; with f = G_mu the power of any test is at most
1 - f(1 - f(a)) = Phi(2 mu - z_a), the trade-off of 2 mu-GDP (Dong, Roth & Su 2022, Theorem 2.14). So mu
doubles, mu² is multiplied by 4, a pure epsilon by 2. What is added to delta for masks and samplers is the
probability or distance by which the release differs from such a mechanism, whatever the data, and does not
change. The slack by which a run over samples is dominated by one Gaussian release holds for its own adjacency
only: such amounts are not converted but refused. From replace-one to add-remove no factor exists: a release
of the exact number of rows costs nothing under replace-one.
A site sees to it that at most so many rows of a person count, and so each release protects whole persons,
however many rows it counts: such amounts add. One that is stated for a person at q sites holds for persons at
fewer; a sum holds for persons at no more sites than the fewest that were stated. What protects rows says
nothing of persons, whose rows it may have counted without limit: the two are never added.
Rounding: mu is rounded up, and `gaussian.delta`, whose relative error is below 1e-10, is raised by 2e-10.

Tested in tests/unit/privacy/test_accounting.py, against arithmetic of 50 digits and against exact trade-offs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import msgspec

from cape.core.documents import Delta, Epsilon
from cape.core.errors import CapeError, InvalidInput
from cape.privacy import laplace
from cape.privacy.budget import BESIDE

__all__ = ["ADJACENCIES", "UNITS", "Allowance", "Amount", "Basis", "Incomparable", "Limit", "total", "under"]

ADJACENCIES = ("replace-one", "add-remove")
UNITS = ("row", "person")
FACTOR = 2  # for mu and a pure epsilon, from add-remove to replace-one
_ABOVE = 1 + Fraction(2, 10**10)
_LEAST = Fraction(1, 10**300)  # below this, `gaussian.delta` may be too small
_MIXED = Fraction(1, 10**10)  # of delta, for both kinds together; `Budget.mu` leaves more than that
_PAIRS = 16
_BESIDE = Fraction(repr(BESIDE))  # of delta, for `extra`
_DIGITS = 300  # after the point, of what a ledger is charged
_ONE = 10**_DIGITS


class Incomparable(CapeError):
    """Amounts that must not be added."""


@dataclass(frozen=True)
class Basis:
    """The adjacency and unit under which an amount is stated.

    Attributes:
        adjacency: "replace-one" or "add-remove".
        unit: what adjacent tables differ in: a "row", or a "person".
        rows, sites: how many rows of a person counted at one site, and at how many sites; 1 and 1 for a row.
        sampled: whether it includes the slack of a run over samples, which holds for this adjacency only.
    """

    adjacency: str = "replace-one"
    unit: str = "row"
    rows: int = 1
    sites: int = 1
    sampled: bool = False

    def __post_init__(self) -> None:
        if self.adjacency not in ADJACENCIES or self.unit not in UNITS:
            raise InvalidInput("an amount must have a known adjacency, and the unit row or person")
        if self.rows < 1 or self.sites < 1 or (self.unit == "row" and (self.rows, self.sites) != (1, 1)):
            raise InvalidInput("rows and sites must be at least 1, and both 1 for the unit row")


@dataclass(frozen=True)
class Amount:
    """A privacy cost: mu² of Gaussian releases, what is added to delta, and epsilon of pure releases.

    All three are exact and additive. The adjacency is stated by a `Basis`.
    """

    mu_squared: Fraction = Fraction(0)
    extra: Fraction = Fraction(0)
    pure: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if not all(isinstance(each, Fraction) for each in (self.mu_squared, self.extra, self.pure)):
            raise InvalidInput("an amount must consist of fractions: sums of floats are not exact")
        if self.mu_squared < 0 or self.extra < 0 or self.pure < 0:
            raise InvalidInput("an amount must not be negative: a ledger never refunds")

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.mu_squared + other.mu_squared, self.extra + other.extra, self.pure + other.pure)

    def rounded_up(self) -> Amount:
        """Return it on the grid of `_DIGITS` decimals: itself if it is on it, else the next above.

        Exact sums of amounts on it stay on it; without it, sums of thirds, sevenths and elevenths need ever
        longer fractions, until no ledger holds them. What people write in decimals is on it, and so is the
        square of a mu above 1e-20, which is a binary fraction: ten releases of a tenth add up to the whole.
        """
        return Amount(_up(self.mu_squared), _up(self.extra), _up(self.pure))

    def times(self, count: int) -> Amount:
        """Return a multiple of it."""
        return Amount(count * self.mu_squared, count * self.extra, count * self.pure)

    def beyond(self, other: Amount) -> Amount:
        """Return what exceeds `other`, component by component."""
        return Amount(
            max(self.mu_squared - other.mu_squared, Fraction(0)),
            max(self.extra - other.extra, Fraction(0)),
            max(self.pure - other.pure, Fraction(0)),
        )

    def covers(self, other: Amount) -> bool:
        """Return whether no component of the other exceeds this."""
        return other.beyond(self) == Amount()

    @property
    def mu(self) -> float:
        """The square root of mu², rounded up."""
        root = math.sqrt(_float(self.mu_squared))
        return math.nextafter(math.nextafter(root, math.inf), math.inf) if self.mu_squared else 0.0

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at this delta, after subtracting `extra` from it."""
        left = delta - _float(self.extra)
        if left < 0 or (left == 0 and self.mu_squared):
            return math.inf
        return _epsilon(left, self.mu, self.pure)

    @property
    def bet(self) -> float:
        """The most often that anybody wins a bet, 1 to 1, on which of two adjacent tables is the real one."""
        return laplace.bet(self.mu, [self.pure] if self.pure else [], _float(self.extra))


class Allowance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An (epsilon, delta) that may be spent; without delta, by pure releases only."""

    epsilon: Epsilon
    delta: Delta = 0.0

    def covers(self, amount: Amount) -> bool:
        """Return whether releases of this total cost are (epsilon, delta)-private, however they were chosen.

        Epsilon is what people wrote, in decimals: seven tenths cover seven releases of a tenth.
        """
        delta, epsilon = Fraction(self.delta), Fraction(repr(self.epsilon))
        if amount.extra > _BESIDE * delta or amount.pure > epsilon:
            return False
        if not amount.mu_squared:
            return True
        pair = math.ceil(amount.pure / epsilon * _PAIRS)
        found = laplace.delta(self.epsilon, amount.mu, [epsilon * pair / _PAIRS] if pair else [])
        part = _MIXED / _PAIRS if pair else 1 - _BESIDE - _MIXED
        return Fraction(found) * _ABOVE + _LEAST <= part * delta

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g} " + (
            f"at delta = {self.delta:g}" if self.delta else "without delta"
        )


@dataclass(frozen=True)
class Limit:
    """An upper bound on a total: of one coordinator, of one study, in one calendar year or ever."""

    name: str
    most: Amount | Allowance
    of_coordinator: bool = False
    in_year: bool = False
    of_study: str | None = None
    """The hash of a study, to count its releases only."""
    hint: str = ""
    """What to change, for the error."""


def under(adjacency: str, basis: Basis, amount: Amount) -> Amount:
    """Convert an amount to an adjacency, or raise `Incomparable`."""
    if amount == Amount() or basis.adjacency == adjacency:
        return amount
    if adjacency != "replace-one":
        raise Incomparable(
            "the ledger holds releases under replace-one, which cannot be converted to add-remove; with "
            'adjacency = ["replace-one", "add-remove"] under [allow] in site.toml they are counted together'
        )
    if basis.sampled:
        raise Incomparable(
            "a run over samples under add-remove cannot be counted under replace-one: the slack of its bound "
            'holds for add-remove only; write neighbours = "replace-one" under [privacy] in the study file'
        )
    return replace(amount, mu_squared=FACTOR**2 * amount.mu_squared, pure=FACTOR * amount.pure)


def total(parts: Mapping[Basis, Amount], adjacency: str | None = None) -> Amount:
    """Add up under one adjacency; without one, under replace-one if anything is stated so.

    Raises:
        Incomparable: some protect rows and others persons, or their adjacency cannot be converted.
    """
    paid = {basis: amount for basis, amount in parts.items() if amount != Amount()}
    if len({basis.unit for basis in paid}) > 1:
        raise Incomparable(
            "the ledger holds releases that protect rows, and others that protect persons, which cannot be "
            "added: [person] in site.toml was changed after the first release; restore it, or begin a new "
            "folder with `cape site init`"
        )
    if adjacency is None:
        stated = {basis.adjacency for basis in paid}
        adjacency = "add-remove" if stated == {"add-remove"} else "replace-one"
    return sum((under(adjacency, basis, amount) for basis, amount in paid.items()), Amount())


@lru_cache(maxsize=4096)
def _epsilon(delta: float, mu: float, pure: Fraction) -> float:
    """Return an epsilon; it takes a millisecond, and pages show the same ones again and again."""
    return laplace.composed_epsilon(delta, mu, [pure])


def _up(value: Fraction) -> Fraction:
    return value if _ONE % value.denominator == 0 else Fraction(math.ceil(value * _ONE), _ONE)


def _float(value: Fraction) -> float:
    """Return it as a float; inf if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
