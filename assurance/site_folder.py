"""A site's folder to be asked, and somebody who asks: what requests, kills and secrets are tried on."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cape.secagg import Identity, Roster
from cape.site import Request, SiteFolder, make_request, read
from cape.site.template import plain_policy

__all__ = ["CELL", "OWN", "Asking", "make_folder", "peer", "private_of", "signed"]

_DAY = 86_400  # seconds

CELL = "71.90" + "625"  # stands in the table once, and may stand nowhere else

_SCHEMA: dict[str, Any] = {
    "age": {"low": 18.0, "high": 90.0, "missing": True},
    "weight": {"low": 40.0, "high": 140.0, "missing": False},
    "sex": {"categories": ["female", "male"], "missing": True},
    "ill": {"categories": ["no", "yes"], "missing": True},
}


class Asking:
    """A coordinator's side: makes requests that the folder's policy allows."""

    def __init__(self, office: Identity, own: bytes) -> None:
        self._office = office
        peers = {name: peer(name).public for name in "bc"}
        self._roster = Roster.of({"a": own, **peers})

    def study(self, analysis: dict[str, Any], description: str = "three clinics") -> dict[str, Any]:
        """Return a study with this one analysis, as a request carries it."""
        return {
            "name": "lungs",
            "description": description,
            "scheme": "cape",
            "epsilon": 1.0,
            "delta": 1e-6,
            "noise": "gaussian",
            "colluding": 1,
            "min_sites": 3,
            "neighbours": "replace-one",
            "schema": _SCHEMA,
            "sites": ["a", "b", "c"],
            "analyses": [analysis],
        }

    def request(self, analysis: dict[str, Any], run: bytes) -> Request:
        """Return the signed request for the first stage, of a study of its own: each states what it costs."""
        study = self.study(analysis, f"run {run.hex()}")
        talk = read(study, 1).session()
        return make_request(study, 1, talk, roster=self._roster, run=run, identity=self._office)


def signed(request: Request, office: Identity, random: np.random.Generator) -> Request:
    """Return a request signed so that the same seed gives the same bytes again on the same day."""
    today = int(time.time()) // _DAY * _DAY
    return replace(request, issued=today, expires=today + _DAY).signed(office, random.bytes(16))


def private_of(name: str) -> bytes:
    """Return the private key of another site."""
    return f"the key of site {name}".encode().ljust(32, b".")


def peer(name: str) -> Identity:
    """Return the key of another site."""
    return Identity(private_of(name))


OWN = b"the key of this site".ljust(32, b".")


def make_folder(
    path: Path, office: Identity, *, epsilon: float, private: bytes = OWN, name: str = "a"
) -> tuple[SiteFolder, Asking]:
    """Make a folder that answers the office; the same one each time. "b" and "c" are the other sites."""
    others = {"a": Identity(OWN).public, "b": peer("b").public, "c": peer("c").public}
    del others[name]
    folder = SiteFolder.create(path, name)
    (path / "identity.key").write_text(f"cape-private-ed25519:{private.hex()}\n")
    (path / "site.toml").write_text(
        plain_policy(
            name,
            _SCHEMA,
            ("count", "mean", "histogram", "k-means", "logistic-regression"),
            min_rows=10,
            epsilon=(epsilon,) * 3,
            coordinators={"office": office.public},
            peers=others,
        )
    )
    lines = [
        f"{20 + i},{45 + i},{'female' if i % 3 else 'male'},{'yes' if i % 4 else 'no'}" for i in range(60)
    ]
    lines[7] = f"{CELL},61,male,no"
    (path / "rows.csv").write_text("\n".join(["age,weight,sex,ill", *lines]) + "\n")
    return folder, Asking(office, Identity(private if name == "a" else OWN).public)
