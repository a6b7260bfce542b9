"""The base of everything that is shown: a result or a model with tables, figures and notes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cape.show.figures import Figure
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
