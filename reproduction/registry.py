"""Which figures there are: a module in `reproduction.figures` is one by being there."""

from __future__ import annotations

import importlib
import pkgutil

from cape.core.check import hint
from cape.core.errors import InvalidInput
from reproduction import figures
from reproduction.figure import Figure

__all__ = ["find", "names"]


def names() -> list[str]:
    """Return the names of all figures and tables in the paper's order; loads none of them."""
    found = [module.name for module in pkgutil.iter_modules(figures.__path__)]
    return sorted(name.replace("_", "-") for name in found if not name.startswith("_"))


def find(name: str) -> Figure:
    """Return a figure by name."""
    if name not in names():
        raise InvalidInput(f"no figure {name!r} in the paper{hint(name, ['all', *names()])}")
    figure = importlib.import_module(f"{figures.__name__}.{name.replace('-', '_')}").FIGURE
    assert isinstance(figure, Figure)
    assert figure.name == name
    return figure
