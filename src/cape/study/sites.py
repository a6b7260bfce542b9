"""The [sites] section of a study file: for each site a file, a database query, a cohort, or nothing.

A site on its own machine knows where its rows are; the study then has `name = {}`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta, structs

from cape.core import documents
from cape.core.documents import Count, Text
from cape.core.errors import DataError, InvalidInput
from cape.data.files import ARROW, PARQUET, SHEETS, STATISTICS, Csv, Excel, File
from cape.data.identity import Identity, database_file, found, of_files, of_query, overlap
from cape.data.omop import Omop
from cape.data.secrets import has_password, nameable, resolved

if TYPE_CHECKING:
    from cape.data import Database

__all__ = ["SourceSpec", "place_of", "read_sites", "require_person"]

_OF_ALL = ("null_values", "true", "false", "recode", "rename")
_OF_TEXT = ("separator", "columns", "encoding", "decimal", "thousands")
_Words = Annotated[list[str] | str | None, Meta(description="must be a text or a list of texts")]
_Sheet = Annotated[str | int | None, Meta(description="must be the name of a sheet, or its number from 1 on")]


class SourceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The source of a site's rows, here known to the site alone, and the expected number of rows."""

    rows: Count | None = None

    @property
    def where(self) -> tuple[str, ...]:
        """What identifies the rows: the resolved path, or the query and the connection."""
        return ()

    @property
    def identity(self) -> Identity:
        """Which rows they are, however a path is spelt; empty where only the site knows."""
        return frozenset()

    def files(self) -> list[str]:
        """Return the files that hold the rows, as far as they are on this machine and can be found."""
        return []

    @property
    def nulls(self) -> tuple[str, ...]:
        """The stated words for missing cells."""
        return ()

    @property
    def of_persons(self) -> bool:
        """Whether a person may have several rows there by the nature of the source."""
        return False

    @property
    def elsewhere(self) -> bool:
        """Whether only the site itself knows where its rows are."""
        return not self.where

    def source(self) -> str | File | Database | Omop:
        """Return a source for `cape.Consortium`; imports polars only now."""
        raise InvalidInput(
            "the study does not say where a site's rows are: `cape submit` asks the site itself; to run the "
            "study here, give a path"
        )


class _File(SourceSpec, frozen=True, kw_only=True):
    path: Text
    null_values: list[str] | None = None
    true: _Words = None
    false: _Words = None
    recode: dict[str, Any] | None = None
    rename: dict[str, Any] | None = None
    separator: str | None = None
    columns: list[str] | None = None
    has_header: bool | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    sheet: _Sheet = None

    def __post_init__(self) -> None:
        if "\0" in self.path:
            raise InvalidInput("path must name a file; it contains a zero byte")
        if self.has_header is not None and self.has_header == (self.columns is not None):
            raise InvalidInput("columns must be given when has_header is false, and only then")
        self.source()

    @property
    def where(self) -> tuple[str, ...]:
        return (self.path if "://" in self.path else str(Path(self.path).resolve()),)

    @property
    def identity(self) -> Identity:
        return of_files(self.path)

    def files(self) -> list[str]:
        return [] if "://" in self.path else found(os.path.abspath(self.path))

    @property
    def nulls(self) -> tuple[str, ...]:
        return tuple(self.null_values or ())

    def source(self) -> str | File:
        suffix, given = Path(self.path).suffix.lower(), self._given()
        if suffix in SHEETS:
            self._refuse(given, _OF_TEXT, "a text file")
            return Excel(self.path, **given) if given else self.path
        self._refuse(given, ("sheet",), "a spreadsheet")
        if suffix in (*PARQUET, *ARROW, *STATISTICS):
            self._refuse(given, _OF_TEXT, "a text file")
            return File(self.path, **given) if given else self.path
        return Csv(self.path, **given) if given or self.has_header else self.path

    def _given(self) -> dict[str, Any]:
        """Return the keys that the study file has, but for rows."""
        keys = (*_OF_ALL, *_OF_TEXT, "sheet")
        return {key: value for key in keys if (value := getattr(self, key)) is not None}

    def _refuse(self, given: Mapping[str, Any], keys: Sequence[str], what: str) -> None:
        for key in keys:
            if key in given:
                raise InvalidInput(f"{key} is a key of {what}, and {nameable(self.path)!r} is not one")


class _Query(SourceSpec, frozen=True, kw_only=True):
    query: str
    connection: Any
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.connection, str) or not self.connection.strip():  # it may hold a password
            raise InvalidInput("connection must be a text such as 'sqlite:///rows.db' or 'env:VA_DB'")
        self.source()

    @property
    def where(self) -> tuple[str, ...]:
        return self.query, self.connection

    @property
    def identity(self) -> Identity:
        return of_query(self.query, self.connection)

    def files(self) -> list[str]:
        return _database_files(self.connection)

    def source(self) -> Database:
        from cape.data import Database

        if self.timeout is None:
            return Database(self.query, self.connection)
        return Database(self.query, self.connection, self.timeout)


class _Omop(SourceSpec, frozen=True, kw_only=True):
    """A cohort, in which a person may have several entries: `[person]` must say how many count."""

    omop: Any
    cohort: int
    window: Any = None
    schema: str | None = None
    results: str | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.omop, str) or not self.omop.strip():  # it may hold a password
            raise InvalidInput("omop must be a text such as 'env:CLINIC_DB' or 'duckdb:///clinic.db'")
        self.source()

    @property
    def of_persons(self) -> bool:
        return True

    @property
    def where(self) -> tuple[str, ...]:
        return self.omop, str(self.cohort), str(self.results or self.schema)

    @property
    def identity(self) -> Identity:
        return self.source().identity

    def files(self) -> list[str]:
        return _database_files(self.omop)

    def source(self) -> Omop:
        keys = ("window", "schema", "results", "timeout")
        given = {key: value for key in keys if (value := getattr(self, key)) is not None}
        return Omop(self.omop, self.cohort, **given)


def _database_files(connection: str) -> list[str]:
    """Return the file of a database, if it is one, and that of what is not yet written into it."""
    try:
        path = database_file(resolved("", connection))
    except DataError:  # only where the rows are read is it known which database that is
        return []
    path = path and os.path.abspath(path)
    return [each for beside in ("", "-wal", ".wal") for each in found(path + beside)] if path else []


def read_sites(given: Mapping[str, Any], folder: Path) -> dict[str, SourceSpec]:
    """Return the source of each site's rows; paths are relative to `folder`."""
    sites = {}
    for name, described in given.items():
        with documents.at(f"[sites] {name}"):
            sites[name] = place_of(described, folder)
            _refuse_password(sites[name])
    if len(sites) < 2:
        raise InvalidInput("[sites] must name at least two sites")
    _refuse_twins(sites)
    without = [name for name, place in sites.items() if place.rows is None]
    if without and len(without) < len(sites):
        raise InvalidInput(
            f"[sites] gives rows, but not for {', '.join(without)}; give them for every site or for none"
        )
    return sites


def _refuse_password(place: SourceSpec) -> None:
    key = "omop" if isinstance(place, _Omop) else "connection"
    if isinstance(place, (_Query, _Omop)) and has_password(getattr(place, key)):
        raise InvalidInput(
            f'{key} must not hold a password, because everybody reads a study; write "env:NAME" for a '
            'variable of the environment that holds the URI, or "file:PATH" for a file with mode 0600'
        )


def require_person(person: Any, sources: Iterable[SourceSpec]) -> None:
    """Raise if a person may have several rows by the nature of a source, and nobody says how many count."""
    if person is None and any(source.of_persons for source in sources):
        raise InvalidInput(
            'a person may have several entries in a cohort; write id = "person", and rows = 1 or more'
        )


def _refuse_twins(sites: Mapping[str, SourceSpec]) -> None:
    """Raise if two sites have the same rows: each person in them would be counted twice."""
    same = overlap({name: place.identity for name, place in sites.items()})
    if same is not None:
        first, second, query = same
        what = "ask the same query" if query else "read the same file"
        raise InvalidInput(f"[sites] {first} and {second} {what}; a person's row must be at one site only")


def place_of(described: Any, folder: Path) -> SourceSpec:
    """Return the source of a site's rows from a path or a table; paths are relative to `folder`."""
    if isinstance(described, str):
        described = {"path": described}
    if not isinstance(described, dict):
        shown = documents.shown(described)
        raise InvalidInput(f'must be a path, or a table such as {{path = "a.csv"}}, not {shown}')
    if "omop" in described:
        cohort = documents.decode(described, _Omop)
        return structs.replace(cohort, omop=_uri(cohort.omop, folder))
    if "query" in described or "connection" in described:
        asked = documents.decode(described, _Query)
        return structs.replace(asked, connection=_uri(asked.connection, folder))
    if set(described) <= {"rows"}:
        return documents.decode(described, SourceSpec)
    file = documents.decode(described, _File)
    return structs.replace(file, path=_beside(file.path, folder))


def _beside(path: str, folder: Path) -> str:
    return path if "://" in path else str(folder / Path(path).expanduser())


def _uri(connection: str, folder: Path) -> str:
    kind, _, rest = connection.partition(":")
    if kind == "file" and not rest.startswith("//"):  # the secret's file, which is no part of the study
        return f"file:{folder.resolve() / Path(rest).expanduser()}"
    start = f"{kind}:///"
    relative = connection.startswith(start) and not connection.startswith(f"{start}/")
    if kind not in ("sqlite", "duckdb") or not relative:
        return connection
    return f"{start}{quote(str(folder.resolve()))}/{connection[len(start) :]}"
