"""Which edits there are, where each applies, and the source that it makes."""

from __future__ import annotations

import ast
import functools
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Misfit", "Mutant", "apply", "load", "names", "places"]

LISTS = Path(__file__).parent
_KEYS = ("name", "function", "old", "new", "suite")


class Misfit(Exception):
    """An edit that cannot be made as it is listed."""


@dataclass(frozen=True)
class Mutant:
    """One wrong edit.

    Attributes:
        name: what is wrong then, in words.
        function: the qualified name of the function or class that is edited.
        old, new: the text that stands there exactly once, and what takes its place.
        suite: arguments of pytest; at least one of these tests must fail.
        package: the list that it is on.
    """

    name: str
    function: str
    old: str
    new: str
    suite: str
    package: str = ""


def load(folder: Path = LISTS) -> list[Mutant]:
    """Return all mutants of all lists."""
    found: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        for number, entry in enumerate(tomllib.loads(path.read_text(encoding="utf-8"))["mutant"], 1):
            if sorted(entry) != sorted(_KEYS):
                raise Misfit(f"{path.name}, mutant {number}: must have exactly {', '.join(_KEYS)}")
            found.append(Mutant(**entry, package=path.stem))
    return found


def names(mutants: list[Mutant]) -> list[str]:
    """Return the names, of which none may stand for two."""
    found = [mutant.name for mutant in mutants]
    if len(set(found)) < len(found):
        raise Misfit(f"two mutants are called {next(name for name in found if found.count(name) > 1)!r}")
    return found


def places(source: str, function: str) -> list[tuple[int, int]]:
    """Return where, in lines from 0, definitions of this qualified name begin and end; overloads too."""
    return [(start, end) for name, start, end in _places(source) if name == function]


@functools.lru_cache(maxsize=1024)  # of a package's files, for each of many mutants
def _places(source: str) -> list[tuple[str, int, int]]:
    return [
        (name, min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1, node.end_lineno or 0)
        for name, node in _definitions(ast.parse(source), "")
    ]


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            yield prefix + node.name, node
            yield from _definitions(node, f"{prefix}{node.name}.")
        else:
            yield from _definitions(node, prefix)


def apply(mutant: Mutant, src: Path) -> tuple[Path, str]:
    """Return the file that is edited, and its text with the edit; raise `Misfit` if it does not fit once."""
    found: list[tuple[Path, str, bool]] = []
    defined = 0
    last = mutant.function.rsplit(".", 1)[-1]
    for path in sorted(src.rglob("*.py")):
        about = path.stat()
        source = _read(path, about.st_mtime_ns, about.st_size)
        if f"def {last}" not in source and f"class {last}" not in source:
            continue
        lines = source.splitlines(keepends=True)
        for start, end in places(source, mutant.function):
            defined += 1
            text = "".join(lines[start:end])
            count = text.count(mutant.old)
            if count == 1:
                edited = text.replace(mutant.old, mutant.new)
                whole = "".join(lines[:start]) + edited + "".join(lines[end:])
                found.append((path, whole, _meaning(mutant, path, edited) == _meaning(mutant, path, text)))
            elif count:
                raise Misfit(f"{mutant.name}: {mutant.old!r} stands {count} times in {mutant.function}")
    if len(found) != 1:
        where = (
            f"{mutant.function} is not defined" if not defined else f"{mutant.old!r} fits {len(found)} times"
        )
        raise Misfit(f"{mutant.name}: {where} in {src.name}; say again what is to be edited")
    path, whole, same = found[0]
    if same:
        raise Misfit(f"{mutant.name}: the edit changes nothing that is run")
    return path, whole


@functools.lru_cache(maxsize=1024)
def _read(path: Path, changed: int, size: int) -> str:
    """Return a file's text, read again when it was written again."""
    return path.read_text(encoding="utf-8")


def _meaning(mutant: Mutant, path: Path, definition: str) -> str:
    """Return what a definition does, whatever its layout."""
    try:
        return ast.dump(ast.parse(textwrap.dedent(definition)))
    except SyntaxError as error:
        raise Misfit(f"{mutant.name}: the edited {path.name} does not compile: {error.msg}") from None
