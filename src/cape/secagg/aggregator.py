"""The aggregator: collects what sites send, round by round, and adds up what survived.

Claim. It ends with exactly the sum over the survivors, or with an error; never with a wrong sum, as long as
the sites that survive follow the protocol. (A site can always send a wrong vector; see docs/secagg.md.)
Reason. Each message is signed and carries the sender's transcript, so it is what that site sent in this run
and about the same lists; a masking key that shares give back must have the advertised public key, and a
seed must open the commitment that its site signed. So every mask that is removed is one that was applied.
A masked vector is added as it comes and is not kept. One of a site that was counted as gone is refused:
with the keys that the others reveal, it would be bare.
Tested in tests/secagg/test_dropout.py (every subset at every round) and test_chaos.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from cape.errors import BadMessage, Refused, TooFewSites
from cape.secagg import masks, shamir
from cape.secagg import messages as m
from cape.secagg.events import Closed, Event, Finished, Send
from cape.secagg.graph import Graph
from cape.secagg.keys import KeyPair, Verifier
from cape.secagg.parameters import Parameters
from cape.secagg.site import commitment
from cape.secagg.states import AggregatorState, Cue, following

__all__ = ["Aggregator"]

Pieces = dict[int, tuple[list[int], list[bytes]]]  # site -> points and shares of one of its secrets


class Aggregator:
    """One run, seen from the middle: `handle(bytes)` for what comes in, `gone(names)` for what does not.

    Both return events for the driver. A round closes by itself once every site that is still in the run
    has answered or was declared gone; nothing here waits or knows the time.
    """

    def __init__(self, parameters: Parameters, *, verifier: Verifier | None = None) -> None:
        self.parameters = parameters
        self.state = AggregatorState.ADVERTISE
        self._verifier = verifier or Verifier()
        self._transcript = parameters.digest()
        self._sum = np.zeros(parameters.length, parameters.ring.dtype)
        self._gone: set[int] = set()
        self._begin(range(parameters.sites))

    @property
    def waiting(self) -> tuple[str, ...]:
        """Who has neither answered this round nor been declared gone."""
        return self._names(self._awaited)

    def handle(self, data: bytes) -> tuple[Event, ...]:
        """Take in one message of a site. An error leaves everything as it was, unless it ends the run."""
        message = m.unpack_signed(data, self.parameters)
        following(self.state, type(message))
        m.authenticate(message, data, self.parameters, self._verifier)
        name = self._name(message.sender)
        if message.sender in self._answers:
            raise Refused(f"{name} has answered this round already")
        if message.sender not in self._awaited:
            raise Refused(f"{name} is late: it was counted as gone in this or an earlier round")
        if message.transcript != self._transcript:
            raise BadMessage(f"{name} answered for another roster, threshold, graph or list of sites")
        self._accept(message, data)
        self._awaited.discard(message.sender)
        return self._close_if_complete()

    def gone(self, names: Iterable[str]) -> tuple[Event, ...]:
        """Count sites as dropped from here on: the driver waited long enough."""
        if self.state in (AggregatorState.DONE, AggregatorState.FAILED):
            raise Refused(f"nobody can drop now: the aggregator waits for {self.state.value}")
        self._gone |= {self.parameters.roster.index(name) for name in names}
        self._awaited -= self._gone
        return self._close_if_complete()

    def announcement(self) -> bytes:
        """Return the message that tells every survivor the sum (for zero-sum noise)."""
        if self.state is not AggregatorState.DONE:
            raise Refused("there is no sum yet")
        return self._pack(m.Total, round=6, words=self._sum.tobytes())

    def _accept(self, message: m.FromSite, data: bytes) -> None:
        """Check what a message holds and keep what is needed of it, or raise and keep nothing."""
        sender, name = message.sender, self._name(message.sender)
        kept: Any = True
        match message:
            case m.Advert():
                KeyPair.require_usable(message.encryption)
                KeyPair.require_usable(message.masking)
                kept = (message, data)
            case m.Shares():
                if len(message.sealed) != len(self._peers(sender)):
                    raise BadMessage(f"{name} sealed shares for other sites than its neighbours")
                kept = message
            case m.Masked():
                if len(message.words) != self.parameters.vector_bytes:
                    raise BadMessage(
                        f"{name} sent {len(message.words)} bytes for a vector of "
                        f"{self.parameters.vector_bytes}"
                    )
                self._sum += np.frombuffer(message.words, self._sum.dtype)
            case m.Consent():
                kept = data
            case m.Reveal():
                alive, lost = self._held_by(sender)
                if (len(message.seeds), len(message.keys)) != (len(alive), len(lost)):
                    raise BadMessage(f"{name} revealed shares of other sites than it was asked for")
                _collect(self._of_seeds, sender, alive, message.seeds)
                _collect(self._of_keys, sender, lost, message.keys)
        self._answers[sender] = kept

    def _close_if_complete(self) -> tuple[Event, ...]:
        if self._awaited:
            return ()
        closing = {
            AggregatorState.ADVERTISE: self._close_advertise,
            AggregatorState.SHARE: self._close_share,
            AggregatorState.MASK: self._close_mask,
            AggregatorState.CONSISTENCY: self._close_consistency,
            AggregatorState.UNMASK: self._close_unmask,
        }[self.state]
        present = sorted(self._answers)
        closed = Closed(m.ROUNDS[list(AggregatorState).index(self.state)], self._names(present))
        following_state = following(self.state, Cue.CLOSED)
        try:
            if len(present) < self.parameters.threshold:
                raise TooFewSites(
                    f"{len(present)} of {self.parameters.sites} sites were left in the round "
                    f"{closed.round!r}; the threshold is {self.parameters.threshold}"
                )
            events = tuple(closing(present))
        except (TooFewSites, BadMessage):
            failed = following(self.state, Cue.FAILED)
            assert isinstance(failed, AggregatorState)
            self.state = failed
            raise
        assert isinstance(following_state, AggregatorState)
        self.state = following_state
        if self.state is AggregatorState.DONE:
            return (closed, *events)
        return (closed, *events, *self._close_if_complete())  # if all who are left are gone by now

    def _close_advertise(self, present: list[int]) -> Iterator[Event]:
        self._adverts: dict[int, m.Advert] = {site: self._answers[site][0] for site in present}
        adverts = tuple(self._answers[site][1] for site in present)
        data = self._pack(m.Adverts, round=2, adverts=adverts)
        self._transcript = self._keys_at = m.after_adverts(self._transcript, adverts)
        self._graph = Graph(self.parameters.sites, self.parameters.neighbours, self._keys_at)
        return self._ask(present, lambda site: data)

    def _close_share(self, present: list[int]) -> Iterator[Event]:
        sealed = {
            (sender, receiver): part
            for sender in present
            for receiver, part in zip(self._peers(sender), self._answers[sender].sealed, strict=True)
        }
        self._commitments: dict[int, bytes] = {site: self._answers[site].commitment for site in present}
        self._sharers = frozenset(present)
        before = self._transcript
        self._transcript = m.after_shares(before, tuple(present))

        def delivery(site: int) -> bytes:
            parts = tuple(sealed[peer, site] for peer in self._peers(site) if peer in self._sharers)
            return self._pack(m.Delivery, before, round=3, sharers=tuple(present), sealed=parts)

        return self._ask(present, delivery)

    def _close_mask(self, present: list[int]) -> Iterator[Event]:
        self._survivors = frozenset(present)
        self._dropped = self._sharers - self._survivors
        dropped = tuple(sorted(self._dropped))
        for site in self._secrets_needed():
            self._require_helpers(site, self._survivors)
        data = self._pack(m.Survivors, round=4, survivors=tuple(present), dropped=dropped)
        self._transcript = m.after_masked(self._transcript, tuple(present), dropped)
        return self._ask(present, lambda site: data)

    def _close_consistency(self, present: list[int]) -> Iterator[Event]:
        consents = tuple(self._answers[site] for site in present)
        data = self._pack(m.Consents, round=5, consents=consents)
        self._of_seeds: Pieces = {}
        self._of_keys: Pieces = {}
        return self._ask(present, lambda site: data)

    def _close_unmask(self, present: list[int]) -> Iterator[Event]:
        for site in self._secrets_needed():
            self._require_helpers(site, frozenset(present))
        masks.apply(self._sum, self._leftover())
        total = self.parameters.ring.decode(self._sum)
        yield Finished(total, self._names(sorted(self._survivors)))

    def _leftover(self) -> Iterator[tuple[bytes, int]]:
        """Yield the masks that did not cancel, with the sign that takes them off."""
        for site in sorted(self._survivors):
            seed = self._recover(site, self._of_seeds, self._opens_commitment)
            yield masks.self_key(seed, self._keys_at, site), -1
        for site in self._dropped_with_masks():
            private = self._recover(site, self._of_keys, self._has_public_key)
            lost = KeyPair(private)
            for peer in self._peers(site):
                if peer in self._survivors:
                    agreed = lost.agree(self._adverts[peer].masking)
                    key = masks.pair_key(agreed, self._keys_at, site, peer)
                    yield key, -masks.sign(peer, site)

    def _recover(self, site: int, pieces: Pieces, fits: Callable[[int, bytes], bool]) -> bytes:
        """Return a site's secret, tried against what the site published.

        If a helper gave a wrong share, some other run of helpers may do without it.
        """
        points, shares = pieces[site]
        count = self.parameters.helpers
        spare = len(points) - count
        for start in range(len(points) if spare else 1):
            chosen = [(start + step) % len(points) for step in range(count)]
            try:
                secret = shamir.combine([points[i] for i in chosen], [shares[i] for i in chosen])
            except BadMessage:
                continue
            if fits(site, secret):
                return secret
        raise BadMessage(
            f"the shares that were revealed for {self._name(site)} do not give back its secret: "
            "it or one of its neighbours sent wrong ones"
        )

    def _opens_commitment(self, site: int, seed: bytes) -> bool:
        return commitment(seed, self._keys_at, site) == self._commitments[site]

    def _has_public_key(self, site: int, private: bytes) -> bool:
        return KeyPair(private).public == self._adverts[site].masking

    def _secrets_needed(self) -> list[int]:
        return [*sorted(self._survivors), *self._dropped_with_masks()]

    def _dropped_with_masks(self) -> list[int]:
        """Return the dropped whose pairwise masks are in the sum: those with a surviving neighbour."""
        return [
            site
            for site in sorted(self._dropped)
            if any(peer in self._survivors for peer in self._peers(site))
        ]

    def _require_helpers(self, site: int, present: frozenset[int]) -> None:
        count = sum(helper in present for helper in self._graph.committee(site))
        if count < self.parameters.helpers:
            raise TooFewSites(
                f"{count} sites that hold shares for {self._name(site)} were left; "
                f"{self.parameters.helpers} are needed"
            )

    def _peers(self, site: int) -> list[int]:
        """Return the neighbours that advertised, ascending."""
        return [peer for peer in self._graph.neighbours(site) if peer in self._adverts]

    def _held_by(self, site: int) -> tuple[list[int], list[int]]:
        """Return of which survivors and of which dropped a site holds shares."""
        held = [other for other in self._graph.committee(site) if other in self._sharers]
        return (
            [other for other in held if other in self._survivors],
            [other for other in held if other in self._dropped],
        )

    def _begin(self, sites: Iterable[int]) -> None:
        self._awaited = set(sites) - self._gone
        self._answers: dict[int, Any] = {}

    def _ask(self, sites: list[int], data: Callable[[int], bytes]) -> Iterator[Event]:
        """Begin the next round: everyone who is left gets a message."""
        self._begin(sites)
        for site in sorted(self._awaited):
            yield Send(self._name_of(site), data(site))

    def _pack(self, kind: Callable[..., m.FromAggregator], at: bytes | None = None, **rest: Any) -> bytes:
        transcript = self._transcript if at is None else at
        return m.pack(kind(version=m.VERSION, run=self.parameters.run, transcript=transcript, **rest))

    def _name_of(self, site: int) -> str:
        return self.parameters.roster.names[site]

    def _name(self, site: int) -> str:
        return repr(self._name_of(site))

    def _names(self, sites: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._name_of(site) for site in sorted(sites))

    def __repr__(self) -> str:
        return f"Aggregator({self.parameters.sites} sites, waits for {self.state.value})"


def _collect(pieces: Pieces, helper: int, sites: list[int], shares: tuple[bytes, ...]) -> None:
    for site, part in zip(sites, shares, strict=True):
        points, parts = pieces.setdefault(site, ([], []))
        points.append(helper + 1)
        parts.append(part)
