"""The log of one stage: who answered, refused or was lost, and how many bytes travelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cape.coordinator.calls import RoundTraffic, StageOutcome
from cape.site import wire

__all__ = ["StageLog"]

_VECTOR_ROUNDS = ("mask", "message")
_UNSURE = ("run", "site")  # possibly a second refusal, after an answer that is still under way


class StageLog:
    """What happens in a stage, as it happens."""

    def __init__(self) -> None:
        self.waiting: dict[str, None] = {}
        self.rows: dict[str, int] = {}
        self.refusals: dict[str, wire.Refused] = {}
        self.lost: dict[str, str] = {}
        self._traffic: list[RoundTraffic] = []
        self._sent: dict[str, int] = {}
        self._masking: set[str] = set()
        self._heads: dict[str, bytes] = {}

    def head(self, site: str, answer: wire.Offered | wire.Carried) -> None:
        """Keep the head of the site's ledger, for the coordinator."""
        if answer.head:
            self._heads[site] = answer.head

    def done(self, site: str) -> None:
        """Take a site's answer: what it sends after that is ignored."""
        self.waiting.pop(site, None)

    def offer(self, site: str, offered: wire.Offered) -> None:
        """Take an offer, with the number of rows where that is public."""
        if offered.rows is not None:
            self.rows[site] = offered.rows
        self.done(site)

    def refuse(self, site: str, refused: wire.Refused, round_: str) -> None:
        """Take a refusal; the site has sent no vector if it refuses to."""
        self.refusals[site] = refused
        if round_ in _VECTOR_ROUNDS and refused.code not in _UNSURE:
            self._masking.discard(site)
        self.done(site)

    def masking(self, sites: Iterable[str]) -> None:
        """Note that these sites are asked for vectors: each that does not refuse may have sent one."""
        self._masking = set(sites)

    def count(self, round_: str, sent: Mapping[str, int], received: Mapping[str, int], took: float) -> None:
        """Add the traffic of a round."""
        most = max(received.values(), default=0)
        down, up = sum(sent.values()), sum(received.values())
        self._traffic.append(RoundTraffic(round_, down, up, most, took))
        for site, size in received.items():
            self._sent[site] = self._sent.get(site, 0) + size

    def outcome(
        self,
        total: bytes = b"",
        participants: tuple[str, ...] = (),
        late: tuple[str, ...] = (),
        failure: str | None = None,
    ) -> StageOutcome:
        """Return what became of the stage."""
        return StageOutcome(
            total,
            participants,
            {site: rows for site, rows in self.rows.items() if site in participants},
            self.refusals,
            {site: round_ for site, round_ in self.lost.items() if site not in self.refusals},
            tuple(self._traffic),
            max(self._sent.values(), default=0),
            failure,
            bool(self._masking),
            self._heads,
            late,
        )
