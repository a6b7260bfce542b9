"""Sites with folders of their own, a coordinator, requests that a test can bend, and studies to submit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cape.coordinator import CoordinatorFolder, Event, Record, Relay, Submission
from cape.engine.session import AnalysisSession
from cape.secagg import Identity, Roster
from cape.site import Grant, Refusal, Request, SiteFolder, make_request, read
from cape.site.endpoint import SiteEndpoint
from cape.site.template import plain_policy
from cape.study import Study
from tests.channel import LocalChannel

SECRET = 71.90625  # a cell that stands in every table once, and may stand nowhere else
ROWS = {"a": 400, "b": 523, "c": 701, "d": 587}
NAMES = tuple(ROWS)
THREE = NAMES[:3]

SCHEMA: dict[str, Any] = {
    "age": [18, 90],
    "weight": {"low": 40, "high": 140, "missing": False},
    "sex": ["female", "male"],
    "ill": ["no", "yes"],
    "hiv": ["no", "yes"],
}
ANALYSES = (
    "count",
    "mean",
    "histogram",
    "linear-regression",
    "logistic-regression",
    "evaluate",
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


def document(**changes: Any) -> dict[str, Any]:
    """A study as a request carries it."""
    study: dict[str, Any] = {
        "name": "lungs",
        "description": "three clinics",
        "scheme": "cape",
        "epsilon": 1.0,
        "delta": 1e-6,
        "noise": "gaussian",
        "colluding": 1,
        "min_sites": 3,
        "neighbours": "replace-one",
        "schema": {
            "age": {"low": 18.0, "high": 90.0, "missing": True},
            "weight": {"low": 40.0, "high": 140.0, "missing": False},
            "sex": {"categories": ["female", "male"], "missing": True},
            "ill": {"categories": ["no", "yes"], "missing": True},
            "hiv": {"categories": ["no", "yes"], "missing": True},
        },
        "sites": list(THREE),
        "analyses": [{"kind": "mean", "columns": ["age", "weight"], "share": 0.25}],
    }
    return study | changes


def ask(
    study: dict[str, Any],
    roster: Roster,
    identity: Identity,
    *,
    number: int = 1,
    run: bytes | None = None,
    talk: AnalysisSession | None = None,
    **changes: Any,
) -> Request:
    """A signed request; `changes` are of its fields, and signed too."""
    talk = read(study, number).session() if talk is None else talk
    request = make_request(study, number, talk, roster=roster, run=run or os.urandom(16), identity=identity)
    return replace(request, **changes).signed(identity) if changes else request


class World:
    """All of it: three sites that give little, unless a test wants others."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = THREE,
        epsilon: tuple[float, float, float] = (1.0, 2.0, 3.0),  # of a release, a coordinator, all
    ) -> None:
        self.folder = folder
        self.coordinator = CoordinatorFolder.create(folder / "office")
        self.office, self.other = self.coordinator.identity, Identity()
        self.sites = {name: SiteFolder.create(folder / name) for name in names}
        self.identities = {name: site.identity for name, site in self.sites.items()}
        self.roster = Roster.of({name: identity.public for name, identity in self.identities.items()})
        draw = np.random.default_rng(5)
        for name, site in self.sites.items():
            text = plain_policy(
                name,
                SCHEMA,
                ANALYSES,
                columns=("age", "weight", "sex", "ill"),
                epsilon=epsilon,
                coordinators={"office": self.office.public, "other": self.other.public},
                peers={peer: key.public for peer, key in self.identities.items() if peer != name},
            )
            (site.path / "site.toml").write_text(text)
            self._rows(site.path / "rows.csv", draw, ROWS[name])
            self.coordinator.trust(site.card)
        self.members = {name: SiteEndpoint(site) for name, site in self.sites.items()}
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
        lines = [f"{a},{w:.1f},{s},{i},no" for a, w, s, i in zip(age, weight, sex, ill, strict=True)]
        path.write_text("\n".join(["age,weight,sex,ill,hiv", *lines]) + "\n")

    def study(
        self,
        *analyses: str,
        name: str = "lungs",
        epsilon: float = 8.0,
        min_sites: int = 3,
        scheme: str = "cape",
        neighbours: str = "replace-one",
    ) -> Study:
        sites = "\n".join(f'{site} = "{self.sites[site].path / "rows.csv"}"' for site in self.sites)
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
        return Submission(study, self.coordinator, self.relay, record or self.record(), **more)

    def edit(self, old: str, new: str, *names: str) -> None:
        """Change policies: site a's, unless others are named."""
        for name in names or ("a",):
            path = self.sites[name].path / "site.toml"
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new, 1))

    def hide_sizes(self, *names: str) -> None:
        """Let sites answer under add-remove alone: how many rows they hold is private."""
        self.edit('adjacency = ["replace-one"]', 'adjacency = ["add-remove"]', *(names or self.sites))
        self.edit("[schema]", "expected_rows = 300\n[schema]", *(names or self.sites))

    def restart(self, name: str) -> None:
        """A site's process dies and comes back."""
        self.sites[name] = SiteFolder(self.sites[name].path)
        self.channel.members[name] = SiteEndpoint(self.sites[name])

    def lines(self, name: str = "a") -> int:
        return len(self.sites[name].ledger.entries())

    @property
    def site(self) -> SiteFolder:
        """The one that most tests ask."""
        return self.sites["a"]

    def request(self, study: dict[str, Any] | None = None, **changes: Any) -> Request:
        """A request of the office."""
        return ask(study or document(), self.roster, self.office, **changes)

    def decide(self, request: Request | bytes) -> Grant | Refusal:
        """What site a says; through bytes, as it would come."""
        return self.site.decide(request.pack() if isinstance(request, Request) else request)

    def code(self, request: Request | bytes) -> str:
        """The code of a refusal, checked for what it may not say."""
        before = len(self.site.ledger.entries())
        found = self.decide(request)
        assert isinstance(found, Refusal), found
        assert len(self.site.ledger.entries()) == before, "a refusal is not charged"
        assert str(SECRET) not in found.sentence
        assert "400" not in found.sentence
        assert "Traceback" not in found.sentence
        assert "\n" not in found.sentence
        return str(found.code)

    def granted(self, request: Request, name: str = "a") -> Grant:
        """A grant."""
        found = self.sites[name].decide(request.pack())
        assert isinstance(found, Grant), found
        return found
