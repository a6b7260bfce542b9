"""Whom the attacker plays against: four honest sites, each with its policy, ledger, key and rows; real code.

The attacker holds the wire between everybody. It has the key of a fifth site, which colludes, and in some
attacks that of the coordinator. `World.say` is the only way to a site; what comes back is written down: each
refusal by its code, each vector that leaves.
The sites are `Watched`: members that note, beside their work, which vector they computed for which grant, for
the referee alone (`assurance.attacks.verdict`). The attacker never looks there.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assurance.attacks.noise import stays
from cape.engine.session import StageResult
from cape.noise import SecureStream
from cape.secagg.keys import Identity, Roster
from cape.secagg.parameters import RUN_BYTES
from cape.secagg.surplus import SurplusKey
from cape.site import Grant, Refusal, Request, SiteEndpoint, SiteFolder, make_request, wire
from cape.site.template import plain_policy
from cape.study.document import read

__all__ = [
    "ABSENT",
    "COLLUDER",
    "DESCENT",
    "HISTOGRAM",
    "HONEST",
    "NAMES",
    "OTHER_HONEST",
    "SCHEMA",
    "Claim",
    "Given",
    "SourceSpec",
    "World",
    "new_run",
    "study",
]

Int64 = NDArray[np.int64]
SourceSpec = tuple[bytes, bytes, int]  # a coordinator's key, its run, and a stage of it

HONEST = ("a", "b", "c", "d")
COLLUDER = "e"
NAMES = (*HONEST, COLLUDER)
ABSENT = ("f", "g")  # trusted by all, and not there
OTHER_HONEST = 2  # what each site's policy demands in every sum
ROWS = 120

SCHEMA: dict[str, Any] = {
    "age": {"low": 18.0, "high": 90.0, "missing": True},
    "ill": {"categories": ["no", "yes"], "missing": True},
    "ward": {"categories": ["north", "south"], "missing": True},
}
HISTOGRAM: dict[str, Any] = {"kind": "histogram", "column": "age", "bins": 128, "share": 0.25}
DESCENT: dict[str, Any] = {
    "kind": "neural-network",
    "target": "ill",
    "features": ["ward"],  # of a number, the first step would also count the cells outside its bounds
    "hidden": [40],
    "epochs": 3,
    "share": 1.0,
}


def study(*analyses: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a study's document: five sites, of which one may collude and one may be lost."""
    told: dict[str, Any] = {
        "name": "lungs",
        "description": "",
        "scheme": "cape",
        "epsilon": 1.0,
        "delta": 1e-6,
        "noise": "gaussian",
        "colluding": 1,
        "min_sites": 4,
        "neighbours": "replace-one",
        "schema": SCHEMA,
        "sites": list(NAMES),
        "analyses": [dict(each) for each in analyses or (HISTOGRAM,)],
    }
    return told | changes


@dataclass(frozen=True)
class Given:
    """A vector that a site computed: for which grant, and what it was before surplus noise and masks.

    `surplus` is the key of all its surplus noise, as soon as the vector is masked.
    """

    grant: Grant
    vector: Int64
    surplus: SurplusKey | None = None

    @property
    def place(self) -> SourceSpec:
        """Which stage of whose run it was computed for."""
        request = self.grant.request
        return request.coordinator, request.run, request.stage

    def noisy(self, parts: int) -> Int64:
        """Return it with the first parts of its surplus noise."""
        if self.surplus is None:
            return self.vector
        return self.vector + stays(self.surplus, parts, self.vector.size)


@dataclass(frozen=True)
class Claim:
    """What the attacker says that it found out: the sum over honest sites, in a stage of a run.

    `left` has these sites, and how many parts of each one's surplus noise are still in the sum.
    """

    place: SourceSpec
    total: Int64
    left: Mapping[str, int]

    @property
    def sites(self) -> frozenset[str]:
        """Whose sum it is."""
        return frozenset(self.left)


class Watched(SiteEndpoint):
    """A site's end of the wire, of which the referee sees what it computes."""

    def __init__(self, folder: SiteFolder) -> None:
        super().__init__(folder)
        self.given: list[Given] = []

    def _vector(self, grant: Grant | Refusal) -> Int64 | Refusal:
        found = super()._vector(grant)
        if isinstance(grant, Grant) and not isinstance(found, Refusal):
            self.given.append(Given(grant, found.copy()))
        return found

    def _masked(self, session: Any, offer: Any, opening: bytes) -> bytes | Refusal:
        found = super()._masked(session, offer, opening)
        request = offer.request
        for number, given in enumerate(self.given):
            if given.place == (request.coordinator, request.run, request.stage) and given.surplus is None:
                self.given[number] = replace(given, surplus=session.machine._surplus)
        return found


class World:
    """All of it, in a folder; and what the attacker got."""

    def __init__(self, folder: Path) -> None:
        self.office, self.stranger = Identity(), Identity()
        self.folders = {name: SiteFolder.create(folder / name) for name in HONEST}
        self.identities = {name: site.identity for name, site in self.folders.items()}
        self.identities |= {name: Identity() for name in (COLLUDER, *ABSENT)}
        for number, (name, site) in enumerate(self.folders.items()):
            peers = {peer: key.public for peer, key in self.identities.items() if peer != name}
            text = plain_policy(
                name,
                SCHEMA,
                ("histogram", "neural-network"),
                other_honest=OTHER_HONEST,
                epsilon=(1.0, 2.0, 3.0),
                coordinators={"office": self.office.public},
                peers=peers,
            )
            (site.path / "site.toml").write_text(text)
            ages = [18.0 + (37 * row + 11 * number) % 720 / 10 for row in range(ROWS)]
            wards = ["north", "south"] * (ROWS // 2)
            lines = [
                f"{age:.1f},{'yes' if age > 50 else 'no'},{ward}"
                for age, ward in zip(ages, wards, strict=True)
            ]
            (site.path / "rows.csv").write_text("\n".join(["age,ill,ward", *lines]) + "\n")
        self.members = {name: Watched(site) for name, site in self.folders.items()}
        self.signed: set[bytes] = set()  # requests that the coordinator signed to be answered
        self.refused: Counter[str] = Counter()
        self.left: Counter[str] = Counter()  # vectors on the wire
        self.claims: list[Claim] = []
        self.won: list[str] = []  # what an attack saw itself, beyond what the referee looks for
        self.given: dict[str, list[Given]] = {name: member.given for name, member in self.members.items()}
        self._number = 0

    def roster(self, names: Iterable[str] = NAMES, **keys: Identity) -> Roster:
        """Return who takes part; `keys` puts other keys beside names."""
        return Roster.of({name: keys.get(name, self.identities[name]).public for name in names})

    def request(
        self,
        document: Mapping[str, Any] | None = None,
        *,
        number: int = 1,
        roster: Roster | None = None,
        run: bytes | None = None,
        stage: int = 0,
        told: int = 0,
        **changes: Any,
    ) -> Request:
        """Return what the coordinator signs. `told` is what it says that every earlier stage released."""
        document = study() if document is None else document
        talk, earlier = read(document, number).session(), []
        for _ in range(stage):
            total = np.full(talk.calibrate()[0].size, told, np.int64)
            earlier.append(StageResult.of(total, len(document["sites"]), ROWS * len(HONEST)))
            talk.tell(earlier[-1])
        made = make_request(
            document,
            number,
            talk,
            roster=roster or self.roster(document["sites"]),
            run=run or new_run(),
            identity=self.office,
            earlier=earlier,
        )
        return self.sign(replace(made, **changes))

    def sign(self, request: Request, by: Identity | None = None) -> Request:
        """Let the coordinator sign it, whatever it says; or another whom the sites trust."""
        signed = request.signed(by or self.office)
        if not signed.trial:
            self.signed.add(signed.pack())
        return signed

    def say(self, name: str, message: wire.ToSite) -> wire.FromSite:
        """Send a message to a site, as bytes, and write down what kind of answer comes."""
        self._number += 1
        data = wire.pack(msgspec.structs.replace(message, number=self._number))
        return self.note(name, self.members[name].handle(data))

    def at_once(self, name: str, messages: Sequence[wire.ToSite]) -> list[wire.FromSite]:
        """Send messages at the same moment, from as many threads."""
        ready = threading.Barrier(len(messages))

        def send(message: wire.ToSite) -> bytes:
            data = wire.pack(message)
            ready.wait()
            return self.members[name].handle(data)

        with ThreadPoolExecutor(len(messages)) as pool:
            return [self.note(name, answer) for answer in list(pool.map(send, messages))]

    def note(self, name: str, data: bytes) -> wire.FromSite:
        """Read what a site answered, and write down what kind it is."""
        answer = wire.unpack_from_site(data)
        if isinstance(answer, wire.Refused):
            self.refused[answer.code] += 1
        elif isinstance(answer, wire.Offered | wire.Carried) and _is_vector(answer.data):
            self.left[name] += 1
        return answer

    def ask(self, name: str, request: Request, opening: bytes = b"") -> bytes | None:
        """Send a request; return what the site answers, None if it refuses.

        One that the site has taken before is sent again as a coordinator who lies could: signed anew.
        """
        answer = self.say(name, wire.Ask(0, request.pack(), opening))
        taken = isinstance(answer, wire.Refused) and answer.code == "run"
        if taken and request.pack() in self.signed and request.coordinator == self.office.public:
            answer = self.say(name, wire.Ask(0, self.sign(request).pack(), opening))
        return answer.data if isinstance(answer, wire.Offered) else None

    def carry(self, name: str, session: bytes, data: bytes) -> bytes | None:
        """Send a message of secure aggregation; return what the site answers, None if it refuses."""
        answer = self.say(name, wire.Carry(0, session, data))
        return answer.data if isinstance(answer, wire.Carried) else None

    def must_refuse(self, name: str, session: bytes, data: bytes, what: str) -> None:
        """Send what must not be answered: an answer has won, even where nothing could be made of it."""
        if self.carry(name, session, data) is not None:
            self.won.append(f"{name} answered {what}")

    def change_policy(self, name: str, old: str, new: str) -> None:
        """Let a site's steward change a word of its policy."""
        path = self.folders[name].path / "site.toml"
        path.write_text(path.read_text().replace(old, new))

    def restart(self, name: str) -> None:
        """Let a site's process die and come back: what it held in memory is gone."""
        given = self.members[name].given
        self.folders[name] = SiteFolder(self.folders[name].path)
        self.members[name] = Watched(self.folders[name])
        self.members[name].given = self.given[name] = given

    def claim(self, request: Request, stage: int, total: Int64, left: Mapping[str, int]) -> None:
        """Write down a sum that the attacker says it found."""
        self.claims.append(Claim((request.coordinator, request.run, stage), total, left))


def new_run() -> bytes:
    """Return a name for a run."""
    return SecureStream().bytes(RUN_BYTES)


def _is_vector(data: bytes) -> bool:
    """Return whether a site's answer holds a vector: masked, or with its own noise."""
    try:
        message = msgspec.msgpack.decode(memoryview(data)[64:])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return True  # of a scheme without masks
    if isinstance(message, list) and message and isinstance(message[0], str):
        return message[0] == "masked"
    return True
