"""The aggregator: collects messages, round by round, and adds up the survivors' vectors, step by step.

Claim. A step ends with exactly the sum over its survivors, or with an error; never with a wrong sum, as long
as the sites that survive follow the protocol. (A site can always send a wrong vector; see docs/secagg.md.)
Reason. Each message is signed and carries the sender's transcript, so it is what that site sent in this run
and about the same lists; a masking key recovered from key shares must have the advertised public key, and a
seed must open the commitment that its site signed, and a surplus key must lead to the tip that came with the
vector. So every mask or noise that is removed is one that was applied. A
masked vector is added when it arrives and is not kept. The vector of a site that was counted as gone is
refused: with the keys that the others reveal, only its self mask would protect it. Every site that shared
takes part in the next step, whether or not it survived this one.
Tested in tests/unit/secagg/test_dropout.py (every subset at every round), test_steps.py and test_chaos.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from cape.core import check
from cape.core.errors import BadMessage, Refused, TooFewSites
from cape.secagg import masks, shamir
from cape.secagg import messages as m
from cape.secagg.events import Closed, Event, Finished, Send
from cape.secagg.graph import Graph
from cape.secagg.keys import KEY_BYTES, KeyPair, Verifier
from cape.secagg.parameters import Parameters
from cape.secagg.site import commitment
from cape.secagg.states import AggregatorState, Cue, following
from cape.secagg.surplus import SurplusKey

__all__ = ["Aggregator"]

_A = AggregatorState
_ROUND_OF = dict(zip((_A.ADVERTISE, _A.SHARE, _A.MASK, _A.CONSISTENCY, _A.UNMASK), m.ROUNDS, strict=True))
Pieces = dict[int, tuple[list[int], list[bytes]]]  # site -> points and shares of one of its secrets


class Aggregator:
    """One run at the aggregator: `handle(bytes)` for each message, `gone(names)` for sites that fell silent.

    `begin(step)` starts a step once the setup is over. All three return events for the driver. A round closes
    once every site in it has answered or was declared gone; nothing here waits or knows the time.
    """

    def __init__(self, parameters: Parameters, *, verifier: Verifier | None = None) -> None:
        self.parameters = parameters
        self.state = AggregatorState.ADVERTISE
        self._verifier = verifier or Verifier()
        self._transcript = parameters.digest()
        self._sum = np.zeros(parameters.length, parameters.ring.dtype)
        self._sum_is_known = False
        self._self_keys: dict[int, bytes] = {}
        self._tips: dict[int, bytes] = {}
        self._revealed: dict[int, SurplusKey] = {}
        self._gone: set[int] = set()
        self._sharers: frozenset[int] = frozenset()
        self._step = -1  # none yet
        self._open(range(parameters.sites))

    @property
    def waiting(self) -> tuple[str, ...]:
        """The sites that have neither answered this round nor been declared gone."""
        return self._names(self._awaited)

    @property
    def sharers(self) -> tuple[str, ...]:
        """The sites that can take part in the steps; none before the setup is over."""
        return self._names(self._sharers)

    @property
    def next_step(self) -> int:
        """The earliest step that can start now; `parameters.steps` if there is none."""
        return self._step + 1

    def begin(self, step: int | None = None) -> tuple[Event, ...]:
        """Ask every site that shared for its vector of a step: the next one, or a later one.

        A step in progress is abandoned, without a sum.
        """
        state = following(self.state, Cue.BEGIN)
        if self.next_step >= self.parameters.steps:
            raise Refused(f"all {self.parameters.steps} steps of this run are over; more need a new run")
        step = self.next_step if step is None else step
        step = check.integer("step", step, least=0, most=self.parameters.steps - 1)
        if step < self.next_step:
            raise Refused(f"step {step} is past: the next one is {self.next_step}")
        self._step = step
        self._sum.fill(0)
        self._sum_is_known = False
        self._gone = set()
        self._tips, self._revealed = {}, {}
        self._transcript = m.at_step(self._setup, step)
        present = sorted(self._sharers)
        sharers, again = tuple(present), self._pack(m.Begin, round=3, step=step)

        def opening(site: int) -> bytes:
            if site not in self._undelivered:
                return again
            sealed = self._undelivered[site]
            return self._pack(m.Delivery, self._keys_at, round=3, step=step, sharers=sharers, sealed=sealed)

        assert isinstance(state, AggregatorState)
        self.state = state
        return tuple(self._ask(present, opening))

    def handle(self, data: bytes) -> tuple[Event, ...]:
        """Handle a message of a site. An error changes nothing, unless it ends the step or the run."""
        message = m.unpack_signed(data, self.parameters)
        following(self.state, type(message))
        m.authenticate(message, data, self.parameters, self._verifier)
        name = self._name(message.sender)
        if not isinstance(message, m.Advert | m.Shares) and message.step != self._step:
            raise Refused(f"{name} answered step {message.step}, and this is step {self._step}")
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
        """Count sites as dropped to the end of the step or setup: the driver has waited long enough."""
        if self.state in (AggregatorState.READY, AggregatorState.DONE, AggregatorState.FAILED):
            raise Refused(f"no site can drop now: the aggregator waits for {self.state.value}")
        self._gone |= {self.parameters.roster.index(name) for name in names}
        self._awaited -= self._gone
        return self._close_if_complete()

    @property
    def self_keys(self) -> Mapping[int, bytes]:
        """The keys of the survivors' own masks in the last step, by their numbers, as it recovered them."""
        return self._self_keys

    @property
    def surplus_keys(self) -> Mapping[int, SurplusKey]:
        """The keys of the surplus that was taken off in the last step, by the sites' numbers."""
        return self._revealed

    def announcement(self) -> bytes:
        """Return the message that announces the last step's sum to every survivor (for zero-sum noise)."""
        if not self._sum_is_known:
            raise Refused("no sum is known yet")
        return self._pack(m.Total, round=6, step=self._step, words=self._sum.tobytes())

    def _accept(self, message: m.FromSite, data: bytes) -> None:
        """Check a message and keep the parts that are needed, or raise and keep nothing."""
        sender, name = message.sender, self._name(message.sender)
        kept: Any = True
        match message:
            case m.Advert():
                steps = self._require_each_step(message.masking, name, "keys")
                for public in (message.encryption, *(m.part(message.masking, step) for step in steps)):
                    KeyPair.require_usable(public)
                kept = (message, data)
            case m.Shares():
                self._require_each_step(message.commitments, name, "commitments")
                size = m.sealed_bytes(self.parameters.steps)
                if len(message.sealed) != len(self._peers(sender)):
                    raise BadMessage(f"{name} sealed key shares for sites that are not its neighbours")
                if any(len(sealed) != size for sealed in message.sealed):
                    raise BadMessage(f"{name} sealed key shares for another number of steps")
                kept = message
            case m.Masked():
                if len(message.words) != self.parameters.vector_bytes:
                    raise BadMessage(
                        f"{name} sent {len(message.words)} bytes for a vector of "
                        f"{self.parameters.vector_bytes}"
                    )
                if len(message.tip) != (KEY_BYTES if self.parameters.surplus.stds else 0):
                    raise BadMessage(f"{name} did not send the tip of its surplus keys")
                self._tips[sender] = message.tip
                self._sum += np.frombuffer(message.words, self._sum.dtype)
                self._undelivered.pop(sender, None)  # it could not have answered without its shares
            case m.Consent():
                kept = data
            case m.Reveal():
                alive, lost = self._held_by(sender)
                if (len(message.seeds), len(message.keys)) != (len(alive), len(lost)):
                    raise BadMessage(f"{name} revealed key shares of sites that it was not asked for")
                self._accept_surplus(message, name)
                _collect(self._of_seeds, sender, alive, message.seeds)
                _collect(self._of_keys, sender, lost, message.keys)
        self._answers[sender] = kept

    def _accept_surplus(self, message: m.Reveal, name: str) -> None:
        """Keep the key of the surplus to take off, if it is the one that the site's vector was made with."""
        parameters, site = self.parameters, message.sender
        level = parameters.surplus.kept(parameters.sites - len(self._survivors))
        if level == len(parameters.surplus):
            if message.surplus:
                raise BadMessage(f"{name} revealed surplus noise that has to stay")
            return
        key = SurplusKey(parameters.surplus, parameters.digest(), site, self._step, level, message.surplus)
        if len(message.surplus) != KEY_BYTES or key.tip != self._tips[site]:
            raise BadMessage(f"{name} revealed a surplus key that is not the one of its vector")
        self._revealed[site] = key

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
        closed = Closed(_ROUND_OF[self.state], self._names(present))
        setup, last = closed.round in m.SETUP_ROUNDS, self.next_step >= self.parameters.steps
        ended = self.state is AggregatorState.UNMASK and last
        following_state = following(self.state, Cue.ENDED if ended else Cue.CLOSED)
        try:
            if len(present) < self.parameters.threshold:
                raise TooFewSites(
                    f"{len(present)} of {self.parameters.sites} sites were left in the round "
                    f"{closed.round!r}; the threshold is {self.parameters.threshold}"
                )
            events = tuple(closing(present))
        except (TooFewSites, BadMessage):
            failed = following(self.state, Cue.FAILED if setup or last else Cue.LOST)
            assert isinstance(failed, AggregatorState)
            self.state = failed
            raise
        assert isinstance(following_state, AggregatorState)
        self.state = following_state
        if self.state in (AggregatorState.READY, AggregatorState.DONE):
            return (closed, *events)
        return (closed, *events, *self._close_if_complete())  # if all remaining sites are gone by now

    def _close_advertise(self, present: list[int]) -> Iterator[Event]:
        self._adverts: dict[int, m.Advert] = {site: self._answers[site][0] for site in present}
        adverts = tuple(self._answers[site][1] for site in present)
        data = self._pack(m.Adverts, round=2, adverts=adverts)
        self._transcript = self._keys_at = m.after_adverts(self._transcript, adverts)
        self._graph = Graph(self.parameters.sites, self.parameters.neighbours, self._keys_at)
        return self._ask(present, lambda site: data)

    def _close_share(self, present: list[int]) -> Iterator[Event]:
        self._sharers = frozenset(present)
        sealed = {
            (sender, receiver): part
            for sender in present
            for receiver, part in zip(self._peers(sender), self._answers[sender].sealed, strict=True)
        }
        self._undelivered = {
            site: tuple(sealed[peer, site] for peer in self._peers(site) if peer in self._sharers)
            for site in present
        }
        self._commitments: dict[int, bytes] = {site: self._answers[site].commitments for site in present}
        self._setup = m.after_shares(self._transcript, tuple(present))
        self._answers.clear()
        return iter(())  # the driver starts the first step

    def _close_mask(self, present: list[int]) -> Iterator[Event]:
        self._survivors = frozenset(present)
        self._dropped = self._sharers - self._survivors
        dropped = tuple(sorted(self._dropped))
        for site in self._secrets_needed():
            self._require_helpers(site, self._survivors)
        data = self._pack(m.Survivors, round=4, step=self._step, survivors=tuple(present), dropped=dropped)
        self._transcript = m.after_masked(self._transcript, tuple(present), dropped)
        return self._ask(present, lambda site: data)

    def _close_consistency(self, present: list[int]) -> Iterator[Event]:
        consents = tuple(self._answers[site] for site in present)
        data = self._pack(m.Consents, round=5, step=self._step, consents=consents)
        self._of_seeds: Pieces = {}
        self._of_keys: Pieces = {}
        return self._ask(present, lambda site: data)

    def _close_unmask(self, present: list[int]) -> Iterator[Event]:
        for site in self._secrets_needed():
            self._require_helpers(site, frozenset(present))
        masks.apply(self._sum, self._leftover())
        for key in self._revealed.values():
            key.apply(self._sum, -1)
        total = self.parameters.ring.decode(self._sum)
        self._sum_is_known = True
        self._of_seeds, self._of_keys = {}, {}
        missing = self.parameters.sites - len(self._survivors)
        whole = self.parameters.surplus.kept(missing) == len(self.parameters.surplus)
        late = () if whole else self._names(self._survivors - self._revealed.keys())
        yield Finished(self._step, total, self._names(sorted(self._survivors)), late)

    def _leftover(self) -> Iterator[tuple[bytes, int]]:
        """Yield the masks that did not cancel, with the sign that removes them."""
        self._self_keys = {}
        for site in sorted(self._survivors):
            seed = self._recover(site, self._of_seeds, self._opens_commitment)
            self._self_keys[site] = masks.self_key(seed, self._keys_at, site, self._step)
            yield self._self_keys[site], -1
        for site in self._dropped_with_masks():
            private = self._recover(site, self._of_keys, self._has_public_key)
            lost = KeyPair(private)
            for peer in self._peers(site):
                if peer in self._survivors:
                    agreed = lost.agree(m.part(self._adverts[peer].masking, self._step))
                    key = masks.pair_key(agreed, self._keys_at, site, peer, self._step)
                    yield key, -masks.sign(peer, site)

    def _recover(self, site: int, pieces: Pieces, fits: Callable[[int, bytes], bool]) -> bytes:
        """Return a site's secret, checked against what the site published.

        If a helper sent a wrong key share, another set of helpers may recover the secret without it.
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
            f"the key shares revealed for {self._name(site)} do not recover its secret: "
            "it or one of its neighbours sent wrong ones"
        )

    def _opens_commitment(self, site: int, seed: bytes) -> bool:
        signed = m.part(self._commitments[site], self._step)
        return commitment(seed, self._keys_at, site, self._step) == signed

    def _has_public_key(self, site: int, private: bytes) -> bool:
        return KeyPair(private).public == m.part(self._adverts[site].masking, self._step)

    def _secrets_needed(self) -> list[int]:
        return [*sorted(self._survivors), *self._dropped_with_masks()]

    def _dropped_with_masks(self) -> list[int]:
        """Return the dropped sites whose pairwise masks are in the sum: those with a surviving neighbour."""
        return [
            site
            for site in sorted(self._dropped)
            if any(peer in self._survivors for peer in self._peers(site))
        ]

    def _require_helpers(self, site: int, present: frozenset[int]) -> None:
        count = sum(helper in present for helper in self._graph.committee(site))
        if count < self.parameters.helpers:
            raise TooFewSites(
                f"{count} sites that hold key shares for {self._name(site)} were left; "
                f"{self.parameters.helpers} are needed"
            )

    def _peers(self, site: int) -> list[int]:
        """Return the neighbours that advertised, ascending."""
        return [peer for peer in self._graph.neighbours(site) if peer in self._adverts]

    def _held_by(self, site: int) -> tuple[list[int], list[int]]:
        """Return the survivors and the dropped sites of which a site holds key shares."""
        held = [other for other in self._graph.committee(site) if other in self._sharers]
        return (
            [other for other in held if other in self._survivors],
            [other for other in held if other in self._dropped],
        )

    def _require_each_step(self, fields: bytes, name: str, what: str) -> range:
        if len(fields) != KEY_BYTES * self.parameters.steps:
            raise BadMessage(f"{name} sent {what} for another number of steps than {self.parameters.steps}")
        return range(self.parameters.steps)

    def _open(self, sites: Iterable[int]) -> None:
        self._awaited = set(sites) - self._gone
        self._answers: dict[int, Any] = {}

    def _ask(self, sites: list[int], data: Callable[[int], bytes]) -> Iterator[Event]:
        """Start the next round: every remaining site gets a message."""
        self._open(sites)
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
