"""The tables of a consortium's sites, opened when they are first asked, and what is public of their sizes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from cape.blocks.holder import Holder
from cape.blocks.table import Table
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Schema, Site
from cape.data.identity import overlap
from cape.data.sources import identity_of
from cape.noise import SecureStream
from cape.noise.stream import KEY_BYTES

__all__ = ["SiteSet", "named_sites"]

_OPENING = threading.RLock()  # of no object: consortia are pickled and copied


class SiteSet:
    """Sites by name.

    Args:
        sites: name -> table.
        schema: the columns that all tables are read by.
        expected: how many rows people expect at each site.
        public: whether the numbers of rows are public.
        choices: the randomness by which rows of a person are chosen.
    """

    def __init__(
        self,
        sites: Mapping[str, Any],
        schema: Schema,
        expected: Any,
        *,
        public: bool,
        choices: SecureStream | None = None,
    ) -> None:
        self.sources = sites
        _refuse_twins(sites)
        self.expected = _sizes(expected, self.sources)
        self._schema, self._public = schema, public
        self._choices = choices or SecureStream()
        self._tables: dict[str, Table] = {}  # a plan opens none

    def table(self, name: str) -> Table | Holder:
        """Return a site's table."""
        source = self.sources[name]
        if isinstance(source, Holder):
            return source
        with _OPENING:  # two threads would both fork the stream
            if name not in self._tables:
                key = self._choices.fork(name).bytes(KEY_BYTES)
                self._tables[name] = Table(name, source, self._schema, key=key)
            return self._tables[name]

    def rows(self) -> dict[str, int]:
        """Return how many rows each site holds. Where that is public, none may be empty."""
        if self._public:
            for name in self.sources:
                self.table(name).require_rows()
        return {name: self.table(name).rows() for name in self.sources}

    def known(self, rows: dict[str, int]) -> dict[str, int]:
        """Return the sizes as everyone may know them: where they are private, what people expect."""
        return rows if self._public else dict.fromkeys(rows, 0) | (self.expected or {})

    def planned(self) -> dict[str, int] | None:
        """Return the sizes for a plan: what people expect, or what tables in memory show of themselves."""
        if self.expected or not self._public or self._schema.person is not None:
            return self.expected  # a table's length counts rows, not persons
        lengths = {name: _length(table) for name, table in self.sources.items()}
        found = {name: length for name, length in lengths.items() if length is not None}
        return found if len(found) == len(lengths) else None


def _refuse_twins(sources: Mapping[str, Any]) -> None:
    """Raise if two sites have the same rows: each person in them would be counted twice."""
    same = overlap({name: identity_of(source) for name, source in sources.items()})
    if same is not None:
        first, second, query = same
        what = "ask the same query" if query else "read the same file"
        raise InvalidInput(f"sites {first} and {second} {what}; a person's row must be at one site only")


def named_sites(sites: Any) -> dict[str, Any]:
    """Return tables by the names of their sites, from a mapping or a list of `Site`s."""
    if not isinstance(sites, Mapping):
        listed = list(sites) if isinstance(sites, Iterable) and not isinstance(sites, (str, bytes)) else []
        if not all(isinstance(site, Site) for site in listed):
            listed = []
        if len({site.name for site in listed}) < len(listed):
            raise InvalidInput("sites must have different names")
        sites = {site.name: site.table for site in listed}
    if not sites or not all(isinstance(name, str) and name for name in sites):
        raise InvalidInput("sites must map at least one name to a table, as in {'a': 'a.csv'}")
    for name in sites:
        if not name.isprintable() or len(name) > 200:
            raise InvalidInput(
                f"a site's name must have at most 200 characters, all printable, not {check.show(name)}"
            )
    return dict(sites)


def _length(table: Any) -> int | None:
    """Return the number of rows of a table in memory: what it says of itself, with no row read."""
    length = getattr(table, "num_rows", None)  # Arrow
    if length is None and hasattr(table, "columns"):
        shape = getattr(table, "shape", None)  # pandas, polars
        length = shape[0] if isinstance(shape, tuple) and shape else None
    return length if isinstance(length, int) else None


def _sizes(sizes: Any, sites: Mapping[str, Any]) -> dict[str, int] | None:
    if not sizes:
        return None
    if not isinstance(sizes, Mapping) or set(sizes) != set(sites):
        raise InvalidInput(f"sizes must give a number of rows for each of {', '.join(sites)}")
    return {name: check.integer(f"sizes[{name!r}]", rows, least=0) for name, rows in sizes.items()}
