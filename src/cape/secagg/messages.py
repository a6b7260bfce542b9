"""The messages: one struct each, packed with msgspec, decoded strictly and with limits.

Every message names its version, run and round, and carries the transcript: a hash of the parameters and of
all lists so far. A party with another transcript has seen another roster, threshold, graph,
set of keys or list of sites, and refuses. A site signs the whole of each of its messages with its identity.

    round         aggregator -> site                       site -> aggregator
    1 advertise                                            Advert: a public key, and one for each step
    2 share       Adverts: everyone's                      Shares: sealed to each neighbour, commitments
    then, for each step,
    3 mask        Delivery: who shared, what is for you    Masked: the vector with its masks, a surplus tip
                  or, to a site that has it, Begin
    4 consistency Survivors: who is in the sum             Consent: a signature on that list
    5 unmask      Consents: everyone's                     Reveal: shares of seeds and keys, a surplus key
    (6 total      Total: the sum, for zero-sum noise)

A message of a step has the step's number, and its transcript is that of the setup with the number and the
lists of this step alone, not of earlier ones, which a site that missed them could not check. It need not: the
secrets of different steps are independent, so a lie about an earlier list helps with none.
Fields with a part for every step are those parts one after the other (`part`).

The aggregator does not sign: a site believes only what sites have signed.
A message is decoded once its size and number of values are possible for this run; a site's
signature is checked right after that. Decoding takes at most four times a message's bytes
(benchmarks/edge.py).
Decoders are fuzzed in tests/unit/secagg/test_fuzz.py.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from cape.core import packed
from cape.core.errors import BadMessage, Refused
from cape.secagg.keys import MAX_SITES, Identity, Verifier, digest
from cape.secagg.parameters import MAX_LENGTH, MAX_STEPS, RUN_BYTES, Parameters
from cape.secagg.shamir import SHARE_BYTES

__all__ = [
    "BOTH_BYTES",
    "ROUNDS",
    "SETUP_ROUNDS",
    "SIGNATURE_BYTES",
    "STEP_ROUNDS",
    "VERSION",
    "Advert",
    "Adverts",
    "Begin",
    "Consent",
    "Consents",
    "Delivery",
    "FromAggregator",
    "FromSite",
    "Masked",
    "Reveal",
    "Shares",
    "Survivors",
    "Total",
    "after_adverts",
    "after_masked",
    "after_shares",
    "at_step",
    "authenticate",
    "pack",
    "pack_signed",
    "part",
    "sealed_bytes",
    "unpack",
    "unpack_signed",
]

VERSION: Literal[3] = 3
SETUP_ROUNDS = ("advertise", "share")
STEP_ROUNDS = ("mask", "consistency", "unmask")
ROUNDS = SETUP_ROUNDS + STEP_ROUNDS
SIGNATURE_BYTES = 64
BOTH_BYTES = 2 * SHARE_BYTES  # a step's two shares: of the seed and of the masking key
_TAG_BYTES = 16
_SMALL = 1 << 10  # a consent, or an advertisement without its keys, with room to spare
_SLACK = 1 << 12
_LONGEST = 16  # bytes of a text: the name of a kind of message

Index = Annotated[int, Meta(ge=0, lt=MAX_SITES)]
Step = Annotated[int, Meta(ge=0, lt=MAX_STEPS)]
Indices = Annotated[tuple[Index, ...], Meta(max_length=MAX_SITES)]
Run = Annotated[bytes, Meta(min_length=RUN_BYTES, max_length=RUN_BYTES)]
Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
EachStep32 = Annotated[bytes, Meta(min_length=32, max_length=32 * MAX_STEPS)]
Sealed = Annotated[
    bytes, Meta(min_length=BOTH_BYTES + _TAG_BYTES, max_length=BOTH_BYTES * MAX_STEPS + _TAG_BYTES)
]
SealedList = Annotated[tuple[Sealed, ...], Meta(max_length=MAX_SITES)]
Share = Annotated[bytes, Meta(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
ShareList = Annotated[tuple[Share, ...], Meta(max_length=MAX_SITES)]
Signed = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES + 1, max_length=_SMALL)]
SignedList = Annotated[tuple[Signed, ...], Meta(max_length=MAX_SITES)]
SignedAdvert = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES + 1, max_length=_SMALL + 32 * MAX_STEPS)]
SignedAdverts = Annotated[tuple[SignedAdvert, ...], Meta(max_length=MAX_SITES)]
Surplus = Annotated[bytes, Meta(max_length=32)]
Words = Annotated[bytes, Meta(max_length=8 * MAX_LENGTH)]


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: Literal[3]
    run: Run
    transcript: Bytes32


class _FromSite(_Message, frozen=True):
    sender: Index


class Advert(_FromSite, frozen=True, tag="advert"):
    """A site's X25519 keys: one that shares are encrypted to, and for each step one to agree masks with."""

    round: Literal[1]
    encryption: Bytes32
    masking: EachStep32


class Adverts(_Message, frozen=True, tag="adverts"):
    """All signed advertisements, by ascending sender."""

    round: Literal[2]
    adverts: SignedAdverts


class Shares(_FromSite, frozen=True, tag="shares"):
    """All steps' key shares for each neighbour that advertised, ascending; commitments to the seeds."""

    round: Literal[2]
    commitments: EachStep32
    sealed: SealedList


class Delivery(_Message, frozen=True, tag="delivery"):
    """Who shared, and the key shares that this site's neighbours among them sealed for it, ascending.

    It starts the first step that a site answers; a site whose answer was lost gets it again.
    """

    round: Literal[3]
    step: Step
    sharers: Indices
    sealed: SealedList


class Begin(_Message, frozen=True, tag="begin"):
    """Asks for the vector of a step."""

    round: Literal[3]
    step: Step


class Masked(_FromSite, frozen=True, tag="masked"):
    """The tip of the surplus keys, if there is a surplus; the vector with its masks, little-endian words."""

    round: Literal[3]
    step: Step
    tip: Surplus
    words: Words


class Survivors(_Message, frozen=True, tag="survivors"):
    """The sites whose vectors are in the sum, and those that shared but are not in it."""

    round: Literal[4]
    step: Step
    survivors: Indices
    dropped: Indices


class Consent(_FromSite, frozen=True, tag="consent"):
    """A signature on the list of survivors: the transcript ends with it."""

    round: Literal[4]
    step: Step


class Consents(_Message, frozen=True, tag="consents"):
    """Signed consents of the survivors, by ascending sender."""

    round: Literal[5]
    step: Step
    consents: SignedList


class Reveal(_FromSite, frozen=True, tag="reveal"):
    """The key shares that a site holds of survivors' seeds and of dropped sites' masking keys, ascending.

    With them the key of the site's own surplus noise that is to be taken off, if there is any.
    """

    round: Literal[5]
    step: Step
    surplus: Surplus
    seeds: ShareList
    keys: ShareList


class Total(_Message, frozen=True, tag="total"):
    """The sum over the survivors, little-endian words. Only zero-sum noise needs it."""

    round: Literal[6]
    step: Step
    words: Words


FromSite: TypeAlias = Advert | Shares | Masked | Consent | Reveal
FromAggregator: TypeAlias = Adverts | Delivery | Begin | Survivors | Consents | Total

_decode_site: msgspec.msgpack.Decoder[FromSite] = msgspec.msgpack.Decoder(FromSite)
_decode_aggregator: msgspec.msgpack.Decoder[FromAggregator] = msgspec.msgpack.Decoder(FromAggregator)
pack: Callable[[FromSite | FromAggregator], bytes] = msgspec.msgpack.Encoder().encode


def after_adverts(transcript: bytes, adverts: tuple[bytes, ...]) -> bytes:
    """Return the transcript after the advertise round: who advertised which keys."""
    return digest("adverts", transcript, *adverts)


def after_shares(transcript: bytes, sharers: tuple[int, ...]) -> bytes:
    """Return the transcript after the share round: who shared."""
    return digest("sharers", transcript, _numbers(sharers))


def at_step(transcript: bytes, step: int) -> bytes:
    """Return the transcript at the start of a step: the setup's, and the step's number."""
    return digest("step", transcript, step.to_bytes(8, "big"))


def after_masked(transcript: bytes, survivors: tuple[int, ...], dropped: tuple[int, ...]) -> bytes:
    """Return the transcript after the masked round: who is in the sum and who is not."""
    return digest("survivors", transcript, _numbers(survivors), _numbers(dropped))


def part(fields: bytes, step: int, size: int = 32) -> bytes:
    """Return a step's part of a field that holds one for every step."""
    return fields[size * step : size * (step + 1)]


def sealed_bytes(steps: int) -> int:
    """Return the size of the key shares sealed for one neighbour: two a step, and a tag."""
    return BOTH_BYTES * steps + _TAG_BYTES


def pack_signed(message: FromSite, identity: Identity, verifier: Verifier | None = None) -> bytes:
    """Return a site's message on the wire: 64 bytes of signature, then the body."""
    body = pack(message)
    signed = _to_sign(body)
    signature = identity.sign(signed)
    if verifier:
        verifier.vouch(identity.public, signature, signed)
    return signature + body


def unpack_signed(data: bytes, parameters: Parameters) -> FromSite:
    """Return a site's message, with its form checked but not yet its signature (`authenticate`)."""
    vector = parameters.vector_bytes
    many = 32 * parameters.steps + parameters.sites * (sealed_bytes(parameters.steps) + BOTH_BYTES)
    _require_size(data, SIGNATURE_BYTES + 1, _SLACK + max(vector, many))
    body = memoryview(data)[SIGNATURE_BYTES:]
    try:
        packed.require(body, values=_values(parameters), depth=2, text=_LONGEST)
        return _decode_site.decode(body)
    except (BadMessage, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise BadMessage("a site's message cannot be decoded") from None


def authenticate(message: FromSite, data: bytes, parameters: Parameters, verifier: Verifier) -> FromSite:
    """Return the message if it is of this run and its sender, by the roster, signed it."""
    require_run(message, parameters)
    if message.sender >= parameters.sites:
        raise BadMessage(f"site number {message.sender} is not on the roster")
    key, name = parameters.roster.keys[message.sender], parameters.roster.names[message.sender]
    view = memoryview(data)
    verifier.check(key, bytes(view[:SIGNATURE_BYTES]), _to_sign(view[SIGNATURE_BYTES:]), name)
    return message


def unpack(data: bytes, parameters: Parameters) -> FromAggregator:
    """Return the aggregator's message, if it has the right form and is of this run."""
    vector = parameters.vector_bytes
    many = parameters.sites * (_SMALL + sealed_bytes(parameters.steps))
    _require_size(data, 1, _SLACK + max(vector, many))
    try:
        packed.require(data, values=_values(parameters), depth=2, text=_LONGEST)
        message = _decode_aggregator.decode(data)
    except (BadMessage, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise BadMessage("the aggregator's message cannot be decoded") from None
    require_run(message, parameters)
    return message


def require_run(message: FromSite | FromAggregator, parameters: Parameters) -> None:
    """Raise `Refused` unless the message belongs to this run."""
    if message.run != parameters.run:
        raise Refused(
            f"a message of run {message.run.hex()} came to run {parameters.run.hex()}: "
            "replayed, or meant for another run"
        )


def _to_sign(body: bytes | memoryview) -> bytes:
    return b"cape secagg 3 message\0" + sha256(body).digest()


def _values(parameters: Parameters) -> int:
    """Return how many values a message can have: two lists of sites, and a few fields."""
    return 2 * parameters.sites + 16


def _require_size(data: bytes, least: int, most: int) -> None:
    if not isinstance(data, bytes):
        raise BadMessage(f"a message must be bytes, not {type(data).__name__}")
    if not least <= len(data) <= most:
        raise BadMessage(f"a message must have {least} to {most} bytes, not {len(data)}")


def _numbers(numbers: tuple[int, ...]) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)
