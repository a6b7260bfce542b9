"""The shape of the package: what it loads, what it exports, which way imports point."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cape

SOURCE = Path(cape.__file__).parent
LAYERS = [
    "errors",
    "check",
    "packed",
    "unix",
    "privacy",
    "noise",
    "secagg",
    "site",
    "release",
    "learning",
    "analyses",
    "study",
    "steward",
    "coordinator",
    "flare",
    "torch",
    "sklearn",
    "audit",
    "cli",
]  # each may import what stands before it


def test_importing_cape_loads_nothing_heavy():
    code = "import sys, cape; print(' '.join(sorted(m.split('.')[0] for m in sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "scipy", "sklearn", "polars", "narwhals", "cryptography", "matplotlib", "typer", "rich"}
    assert not heavy & set(loaded.stdout.split())


def test_every_exported_name_is_there():
    for name in cape.__all__:
        assert getattr(cape, name) is not None
    assert set(cape.__all__) <= set(dir(cape))
    with pytest.raises(AttributeError, match="no attribute 'Bugdet'"):
        cape.Bugdet  # noqa: B018


def test_every_exception_is_in_one_tree():
    from cape import errors

    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, (cape.CapeError, Warning)), name


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_downwards(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own not in LAYERS:
        assert own in {"__init__", "__main__"}, f"{own} has no place among the layers"
        return
    tree = ast.parse(path.read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
    for name in names:
        parts = name.split(".")
        if parts[0] == "cape" and parts[1] in LAYERS:
            assert LAYERS.index(parts[1]) <= LAYERS.index(own), f"{own} imports {name}"


def test_no_predictable_generator_in_the_package():
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert "random" not in {alias.name for alias in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert node.module != "random", path
            if isinstance(node, ast.Attribute) and node.attr == "random":
                assert not (isinstance(node.value, ast.Name) and node.value.id in {"np", "numpy"}), path
