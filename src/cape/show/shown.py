"""The base of everything that is shown: a result or a model with tables, figures and notes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cape.show.figures import Figure
from cape.show.findings import findings
from cape.show.plain import plain, to_json
from cape.show.tables import Table, recorded

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["SUMMARY_WIDTH", "Framed", "Shown"]

SUMMARY_WIDTH = 150


class Framed(ABC):
    """What a notebook shows as tables and other programs take as a data frame."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """Return its tables, the most important first."""

    def figures(self) -> Sequence[Figure]:
        """Return its figures."""
        return ()

    def notes(self) -> Sequence[str]:
        """Return sentences that a reader should know besides."""
        return ()

    def records(self) -> list[dict[str, Any]]:
        """Return its numbers, one record each, with errors and the ends of 95% intervals.

        What has no estimates gives the cells of its first table.
        """
        estimates = getattr(self, "estimates", None)
        if estimates is not None:
            return [recorded(each) for each in estimates]
        table = next(iter(self.tables()), None)
        if table is None:
            return []
        names = [name or "name" for name in table.columns]
        return [dict(zip(names, row, strict=True)) for row in table.rows if len(row) > 1]

    def to_polars(self) -> Any:
        """Return `records` as a DataFrame of polars."""
        import polars

        return polars.DataFrame([plain(each) for each in self.records()], infer_schema_length=None)

    def to_pandas(self) -> Any:
        """Return `records` as a DataFrame of pandas, which must be installed."""
        pandas = import_module("pandas")
        return pandas.DataFrame([plain(each) for each in self.records()])

    def _repr_html_(self) -> str:
        from cape.show.html import fragment

        return fragment(self)


class Shown(Framed):
    """A result or a model that describes what it shows; terminal and notebook output follow from that."""

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

    def plot(self, ax: Any = None) -> Any:
        """Draw its figures with matplotlib (the extra `plot`) and return the figure.

        Args:
            ax: draw the first panel there instead, and return it.
        """
        return import_module("cape.show.plot").plot(self, ax)

    def to_sklearn(self) -> Any:
        """Return it as fitted objects of scikit-learn, which is an extra: see `cape.sklearn.exports`."""
        # by name: what is shown knows nothing of scikit-learn, which is an extra
        return import_module("cape.sklearn.exports").exported(self)

    def findings(self) -> Sequence[str]:
        """Return its main numbers in words, each with its interval."""
        return findings(self.tables())

    def __rich__(self) -> RenderableType:
        from cape.show.terminal import rendered

        return rendered(self)

    def summary(self) -> str:
        """Return its tables and notes as text."""
        from cape.show.terminal import as_text

        return as_text(self, SUMMARY_WIDTH)

    def __str__(self) -> str:
        from cape.show.terminal import as_text, screen_width

        return as_text(self, screen_width(SUMMARY_WIDTH))

    __repr__ = __str__  # in a notebook one wants the table
