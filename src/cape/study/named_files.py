"""Files that the analyses of a study name: a desk takes studies from a browser, and opens none of them.

Claim. After `refuse_named_files` nothing in a study's analyses has a process open a file.
Reason. The keys that name files, the model of an evaluation and the checkpoint of a training, are looked for
at any depth. Tested in tests/study/test_named_files.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cape.errors import InvalidInput

__all__ = ["refuse_named_files"]


def refuse_named_files(document: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` if an analysis of a study file names a file."""
    for number, key in _named(document.get("analysis")):
        raise InvalidInput(
            f"[[analysis]] {number}: {key} names a file, which the desk does not open; use the command line, "
            + ("or give the model as a table" if key == "model" else "or leave it out")
        )


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
