"""A coordinator's folder: its key, and the public keys of its sites."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from cape.core import documents
from cape.core.errors import InvalidInput
from cape.secagg.keys import Identity, Roster
from cape.site.keyring import (
    Card,
    load_identity,
    make_identity,
    new_folder,
    person,
    pin,
    read_keys,
    write_whole,
)

__all__ = ["CoordinatorFolder"]

KEY, SITES = "identity.key", "sites.toml"

_TEXT = """\
# The coordinator, and its sites: names and public keys. `cape deploy trust FILE` adds a site.
# Exchange keys over a channel that the aggregator does not control, and compare fingerprints by telephone.

[coordinator]
name = @NAME@

[sites]
"""


class CoordinatorFolder:
    """Everything that a coordinator owns.

    >>> folder = CoordinatorFolder("office")  # `create` makes one, with a new key
    >>> folder.trust(Card.load(Path("cleveland.card")))
    >>> folder.roster(["cleveland", "hungary"])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / SITES).is_file():
            raise InvalidInput(
                f"{str(self.path)!r} has no coordinator's key yet ({SITES} is missing); `cape deploy "
                "export-key` makes it"
            )

    @staticmethod
    def is_at(path: str | Path) -> bool:
        """Return whether a folder is a coordinator's already."""
        return (Path(path) / SITES).is_file()

    @classmethod
    def create(cls, path: str | Path, name: str | None = None) -> CoordinatorFolder:
        """Make a folder with a new key and no sites; overwrite nothing."""
        path = Path(path)
        called = new_folder(path, (KEY, SITES), name)
        make_identity(path / KEY)
        write_whole(path / SITES, _TEXT.replace("@NAME@", json.dumps(called, ensure_ascii=False)))
        return cls(path)

    @property
    def identity(self) -> Identity:
        """The coordinator's key."""
        return load_identity(self.path / KEY)

    @property
    def name(self) -> str:
        """What sites call it."""
        return self._read()[0]

    @property
    def card(self) -> Card:
        """What sites need of this coordinator."""
        return Card(self.name, self.identity.public, "coordinator")

    @property
    def sites(self) -> dict[str, bytes]:
        """The pinned keys, by name, as the file says now."""
        return self._read()[1]

    def trust(self, card: Card) -> bool:
        """Pin a site's key; return False if it was there."""
        if card.key == self.identity.public:
            raise InvalidInput("that is the coordinator's own key, not a site's")
        card.require("site")
        path = self.path / SITES
        return pin(path, "sites", self.sites, card, lambda text: _parse(text, path))

    def roster(self, names: Iterable[str]) -> Roster:
        """Return the sites of a study with their pinned keys, or raise an error that names those without."""
        names, known = list(names), self.sites
        missing = [name for name in names if name not in known]
        if missing:
            near = difflib.get_close_matches(missing[0], [name for name in known if name not in names], 1)
            raise InvalidInput(
                f"no key of {', '.join(map(repr, missing))} in {self.path / SITES}"
                + (f" (did you mean {near[0]!r}?)" if near else "")
                + "; get each one's file (`cape site export-key`) and run `cape deploy trust FILE`"
            )
        return Roster.of({name: known[name] for name in names})

    def _read(self) -> tuple[str, dict[str, bytes]]:
        path = self.path / SITES
        return _parse(documents.read(path, "file"), path)


class _Coordinator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    coordinator: _Coordinator
    sites: dict[str, Any]


def _parse(text: str, path: Path) -> tuple[str, dict[str, bytes]]:
    document = documents.parse(path, text)
    with documents.at(str(path)):
        file = documents.decode(document, _File, file=True)
        with documents.at("[coordinator]"):
            name = person("name", file.coordinator.name)
        return name, read_keys("sites", file.sites)
