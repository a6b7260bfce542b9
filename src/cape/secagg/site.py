"""A site: bytes in, one answer out, and a refusal wherever an answer could harm its owner.

Claim. Whatever the aggregator and fewer than `threshold` sites do, they learn of this site's vector at most
the sum over one list of at least `threshold` sites that includes it.
Reason. The vector leaves once, with a self mask and a mask per neighbour. The self mask's seed and the
masking key are both shared, and a site helps with one of the two, never both, for each of its neighbours:
the choice is fixed by the one list that it signs, and it acts on that list only when `threshold` sites
signed the same one. Two lists cannot both have that many signatures (`smallest_threshold`). Keys come from
a pinned roster, and the transcript in each message ties it to one run, roster, threshold, graph and
earlier lists, so a lie told earlier makes signatures not fit. A refusal changes no state and sends nothing.
Tested in tests/secagg/test_refusals.py (one test for each refusal) and test_lying.py.
"""

from __future__ import annotations

from collections.abc import MutableSet
from itertools import pairwise
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from cape.errors import BadMessage, InvalidInput, Refused
from cape.noise import SecureStream
from cape.secagg import masks, shamir
from cape.secagg import messages as m
from cape.secagg.graph import Graph
from cape.secagg.keys import KEY_BYTES, Identity, KeyPair, Verifier, derive, digest
from cape.secagg.parameters import Parameters
from cape.secagg.states import Cue, SiteState, following

__all__ = ["Site", "commitment"]

_NONCE = bytes(12)  # each key encrypts once


def commitment(seed: bytes, transcript: bytes, site: int) -> bytes:
    """Return what binds a site to the seed of its self mask; hides it, since the seed is 32 random bytes."""
    return digest("seed", transcript, site.to_bytes(8, "big"), seed)


class Site:
    """One site's part in one run. `start()`, then `handle(bytes) -> bytes` for each message.

    Args:
        parameters: the run as this site's owner agreed to it, never as the aggregator tells it.
        name: which site of the roster this is.
        identity: its signing key; the roster holds the public half.
        vector: `length` integers (int64); with 32 bits each must fit 32 bits.
        stream: where secrets come from; by default the operating system.
        verifier: shared by machines of one process to check each signature once.
        seen: runs that this site has taken part in; this run is refused if there, else added.
    """

    def __init__(
        self,
        parameters: Parameters,
        name: str,
        identity: Identity,
        vector: NDArray[np.int64],
        *,
        stream: SecureStream | None = None,
        verifier: Verifier | None = None,
        seen: MutableSet[bytes] | None = None,
    ) -> None:
        self.parameters = parameters
        self.name = name
        self.number = parameters.roster.index(name)
        if parameters.roster.keys[self.number] != identity.public:
            raise InvalidInput(f"the identity given is not that of {name!r} on the roster")
        self._vector: NDArray[np.int64] | None = _require_vector(vector, parameters)
        if seen is not None:
            if parameters.run in seen:
                raise Refused(f"run {parameters.run.hex()} was used before; every run needs a new name")
            seen.add(parameters.run)
        self._identity = identity
        self._stream = stream or SecureStream()
        self._verifier = verifier or Verifier()
        self._transcript = parameters.digest()
        self.state = SiteState.NEW

    def start(self) -> bytes:
        """Return the advertisement: the first message of the run."""
        following(self.state, Cue.START)
        self._encryption = KeyPair(self._stream.bytes(KEY_BYTES))
        self._masking = KeyPair(self._stream.bytes(KEY_BYTES))
        self._advert = self._signed(
            m.Advert(
                **self._head(), round=1, encryption=self._encryption.public, masking=self._masking.public
            )
        )
        self.state = SiteState.ADVERTISED
        return self._advert

    def handle(self, data: bytes) -> bytes:
        """Return the answer to the aggregator's message, or raise a `ProtocolError`.

        After an error the site is where it was: nothing was sent, and a right message is still welcome.
        """
        message = m.unpack(data, self.parameters)
        state = following(self.state, type(message))
        if message.transcript != self._transcript:
            raise Refused(
                "the aggregator's roster, threshold, graph or an earlier list differs from this site's"
            )
        match message:
            case m.Adverts():
                answer = self._share(message)
            case m.Delivery():
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
    def survivors(self) -> tuple[str, ...]:
        """The names on the list that this site signed; its place on it is the same for all."""
        if self.state not in (SiteState.AGREED, SiteState.DONE):
            raise Refused("this site has not signed a list of survivors")
        return tuple(self.parameters.roster.names[site] for site in self._survivors)

    @property
    def transcript(self) -> bytes:
        """The hash of the run as this site saw it."""
        return self._transcript

    def _share(self, message: m.Adverts) -> bytes:
        """Round 2: check everyone's keys, then share both secrets with the committee."""
        parameters, me = self.parameters, self.number
        adverts = _read_adverts(message, parameters, self._verifier)
        if self._advert not in message.adverts:
            raise Refused("this site's own advertisement is missing from the list or was changed")
        self._require_enough(len(adverts), "advertised")
        transcript = m.after_adverts(self._transcript, message.adverts)
        graph = Graph(parameters.sites, parameters.neighbours, transcript)
        peers = [peer for peer in graph.neighbours(me) if peer in adverts]
        self._require_committee(len(peers) + 1, "advertised")
        seed = self._stream.bytes(KEY_BYTES)
        points = [peer + 1 for peer in [*peers, me]]
        secrets = (seed, self._masking.private)
        of_seed, of_key = (
            shamir.share(secret, parameters.helpers, points, self._stream) for secret in secrets
        )
        sealed, opening = [], {}
        for place, peer in enumerate(peers):
            agreed = self._encryption.agree(adverts[peer].encryption)
            key = derive(agreed, transcript, "share", me, peer)
            opening[peer] = derive(agreed, transcript, "share", peer, me)
            sealed.append(ChaCha20Poly1305(key).encrypt(_NONCE, of_seed[place] + of_key[place], None))
        # All is well: from here on nothing fails.
        self._transcript = self._keys_at = transcript
        self._seed = seed
        self._opening = opening
        self._held = {me: (of_seed[-1], of_key[-1])}
        self._peer_masking = {peer: adverts[peer].masking for peer in peers}
        return self._signed(
            m.Shares(
                **self._head(),
                round=2,
                commitment=commitment(seed, transcript, me),
                sealed=tuple(sealed),
            )
        )

    def _mask(self, message: m.Delivery) -> bytes:
        """Round 3: open the neighbours' shares, then send the vector under its masks."""
        parameters, me = self.parameters, self.number
        sharers = _ascending(message.sharers, parameters.sites)
        self._require_enough(len(sharers), "shared")
        peers = [peer for peer in self._opening if peer in sharers]
        if me not in sharers or len(peers) != len(message.sealed):
            raise BadMessage("the shares delivered are not those of this site's neighbours who shared")
        self._require_committee(len(peers) + 1, "shared")
        held = dict(self._held)
        for peer, sealed in zip(peers, message.sealed, strict=True):
            try:
                both = ChaCha20Poly1305(self._opening[peer]).decrypt(_NONCE, sealed, None)
            except InvalidTag:
                raise BadMessage(
                    f"the shares from {self._name(peer)} were changed or are not for this site"
                ) from None
            held[peer] = (both[: shamir.SHARE_BYTES], both[shamir.SHARE_BYTES :])
        keys = [(masks.self_key(self._seed, self._keys_at, me), 1)]
        for peer in peers:
            agreed = self._masking.agree(self._peer_masking[peer])
            keys.append((masks.pair_key(agreed, self._keys_at, me, peer), masks.sign(me, peer)))
        assert self._vector is not None
        words = parameters.ring.encode(self._vector)
        masks.apply(words, keys)
        self._transcript = m.after_shares(self._transcript, message.sharers)
        self._held = held
        self._sharers = sharers
        # What is not needed again is forgotten: nobody can be made to give it away later.
        self._vector = None
        del self._seed, self._opening, self._peer_masking, self._masking, self._encryption
        return self._signed(m.Masked(**self._head(), round=3, words=words.tobytes()))

    def _agree(self, message: m.Survivors) -> bytes:
        """Round 4: check the list of survivors and sign it. This site will never sign another."""
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
        self._transcript = m.after_masked(self._transcript, message.survivors, message.dropped)
        self._survivors = message.survivors
        return self._signed(m.Consent(**self._head(), round=4))

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
        held = sorted(self._held)
        reveal = m.Reveal(
            **self._head(),
            round=5,
            seeds=tuple(self._held[site][0] for site in held if site in alive),
            keys=tuple(self._held[site][1] for site in held if site not in alive),
        )
        self._held = {}
        return self._signed(reveal)

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
        return m.pack_signed(message, self._identity)

    def __repr__(self) -> str:
        return f"Site({self.name!r}, {self.state.name})"


def _read_adverts(message: m.Adverts, parameters: Parameters, verifier: Verifier) -> dict[int, m.Advert]:
    start, adverts = parameters.digest(), {}
    for data in message.adverts:
        advert = m.authenticate(m.unpack_signed(data, parameters), data, parameters, verifier)
        if not isinstance(advert, m.Advert) or advert.transcript != start:
            raise Refused("a site advertised for another roster, threshold or graph")
        adverts[advert.sender] = advert
    if len(adverts) != len(message.adverts) or list(adverts) != sorted(adverts):
        raise BadMessage("advertisements must come in ascending order, one for each site")
    return adverts


def _ascending(sites: tuple[int, ...], most: int) -> frozenset[int]:
    if any(a >= b for a, b in pairwise(sites)) or (sites and sites[-1] >= most):
        raise BadMessage("a list of sites must be ascending and on the roster")
    return frozenset(sites)


def _require_vector(vector: Any, parameters: Parameters) -> NDArray[np.int64]:
    if not isinstance(vector, np.ndarray) or vector.dtype != np.int64:
        shown = vector.dtype if isinstance(vector, np.ndarray) else type(vector).__name__
        raise InvalidInput(f"vector must be an array of int64, not {shown}")
    if vector.shape != (parameters.length,):
        raise InvalidInput(f"vector must have shape ({parameters.length},), not {vector.shape}")
    if parameters.bits < 64:
        half = parameters.ring.half
        if vector.max() >= half or vector.min() < -half:
            raise InvalidInput(f"vector has an entry that does not fit {parameters.bits} bits")
    return vector
