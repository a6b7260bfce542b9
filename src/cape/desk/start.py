"""Starts a desk: whose it is, its own folder, who may enter, and what runs beside its pages."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from cape.core.errors import InvalidInput
from cape.desk.access.apart import require_no_rows
from cape.desk.access.links import Links
from cape.desk.access.links import pages as link_pages
from cape.desk.access.people import Person
from cape.desk.access.sessions import Sessions
from cape.desk.access.trail import Trail
from cape.desk.app import Access, build
from cape.desk.page import Page, Reach
from cape.desk.server import Address, Log, Say, listen, run, state_folder
from cape.site.admin import Client
from cape.site.notify import Notify

__all__ = ["RUNNING", "Place", "Running", "find", "of_coordinator", "of_site", "serve"]

RUNNING = "desk.json"
"""The file in a desk's own folder that says where it listens, while it runs."""


@dataclass(frozen=True)
class Place:
    """Whose desk it is: its name, its pages, and the site's socket or the coordinator's kit."""

    name: str
    pages: tuple[Page, ...]
    socket: Path | None = None
    kit: Path | None = None

    @property
    def reach(self) -> Reach | None:
        """How pages reach the site, for a person's name."""
        socket = self.socket
        return None if socket is None else lambda person: Client(socket, person=person)


class Running(msgspec.Struct, frozen=True):
    """A desk that runs: its address, and whether it takes one-time links."""

    url: str
    links: bool


def of_site(socket: Path, *, may_read_rows: bool) -> Place:
    """Return the desk of the site at an administrative socket; refuse a user who can read its rows."""
    from cape.desk.site import PAGES

    with Client(socket, person="desk") as site:  # finds out now whether the daemon believes this user
        name = site.mine().name
    if not may_read_rows:
        require_no_rows(socket)
    return Place(name, PAGES, socket=socket)


def of_coordinator(kit: Path) -> Place:
    """Return the desk of a coordinator."""
    from cape.coordinator import CoordinatorFolder
    from cape.desk.coordinator import PAGES

    return Place(CoordinatorFolder(kit).card.name, PAGES, kit=kit)


def serve(
    place: Place,
    address: Address,
    home: Path,
    *,
    oidc: Path | None = None,
    idle: float = 1800,
    work: Path | None = None,
    notices: bool = False,
    say: Say = print,
) -> None:
    """Serve a desk until SIGTERM or Ctrl-C.

    Args:
        place: whose it is.
        address: where it listens.
        home: its own folder.
        oidc: the file that names a provider of logins; None for one-time links.
        idle: seconds after which somebody who does nothing is logged out.
        work: a coordinator's folder of drafts and submissions; by default in `home`.
        notices: send a site's notices, too.
        say: called with what the operator should see.
    """
    with ExitStack() as held:
        held.enter_context(_alone(state_folder(home)))
        listening = held.enter_context(listen(address.host, address.port))
        address = address.at(listening.getsockname()[1])
        access = Access(
            Trail(home / "trail.jsonl"),
            address.hosts,
            secure=address.secure,
            cookie=address.cookie,
            sessions=Sessions(idle),
            log=Log(home / "desk.log"),
        )
        first = _let_in(access, address, home, oidc)
        app = build(place.pages, access, place=place.name, site=place.reach, kit=place.kit)
        if place.kit is not None:
            from cape.desk.coordinator import state

            app.state.coordinator = state(place.kit, work or home / "work")
            held.callback(app.state.coordinator.close)
        if notices and place.socket is not None:
            held.enter_context(_notices(place.socket, access.log))
        held.enter_context(_noted(home, Running(address.base, oidc is None)))
        say(f"Desk of {place.name}, until Ctrl-C. Open: {first}")
        say(f"{access.trail}.")
        run(app, address, listening)
    say(f"Stopped. {access.trail}.")


def find(home: Path) -> Running:
    """Return the desk that runs with a folder; raise if none does."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((home / RUNNING).read_bytes(), type=Running)
    raise InvalidInput(
        f"no desk runs with the folder {home}; start `cape desk`, or name its folder with --state"
    )


def _let_in(access: Access, address: Address, home: Path, oidc: Path | None) -> str:
    """Give the desk its pages of login; return the address to open first."""
    if oidc is None:
        links = Links(home)
        access.login = link_pages(links)
        return address.base + links.make(Person("local", "admin"))
    from cape.desk.access.oidc import Logins
    from cape.desk.access.oidc import pages as login_pages
    from cape.desk.access.provider import Provider

    access.login = login_pages(Logins(Provider.load(oidc), address.base))
    return address.base


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Hold the desk's folder: two desks would break the chain of one trail."""
    handle = os.open(home / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidInput(
                f"another desk runs with the folder {home}; stop it, or name another folder with --state"
            ) from None
        yield
    finally:
        os.close(handle)


@contextmanager
def _noted(home: Path, running: Running) -> Iterator[None]:
    (home / RUNNING).write_bytes(msgspec.json.encode(running))
    try:
        yield
    finally:
        (home / RUNNING).unlink(missing_ok=True)


@contextmanager
def _notices(socket: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Send the site's notices meanwhile."""
    from cape.site.admin.notices import Notifier

    def reach() -> AbstractContextManager[Client]:
        return cast(AbstractContextManager[Client], _Cautious(Client(socket)))

    stop = threading.Event()
    thread = threading.Thread(target=Notifier(reach, log).follow, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_LAST_NOTICE)


_LAST_NOTICE = 5.0  # seconds


class _Cautious:
    """A site whose notices go by mail and webhook only.

    The policy can be edited at the desk. A command in it would let whoever is an admin there run any program
    as the desk's user, who states the names of all persons.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> _Cautious:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def notify(self) -> Notify:
        """Return the ways that are left."""
        return msgspec.structs.replace(self._client.notify(), command=None)
