"""The referee: what an attack came to, from ledgers, vectors and what the attacker can show. Never assumed.

An attack has won if one of these is so:
- more vectors left a site than its ledger has lines, or two left for one line;
- a line's price is below what the noise on its vector costs, given who really colludes, or the noise is not
  on the vector, or all the noise in a sum does not hide a site as its line's price says;
- a total of a ledger is above its limit, or what was given to a study is above what the study states;
- a vector was computed for a request that the coordinator did not sign, with bounds of somebody else, or
  among sites with other keys than those that are pinned;
- the attacker shows a sum over fewer honest sites than the policy demands, or two sums of one stage;
- a sum that it shows holds less noise of honest sites than the price is for, with all surplus taken off that
  sites gave it the keys of;
- an attack saw something else that it names.
Else it was refused, or paid for, or both. One that was neither has tried nothing, and does not count.
The referee knows all: sites' vectors (`Given`), and so which of the attacker's sums are right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from assurance.attacks.noise import held, shortfall
from assurance.attacks.sites import OTHER_HONEST, SCHEMA, Claim, Given, SourceSpec, World
from cape.data import Schema
from cape.engine.calibration import RESOLUTION, calibrate
from cape.engine.schemes import SCHEMES, Parties
from cape.privacy import gaussian
from cape.site.decide.request import grid_of
from cape.site.decide.review import columns_of
from cape.site.ledger.ledger import Line
from cape.study.document import read

__all__ = ["Verdict", "judge"]

Books = Mapping[str, list[Line]]  # each site's ledger

_CLOSE = 1 + 1e-9
_SIGMAS = 6.0  # how far from its size the measured noise of a vector may be


@dataclass(frozen=True)
class Verdict:
    """What became of an attack: what it won, who refused with which codes, and what was paid."""

    won: tuple[str, ...]
    refused: tuple[tuple[str, int], ...]
    vectors: int
    lines: int
    sums: int
    mu_squared: Fraction

    @property
    def holds(self) -> bool:
        """Whether the sites held: nothing was won, and something was tried."""
        return not self.won and bool(self.refused or self.vectors)

    def __str__(self) -> str:
        if self.won:
            return f"WON: {'; '.join(self.won)}"
        parts = []
        if self.refused:
            parts.append(f"refused ({', '.join(f'{code} {count}' for code, count in self.refused)})")
        if self.lines:
            sums = "no sum" if not self.sums else f"{self.sums} sum{'s' if self.sums > 1 else ''}"
            parts.append(
                f"paid for ({self.vectors} vectors left, {self.lines} lines of ledgers, "
                f"mu² {float(self.mu_squared):.3g}; {sums})"
            )
        return "; ".join(parts) or "nothing was tried"


def judge(world: World) -> Verdict:
    """Return the verdict on what was played in this world."""
    books = {name: site.ledger.entries() for name, site in world.folders.items()}
    noise = {id(given): _variance(world, name, given) for name in books for given in world.given[name]}
    won = [*world.won, *_unpaid(world, books), *_noise(world, books, noise)]
    won += [*_overdrawn(world, books), *_unsigned(world)]
    true = [claim for claim in world.claims if _is_true(world, claim)]
    won += [*_sums(true), *_short(world, true), *_seen_through(world, books, noise, true)]
    lines = [line for book in books.values() for line in book]
    return Verdict(
        tuple(dict.fromkeys(won)),
        tuple(sorted(world.refused.items())),
        sum(world.left.values()),
        len(lines),
        len({claim.place for claim in true}),
        sum((line.charged.mu_squared for line in lines), Fraction(0)),
    )


def _unpaid(world: World, books: Books) -> Iterator[str]:
    """A vector without a line of its own."""
    for name, book in books.items():
        lines = Counter((line.coordinator, line.run, line.stage) for line in book)
        given = Counter(each.place for each in world.given[name])
        if world.left[name] > sum(lines.values()) or given - lines:
            gave = max(world.left[name], given.total())
            yield f"{name} gave {gave} vectors and wrote {lines.total()} lines"


def _noise(world: World, books: Books, noise: Mapping[int, float]) -> Iterator[str]:
    """A vector with less noise than its line pays for."""
    for name in books:
        paid = _paid(books[name])
        for given in world.given[name]:
            grant, request = given.grant, given.grant.request
            asked = read(request.study, request.number)
            scheme = SCHEMES[request.study["scheme"]]()
            std = grant.local_std
            cost = scheme.cost_mu(std, _really(asked.setting.parties)) if std else math.inf
            if cost**2 > float(paid.get(given.place, Fraction(0))) * _CLOSE:
                yield f"{name} was paid for less than its noise costs"
            own = calibrate(grant.query, Schema(SCHEMA), std)
            if grid_of(grant.calibration) != grid_of(own):
                yield f"{name} answered on a grid that is not its own"
            elif abs(math.sqrt(noise[id(given)]) - 1) > _SIGMAS / math.sqrt(2 * given.vector.size):
                yield f"{name} gave a vector without its noise"


def _paid(book: list[Line]) -> dict[SourceSpec, Fraction]:
    """Return what was paid for each stage of each run."""
    return {(line.coordinator, line.run, line.stage): line.charged.mu_squared for line in book}


def _really(parties: Parties) -> Parties:
    """Return who takes part with the site that does collude, whatever the study supposes."""
    colluding = max(parties.colluding, 1)
    return Parties(parties.sites, colluding, max(parties.min_sites, colluding + 1))


def _variance(world: World, name: str, given: Given) -> float:
    """Return the measured variance of a vector's noise, 1 where it is that of the calibration."""
    blocks = given.grant.query.blocks
    exact = tuple(part for parts in world.folders[name].table().sums(blocks) for part in parts)
    noise = (given.vector - given.grant.calibration.encode(exact)).astype(np.float64)
    return float(np.mean(noise**2)) / RESOLUTION**2


def _overdrawn(world: World, books: Books) -> Iterator[str]:
    for name, site in world.folders.items():
        ledger = site.ledger
        for limit in site.policy.limits:
            spent = ledger.spent(world.office.public if limit.of_coordinator else None)
            if not limit.most.covers(spent):
                yield f"{name} overdrew the budget {limit.name}"
        yield from _more_than_stated(world, name, books[name])


def _more_than_stated(world: World, name: str, book: list[Line]) -> Iterator[str]:
    """A study that was given more than its own epsilon."""
    given: dict[tuple[bytes, str], Fraction] = {}
    for line in book:
        place = line.coordinator, line.study_hash
        given[place] = given.get(place, Fraction(0)) + line.charged.mu_squared
    stated = {
        (each.grant.request.coordinator, each.grant.request.study_hash): each.grant.request.study
        for each in world.given[name]
    }
    for place, study in stated.items():
        if given.get(place, Fraction(0)) > Fraction(gaussian.mu(study["epsilon"], study["delta"])) ** 2:
            yield f"{name} gave a study more than it states"


def _unsigned(world: World) -> Iterator[str]:
    for name, all_given in world.given.items():
        for given in all_given:
            request = given.grant.request
            if request.pack() not in world.signed:
                yield f"{name} answered what no coordinator signed to be answered"
            theirs, ours = Schema(request.study["schema"]), Schema(SCHEMA)
            if any(theirs[column] != ours[column] for column in columns_of(given.grant.query.blocks)):
                yield f"{name} answered with bounds that are not its own"
            if any(world.identities[peer].public != key for peer, key in request.roster):
                yield f"{name} answered among keys that it does not trust"
            if request.study["scheme"] not in ("cape", "conventional"):
                yield f"{name} answered in a scheme that does not protect it"


def _is_true(world: World, claim: Claim) -> bool:
    """Return whether the attacker's sum is right."""
    options = [
        [
            given.noisy(claim.left[name])
            for given in world.given[name]
            if given.place == claim.place and _fits(given, claim)
        ]
        for name in sorted(claim.sites)
    ]
    return any(
        np.array_equal(np.sum(chosen, axis=0, dtype=np.int64), claim.total) for chosen in product(*options)
    )


def _fits(given: Given, claim: Claim) -> bool:
    return given.vector.shape == claim.total.shape


def _sums(true: list[Claim]) -> Iterator[str]:
    """Too small a sum, or a second one of the same stage: another list, or another noise."""
    stages: dict[SourceSpec, dict[tuple[frozenset[str], bytes], None]] = {}
    for claim in true:
        if len(claim.sites) <= OTHER_HONEST:
            yield f"the attacker has the sum over {' + '.join(sorted(claim.sites))} alone"
        stages.setdefault(claim.place, {})[claim.sites, claim.total.tobytes()] = None
    for found in stages.values():
        if len(found) > 1:
            yield f"the attacker has {len(found)} sums of one stage"


def _short(world: World, true: list[Claim]) -> Iterator[str]:
    """A sum with less noise of honest sites than any sum must hold: S - C base parts."""
    for claim in true:
        for given in _all_given(world, claim).values():
            if given.surplus is not None:
                parties = _really(read(given.grant.request.study, given.grant.request.number).setting.parties)
                found = shortfall(given.surplus.surplus, claim.left, parties.sites - parties.colluding)
                if found:
                    yield found


def _all_given(world: World, claim: Claim) -> dict[str, Given]:
    return {name: given for name in claim.sites for given in world.given[name] if given.place == claim.place}


def _seen_through(world: World, books: Books, noise: Mapping[int, float], true: list[Claim]) -> Iterator[str]:
    """A sum in which the noise of all sites together hides one of them less than it was paid for.

    One person moves its vector by at most the sensitivity, in steps of its grid.
    """
    for claim in true:
        all_given = _all_given(world, claim)
        sure = max(1 - _SIGMAS * math.sqrt(2 / (len(all_given) * claim.total.size)), 1e-9)
        most = sum(noise[id(given)] + _surplus(given, claim.left[name]) for name, given in all_given.items())
        most /= sure
        for name, given in all_given.items():
            query, steps = given.grant.query, given.grant.calibration.steps
            reach = query.sensitivity * max(
                scale / step.size for scale, step in zip(query.flat_scales, steps, strict=True)
            )
            paid = float(_paid(books[name]).get(claim.place, Fraction(0)))
            if (reach / RESOLUTION) ** 2 > paid * most * _CLOSE:
                yield f"{name} is hidden by less noise than it was paid for"


def _surplus(given: Given, parts: int) -> float:
    """Return the variance of the first parts of a vector's surplus noise, in units of its own noise."""
    return 0.0 if given.surplus is None else float(held(given.surplus.surplus, [parts]) - 1)
