"""The parameters of a run: each party computes them for itself, and every message is bound to their hash."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypedDict

from cape.core import check
from cape.core.errors import InvalidInput, PrivacyLeakWarning, outside
from cape.noise.ring import Ring
from cape.privacy.correlated import default_colluding
from cape.secagg import neighbours as choice
from cape.secagg.keys import Roster, digest
from cape.secagg.surplus import NO_SURPLUS, Surplus
from cape.secagg.threshold import smallest_threshold

__all__ = ["MAX_LENGTH", "MAX_STEPS", "RUN_BYTES", "Choices", "Parameters"]

RUN_BYTES = 16
MAX_LENGTH = 1 << 28
MAX_STEPS = 1 << 16


class Choices(TypedDict, total=False):
    """What may be chosen for a run, with the defaults of `Parameters.agree`."""

    bits: int
    colluding: int | None
    dropping: int | None
    lying: bool
    threshold: int | None
    neighbours: int | Literal["auto", "all"]
    surplus: Surplus


@dataclass(frozen=True)
class Parameters:
    """The parameters of one run: sites, threshold, vector length, ring. Make them with `Parameters.agree`.

    threshold: how many sites must be left in every round and must sign the list of survivors.
    neighbours: with how many others a site shares masks and secrets (all others: sites - 1).
    helpers: how many of a site's committee (its neighbours and itself) recover one of its secrets, and
        how many of its committee must be alive for the site. Equal to `threshold` when all are neighbours.
    steps: how many vectors are added up, one after the other, with keys that are agreed once.
    surplus: the noise that sites add to their vectors, and take off again; none by default.
    """

    run: bytes
    roster: Roster
    length: int
    bits: int
    colluding: int
    lying: bool
    threshold: int
    neighbours: int
    helpers: int
    steps: int = 1
    surplus: Surplus = NO_SURPLUS

    @classmethod
    def agree(
        cls,
        run: bytes,
        roster: Roster,
        length: int,
        *,
        steps: int = 1,
        bits: int = 64,
        colluding: int | None = None,
        dropping: int | None = None,
        lying: bool = True,
        threshold: int | None = None,
        neighbours: int | Literal["auto", "all"] = "auto",
        surplus: Surplus = NO_SURPLUS,
    ) -> Parameters:
        """Return the parameters of a run, with safe defaults.

        Args:
            run: 16 bytes that name the run and are never used twice.
            roster: the sites and their pinned public keys.
            length: the number of entries of every site's vector.
            steps: how many such vectors each site has, one after the other.
            bits: width of the ring, 32 or 64. No sum may leave it; see `cape.noise.ring`.
            colluding: how many sites may collude with the aggregator; by default ceil(S/3) - 1.
            dropping: how many sites may drop, for the choice of neighbours; by default one in 10. If more
                drop, the run ends without a sum with probability above 2^-40.
            lying: whether the aggregator may lie (2t > n + n_C) or is only curious (t > n_C).
            threshold: t; by default the smallest safe one (`smallest_threshold`, which gives the
                reason). A smaller one is refused.
            neighbours: "all", an even number k, or "auto": all up to 50 sites, else the smallest
                k that fails with probability below 2^-40 (the formula is in `cape.secagg.neighbours`) in
                all steps together: different sites may drop in each.
            surplus: noise that each site adds to its vectors, and that is taken off again as far as no
                site is missing. The ring must have room for it.
        """
        n = len(roster)
        bad = default_colluding(n) if colluding is None else colluding
        bad = check.integer("colluding", bad, least=0, most=n - 1)
        gone = -(-n // 10) if dropping is None else dropping
        gone = check.integer("dropping", gone, least=0, most=n - 1)
        least = smallest_threshold(n, bad, lying=lying)
        t = least if threshold is None else threshold
        if check.integer("threshold", t, most=n) < least:
            reason = "2t > sites + colluding" if lying else "t > colluding"
            raise InvalidInput(
                f"threshold must be at least {least} ({reason}) for {n} sites of which {bad} may collude, "
                f"not {t}"
            )
        steps = check.integer("steps", steps, least=1, most=MAX_STEPS)
        found = _neighbourhood(neighbours, n, bad, gone, t, lying, steps)
        return cls(
            run=run,
            roster=roster,
            length=length,
            bits=bits,
            colluding=bad,
            lying=bool(lying),
            threshold=t,
            neighbours=found.neighbours,
            helpers=found.helpers,
            steps=steps,
            surplus=surplus,
        )

    def __post_init__(self) -> None:
        if not isinstance(self.run, bytes) or len(self.run) != RUN_BYTES:
            raise InvalidInput(f"run must be {RUN_BYTES} bytes")
        check.integer("length", self.length, least=1, most=MAX_LENGTH)
        check.integer("steps", self.steps, least=1, most=MAX_STEPS)
        Ring(self.bits)
        if self.surplus.stds and self.sites - self.threshold > self.surplus.losses[-1]:
            raise InvalidInput(
                f"the surplus is made for {self.surplus.losses[-1]} missing sites, and a threshold of "
                f"{self.threshold} lets {self.sites - self.threshold} be missing"
            )

    @property
    def sites(self) -> int:
        """How many sites are on the roster."""
        return len(self.roster)

    @property
    def ring(self) -> Ring:
        """Where the sum is taken."""
        return Ring(self.bits)

    @property
    def vector_bytes(self) -> int:
        """The size of a masked vector on the wire."""
        return self.length * self.bits // 8

    def digest(self) -> bytes:
        """Return the hash that starts every party's transcript."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:  # cached: every message needs it
        numbers = (
            self.length,
            self.bits,
            self.colluding,
            int(self.lying),
            self.threshold,
            self.neighbours,
            self.helpers,
            self.steps,
        )
        return digest(
            "parameters",
            self.run,
            self.roster.digest(),
            b"".join(number.to_bytes(8, "big") for number in numbers),
            self.surplus.digest(),
        )


def _neighbourhood(
    wanted: int | str, n: int, colluding: int, dropping: int, threshold: int, lying: bool, steps: int
) -> choice.Neighbourhood:
    everyone = choice.Neighbourhood(n - 1, threshold, float("-inf"))
    if wanted == "auto":
        bits = choice.FAILURE_BITS + math.ceil(math.log2(steps))  # the chances of the steps add up
        return choice.automatic(n, colluding, dropping, threshold, lying=lying, bits=bits)
    if wanted == "all" or wanted == n - 1:
        return everyone
    if isinstance(wanted, str):
        raise InvalidInput(f'neighbours must be "auto", "all" or an even number, not {wanted!r}')
    k = check.integer("neighbours", wanted, least=2, most=n - 1)
    if k % 2:
        raise InvalidInput(f"neighbours must be even (k/2 on either side of a circle), not {k}")
    found = choice.best(n, k, colluding, dropping, lying=lying)
    chance = found.log2_failure + math.log2(steps)
    if chance >= -choice.FAILURE_BITS:
        warnings.warn(
            f"{k} neighbours of {n} sites fail to protect or to answer with probability up to "
            f"2^{min(0.0, chance):.1f}, at {colluding} colluding and {dropping} dropping; "
            'neighbours="auto" keeps it below 2^-40',
            PrivacyLeakWarning,
            stacklevel=outside(),
        )
    return found
