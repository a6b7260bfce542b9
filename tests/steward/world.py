"""Three sites with folders of their own, a coordinator, and requests that a test can bend."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cape.engine.session import AnalysisSession
from cape.secagg import Identity, Roster
from cape.steward import Grant, Refusal, Request, SiteFolder, make_request, read
from cape.steward.template import plain_policy

SECRET = 71.90625  # a cell that stands in every table once, and may stand nowhere else

SCHEMA: dict[str, Any] = {
    "age": [18, 90],
    "weight": {"low": 40, "high": 140, "missing": False},
    "sex": ["female", "male"],
    "ill": ["no", "yes"],
    "hiv": ["no", "yes"],
}
ANALYSES = ("count", "mean", "histogram", "logistic-regression", "k-means", "neural-network")

NAMES = ("a", "b", "c")


def document(**changes: Any) -> dict[str, Any]:
    """A study as a request carries it."""
    study: dict[str, Any] = {
        "name": "lungs",
        "description": "three clinics",
        "scheme": "cape",
        "epsilon": 1.0,
        "delta": 1e-6,
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
        "sites": list(NAMES),
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
    """All of it."""

    def __init__(self, folder: Path) -> None:
        self.office, self.other = Identity(), Identity()
        self.folders = {name: SiteFolder.create(folder / name) for name in NAMES}
        self.identities = {name: site.identity for name, site in self.folders.items()}
        self.roster = Roster.of({name: identity.public for name, identity in self.identities.items()})
        draw = np.random.default_rng(5)
        for name, site in self.folders.items():
            text = plain_policy(
                name,
                SCHEMA,
                ANALYSES,
                columns=("age", "weight", "sex", "ill"),
                epsilon=(1.0, 2.0, 3.0),
                coordinators={"office": self.office.public, "other": self.other.public},
                peers={peer: key.public for peer, key in self.identities.items() if peer != name},
            )
            (site.path / "site.toml").write_text(text)
            age = np.clip(draw.normal(50, 10, 400), 19, 89).round(1)
            age[0] = SECRET
            lines = [
                f"{a},{w:.1f},{s},{d},no"
                for a, w, s, d in zip(
                    age,
                    draw.uniform(45, 130, 400),
                    draw.choice(["female", "male"], 400),
                    np.where(draw.random(400) < (age - 18) / 72, "yes", "no"),
                    strict=True,
                )
            ]
            (site.path / "rows.csv").write_text("\n".join(["age,weight,sex,ill,hiv", *lines]) + "\n")

    @property
    def site(self) -> SiteFolder:
        """The one that most tests ask."""
        return self.folders["a"]

    def edit(self, old: str, new: str, name: str = "a") -> None:
        """Change a policy."""
        path = self.folders[name].path / "site.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def hide_sizes(self, *names: str) -> None:
        """Let sites answer under add-remove alone: how many rows they hold is private."""
        for name in names or NAMES:
            self.edit('adjacency = ["replace-one"]', 'adjacency = ["add-remove"]', name)
            self.edit("[schema]", "expected_rows = 300\n[schema]", name)

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
        found = self.folders[name].decide(request.pack())
        assert isinstance(found, Grant), found
        return found
