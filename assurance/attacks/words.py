"""What the attacker says in a session of secure aggregation: every message, to each site, as it likes.

A message is accepted only with the transcript that its receiver has. The attacker has seen all that goes into
transcripts, so it computes each site's own, whatever that site was told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cape.noise import SecureStream
from cape.secagg import messages as m
from cape.secagg.graph import Graph
from cape.secagg.keys import Identity
from cape.secagg.parameters import Parameters

__all__ = ["Words"]


class Words:
    """What everybody has said so far, and so what may be said next.

    Attributes:
        adverts: each site's signed keys.
        shown: whose keys each site was shown.
        shares: what each site sealed for the others.
        told: who shared, as each site was told.
    """

    def __init__(self, parameters: Parameters, identities: Mapping[str, Identity]) -> None:
        self.parameters, self.roster, self.identities = parameters, parameters.roster, dict(identities)
        self.adverts: dict[str, bytes] = {}
        self.shown: dict[str, tuple[str, ...]] = {}
        self.shares: dict[str, m.Shares] = {}
        self.told: dict[str, tuple[str, ...]] = {}

    def keys_message(self, names: Iterable[str]) -> bytes:
        """Return the list of keys of these sites."""
        adverts = tuple(self.adverts[name] for name in self.roster.names if name in names)
        return self._pack(m.Adverts, self.parameters.digest(), round=2, adverts=adverts)

    def delivery(self, name: str, step: int, sharers: tuple[str, ...]) -> bytes:
        """Return who shared, and what they sealed for a site."""
        sealed = tuple(self.sealed(peer, name) for peer in self.peers(name) if peer in sharers)
        return self.delivery_of(name, step, sharers, sealed)

    def delivery_of(self, name: str, step: int, sharers: tuple[str, ...], sealed: tuple[bytes, ...]) -> bytes:
        """Return a delivery with whatever the attacker likes in it."""
        numbers = self._numbers(sharers)
        return self._pack(m.Delivery, self.keys_at(name), round=3, step=step, sharers=numbers, sealed=sealed)

    def sealed(self, sender: str, receiver: str) -> bytes:
        """Return what one site sealed for another."""
        peers = self.peers(sender)
        if receiver not in peers or sender not in self.shares:  # the attacker makes something up
            return SecureStream().bytes(m.sealed_bytes(self.parameters.steps))
        return self.shares[sender].sealed[peers.index(receiver)]

    def peers(self, name: str) -> list[str]:
        """Return the neighbours of a site whose keys it was shown."""
        graph = Graph(self.parameters.sites, self.parameters.neighbours, self.keys_at(name))
        found = [self.roster.names[peer] for peer in graph.neighbours(self.roster.index(name))]
        return [peer for peer in found if peer in self.shown[name]]

    def begin_message(self, name: str, step: int) -> bytes:
        """Return what asks for the vector of a later step."""
        return self._pack(m.Begin, self.at_step(name, step), round=3, step=step)

    def list_message(self, name: str, step: int, alive: Iterable[str]) -> bytes:
        """Return a list of survivors: who is not on it has dropped."""
        living, lost = self._parted(name, alive)
        at = self.at_step(name, step)
        return self._pack(m.Survivors, at, round=4, step=step, survivors=living, dropped=lost)

    def consents_message(
        self, name: str, step: int, alive: Iterable[str], consents: Mapping[str, bytes]
    ) -> bytes:
        """Return signatures on a list."""
        ordered = tuple(consents[each] for each in self.roster.names if each in consents)
        at = self.listed(name, step, alive)
        return self._pack(m.Consents, at, round=5, step=step, consents=ordered)

    def consent(self, name: str, step: int, transcript: bytes, identity: Identity | None = None) -> bytes:
        """Return a signature on any list, in anybody's name, with a key that the attacker has."""
        run, sender = self.parameters.run, self.roster.index(name)
        body = m.Consent(m.VERSION, run, transcript, sender, round=4, step=step)
        return m.pack_signed(body, identity or self.identities[name])

    def keys_at(self, name: str) -> bytes:
        """Return a site's transcript after keys."""
        shown = self.shown.get(name, tuple(self.adverts))
        adverts = tuple(self.adverts[each] for each in self.roster.names if each in shown)
        return m.after_adverts(self.parameters.digest(), adverts)

    def at_step(self, name: str, step: int) -> bytes:
        """Return a site's transcript at the beginning of a step."""
        told = self.told.get(name, self.roster.names)
        return m.at_step(m.after_shares(self.keys_at(name), self._numbers(told)), step)

    def listed(self, name: str, step: int, alive: Iterable[str]) -> bytes:
        """Return a site's transcript after a list of survivors."""
        return m.after_masked(self.at_step(name, step), *self._parted(name, alive))

    def public(self, step: int, name: str) -> bytes:
        """Return the masking key that a site advertised for a step."""
        advert = self.read(self.adverts[name])
        assert isinstance(advert, m.Advert)
        return m.part(advert.masking, step)

    def read(self, data: bytes) -> m.FromSite:
        """Return what a site said."""
        return m.unpack_signed(data, self.parameters)

    def _parted(self, name: str, alive: Iterable[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        told, living = self.told.get(name, self.roster.names), set(alive)
        return self._numbers(living), self._numbers(each for each in told if each not in living)

    def _numbers(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(sorted(self.roster.index(name) for name in names))

    def _pack(self, kind: Callable[..., m.FromAggregator], transcript: bytes, **rest: Any) -> bytes:
        return m.pack(kind(version=m.VERSION, run=self.parameters.run, transcript=transcript, **rest))
