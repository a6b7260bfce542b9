"""What a figure of the paper has to say of itself so that it can be computed, drawn and judged."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from cape.noise import SecureStream
from reproduction.reference import Reference
from reproduction.seeds import FIRST_SEED, public_stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["Cell", "Claim", "Figure", "Row", "Value"]

Value = str | int | float | bool | None
Row = dict[str, Value]


@dataclass(frozen=True)
class Cell:
    """One computation that needs nothing of any other: settings, and the seed of all that is random in it.

    `seconds` is a guess of how long it takes: the longest start first, and the shortest need no process.
    """

    figure: str
    settings: tuple[tuple[str, Value], ...]
    seed: int
    seconds: float = field(default=1.0, compare=False)

    @classmethod
    def of(cls, figure: str, seed: int, seconds: float = 1.0, /, **settings: Value) -> Cell:
        """Return a cell with these settings."""
        return cls(figure, tuple(settings.items()), seed, seconds)

    def __getitem__(self, name: str) -> Value:
        return dict(self.settings)[name]

    def integer(self, name: str) -> int:
        """Return a setting that is a whole number."""
        value = self[name]
        assert isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        """Return a setting that is a number."""
        value = self[name]
        assert isinstance(value, (int, float)), name
        return float(value)

    def text(self, name: str) -> str:
        """Return a setting that is text."""
        value = self[name]
        assert isinstance(value, str), name
        return value

    def key(self, version: int) -> str:
        """Return a name for the result: another one for every setting, seed and version of the figure."""
        said = json.dumps([self.figure, version, sorted(map(list, self.settings)), self.seed])
        return hashlib.sha256(said.encode()).hexdigest()[:20]

    def stream(self, label: str) -> SecureStream:
        """Return the cell's own randomness for one purpose: the same in every run with this seed."""
        settings = json.dumps(sorted(map(list, self.settings)))
        return public_stream(self.seed, self.figure, settings, label)


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured, whether it holds (None: it cannot be said), and why."""

    where: str
    says: str
    measured: str
    holds: bool | None
    why: str = ""

    @property
    def verdict(self) -> str:
        """The answer in a word or two."""
        return {True: "holds", False: "does not hold", None: "open"}[self.holds]


class Figure(ABC):
    """A figure or table of the paper.

    A module of `reproduction.figures` has one, as FIGURE; the module's name is the figure's, with a dash.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    version: ClassVar[int] = 1
    """Raise it when a cell of the same settings would give other numbers: older results are not used then."""
    random: ClassVar[bool] = True
    """Whether runs with different seeds have to differ."""

    def require(self) -> None:  # noqa: B027 - most need nothing
        """Raise a `CapeError` if something is missing without which nothing can be computed, such as data."""

    @abstractmethod
    def cells(self, fast: bool, seed: int = FIRST_SEED) -> Sequence[Cell]:
        """Return all computations; `fast` may take fewer settings, fewer runs or an honest shortcut."""

    @abstractmethod
    def compute(self, cell: Cell) -> list[Row]:
        """Return the numbers of one cell: the same for the same cell, always."""

    @abstractmethod
    def draw(self, rows: Sequence[Row], reference: Reference | None) -> Mapping[str, Picture]:
        """Return pictures: "published" as the paper has it, "equal" at equal true (epsilon, delta)."""

    @abstractmethod
    def claims(self, rows: Sequence[Row], reference: Reference | None) -> list[Claim]:
        """Return what the paper says about this, and what was found."""

    def notes(self, rows: Sequence[Row]) -> str:
        """Return Markdown that stands below the pictures: a table, or what to watch."""
        return ""
