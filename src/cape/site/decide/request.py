"""A coordinator's signed request to a site: the whole study, one stage of one analysis, and the roster.

Claim. A `Request` that `Request.open` returns was made by the holder of its coordinator's key, and says
exactly what that coordinator signed: the study (and so its hash), the analysis, the price, the roster, the
run, the stage, the grid of its noise, and the period during which it may be accepted, once.
Reason. It travels in an `Envelope`, which is opened only if size, key and signature are valid; there is no
other way to read one. Fields are decoded into types with limits; the study, which may hold anything, is bytes
of limited size, whose values and depth are counted before they are decoded. It states its time of issue, its
expiry and a nonce, which a site remembers (`cape.site.decide.nonces`).
Tested in tests/unit/site/test_envelope.py and test_decide.py.

A request carries numbers that were released before (`StageResult`), never rows. Whether they are true or
made up, the sensitivity of the question that follows from them is known: each analysis proves that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cape.core import check, packed
from cape.core.errors import BadMessage, InvalidInput
from cape.engine.calibration import Calibration
from cape.engine.schemes import Parties
from cape.engine.schemes.cape import cape_choices
from cape.engine.session import AnalysisSession, StageResult
from cape.noise import Kind, SecureStream
from cape.secagg.keys import KEY_BYTES, MAX_SITES, Identity, Roster
from cape.secagg.parameters import MAX_STEPS, RUN_BYTES, Parameters
from cape.site import envelope
from cape.site.decide.codes import Code, Denied
from cape.site.envelope import Envelope
from cape.site.ledger.heads import MOST_BYTES as MOST_HEAD
from cape.study.document import hash_of

__all__ = ["Request", "grid_of", "make_request"]

LABEL = b"cape request 3\0"
NONCE_BYTES = 16
MOST_STUDY = 1 << 20
"""Bytes of a study's document."""
SKEW = 300
"""Seconds by which a coordinator's clock may be ahead of a site's."""
MOST_VALID = 24 * 3600
"""Seconds for which a request may be valid, and a site remembers it."""
VALID = 6 * 3600
"""Seconds for which a coordinator signs a request: its vector must have left by then."""

_MOST_VALUES = 1 << 17  # in a study's document
_DEPTH = 32


@dataclass(frozen=True)
class Request:
    """One stage of one analysis of a study, as a coordinator asks for it.

    Attributes:
        study: the public part of the whole study: see `cape.study.document`.
        number: the number of the analysis, from 1.
        roster: names and public keys of all sites.
        run: 16 bytes that name this release and are never used twice; all its stages have the same.
        stage: the stage, from 0.
        first, steps: the session of secure aggregation that carries it: its first stage, and their number.
        earlier: the results of stages before this one: all of them, or those since this site's last.
        grid: (bits, factor) of each released array as the coordinator computes it. A site that computes
            another grid would add other noise, and refuses.
        bits: width of the ring.
        coordinator: the coordinator's public key.
        issued, expires: the period in which a site may accept it and answer, in seconds since 1970.
        heads: the longest ledger heads that the coordinator holds; each site finds its own.
        model: the model of the earlier analysis that this one follows, as plain data: released numbers. It is
            no part of the study, whose hash a steward approves; what the stage costs does not depend on it.
        trial: signed for review only; it is never answered, whoever forwards it.
        nonce: 16 bytes that no other request of this coordinator has; `signed` draws them.
    """

    study: dict[str, Any]
    number: int
    roster: tuple[tuple[str, bytes], ...]
    run: bytes
    stage: int
    first: int
    steps: int
    earlier: tuple[StageResult, ...]
    grid: tuple[tuple[int, int], ...]
    bits: int
    coordinator: bytes
    issued: int
    expires: int
    heads: tuple[bytes, ...] = ()
    model: dict[str, Any] | None = None
    trial: bool = False
    nonce: bytes = b""
    signature: bytes = b""

    @property
    def name(self) -> str:
        """The study's name."""
        return str(self.study.get("name"))

    @property
    def noise(self) -> Kind:
        """The kind of noise of the study: Gaussian, unless it says otherwise."""
        return "laplace" if self.study.get("noise") == "laplace" else "gaussian"

    @property
    def study_hash(self) -> str:
        """The hash of the whole study: what a steward approves."""
        return hash_of(self.study)

    @property
    def plan(self) -> bytes:
        """Hash of what all stages of the run have in common."""
        return _digest(
            "plan", self.study_hash, self.number, self.roster, self.run, self.coordinator, self.model
        )

    @property
    def session(self) -> bytes:
        """The name of the session of secure aggregation: the run of `Parameters.agree`."""
        return _digest("session", self.coordinator, self.run, self.first)[:RUN_BYTES]

    def parameters(self, parties: Parties, length: int) -> Parameters:
        """Return the session's parameters, which sites and aggregator compute independently."""
        return Parameters.agree(
            self.session,
            Roster.of(dict(self.roster)),
            length,
            steps=self.steps,
            bits=self.bits,
            **(cape_choices(parties, self.noise) | {"lying": True}),
        )

    def signed(self, identity: Identity, nonce: bytes | None = None) -> Request:
        """Return it with a nonce, by default a fresh one, and the coordinator's signature."""
        if identity.public != self.coordinator:
            raise InvalidInput("a request must be signed by the coordinator that it names")
        fresh = replace(self, nonce=SecureStream().bytes(NONCE_BYTES) if nonce is None else nonce)
        return replace(fresh, signature=envelope.sign(identity, LABEL, fresh._body()))

    def pack(self) -> bytes:
        """Return the bytes that travel: an envelope."""
        return envelope.pack(self.coordinator, self.signature, self._body())

    @classmethod
    def open(cls, data: bytes | memoryview, trusted: Callable[[bytes], bool]) -> Request:
        """Read a request that a coordinator with a trusted key has signed.

        Raises:
            Denied: it is too large, its key is not trusted, its signature is invalid, or it cannot be read.
        """
        received = Envelope(data)
        body = received.open(LABEL, trusted)
        try:
            read = _bodies.decode(body)
            packed.require(read.study, values=_MOST_VALUES, depth=_DEPTH, text=MOST_STUDY)
            study = _studies.decode(read.study)
            packed.require(read.model, values=_MOST_VALUES, depth=_DEPTH, text=MOST_STUDY)
            model = _models.decode(read.model)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BadMessage):
            pass
        else:
            told = {name: getattr(read, name) for name in _FIELDS if name not in ("study", "model")}
            return cls(
                study=study, model=model, coordinator=received.key, signature=received.signature, **told
            )
        raise Denied(Code.REQUEST, "the request cannot be read; do both sides run the same version of cape?")

    def check(self) -> None:
        """Raise `InvalidInput` for numbers that are invalid whatever the study."""
        if len(self.run) != RUN_BYTES or len(self.coordinator) != KEY_BYTES:
            raise InvalidInput(f"run must be {RUN_BYTES} bytes, and coordinator {KEY_BYTES}")
        check.integer("stage", self.stage, least=0, most=MAX_STEPS - 1)
        check.integer("first", self.first, least=0, most=self.stage)
        check.integer("steps", self.steps, least=self.stage - self.first + 1, most=MAX_STEPS)
        if self.bits not in (32, 64):
            raise InvalidInput(f"bits must be 32 or 64, not {self.bits}")
        if len(self.earlier) > self.stage:
            raise InvalidInput("earlier must hold stages before this one only")
        if len(self.nonce) != NONCE_BYTES:
            raise InvalidInput(f"nonce must be {NONCE_BYTES} bytes")

    def _body(self) -> bytes:
        told = {name: getattr(self, name) for name in _FIELDS if name not in ("study", "model")}
        study, model = msgspec.msgpack.encode(self.study), msgspec.msgpack.encode(self.model)
        return msgspec.msgpack.encode(_Body(study=study, model=model, **told))


class _Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A request as it is signed: all fields except those on the envelope, the study packed."""

    study: Annotated[bytes, Meta(max_length=MOST_STUDY)]
    number: int
    roster: Annotated[tuple[tuple[str, bytes], ...], Meta(max_length=MAX_SITES)]
    run: bytes
    stage: int
    first: int
    steps: int
    earlier: Annotated[tuple[StageResult, ...], Meta(max_length=MAX_STEPS)]
    grid: Annotated[tuple[tuple[int, int], ...], Meta(max_length=MAX_STEPS)]
    bits: int
    issued: int
    expires: int
    heads: Annotated[tuple[Annotated[bytes, Meta(max_length=MOST_HEAD)], ...], Meta(max_length=MAX_SITES)]
    model: Annotated[bytes, Meta(max_length=MOST_STUDY)]
    trial: bool
    nonce: bytes


_FIELDS = _Body.__struct_fields__
_bodies: msgspec.msgpack.Decoder[_Body] = msgspec.msgpack.Decoder(_Body)
_models: msgspec.msgpack.Decoder[dict[str, Any] | None] = msgspec.msgpack.Decoder(dict[str, Any] | None)
_studies: msgspec.msgpack.Decoder[dict[str, Any]] = msgspec.msgpack.Decoder(dict[str, Any])


def make_request(
    study: Mapping[str, Any],
    number: int,
    session: AnalysisSession,
    *,
    roster: Roster,
    run: bytes,
    identity: Identity,
    earlier: Sequence[StageResult] = (),
    first: int | None = None,
    steps: int = 1,
    bits: int = 64,
    trial: bool = False,
    now: int | None = None,
    heads: Sequence[bytes] = (),
    model: Mapping[str, Any] | None = None,
) -> Request:
    """Return the signed request for the current stage of a coordinator's session; valid from now on."""
    calibration, _ = session.calibrate()
    issued = int(time.time()) if now is None else now
    pairs = tuple(zip(roster.names, roster.keys, strict=True))
    return Request(
        study=dict(study),
        number=number,
        roster=pairs,
        run=run,
        stage=session.stage,
        first=session.stage if first is None else first,
        steps=steps,
        earlier=tuple(earlier),
        grid=grid_of(calibration),
        bits=bits,
        coordinator=identity.public,
        issued=issued,
        expires=issued + VALID,
        heads=tuple(heads),
        model=None if model is None else dict(model),
        trial=trial,
    ).signed(identity)


def grid_of(calibration: Calibration) -> tuple[tuple[int, int], ...]:
    """Return the grid of each array, which determines its noise."""
    return tuple((step.bits, step.factor) for step in calibration.steps)


def _digest(label: str, *parts: Any) -> bytes:
    return sha256(f"cape {label} 1\0".encode() + msgspec.msgpack.encode(parts)).digest()
