"""A site: one answer to each message, or a refusal if an answer could harm its owner.

Claim. Whatever the aggregator and fewer than `threshold` sites do, all they learn about this site's vector of
a step is the sum over one list of at least `threshold` sites that includes it, whatever other steps reveal.
Reason. The vector leaves once, with a self mask and a mask per neighbour. The self mask's seed and the
masking key are both shared, and a site helps with one of the two, never both, for each of its neighbours:
the choice is fixed by the one list that it signs in a step, and it acts on that list only when `threshold`
sites signed the same one. Two lists cannot both have that many signatures (`smallest_threshold`). Keys come
from a pinned roster, a site without a signed advertisement is on no list, and the transcript in each message
ties it to one run, roster, threshold, graph, list of sharers, step and list of survivors, so after an earlier
lie signatures do not match. A refusal changes no state and sends nothing.
Noise. What of its surplus noise a site takes off again is decided by the same list, once: `surplus`.
Steps. Every step has secrets of its own (`cape.secagg.chain`), so the above holds for each step as for a
separate run. A site only moves forward: it masks one vector a step, signs one list a step, and after a step
it has deleted that step's secrets and its key shares of others', and cannot be made to reveal them later. It
may miss steps, or the end of one, and takes part again in the next without new keys.
Tested in tests/unit/secagg/test_refusals.py (one test for each refusal), test_lying.py and
test_steps_lying.py.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from cape.core import check
from cape.core.errors import BadMessage, InvalidInput, Refused
from cape.noise import SecureStream
from cape.noise.ring import Ring
from cape.secagg import masks, shamir
from cape.secagg import messages as m
from cape.secagg.chain import Chain
from cape.secagg.graph import Graph
from cape.secagg.held import Held
from cape.secagg.keys import KEY_BYTES, Identity, KeyPair, Verifier, derive, digest
from cape.secagg.parameters import Parameters
from cape.secagg.states import Cue, SiteState, following
from cape.secagg.surplus import SurplusKey

__all__ = ["Site", "commitment", "require_vector"]

_NONCE = bytes(12)  # each key encrypts once


def commitment(seed: bytes, transcript: bytes, site: int, step: int = 0) -> bytes:
    """Return a commitment to the seed of a site's self mask; it hides the seed, which is 32 random bytes."""
    return digest("seed", transcript, site.to_bytes(8, "big"), step.to_bytes(8, "big"), seed)


class Site:
    """One site's part in one run.

    `start()` and `handle(bytes) -> bytes` for the setup; then for each step `begin(step, vector)` and
    `handle` for each message.

    Args:
        parameters: the run as this site's owner agreed to it; never taken from the aggregator.
        name: which site of the roster this is.
        identity: its signing key; the roster holds the public half.
        stream: the source of secrets; by default the operating system.
        verifier: shared by machines of one process to check each signature once.
        claim: called with the name of the run before anything else; raises `Refused` if it was used before.
    """

    def __init__(
        self,
        parameters: Parameters,
        name: str,
        identity: Identity,
        *,
        stream: SecureStream | None = None,
        verifier: Verifier | None = None,
        claim: Callable[[bytes], None] | None = None,
    ) -> None:
        self.parameters = parameters
        self.name = name
        self.number = parameters.roster.index(name)
        if parameters.roster.keys[self.number] != identity.public:
            raise InvalidInput(f"the identity given is not that of {name!r} on the roster")
        if claim is not None:
            claim(parameters.run)
        self._identity = identity
        self._stream = stream or SecureStream()
        self._verifier = verifier or Verifier()
        self._transcript = parameters.digest()
        self._setup: bytes | None = None  # the transcript of the setup, once this site knows who shared
        self._sharers: frozenset[int] = frozenset()
        self._step = 0
        self._vector: NDArray[np.int64] | None = None
        self._surplus: SurplusKey | None = None  # from its vector on, until it reveals
        self.state = SiteState.NEW

    def start(self) -> bytes:
        """Return the advertisement: the first message of the run."""
        following(self.state, Cue.START)
        parameters = self.parameters
        self._encryption = KeyPair(self._stream.bytes(KEY_BYTES))
        self._chain = Chain(self._stream.bytes(KEY_BYTES), parameters.digest())
        masking = b"".join(KeyPair(key).public for _, key in self._chain.walk(parameters.steps))
        self._advert = self._signed(
            m.Advert(**self._head(), round=1, encryption=self._encryption.public, masking=masking)
        )
        self.state = SiteState.ADVERTISED
        return self._advert

    def begin(self, step: int, vector: NDArray[np.int64]) -> None:
        """Give this site its vector of a step, before the aggregator asks for it. Skipped steps are lost.

        Args:
            step: its number, from 0; later than every step that this site has begun and masked.
            vector: `length` integers (int64); with 32 bits each must fit 32 bits. It is not copied, and is
                deleted once it is masked.
        """
        state = following(self.state, Cue.BEGIN)
        step = check.integer("step", step, least=0, most=self.parameters.steps - 1)
        if step < self._chain.step:
            raise Refused(f"step {step} is past: the next one of this site is {self._chain.step}")
        self._vector = require_vector(vector, self.parameters.length, self.parameters.ring)
        self._forget_before(step)
        self._step = step
        if self._setup is not None:
            self._transcript = m.at_step(self._setup, step)
        assert isinstance(state, SiteState)
        self.state = state

    def handle(self, data: bytes) -> bytes:
        """Return the answer to the aggregator's message, or raise a `ProtocolError`.

        An error changes nothing: nothing was sent, and a correct message is still accepted.
        """
        message = m.unpack(data, self.parameters)
        state = following(self.state, type(message))
        if not isinstance(message, m.Adverts) and message.step != self._step:
            raise Refused(f"a message of step {message.step} came, and this site is in step {self._step}")
        # A delivery says who shared, so its transcript is the one before that list.
        expected = self._keys_at if isinstance(message, m.Delivery) else self._transcript
        if message.transcript != expected:
            raise Refused(
                "the aggregator's roster, threshold, graph or an earlier list differs from this site's"
            )
        match message:
            case m.Adverts():
                answer = self._share(message)
            case m.Delivery() | m.Begin():
                answer = self._mask(message)
            case m.Survivors():
                answer = self._agree(message)
            case m.Consents():
                answer = self._reveal(message)
            case _:  # pragma: no cover - the table has no such transition
                raise Refused("this site waits for no such message")
        assert isinstance(state, SiteState)
        self.state = state
        return answer

    @property
    def step(self) -> int:
        """The current step, or the first."""
        return self._step

    @property
    def survivors(self) -> tuple[str, ...]:
        """The names on the list that this site signed in this step; its place on it is the same for all."""
        if self.state not in (SiteState.AGREED, SiteState.DONE):
            raise Refused("this site has not signed a list of survivors")
        return tuple(self.parameters.roster.names[site] for site in self._survivors)

    @property
    def transcript(self) -> bytes:
        """The hash of the setup and of this step as this site saw them."""
        return self._transcript

    def pair_keys(self) -> dict[int, bytes]:
        """Return the keys of the masks that this site shares with each neighbour in the step that it is in.

        By the neighbours' numbers. Until its vector is masked, which forgets them, whoever owns this machine
        has these keys: what a colluding site can tell the aggregator.
        """
        if self._chain.step != self._step:
            raise Refused("this site has masked its vector, and has forgotten the keys of this step")
        return self._pair_keys(frozenset(self._peer_masking))

    def _pair_keys(self, among: frozenset[int]) -> dict[int, bytes]:
        masking, at, step = KeyPair(self._chain.secrets()[1]), self._keys_at, self._step
        return {
            peer: masks.pair_key(masking.agree(m.part(public, step)), at, self.number, peer, step)
            for peer, public in self._peer_masking.items()
            if peer in among
        }

    def _share(self, message: m.Adverts) -> bytes:
        """Round 2: check all keys, then share every step's two secrets with the committee."""
        parameters, me = self.parameters, self.number
        adverts = _read_adverts(message, parameters, self._verifier)
        if self._advert not in message.adverts:
            raise Refused("this site's own advertisement is missing from the list or was changed")
        self._require_enough(len(adverts), "advertised")
        transcript = m.after_adverts(self._transcript, message.adverts)
        graph = Graph(parameters.sites, parameters.neighbours, transcript)
        peers = [peer for peer in graph.neighbours(me) if peer in adverts]
        self._require_committee(len(peers) + 1, "advertised")
        agreed = {peer: self._encryption.agree(adverts[peer].encryption) for peer in peers}
        holders = [*peers, me]
        points = [holder + 1 for holder in holders]
        shares: list[list[bytes]] = [[] for _ in holders]
        commitments = []
        for step, secrets in enumerate(self._chain.walk(parameters.steps)):
            commitments.append(commitment(secrets[0], transcript, me, step))
            for secret in secrets:
                parts = shamir.share(secret, parameters.helpers, points, self._stream)
                for row, part in zip(shares, parts, strict=True):
                    row.append(part)
        sealed, opening = [], {}
        for peer, row in zip(peers, shares[:-1], strict=True):
            key = derive(agreed[peer], transcript, "share", me, peer)
            opening[peer] = derive(agreed[peer], transcript, "share", peer, me)
            sealed.append(ChaCha20Poly1305(key).encrypt(_NONCE, b"".join(row), None))
        # From here on nothing fails.
        self._transcript = self._keys_at = transcript
        self._opening = opening
        self._held = {me: Held(b"".join(shares[-1]))}
        self._peer_masking = {peer: adverts[peer].masking for peer in peers}
        self._advertised = frozenset(adverts)
        answer = self._signed(
            m.Shares(**self._head(), round=2, commitments=b"".join(commitments), sealed=tuple(sealed))
        )
        del self._advert, self._encryption, self._stream  # no secret is drawn after this
        return answer

    def _mask(self, message: m.Delivery | m.Begin) -> bytes:
        """Round 3: decrypt the neighbours' key shares and send the masked vector."""
        me, step = self.number, self._step
        setup, sharers, held = self._setup, self._sharers, self._held
        if isinstance(message, m.Delivery):
            told = m.after_shares(self._keys_at, message.sharers)
            if setup is None:
                setup, (sharers, held) = told, self._opened(message)
            elif told != setup:
                raise Refused("the aggregator sent this site another list of sharers before")
        assert setup is not None  # without its shares a site takes nothing but a delivery
        seed, _ = self._chain.secrets()
        keys = [(masks.self_key(seed, self._keys_at, me, step), 1)]
        keys += [(key, masks.sign(me, peer)) for peer, key in self._pair_keys(sharers).items()]
        assert self._vector is not None
        words = self.parameters.ring.encode(self._vector)
        surplus = self._surplus_key()
        surplus.apply(words, 1)
        masks.apply(words, keys)
        self._setup, self._sharers, self._held = setup, sharers, held
        self._transcript = m.at_step(setup, step)
        # What is not needed again is deleted, so that it cannot be revealed later.
        self._vector = None
        self._opening = {}
        self._chain.advance(step + 1)
        self._surplus = surplus
        tip = surplus.tip if surplus.surplus.stds else b""
        return self._signed(m.Masked(**self._head(), round=3, step=step, words=words.tobytes(), tip=tip))

    def _surplus_key(self) -> SurplusKey:
        """Return the key of all surplus parts of the step."""
        parameters = self.parameters
        run, secret = parameters.digest(), self._chain.surplus()
        return SurplusKey(parameters.surplus, run, self.number, self._step, 0, secret)

    def _opened(self, message: m.Delivery) -> tuple[frozenset[int], dict[int, Held]]:
        """Return who shared, and the key shares that this site holds, without those of missed steps.

        No honest site can be listed here or among the survivors without being in the sum. It must have
        advertised, with its signature, and each of its neighbours opens the shares that it sealed for it.
        One that is listed and did not share, or whose vector is missing from the sum, therefore has no
        honest neighbour in the sum: such a neighbour refuses, or has a mask with it that nobody can remove,
        or was told another list, on which too few sign, so that no neighbour of it helps with its seed.
        When all are neighbours that is impossible; on a sparse graph it takes the cut of
        `cape.secagg.neighbours` (3), whose chance is counted there.
        """
        parameters = self.parameters
        sharers = _ascending(message.sharers, parameters.sites)
        if phantoms := sharers - self._advertised:
            raise Refused(f"{self._name(min(phantoms))} is said to have shared, and has not advertised")
        self._require_enough(len(sharers), "shared")
        peers = [peer for peer in self._opening if peer in sharers]
        if self.number not in sharers or len(peers) != len(message.sealed):
            raise BadMessage("the shares delivered are not those of this site's neighbours who shared")
        self._require_committee(len(peers) + 1, "shared")
        held = dict(self._held)
        for peer, sealed in zip(peers, message.sealed, strict=True):
            try:
                shares = ChaCha20Poly1305(self._opening[peer]).decrypt(_NONCE, sealed, None)
            except InvalidTag:
                raise BadMessage(
                    f"the shares from {self._name(peer)} were changed or are not for this site"
                ) from None
            if len(shares) != m.BOTH_BYTES * parameters.steps:
                raise BadMessage(f"the shares from {self._name(peer)} are not two for each step")
            held[peer] = Held(shares)
            held[peer].forget_before(self._step)
        return sharers, held

    def _agree(self, message: m.Survivors) -> bytes:
        """Round 4: check the list of survivors and sign it. This site signs no other for this step."""
        survivors = _ascending(message.survivors, self.parameters.sites)
        dropped = _ascending(message.dropped, self.parameters.sites)
        if both := survivors & dropped:
            raise Refused(f"{self._name(min(both))} is listed both as survivor and as dropped")
        if survivors | dropped != self._sharers:
            raise Refused("the survivors and the dropped are not the sites that shared")
        if self.number not in survivors:
            raise Refused("this site sent its vector and is not among the survivors")
        self._require_enough(len(survivors), "survived")
        self._require_committee(len(survivors & self._held.keys()), "survived")
        missing = self.parameters.sites - len(survivors)  # by this site's own roster
        assert self._surplus is not None
        # The keys of the parts that stay are deleted: this site cannot reveal another level any more.
        self._surplus = self._surplus.at(self.parameters.surplus.kept(missing))
        self._transcript = m.after_masked(self._transcript, message.survivors, message.dropped)
        self._survivors = message.survivors
        return self._signed(m.Consent(**self._head(), round=4, step=self._step))

    def _reveal(self, message: m.Consents) -> bytes:
        """Round 5: when enough sites signed the same list, help to unmask exactly that list."""
        signers = set()
        for data in message.consents:
            consent = m.authenticate(
                m.unpack_signed(data, self.parameters), data, self.parameters, self._verifier
            )
            if not isinstance(consent, m.Consent) or consent.transcript != self._transcript:
                raise Refused("a site signed another list of survivors than this one")
            signers.add(consent.sender)
        if not signers <= set(self._survivors):
            raise Refused("a site that is not among the survivors signed their list")
        self._require_enough(len(signers), "signed the list of survivors")
        alive = set(self._survivors)
        held = {site: self._held[site].at(self._step) for site in sorted(self._held)}
        surplus = self._surplus
        assert surplus is not None
        reveal = m.Reveal(
            **self._head(),
            round=5,
            step=self._step,
            seeds=tuple(seed for site, (seed, _) in held.items() if site in alive),
            keys=tuple(key for site, (_, key) in held.items() if site not in alive),
            surplus=surplus.secret if surplus.level < len(surplus.surplus) else b"",
        )
        self._forget_before(self._step + 1)
        return self._signed(reveal)

    def _forget_before(self, step: int) -> None:
        """Delete this site's secrets of earlier steps, and its key shares of others'."""
        self._chain.advance(step)
        self._surplus = None
        for held in self._held.values():
            held.forget_before(step)

    def _require_enough(self, count: int, did: str) -> None:
        if count < self.parameters.threshold:
            raise Refused(f"only {count} sites {did}; this site's threshold is {self.parameters.threshold}")

    def _require_committee(self, count: int, did: str) -> None:
        if count < self.parameters.helpers:
            raise Refused(
                f"only {count} of this site's neighbours and itself {did}; "
                f"it asks for {self.parameters.helpers}"
            )

    def _name(self, site: int) -> str:
        return repr(self.parameters.roster.names[site])

    def _head(self) -> dict[str, Any]:
        return {
            "version": m.VERSION,
            "run": self.parameters.run,
            "transcript": self._transcript,
            "sender": self.number,
        }

    def _signed(self, message: m.FromSite) -> bytes:
        return m.pack_signed(message, self._identity, self._verifier)

    def __repr__(self) -> str:
        return f"Site({self.name!r}, {self.state.name})"


def _read_adverts(message: m.Adverts, parameters: Parameters, verifier: Verifier) -> dict[int, m.Advert]:
    start, adverts = parameters.digest(), {}
    for data in message.adverts:
        advert = m.authenticate(m.unpack_signed(data, parameters), data, parameters, verifier)
        if not isinstance(advert, m.Advert) or advert.transcript != start:
            raise Refused("a site advertised for another roster, threshold or graph")
        if len(advert.masking) != KEY_BYTES * parameters.steps:
            raise BadMessage("a site advertised keys for another number of steps")
        adverts[advert.sender] = advert
    if len(adverts) != len(message.adverts) or list(adverts) != sorted(adverts):
        raise BadMessage("advertisements must come in ascending order, one for each site")
    return adverts


def _ascending(sites: tuple[int, ...], most: int) -> frozenset[int]:
    if any(a >= b for a, b in pairwise(sites)) or (sites and sites[-1] >= most):
        raise BadMessage("a list of sites must be ascending and on the roster")
    return frozenset(sites)


def require_vector(vector: Any, length: int, ring: Ring) -> NDArray[np.int64]:
    """Return the vector if it has the right type and length and fits the ring."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.int64:
        shown = vector.dtype if isinstance(vector, np.ndarray) else type(vector).__name__
        raise InvalidInput(f"vector must be an array of int64, not {shown}")
    if vector.shape != (length,):
        raise InvalidInput(f"vector must have shape ({length},), not {vector.shape}")
    if ring.bits < 64 and (vector.max() >= ring.half or vector.min() < -ring.half):
        raise InvalidInput(f"vector has an entry that does not fit {ring.bits} bits")
    return vector
