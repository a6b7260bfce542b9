"""Which rows a source names, however its path is spelt: two sites must not have the same.

A file is known by device and inode, so links, `..`, `~`, relative paths and patterns that match it are all
the same file. This holds on one machine: nobody compares files of sites on different machines.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

__all__ = ["Identity", "database_file", "found", "of_files", "of_query", "overlap"]

_IN_A_FILE = ("sqlite", "duckdb")

Identity = frozenset[tuple[object, ...]]
"""What rows come from: files, or a query and where it is asked. Empty where only a site knows it."""


def found(path: str) -> list[str]:
    """Return the files that a path or a pattern names, in order: none if there is no such file.

    A name that exists is taken as it is, also one with a sign of patterns in it, as in `[a].csv`.
    """
    if os.path.isfile(path):
        return [path]
    if not any(sign in path for sign in "*?["):
        return []
    return sorted(name for name in glob.glob(path, recursive=True) if os.path.isfile(name))


def of_files(path: str | Path) -> Identity:
    """Return the identity of all files that a path or a pattern names; they need not exist yet."""
    text = str(path)
    if "://" in text:
        return frozenset({("address", text)})
    try:
        text = str(Path(text).expanduser())
        return frozenset(_file(name) for name in found(text) or [text])
    except (OSError, ValueError, RuntimeError):  # no path at all: said when it is opened
        return frozenset({("path", text)})


def database_file(uri: str) -> str | None:
    """Return the path of a database that is one file; None of one behind a server, or in memory."""
    kind, _, path = uri.partition(":///")
    return unquote(path.partition("?")[0]) or None if kind in _IN_A_FILE else None


def of_query(query: str, connection: object) -> Identity:
    """Return the identity of a query's rows: what is asked, and the file or the address of the database."""
    asked = " ".join(query.split()).rstrip("; ")
    if not isinstance(connection, str):
        return frozenset({("query", asked, id(connection))})
    _, _, path = connection.partition(":///")
    try:
        where = _file(unquote(path.partition("?")[0])) if path else ("address", connection)
    except (OSError, ValueError):
        where = ("address", connection)
    return frozenset({("query", asked, where)})


def _file(path: str) -> tuple[object, ...]:
    try:
        known = os.stat(path)
    except FileNotFoundError:
        return "path", os.path.realpath(path)
    return "file", known.st_dev, known.st_ino


def overlap(identities: Mapping[str, Identity]) -> tuple[str, str, bool] | None:
    """Return two names with rows in common and whether these come from a query, or None."""
    known: dict[tuple[object, ...], str] = {}
    for name, identity in identities.items():
        for each in identity:
            other = known.setdefault(each, name)
            if other != name:
                return other, name, each[0] == "query"
    return None
