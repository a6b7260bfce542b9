"""Files that a study names: a desk takes studies from a browser, and opens none of them.

Claim. After `refuse_named_files` nothing in a study's analyses has a process open a file; after
`without_sources` nothing in its [sites] has one look for a file or a pattern of files.
Reason. The keys that name files, the model of an evaluation and the checkpoint of a training, are looked for
at any depth. Of a site, only the number of rows is kept. Whether two sites name one file would otherwise say
whether there is such a file, and a pattern could be the whole disk.
Tested in tests/unit/study/test_named_files.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cape.core.errors import InvalidInput

__all__ = ["refuse_named_files", "without_sources"]


def refuse_named_files(document: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` if an analysis of a study file names a file."""
    for number, key in _named(document.get("analysis")):
        raise InvalidInput(
            f"[[analysis]] {number}: {key} names a file, which the desk does not open; use the command line, "
            + ("or give the model as a table" if key == "model" else "or leave it out")
        )


def without_sources(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a study file as if only the sites knew where their rows are."""
    sites = document.get("sites")
    if not isinstance(sites, Mapping):
        return dict(document)
    return {**document, "sites": {name: _rows(described) for name, described in sites.items()}}


def _rows(described: Any) -> Any:
    if isinstance(described, Mapping):
        return {key: value for key, value in described.items() if key == "rows"}
    return {} if isinstance(described, str) else described


def _named(analyses: Any) -> Iterator[tuple[int, str]]:
    """Yield the number of an analysis and its key that names a file."""
    for number, described in enumerate(analyses if isinstance(analyses, list) else (), 1):
        waiting = [described]
        while waiting:
            each = waiting.pop()
            if isinstance(each, list):
                waiting += each
            elif isinstance(each, Mapping):
                waiting += each.values()
                if isinstance(each.get("model"), str):
                    yield number, "model"
                if each.get("checkpoint") is not None:
                    yield number, "checkpoint"
