"""The outcome of each site in a study: whether it was connected, what it answered and refused, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cape.coordinator import SiteReport
from cape.core.check import plain
from cape.site.wire import Refused

__all__ = ["Heard", "SiteOutcome", "outcomes", "which"]

_LONGEST = 500  # characters of a site's sentence


@dataclass
class Heard:
    """What a coordinator heard from sites besides answers, by site and then by number of the analysis.

    Attributes:
        connected: whether a site was connected; missing if it was not looked for.
        refusals: why an analysis was refused.
        lost: in which round a site was lost.
    """

    connected: dict[str, bool] = field(default_factory=dict)
    refusals: dict[str, dict[int, Refused]] = field(default_factory=dict)
    lost: dict[str, dict[int, str]] = field(default_factory=dict)
    _asked: set[int] = field(default_factory=set)

    def before(self, number: int, refusals: Mapping[str, Refused]) -> None:
        """Record who refused in an earlier submission."""
        for site, refusal in refusals.items():
            self.refusals.setdefault(site, {})[number] = refusal
            self.connected[site] = True

    def alive(self, sites: Iterable[str], alive: Sequence[str]) -> None:
        """Record which sites are connected; a site that was connected once counts as connected."""
        for site in sites:
            self.connected[site] = site in alive or self.connected.get(site, False)

    def reviewed(self, reports: Iterable[SiteReport], asked: Sequence[int]) -> None:
        """Record what sites say about the analyses that are asked; it replaces what they said before."""
        for report in reports:
            if report.present is None and report.refused is None:
                continue
            self.connected[report.site] = True
            said = self.refusals.setdefault(report.site, {})
            for number in asked:
                refusal = report.refused or next(iter(report.refusals[number - 1 : number]), None)
                if refusal is not None:
                    said[number] = refusal
                else:
                    said.pop(number, None)

    def stage(self, number: int, refusals: Mapping[str, Refused], lost: Mapping[str, str]) -> None:
        """Record who refused a stage or was lost in it; it replaces what they said before the analysis."""
        if number not in self._asked:
            self._asked.add(number)
            for said in self.refusals.values():
                said.pop(number, None)
        self.before(number, refusals)
        for site, round_ in lost.items():
            self.lost.setdefault(site, {}).setdefault(number, round_)


@dataclass(frozen=True)
class SiteOutcome:
    """The outcome of one site; `connected` is None if nobody looked."""

    name: str
    connected: bool | None
    took_part: tuple[int, ...]
    refusals: Mapping[int, Refused]
    lost: Mapping[int, str]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "connected": self.connected,
            "took_part": list(self.took_part),
            "refusals": [
                {"analysis": number, "code": plain(said.code), "sentence": plain(said.sentence, _LONGEST)}
                for number, said in sorted(self.refusals.items())
            ],
            "lost": [{"analysis": number, "round": round_} for number, round_ in sorted(self.lost.items())],
        }

    @property
    def reasons(self) -> list[str]:
        """Why it did not take part in everything, each reason once."""
        refused: dict[tuple[str, str], list[int]] = {}
        for number, said in sorted(self.refusals.items()):
            what = "later stages of " if number in self.took_part else ""
            refused.setdefault((what, plain(str(said), _LONGEST)), []).append(number)
        lost: dict[str, list[int]] = {}
        for number, round_ in sorted(self.lost.items()):
            if self.connected is not False:  # else that is the reason
                lost.setdefault(plain(round_), []).append(number)
        found = [f"refused {what}{which(them)} ({why})" for (what, why), them in refused.items()]
        found += [f"was lost in {which(them)} (in round {round_!r})" for round_, them in lost.items()]
        return found or (["was not connected"] if self.connected is False else [])


def outcomes(sites: Iterable[str], took_part: Mapping[int, Sequence[str]], heard: Heard) -> list[SiteOutcome]:
    """Return the outcome of each site; `took_part` lists the sites of each answered analysis."""
    found = []
    for site in sites:
        mine = tuple(number for number, names in sorted(took_part.items()) if site in names)
        refusals = dict(heard.refusals.get(site, {}))
        lost = {
            n: said for n, said in heard.lost.get(site, {}).items() if n not in mine and n not in refusals
        }
        connected = True if mine and heard.connected else heard.connected.get(site)
        found.append(SiteOutcome(site, connected, mine, refusals, lost))
    return found


def which(numbers: Sequence[int]) -> str:
    """Return 'analysis 3' or 'analyses 1, 3'."""
    return f"{'analysis' if len(numbers) == 1 else 'analyses'} {', '.join(map(str, numbers))}"
