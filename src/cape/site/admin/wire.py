"""The desk behind a socket: a request names a public method of `Desk`; the reply is its result or an error.

A method's arguments are decoded into the types that it declares, with their bounds. A request may state the
name of the person who asks, if the user who runs the desk sends it; for all others the kernel says who it is
(`cape.site.persons`).
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from cape.core import unix
from cape.core.errors import BadMessage, CapeError, InvalidInput
from cape.site.admin.data import MOST_TEXT, Name
from cape.site.admin.desk import Desk, at_desk
from cape.site.admin.hidden import scrub
from cape.site.decide.grant import story
from cape.site.folder import SiteFolder
from cape.site.persons import Person

if TYPE_CHECKING:
    from cape.site.admin.desk import Desk as _Methods
else:
    _Methods = object

__all__ = ["SOCKET", "Client", "handler", "serve"]

SOCKET = "admin.sock"
"""The default name of the socket in the site's folder."""

_PERSON = "by_person"
_MOST_REQUEST = MOST_TEXT + (1 << 16)
_WRONG = "something went wrong; see the site's log"


def _request(name: str, method: Callable[..., Any]) -> type[msgspec.Struct]:
    """Return the request struct of a method: its arguments, with their bounds."""
    hints = get_type_hints(method, include_extras=True)
    fields: list[Any] = [
        (each.name, hints[each.name], *(() if each.default is each.empty else (each.default,)))
        for each in list(inspect.signature(method).parameters.values())[1:]
    ]
    fields.append((_PERSON, Name | None, None))
    return msgspec.defstruct(name, fields, frozen=True, tag=name, forbid_unknown_fields=True)


_METHODS = {
    name: method
    for name, method in vars(Desk).items()
    if inspect.isfunction(method) and not name.startswith("_")
}
_REQUESTS = {name: _request(name, method) for name, method in _METHODS.items()}
_RESULTS = {name: get_type_hints(method)["return"] for name, method in _METHODS.items()}


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a method; or a code and a sentence, if it raised."""

    told: msgspec.Raw = msgspec.Raw(b"\xc0")
    code: str = ""
    sentence: str = ""


_requests: msgspec.msgpack.Decoder[msgspec.Struct] = msgspec.msgpack.Decoder(reduce(or_, _REQUESTS.values()))
_answers: msgspec.msgpack.Decoder[_Answer] = msgspec.msgpack.Decoder(_Answer)
_encode = msgspec.msgpack.Encoder().encode


def serve(
    path: str | Path,
    folder: SiteFolder,
    stewards: frozenset[int] = frozenset(),
    *,
    desk: int | None = None,
    linked: Callable[[], bool] = lambda: False,
) -> unix.Server:
    """Return a server for stewards; it starts with `start()`, or as a context manager.

    The socket has mode 0600 in the site's own folder, which no other user can enter, and 0660 elsewhere.

    Args:
        path: of the socket.
        folder: the site's folder.
        stewards: user ids that may connect, besides this process's own and root. Never that of the link.
        desk: the user id of the desk, which may connect and state who asks; None if there is none.
        linked: returns whether a link is connected.
    """
    own = os.geteuid()

    def admit(peer: unix.Peer) -> str | None:
        if peer.uid is not None and (peer.uid in (own, 0, desk) or peer.uid in stewards):
            return None
        return f"user {peer.uid} is not a steward of this site"

    def refused(peer: unix.Peer, why: str) -> None:
        with contextlib.suppress(OSError):  # a full disk
            folder.log(f"refused a connection to the administrative socket: {why}")

    shared = Desk(folder, linked)

    def handle_of(peer: unix.Peer) -> Callable[[bytearray], bytes]:
        of_desk = peer.uid is not None and peer.uid == desk
        return handler(shared, Person.of_user(peer.uid), may_state=of_desk, reserved=of_desk and desk != own)

    at_home = Path(path).resolve().parent == folder.path.resolve()
    return unix.Server(
        path,
        handle_of=handle_of,
        admit=admit,
        mode=0o600 if at_home else 0o660,
        most=_MOST_REQUEST,
        refused=refused,
    )


def handler(
    desk: Desk, user: Person | None = None, *, may_state: bool = False, reserved: bool = False
) -> Callable[[bytes | bytearray], bytes]:
    """Return a function that answers frames of a user, who may state other names or not. It never raises.

    `reserved` says that a part of the policy cannot be changed, whoever is stated: see the module `reserved`.
    """
    user = user or Person.of_user(os.geteuid())

    def handle(frame: bytes | bytearray) -> bytes:
        try:
            asked = _read(frame)
            person = _who(getattr(asked, _PERSON), user, may_state)
            told = _do(at_desk(desk, person, reserved=reserved), asked)
            packed = _encode(_Answer(msgspec.Raw(_encode(told))))
            if len(packed) <= unix.MOST_BYTES:
                return packed
            error = "the answer is too large; ask for fewer lines"
            return _encode(_Answer(code="input", sentence=error))
        except InvalidInput as error:
            return _encode(_Answer(code="input", sentence=scrub(str(error))))
        except CapeError as error:
            return _encode(_Answer(code="failed", sentence=scrub(str(error))))
        except Exception as error:  # its text may quote a cell
            with contextlib.suppress(OSError):  # a full disk
                desk.folder.log(f"a steward's request failed: {story(error)}")
            return _encode(_Answer(code="unexpected", sentence=_WRONG))

    return handle


def _read(frame: bytes | bytearray) -> msgspec.Struct:
    try:
        return _requests.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    raise InvalidInput(
        "the request cannot be read, or is too long; do both sides run the same version of cape?"
    )


def _who(stated: str | None, user: Person, may_state: bool) -> Person:
    """Return who asks; raise if a name is stated by anybody but the desk."""
    if stated is None:
        return user
    if not may_state:
        raise InvalidInput(
            f"{user} may not say who decides: only the user of the desk may, whom the site's operator names "
            "with `cape site serve --desk USER`"
        )
    return Person.at_desk(stated)


def _do(desk: Desk, asked: msgspec.Struct) -> object:
    arguments = {name: getattr(asked, name) for name in asked.__struct_fields__ if name != _PERSON}
    return getattr(desk, type(asked).__name__)(**arguments)


class Client(_Methods):
    """A desk at the other end of a socket: the methods of `Desk`, with the same arguments and results.

    >>> with Client("our-site/admin.sock") as desk:
    ...     desk.inbox()

    Args:
        path: of the socket.
        person: who asks, stated by the desk; None for this process's own user.
    """

    def __init__(self, path: str | Path, person: str | None = None) -> None:
        try:
            self._socket = unix.Client(path)
        except CapeError as error:
            raise CapeError(f"{error}. Is the site's daemon running (`cape site serve`)?") from None
        self._stated = {} if person is None else {_PERSON: person}
        self._answered = False

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    @property
    def owner(self) -> int | None:
        """The user id of the daemon, as the kernel reports it."""
        return self._socket.peer.uid

    def __getattr__(self, name: str) -> Any:
        if name not in _REQUESTS:
            raise AttributeError(f"a desk has no method {name!r}")
        return partial(self._call, name)

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        try:
            frame = _encode(_REQUESTS[name](*arguments, **named, **self._stated))
        except UnicodeEncodeError:
            raise InvalidInput("a text for a site must be valid UTF-8") from None
        if len(frame) > _MOST_REQUEST:
            raise InvalidInput(f"a text for a site may have at most {MOST_TEXT >> 10} kB")
        try:
            answer = _answers.decode(self._socket.call(frame))
            self._answered = True
            if not answer.code:
                return msgspec.msgpack.decode(answer.told, type=_RESULTS[name])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise BadMessage(
                "the site's answer cannot be read; do both sides run the same version of cape?"
            ) from None
        except CapeError as error:
            if self._answered:
                raise
            raise CapeError(f"{error}; it answers the site's own user, root and its stewards") from None
        raise (InvalidInput if answer.code == "input" else CapeError)(answer.sentence)
