"""The site's daemon: the one process with rows, key, policy and ledger. It has no network.

Claim. Whoever controls the link (the process that faces the network) gets from this process only what anybody
on the network gets: answers of `SiteEndpoint.handle` to messages. It cannot read a file here, change the
policy, write the ledger, or occupy more memory than four of the largest messages with their copies.
Reason. The link runs as another user, so the operating system keeps it out of this process and its files; the
two share only a socket of bounded frames (`cape.core.unix`). What became of studies is told to a link only as
far as the answers that links have carried show it (`cape.site.traffic`). A link that runs as this user or
as root is refused: it could read the rows directly. This process imports no NVFLARE and opens no port.
Stewards have a socket of their own (`cape.site.admin`), which refuses the link's user.
Tested in tests/unit/site/test_daemon.py, and with two users and no network in tests/deploy/test_two_users.py.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from cape.analyses import KINDS
from cape.core.errors import InvalidInput
from cape.core.unix import Peer, Server
from cape.site.apart import require_apart
from cape.site.endpoint import SiteEndpoint
from cape.site.folder import SiteFolder

__all__ = ["Daemon", "link_socket", "make_place"]

_SOCKETS = Path("/run/cape")
Say = Callable[[str], None]


def link_socket(name: str) -> Path:
    """Return the default socket between the daemon and the link of a site."""
    return _SOCKETS / name / "link.sock"


class Daemon:
    """A site that listens to its link.

    >>> with Daemon(SiteFolder("our-site"), link_socket("cleveland"), say=print):
    ...     stop.wait()

    Args:
        folder: the site's folder.
        link: the socket to listen on.
        stewards: users who may decide for the site; none of them may run its link.
        link_may_read_rows: admit a link that runs as this user or as root. Code in it can then read the rows
            and the key, and nothing here can prevent that: for rehearsals on one machine.
        say: called with a line for every link that is turned away.
    """

    def __init__(
        self,
        folder: SiteFolder,
        link: Path,
        *,
        stewards: frozenset[int] = frozenset(),
        link_may_read_rows: bool = False,
        say: Say = lambda line: None,
    ) -> None:
        require_apart(None, folder.path)
        tuple(KINDS.values())  # imported now: what runs is one version, also if the package is replaced
        self.folder, self.link = folder, link
        self._trusting, self._stewards, self._say = link_may_read_rows, stewards, say
        self._endpoint = SiteEndpoint(folder)
        make_place(link)
        self._server = Server(link, self._handle, admit=self._admit, mode=0o660, refused=self._turned_away)

    @property
    def connected(self) -> bool:
        """Whether a link is there."""
        return self._server.connections > 0

    def start(self) -> None:
        """Answer from now on."""
        self._server.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.close()

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _handle(self, data: bytearray) -> bytes:
        """Answer a message; an empty one is a ping."""
        return self._endpoint.handle(data) if data else b""

    def _admit(self, peer: Peer) -> str | None:
        why = self._refusal(peer)
        if why is None and not self.connected:
            self.folder.traffic.forget()  # it was carried by others
        return why

    def _refusal(self, peer: Peer) -> str | None:
        if self._trusting:
            return None
        if peer.uid in self._stewards:
            why = "a steward, so code that runs in it could change the policy"
        elif peer.uid is None or peer.uid in (0, os.geteuid()):
            who = {None: "an unknown user", 0: "root"}.get(peer.uid, "the daemon's own user")
            why = f"{who}, so code that runs in it could read the rows"
        else:
            return None
        return f"the link runs as {why}; run `cape join` as a user of its own (see the README of the kit)"

    def _turned_away(self, peer: Peer, why: str) -> None:
        self.folder.log(f"turned a link away (process {peer.pid}): {why}")
        self._say(f"Turned a link away: {why}")


def make_place(socket: Path) -> None:
    """Make a socket's folder; refuse one in which other users could replace the socket."""
    folder = socket.parent
    try:
        folder.mkdir(mode=0o750, exist_ok=True)
        state = os.stat(folder)
    except OSError as error:
        raise InvalidInput(
            f"the folder of the socket {socket} cannot be made: {error.strerror}; make it yourself, owned by "
            "this user, or name another place with --link or --admin"
        ) from None
    open_to_others = state.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not state.st_mode & stat.S_ISVTX
    if state.st_uid not in (0, os.geteuid()) or open_to_others:
        raise InvalidInput(
            f"others may write to {folder}, the folder of the socket {socket.name}; name another place with "
            "--link or --admin"
        )
