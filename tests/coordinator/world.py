"""Four sites with folders of their own, a coordinator, and a channel that a test can break."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cape.coordinator import CoordinatorFolder, Event, Record, Relay, Submission
from cape.steward import SiteFolder, wire
from cape.steward.member import Member
from cape.steward.template import plain_policy
from cape.study import Study

SECRET = 71.90625  # a cell that stands in every table once, and may stand nowhere else
ROWS = {"a": 611, "b": 523, "c": 701, "d": 587}
NAMES = tuple(ROWS)

SCHEMA: dict[str, Any] = {
    "age": [18, 90],
    "weight": {"low": 40, "high": 140, "missing": False},
    "sex": ["female", "male"],
    "ill": ["no", "yes"],
}
ANALYSES = (
    "count",
    "mean",
    "histogram",
    "linear-regression",
    "logistic-regression",
    "k-means",
    "neural-network",
)

STUDY = """
[study]
name = "{name}"
[privacy]
epsilon = {epsilon}
delta = 1e-6
colluding = 1
min_sites = {min_sites}
scheme = "{scheme}"
neighbours = "{neighbours}"
[schema]
age = [18, 90]
weight = {{low = 40, high = 140, missing = false}}
sex = ["female", "male"]
ill = ["no", "yes"]
[sites]
{sites}
"""

MEAN = 'kind = "mean"\ncolumns = ["age", "weight"]'
HISTOGRAM = 'kind = "histogram"\ncolumn = "age"\nbins = 6'
LINEAR = 'kind = "linear-regression"\ntarget = "weight"\nfeatures = ["age"]'
LOGISTIC = 'kind = "logistic-regression"\ntarget = "ill"\nfeatures = ["age", "sex"]'
KMEANS = 'kind = "k-means"\ncolumns = ["age", "weight"]\nclusters = 2'
NETWORK = 'kind = "neural-network"\ntarget = "ill"\nfeatures = ["age"]\nhidden = [2]\nepochs = 4'
COUNT = 'kind = "count"'


class LocalChannel:
    """Members in this process. `silent` maps a site to the round from which on it says nothing.

    A site that is silent "request" does not even say hello. `bend` may change what comes back of a round.
    """

    ROUNDS = (
        "request",
        "hello",
        "review",
        "inquiry",
        "message",
        "advertise",
        "share",
        "mask",
        "consistency",
        "unmask",
    )

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.members = dict(members)
        self.silent: dict[str, str] = {}
        self.deaf: dict[str, str] = {}  # as silent, but nothing reaches the site either
        self.bend: Callable[[str, str, bytes], list[bytes | None]] | None = None
        self.left: dict[str, list[bytes]] = {}  # the vectors that have left each site

    def _is(self, which: Mapping[str, str], site: str, round_: str) -> bool:
        return site in which and self.ROUNDS.index(round_) >= self.ROUNDS.index(which[site])

    def exchange(self, round_: str, messages: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for site, message in messages.items():
            if self._is(self.deaf, site, round_):
                yield site, None
                continue
            answer = self.members[site].handle(message)
            self._note(site, answer)
            if self._is(self.silent, site, round_):
                yield site, None
                continue
            for each in self.bend(round_, site, answer) if self.bend else [answer]:
                yield site, each

    def _note(self, site: str, answer: bytes) -> None:
        """See that the ledger holds as many lines as vectors have left, the moment that one does."""
        vector = vector_in(wire.unpack_from_site(answer))
        if vector is None:
            return
        left = self.left.setdefault(site, [])
        assert vector not in left, "no vector leaves twice"
        left.append(vector)
        assert len(self.members[site].folder.ledger.entries()) >= len(left), "paid before it leaves"


def vector_in(answer: wire.FromSite) -> bytes | None:
    """Return the vector in an answer, masked or with its own noise, if there is one."""
    if not isinstance(answer, wire.Offered | wire.Carried) or not answer.data:
        return None
    try:
        message = msgspec.msgpack.decode(memoryview(answer.data)[64:])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        message = None
    if isinstance(message, list) and message and isinstance(message[0], str):
        return answer.data if message[0] == "masked" else None
    return answer.data  # of scheme "conventional"


class World:
    """All of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.office = CoordinatorFolder.create(folder / "office")
        self.sites = {name: SiteFolder.create(folder / name) for name in NAMES}
        keys = {name: site.identity.public for name, site in self.sites.items()}
        draw = np.random.default_rng(5)
        for name, site in self.sites.items():
            text = plain_policy(
                name,
                SCHEMA,
                ANALYSES,
                epsilon=(20.0, 20.0, 20.0),
                coordinators={"office": self.office.identity.public},
                peers={peer: key for peer, key in keys.items() if peer != name},
            )
            (site.path / "site.toml").write_text(text)
            self._rows(site.path / "rows.csv", draw, ROWS[name])
            self.office.trust(site.card)
        self.members = {name: Member(site) for name, site in self.sites.items()}
        self.channel = LocalChannel(self.members)
        self.events: list[Event] = []
        self.relay = Relay(self.channel, self.events.append)
        self._records = 0

    @staticmethod
    def _rows(path: Path, draw: np.random.Generator, rows: int) -> None:
        age = np.clip(draw.normal(50, 12, rows), 19, 89).round(1)
        weight = np.clip(60 + 0.5 * (age - 50) + draw.normal(0, 4, rows), 41, 139).round(1)
        half = draw.random(rows) < 0.5  # two clusters
        age, weight = np.where(half, np.clip(age - 12, 19, 89), age), np.where(half, weight, weight + 50)
        age[0] = SECRET
        sex = draw.choice(["female", "male"], rows)
        ill = np.where(draw.random(rows) < (age - 10) / 90, "yes", "no")
        lines = [f"{a},{w:.1f},{s},{i}" for a, w, s, i in zip(age, weight, sex, ill, strict=True)]
        path.write_text("\n".join(["age,weight,sex,ill", *lines]) + "\n")

    def study(
        self,
        *analyses: str,
        name: str = "lungs",
        epsilon: float = 8.0,
        min_sites: int = 3,
        scheme: str = "cape",
        neighbours: str = "replace-one",
    ) -> Study:
        sites = "\n".join(f'{site} = "{self.sites[site].path / "rows.csv"}"' for site in NAMES)
        text = STUDY.format(
            name=name, epsilon=epsilon, min_sites=min_sites, scheme=scheme, neighbours=neighbours, sites=sites
        )
        text += "".join(f"\n[[analysis]]\n{analysis}\n" for analysis in analyses)
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return Study.load(path)

    def record(self) -> Record:
        self._records += 1
        return Record(self.folder / f"record-{self._records}.jsonl")

    def submission(self, study: Study, record: Record | None = None, **more: Any) -> Submission:
        return Submission(study, self.office, self.relay, record or self.record(), **more)

    def edit(self, old: str, new: str, *names: str) -> None:
        """Change policies."""
        for name in names or NAMES:
            path = self.sites[name].path / "site.toml"
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new, 1))

    def hide_sizes(self) -> None:
        """Let sites answer under add-remove alone: how many rows they hold is private."""
        self.edit('adjacency = ["replace-one"]', 'adjacency = ["add-remove"]')
        self.edit("[schema]", "expected_rows = 500\n[schema]")

    def restart(self, name: str) -> None:
        """A site's process dies and comes back."""
        self.sites[name] = SiteFolder(self.sites[name].path)
        self.channel.members[name] = Member(self.sites[name])

    def lines(self, name: str = "a") -> int:
        return len(self.sites[name].ledger.entries())
