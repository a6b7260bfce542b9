"""The [sites] of a study file: a path, a table that describes a text file or a database query, or neither.

A site on a machine of its own knows where its rows are; the study then says `name = {}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cape import check
from cape.errors import InvalidInput
from cape.study import places

if TYPE_CHECKING:
    from cape.data import Csv, Database

__all__ = ["TOO_FEW", "Place", "place_of", "read_sites"]

TOO_FEW = "[sites] must name at least two sites"

_LAYOUT = ("null_values", "columns", "separator", "has_header")
_FILE = ("path", "rows", *_LAYOUT)
_QUERY = ("query", "connection", "rows")


@dataclass(frozen=True)
class Place:
    """Where a site's rows are, and how many people expect there. Nothing is opened."""

    described: Mapping[str, Any]
    folder: Path
    rows: int | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether only the site itself knows where its rows are."""
        return not ({"path", "query"} & set(self.described))

    @property
    def where(self) -> tuple[str, ...]:
        """What tells it from other places: the file, links followed, or the query and the connection."""
        given = self.described
        if self.elsewhere:
            return ()
        if "query" in given:
            return given["query"], _uri(given["connection"], self.folder)
        path = _beside(given["path"], self.folder)
        return (path if "://" in path else str(Path(path).resolve()),)

    def source(self) -> str | Csv | Database:
        """Return what `cape.Consortium` takes; polars is loaded here and not before."""
        from cape.data import Csv, Database

        given = self.described
        if self.elsewhere:
            raise InvalidInput(
                "the study does not say where a site's rows are: `cape submit` asks the site itself; to run "
                "the study here, give a path"
            )
        if "query" in given:
            return Database(given["query"], _uri(given["connection"], self.folder))
        path = _beside(given["path"], self.folder)
        if not any(key in given for key in _LAYOUT):
            return path
        separator = "\t" if path.endswith(".tsv") else ","
        return Csv(
            path,
            null_values=given.get("null_values", ()),
            separator=given.get("separator", separator),
            columns=given.get("columns"),
        )


def read_sites(given: Mapping[str, Any], folder: Path) -> dict[str, Place]:
    """Return where each site's rows are, from what the file says; paths are seen from `folder`."""
    sites = {}
    for name, described in given.items():
        with places.at(f"[sites] {name}"):
            sites[name] = place_of(described, folder)
    if len(sites) < 2:
        raise InvalidInput(TOO_FEW)
    _refuse_twins(sites)
    without = [name for name, place in sites.items() if place.rows is None]
    if without and len(without) < len(sites):
        raise InvalidInput(
            f"[sites] gives rows, but not for {', '.join(without)}; give them for every site or for none"
        )
    return sites


def _refuse_twins(sites: Mapping[str, Place]) -> None:
    """Raise an error if two sites have the same rows: each person in them would be counted twice."""
    found: dict[tuple[str, ...], str] = {}
    for name, place in sites.items():
        if place.elsewhere:
            continue
        other = found.setdefault(place.where, name)
        if other != name:
            what = "ask the same query" if "query" in place.described else "read the same file"
            raise InvalidInput(f"[sites] {other} and {name} {what}; a person's row must be at one site only")


def place_of(described: Any, folder: Path) -> Place:
    """Return where a site's rows are, as a file describes it: a path, or a table with more about them."""
    if isinstance(described, str):
        described = {"path": described}
    if not isinstance(described, dict):
        raise InvalidInput(
            f'must be a path, or a table such as {{path = "a.csv"}}, not {check.show(described)}'
        )
    if "query" in described or "connection" in described:
        places.keys(described, _QUERY, ("query", "connection"))
        if not isinstance(described["connection"], str) or not described["connection"].strip():
            raise InvalidInput(
                "connection must be a text such as 'sqlite:///rows.db'"
            )  # it may hold a password
    elif not set(described) - {"rows"}:
        pass  # its rows are elsewhere
    else:
        places.keys(described, _FILE, ("path",))
        if "\0" in places.text("path", described["path"]):
            raise InvalidInput("path must be that of a file; it holds a zero byte")
        _check_header(described)
    rows = described.get("rows")
    place = Place(described, folder, None if rows is None else check.integer("rows", rows, least=1))
    if not place.elsewhere:
        place.source()
    return place


def _check_header(described: Mapping[str, Any]) -> None:
    header = described.get("has_header", "columns" not in described)
    if not isinstance(header, bool):
        raise InvalidInput(f"has_header must be true or false, not {check.show(header)}")
    if header == ("columns" in described):
        raise InvalidInput("columns must be given when has_header is false, and only then")


def _beside(path: str, folder: Path) -> str:
    return path if "://" in path else str(folder / Path(path).expanduser())


def _uri(connection: str, folder: Path) -> str:
    start = "sqlite:///"
    if not connection.startswith(start) or connection.startswith(f"{start}/"):
        return connection
    return f"{start}{quote(str(folder.resolve()))}/{connection[len(start) :]}"
