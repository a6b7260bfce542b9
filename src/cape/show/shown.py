"""The base of everything that is shown: a result or a model with tables, figures and notes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cape.show.figures import Figure
from cape.show.plain import to_json
from cape.show.tables import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["SUMMARY_WIDTH", "Shown"]

SUMMARY_WIDTH = 150


class Shown(ABC):
    """A result or a model that describes what it shows; terminal and notebook output follow from that."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """Return its tables, the most important first."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data, for JSON."""

    def portable(self) -> dict[str, Any]:
        """Return what other programs need of it, as plain data: all of it, unless a model knows better."""
        return self.to_dict()

    def to_json(self, path: str | Path | None = None) -> str:
        """Return `portable` as JSON, and write it to a file if a path is given."""
        text = to_json(self.portable())
        if path is not None:
            Path(path).write_text(f"{text}\n", encoding="utf-8")
        return text

    def to_sklearn(self) -> Any:
        """Return it as fitted objects of scikit-learn, which is an extra: see `cape.sklearn.exports`."""
        # by name: what is shown knows nothing of scikit-learn, which is an extra
        return import_module("cape.sklearn.exports").exported(self)

    def figures(self) -> Sequence[Figure]:
        """Return its figures."""
        return ()

    def notes(self) -> Sequence[str]:
        """Return sentences that a reader should know besides."""
        return ()

    def __rich__(self) -> RenderableType:
        from cape.show.terminal import rendered

        return rendered(self)

    def _repr_html_(self) -> str:
        from cape.show.html import fragment

        return fragment(self)

    def summary(self) -> str:
        """Return its tables and notes as text."""
        from cape.show.terminal import as_text

        return as_text(self, SUMMARY_WIDTH)

    def __str__(self) -> str:
        return self.summary()

    __repr__ = __str__  # in a notebook one wants the table
