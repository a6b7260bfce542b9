"""Keys that people exchange, and the coordinator's list of them: cards, and `sites.toml`, bent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from assurance.inputs.bend import bend, bend_bytes, pick, to_toml
from assurance.inputs.studies import written
from assurance.inputs.surface import Surface
from assurance.site_folder import OWN, make_folder, peer
from cape.coordinator import CoordinatorFolder
from cape.core.errors import CapeError
from cape.secagg import Identity
from cape.site.keyring import Card, public_text

__all__ = ["Cards", "Lost", "Offices", "card"]

_OFFICE = b"an office that is trusted".ljust(32, b".")
_NEW = Identity(b"somebody new".ljust(32, b"."))
_PRIVATE = "7c" * 32


class Lost(Exception):
    """A key that was trusted before is not any more, or another is that nobody trusted."""


def card(random: np.random.Generator) -> bytes:
    """Return a card, bent; now and then of somebody who is known, or a private key."""
    key = pick(random, [_NEW, _NEW, peer("b"), Identity(OWN), Identity(_OFFICE)])
    right: dict[str, Any] = {
        "name": pick(random, ["new", "new", "b", "a", "office", 'quo"te', "ä b", "a.b", "#", "[peers]"]),
        "key": public_text(key.public),
        "role": pick(random, ["site", "coordinator", ""]),
    }
    way = random.random()
    if way < 0.05:
        right["key"] = f"cape-private-ed25519:{_PRIVATE}"
    elif way < 0.6:
        bent = bend(right, random)
        right = bent if isinstance(bent, dict) else right
    data = to_toml(right).encode("utf-8", "surrogatepass")
    return bend_bytes(data, random, other=data) if way > 0.8 else data


def _office(path: Path) -> CoordinatorFolder:
    office = CoordinatorFolder.create(path, "office")
    (path / "identity.key").write_text(f"cape-private-ed25519:{_OFFICE.hex()}\n")
    for name in "bc":
        office.trust(Card(name, peer(name).public, "site"))
    return office


class Cards(Surface):
    """`cape site trust` and `cape deploy trust`: what was trusted stays, and one key more at most."""

    secrets = (_PRIVATE, _OFFICE.hex(), OWN.hex())

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._site, _ = make_folder(folder / "site", Identity(_OFFICE), epsilon=1.0)
        self._office = _office(folder / "office")
        self._policy, self._sites = folder / "site" / "site.toml", folder / "office" / "sites.toml"
        self._right = self._policy.read_bytes(), self._sites.read_bytes()

    def make(self, random: np.random.Generator) -> bytes:
        """Bend a card."""
        return card(random)

    def feed(self, given: bytes) -> None:
        """Trust it three times: as a site, as a coordinator, and at the coordinator."""
        path = self.folder / "new.card"
        path.write_bytes(given)
        if (self._policy.read_bytes(), self._sites.read_bytes()) != self._right:
            self._policy.write_bytes(self._right[0])
            self._sites.write_bytes(self._right[1])
        loaded = Card.load(path)
        first: CapeError | None = None
        ways: list[Callable[[], bool]] = [
            lambda: self._site.trust(loaded, coordinator=False),
            lambda: self._site.trust(loaded, coordinator=True),
            lambda: self._office.trust(loaded),
        ]
        for trust in ways:
            before = self._known()
            try:
                added = trust()
            except CapeError as error:
                added, first = False, first or error
            after = self._known()
            if not before.items() <= after.items() or len(after) - len(before) != added:
                raise Lost(f"{before} became {after}")
        if first is not None:
            raise first

    def _known(self) -> dict[tuple[str, str], bytes]:
        policy = self._site.policy
        return {
            (kind, name): key
            for kind, known in (("c", policy.coordinators), ("p", policy.peers), ("s", self._office.sites))
            for name, key in known.items()
        }


class Offices(Surface):
    """`sites.toml`, bent, then read, asked for a roster, and given one key more."""

    secrets = (_PRIVATE, _OFFICE.hex())

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._office = _office(folder / "office")
        self._file = folder / "office" / "sites.toml"

    def make(self, random: np.random.Generator) -> bytes:
        """Bend it; now and then somebody pastes a private key."""
        sites = {name: public_text(peer(name).public) for name in "bc"}
        if random.random() < 0.1:
            sites["c"] = f"cape-private-ed25519:{_PRIVATE}"
        right = {"coordinator": {"name": "office"}, "sites": sites}
        if random.random() < 0.2:
            text: str = to_toml(right) + pick(random, ["", "\n\n", "[sites]\n", "# [sites]", "sites.d = 1"])
            return text.encode()
        return written(random, right)

    def feed(self, given: bytes) -> None:
        """Read it; trust somebody; what was there must be there still."""
        self._file.write_bytes(given)
        office = self._office
        before = office.sites
        _ = office.name, office.card
        added = office.trust(Card("new", _NEW.public, "site"))
        after = office.sites
        if not before.items() <= after.items() or len(after) - len(before) != added:
            raise Lost(f"{before} became {after}")
        office.roster(["b", "new"])
