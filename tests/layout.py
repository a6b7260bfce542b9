"""The packages in their order, from which the map in CONTRIBUTING.md and the test of layers are made.

`python -m tests.layout` prints the map, and `python -m tests.layout --write` puts it into CONTRIBUTING.md.
What the map says of a package is the beginning of its docstring: a paragraph on what lives there, and one
that begins with "Not here:".
"""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cape"

# Each may import what stands before it; with each, the packages in it, which are no layers among themselves.
LAYERS: dict[str, tuple[str, ...]] = {
    "core": (),
    "stats": (),
    "show": (),
    "privacy": (),
    "noise": (),
    "secagg": (),
    "data": ("expressions", "databases"),
    "blocks": ("sql", "clipped"),
    "engine": ("schemes",),
    "learning": (),
    "analyses": (
        "describe",
        "compare",
        "tables",
        "regression",
        "survival",
        "sites",
        "evaluate",
        "synthetic",
    ),
    "synthetic": (),
    "study": (),
    "site": ("decide", "ledger", "admin"),
    "coordinator": (),
    "app": (),
    "flare": (),
    "torch": (),
    "sklearn": (),
    "audit": (),
    "desk": ("access", "coordinator", "site"),
    "cli": ("site", "deploy", "demo"),
}

BESIDE = {
    "tests/unit/": "What `make test` runs; its folders are named after the packages.",
    "tests/*/": "Suites that need more, each with a target in the Makefile: torch, databases, deploy, "
    "desk, browser, image.",
    "assurance/": "Attacks on the product: bad input, load, kills, mutants, the protocol, a deployment. "
    "Writes docs/assurance.md.",
    "benchmarks/": "Measurements: speed, noise, plans, coverage of intervals. One file per subject; "
    "names of bars are stable.",
    "reproduction/": "The paper's figures and table, drawn again; its data sets; methods of the literature.",
    "image/": "The image of a deployment.",
    ".ci/": "What has to pass before a change lands, and in which order.",
}

START, END = "```\nsrc/cape/\n", "```\n"
WIDTH, COLUMN, STEP = 112, 18, 2


def packages() -> list[str]:
    """Return the folders (and modules) of `src/cape` in the order of the map, such as "site/decide"."""
    return [
        path for layer, inside in LAYERS.items() for path in (layer, *(f"{layer}/{each}" for each in inside))
    ]


def file_of(package: str) -> Path:
    """Return the file whose docstring describes a package."""
    module = SOURCE / f"{package}.py"
    return module if module.is_file() else SOURCE / package / "__init__.py"


def sentences(package: str) -> tuple[str, str]:
    """Return what a package's docstring says of what is in it, and of what is not."""
    text = ast.get_docstring(ast.parse(file_of(package).read_text())) or ""
    what, absent = ([" ".join(paragraph.split()) for paragraph in text.split("\n\n")] + ["", ""])[:2]
    if not what or not absent.startswith("Not here: "):
        raise ValueError(
            f"{file_of(package).relative_to(ROOT)}: a docstring begins with a paragraph on what lives there, "
            "and another one, 'Not here: ...'"
        )
    return what, absent


def drawn() -> str:
    """Return the map."""
    lines = []
    for package in packages():
        name = f"{Path(package).name}{'.py' if file_of(package).name != '__init__.py' else '/'}"
        depth = 1 + package.count("/")
        for text in sentences(package):
            lines += _entry(" " * (STEP * depth) + name, text)
            name = ""
    return START + "".join(lines) + "".join(line for each in BESIDE.items() for line in _entry(*each)) + END


def _entry(name: str, text: str) -> list[str]:
    wrapped = textwrap.wrap(text, WIDTH - COLUMN, break_on_hyphens=False, break_long_words=False)
    return [
        f"{start:{COLUMN}}{line}\n"
        for start, line in zip([name, *[""] * len(wrapped)], wrapped, strict=False)
    ]


def renewed(page: str) -> str:
    """Return CONTRIBUTING.md with the map of today."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    if not after:
        raise ValueError(
            "CONTRIBUTING.md has no map, which begins with a line 'src/cape/' in a block of code"
        )
    return before + drawn() + after


def main() -> None:
    """Print the map, or write it."""
    if sys.argv[1:] == ["--write"]:
        page = ROOT / "CONTRIBUTING.md"
        page.write_text(renewed(page.read_text()))
    elif sys.argv[1:]:
        sys.exit("usage: python -m tests.layout [--write]")
    else:
        print(drawn(), end="")


if __name__ == "__main__":
    main()
