"""What comes over the network: bent messages to a real site, and bent calls and answers to a real relay.

An answer or a refusal comes back, which the other side can read; nothing is raised, and nothing that was not
foreseen happens inside, where it would be caught and logged as a failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assurance.inputs.bend import NASTY, bend, bend_bytes, pick
from assurance.inputs.surface import Surface
from assurance.site_folder import CELL, OWN, make_folder, private_of, signed
from cape.coordinator import calls
from cape.coordinator.relay import Relay
from cape.core.errors import CapeError
from cape.secagg import Identity
from cape.site import Request, wire
from cape.site.endpoint import SiteEndpoint

__all__ = ["Failed", "Members", "Relays"]

_PLAIN = [value for value in NASTY if not isinstance(value, int) or -(2**63) <= value < 2**64]
_ANALYSES: list[dict[str, Any]] = [
    {"kind": "mean", "columns": ["age", "weight"], "share": 0.25},
    {"kind": "histogram", "column": "sex", "share": 0.5},
    {"kind": "count", "share": 0.1, "where": {"sex": "female"}},
]
_MOST_LOG = 1 << 20


class Failed(Exception):
    """Something went wrong inside that nobody had foreseen; others only learn that there was a failure."""


class _Refused(CapeError):
    """It was refused, as it should be."""


class _World:
    """Three sites with folders, and an office that asks them."""

    def __init__(self, folder: Path) -> None:
        self.office = Identity(b"an office that is trusted".ljust(32, b"."))
        keys = {"a": OWN, "b": private_of("b"), "c": private_of("c")}
        made = {
            name: make_folder(folder / name, self.office, epsilon=1e6, private=key, name=name)
            for name, key in keys.items()
        }
        self.members = {name: SiteEndpoint(site) for name, (site, _) in made.items()}
        self.asking = made["a"][1]
        self._right = [self.asking.request(each, run=bytes(16)) for each in _ANALYSES]
        self._logs = {name: site.path / "site.log" for name, (site, _) in made.items()}

    def request(self, random: np.random.Generator, scheme: str = "cape", *, trial: bool = False) -> Request:
        """Return a right request of a study and a run of its own."""
        base: Request = pick(random, self._right)
        run = random.bytes(16)
        study = dict(base.study) | {"description": f"run {run.hex()}", "scheme": scheme}
        return signed(replace(base, run=run, study=study, trial=trial), self.office, random)

    def logged(self) -> str:
        """Return what was logged since the last time; raise if it was a failure."""
        said = ""
        for path in self._logs.values():
            if path.exists():
                said += path.read_text(encoding="utf-8", errors="replace")
                os.truncate(path, 0)
        for line in said.splitlines():
            if " failed: " in line:
                raise Failed(line[:300])
        return said


def _bent(data: bytes, random: np.random.Generator) -> bytes:
    """Return a packed message, bent in its bytes or in what it says."""
    if random.random() < 0.4:
        return bend_bytes(data, random, other=data)
    try:
        plain = msgspec.msgpack.decode(data)
        for _ in range(int(random.integers(1, 3))):
            plain = bend(plain, random, _PLAIN)
        return msgspec.msgpack.encode(plain)
    except (OverflowError, ValueError, UnicodeEncodeError, msgspec.MsgspecError, TypeError):
        return b"\xc0"


class _AtSites(Surface):
    """What is fed to real sites; what they log is looked at, too."""

    secrets = (CELL, OWN.hex())

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._world = _World(folder)
        self._said = ""

    def said(self) -> str:
        """Return the sites' logs, and what was refused."""
        return self._said


class Members(_AtSites):
    """One message to a site, out of any order."""

    def make(self, random: np.random.Generator) -> bytes:
        """Return a right message of some kind, bent, or with a bent request inside."""
        request, number = self._world.request(random), int(random.integers(1 << 40))
        inner = request.pack()
        if random.random() < 0.3:
            inner = _bent(inner, random)
        message: wire.ToSite = pick(
            random,
            [
                wire.Hello(number),
                wire.Review(number, tuple([inner] * int(random.integers(0, 3)))),
                wire.Ask(number, inner),
                wire.Ask(number, inner, random.bytes(20)),
                wire.Carry(number, request.session, random.bytes(int(random.integers(100)))),
                wire.Inquiry(number, request.run, 0, self._world.office.public).signed(self._world.office),
                wire.Watch(number, int(random.integers(1 << 40))),
            ],
        )
        data = wire.pack(message)
        return data if random.random() < 0.2 else _bent(data, random)

    def feed(self, given: bytes) -> None:
        """Hand it over, and read the answer as the aggregator would."""
        answer = wire.unpack_from_site(self._world.members["a"].handle(given))
        self._said = self._world.logged()
        if isinstance(answer, wire.Refused):
            self._said += str(answer)
            raise _Refused(str(answer))


class Relays(_AtSites):
    """A call to the aggregator, itself bent, or right while what sites are sent and answer is bent."""

    def make(self, random: np.random.Generator) -> tuple[bytes, int, float]:
        """Return a call, a seed of mischief on the way to the sites and back, and how much of it."""
        scheme = pick(random, ["cape", "cape", "cape", "conventional"])
        request = self._world.request(random, scheme)
        data, trial = request.pack(), self._world.request(random, scheme, trial=True).pack()
        inquiry = wire.Inquiry(0, request.run, 0, self._world.office.public).signed(self._world.office)
        sizes = {"mean": 2, "histogram": 2, "count": 1}
        size = sizes[request.study["analyses"][0]["kind"]]
        stage = calls.AskStage.of(dict.fromkeys("abc", data), size)
        asked: calls.Call = pick(
            random,
            [
                calls.AskHello(("a", "b", "nobody")),
                calls.AskReview(("a", "b", "c"), (data, trial)),
                calls.AskKnown(("a", "b"), inquiry),
                stage,
                stage,
                stage,
            ],
        )
        call, much = calls.pack(asked), float(pick(random, [0.0, 0.05, 0.2, 0.5]))
        return (call if random.random() < 0.5 else _bent(call, random)), int(random.integers(2**31)), much

    def show(self, given: tuple[bytes, int, float]) -> bytes:
        """Return the call after a line with the mischief."""
        return f"{given[1:]}\n".encode() + given[0]

    def feed(self, given: tuple[bytes, int, float]) -> None:
        """Call, and read the reply as a coordinator would."""
        data, seed, much = given
        channel = _Channel(self._world.members, np.random.default_rng(seed), much)
        reply = calls.unpack_reply(Relay(channel).call(data))
        self._said = self._world.logged()
        if isinstance(reply, calls.CallFailed):
            raise _Refused(reply.sentence)
        if isinstance(reply, calls.StageOutcome) and reply.failure is not None:
            raise _Refused(reply.failure)


class _Channel:
    """Real sites, and a network that bends, loses, repeats and swaps."""

    def __init__(self, members: Mapping[str, SiteEndpoint], random: np.random.Generator, much: float) -> None:
        self._members, self._random, self._much = members, random, much
        self._kept: list[bytes] = []

    def exchange(self, round_: str, messages: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        """Carry a round."""
        for site, message in messages.items():
            if site not in self._members:
                yield site, None
                continue
            handle = self._members[site].handle
            for there in self._mischief(message):
                for back in self._mischief(handle(there)):
                    yield site, back
            if self._random.random() < self._much / 4:
                yield site, None

    def _mischief(self, data: bytes) -> list[bytes]:
        random = self._random
        self._kept.append(data)
        if random.random() >= self._much:
            return [data]
        ways: list[Callable[[], list[bytes]]] = [
            list,
            lambda: [data, data],
            lambda: [_bent(data, random)],
            lambda: [_bent(data, random), data],
            lambda: [pick(random, self._kept)],
            lambda: [pick(random, self._kept), data],
        ]
        bent: list[bytes] = pick(random, ways)()
        return bent
