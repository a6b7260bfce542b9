"""The desk behind a socket: one request struct for each method, and an answer or a sentence back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from cape import unix
from cape.errors import BadMessage, CapeError, InvalidInput
from cape.steward.admin import data
from cape.steward.admin.desk import Desk
from cape.steward.admin.hidden import hide
from cape.steward.folder import SiteFolder
from cape.steward.grant import story

__all__ = ["MOST_TEXT", "SOCKET", "Client", "handler", "serve"]

SOCKET = "admin.sock"
"""The socket's name in the site's folder, if it is not put elsewhere."""

MOST_TEXT = 1 << 20
"""Bytes of a study's or a policy's text."""

_MOST_REQUEST = MOST_TEXT + (1 << 16)
_WRONG = "something went wrong; see the site's log"
_Told = TypeVar("_Told")

_Name = Annotated[str, Meta(max_length=400)]
_Text = Annotated[str, Meta(max_length=MOST_TEXT)]
_Reason = Annotated[str, Meta(max_length=2000)]


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Status(_Request, frozen=True, tag="status"):
    pass


class _Mine(_Request, frozen=True, tag="mine"):
    pass


class _Inbox(_Request, frozen=True, tag="inbox"):
    pass


class _Decide(_Request, frozen=True, tag="decide"):
    approve: bool
    study: _Name
    coordinator: _Name | None
    reason: _Reason


class _Policy(_Request, frozen=True, tag="policy"):
    pass


class _TryPolicy(_Request, frozen=True, tag="try-policy"):
    text: _Text


class _SavePolicy(_Request, frozen=True, tag="save-policy"):
    text: _Text
    was: Annotated[str, Meta(max_length=64)]


class _Trust(_Request, frozen=True, tag="trust"):
    name: _Name
    key: _Name
    role: _Name
    coordinator: bool


class _Revoke(_Request, frozen=True, tag="revoke"):
    name: _Name
    coordinator: bool | None


class _Ledger(_Request, frozen=True, tag="ledger"):
    coordinator: _Name | None
    year: Annotated[int, Meta(ge=0, le=9999)] | None
    study: _Name | None
    lines: bool


class _Check(_Request, frozen=True, tag="check"):
    study: _Text | None
    coordinator: _Name | None
    where: _Name


class _Log(_Request, frozen=True, tag="log"):
    lines: Annotated[int, Meta(ge=0, le=100_000)]


_Any: TypeAlias = (
    _Status
    | _Mine
    | _Inbox
    | _Decide
    | _Policy
    | _TryPolicy
    | _SavePolicy
    | _Trust
    | _Revoke
    | _Ledger
    | _Check
    | _Log
)


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a method returned; or a code and a sentence, if it raised."""

    told: msgspec.Raw = msgspec.Raw(b"\xc0")
    code: str = ""
    sentence: str = ""


_requests: msgspec.msgpack.Decoder[_Any] = msgspec.msgpack.Decoder(_Any)
_answers: msgspec.msgpack.Decoder[_Answer] = msgspec.msgpack.Decoder(_Answer)
_encode = msgspec.msgpack.Encoder().encode


def serve(
    path: str | Path,
    folder: SiteFolder,
    stewards: frozenset[int] = frozenset(),
    *,
    linked: Callable[[], bool] = lambda: False,
) -> unix.Server:
    """Return a socket that answers stewards; it starts with `start()`, or as a context manager.

    The socket has mode 0600 in the site's own folder, which nobody else can enter, and 0660 elsewhere.

    Args:
        path: of the socket.
        folder: the site's.
        stewards: user ids that may connect, beside this process's own and root. Never that of the link.
        linked: says whether a link is connected.
    """
    own = os.geteuid()

    def admit(peer: unix.Peer) -> str | None:
        if peer.uid is not None and (peer.uid in (own, 0) or peer.uid in stewards):
            return None
        return f"user {peer.uid} is not a steward of this site"

    def refused(peer: unix.Peer, why: str) -> None:
        with contextlib.suppress(OSError):  # a full disk
            folder.log(f"refused a connection to the administrative socket: {why}")

    at_home = Path(path).resolve().parent == folder.path.resolve()
    return unix.Server(
        path,
        handler(Desk(folder, linked)),
        admit=admit,
        mode=0o600 if at_home else 0o660,
        most=_MOST_REQUEST,
        refused=refused,
    )


def handler(desk: Desk) -> Callable[[bytes | bytearray], bytes]:
    """Return what answers the frames of a socket. It never raises."""

    def handle(frame: bytes | bytearray) -> bytes:
        try:
            packed = _encode(_Answer(msgspec.Raw(_encode(_do(desk, _read(frame))))))
            if len(packed) <= unix.MOST_BYTES:
                return packed
            error = "the answer is too large; ask for one year, coordinator or study"
            return _encode(_Answer(code="input", sentence=error))
        except InvalidInput as error:
            return _encode(_Answer(code="input", sentence=hide(str(error))))
        except CapeError as error:
            return _encode(_Answer(code="failed", sentence=hide(str(error))))
        except Exception as error:  # its text may quote a cell
            with contextlib.suppress(OSError):  # a full disk
                desk.folder.log(f"a steward's request failed: {story(error)}")
            return _encode(_Answer(code="unexpected", sentence=_WRONG))

    return handle


def _read(frame: bytes | bytearray) -> _Any:
    try:
        return _requests.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    raise InvalidInput(
        "the request cannot be read, or is too long; do both sides run the same version of cape?"
    )


def _do(desk: Desk, asked: _Any) -> msgspec.Struct:
    match asked:
        case _Status():
            return desk.status()
        case _Mine():
            return desk.mine()
        case _Inbox():
            return desk.inbox()
        case _Decide():
            decide = desk.approve if asked.approve else desk.refuse
            return decide(asked.study, asked.coordinator, asked.reason)
        case _Policy():
            return desk.policy()
        case _TryPolicy():
            return desk.try_policy(asked.text)
        case _SavePolicy():
            return desk.save_policy(asked.text, asked.was)
        case _Trust():
            return desk.trust(asked.name, asked.key, asked.role, asked.coordinator)
        case _Revoke():
            return desk.revoke(asked.name, asked.coordinator)
        case _Ledger():
            return desk.ledger(asked.coordinator, asked.year, asked.study, asked.lines)
        case _Check():
            return desk.check(asked.study, asked.coordinator, asked.where)
        case _Log():
            return desk.log(asked.lines)


class Client:
    """A desk at the other end of a socket: the methods of `Desk`.

    >>> with Client("our-site/admin.sock") as desk:
    ...     desk.inbox()
    """

    def __init__(self, path: str | Path) -> None:
        self._socket = unix.Client(path)
        self._answered = False

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def status(self) -> data.Status:
        """As `Desk.status`."""
        return self._call(_Status(), data.Status)

    def mine(self) -> data.Mine:
        """As `Desk.mine`."""
        return self._call(_Mine(), data.Mine)

    def inbox(self) -> data.Inbox:
        """As `Desk.inbox`."""
        return self._call(_Inbox(), data.Inbox)

    def approve(self, study: str, coordinator: str | None = None, reason: str = "") -> data.Decided:
        """As `Desk.approve`."""
        return self._call(_Decide(True, study, coordinator, reason), data.Decided)

    def refuse(self, study: str, coordinator: str | None = None, reason: str = "") -> data.Decided:
        """As `Desk.refuse`."""
        return self._call(_Decide(False, study, coordinator, reason), data.Decided)

    def policy(self) -> data.Document:
        """As `Desk.policy`."""
        return self._call(_Policy(), data.Document)

    def try_policy(self, text: str) -> data.Tried:
        """As `Desk.try_policy`."""
        return self._call(_TryPolicy(text), data.Tried)

    def save_policy(self, text: str, was: str) -> data.Tried:
        """As `Desk.save_policy`."""
        return self._call(_SavePolicy(text, was), data.Tried)

    def trust(self, name: str, key: str, role: str, coordinator: bool) -> data.Trusted:
        """As `Desk.trust`."""
        return self._call(_Trust(name, key, role, coordinator), data.Trusted)

    def revoke(self, name: str, coordinator: bool | None = None) -> data.Trusted:
        """As `Desk.revoke`."""
        return self._call(_Revoke(name, coordinator), data.Trusted)

    def ledger(
        self,
        coordinator: str | None = None,
        year: int | None = None,
        study: str | None = None,
        lines: bool = False,
    ) -> data.Ledger:
        """As `Desk.ledger`."""
        return self._call(_Ledger(coordinator, year, study, lines), data.Ledger)

    def check(
        self, study: str | None = None, coordinator: str | None = None, where: str = "study.toml"
    ) -> data.Checked:
        """As `Desk.check`."""
        return self._call(_Check(study, coordinator, where), data.Checked)

    def log(self, lines: int = 100) -> data.Log:
        """As `Desk.log`."""
        return self._call(_Log(lines), data.Log)

    def _call(self, asked: _Any, kind: type[_Told]) -> _Told:
        try:
            frame = _encode(asked)
        except UnicodeEncodeError:
            raise InvalidInput("what is sent to a site must be text in UTF-8") from None
        if len(frame) > _MOST_REQUEST:
            raise InvalidInput(f"a text for a site may have at most {MOST_TEXT >> 10} kB")
        try:
            answer = _answers.decode(self._socket.call(frame))
            self._answered = True
            if not answer.code:
                return msgspec.msgpack.decode(answer.told, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise BadMessage(
                "the site's answer cannot be read; do both sides run the same version of cape?"
            ) from None
        except CapeError as error:
            if self._answered:
                raise
            raise CapeError(f"{error}; it answers the site's own user, root and its stewards") from None
        raise (InvalidInput if answer.code == "input" else CapeError)(answer.sentence)
