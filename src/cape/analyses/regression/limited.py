"""What a model limited: columns that were cut at caps, scores that were shortened; in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cape.data import Schema
from cape.engine.arguments import joined
from cape.show.numbers import rounded
from cape.stats.capping import Marginal

__all__ = ["NOTHING", "Capped", "Limited"]

_SMALL = 0.05  # of a standard error: not worth a sentence about a coefficient
_FEW = 0.5
_Z = 1.64  # 95% are below
_UNSURE = 1.5  # times a share: noise that is worth a word


@dataclass(frozen=True)
class Capped:
    """A column that was cut: where, and which share of rows lies beyond, with its noise."""

    column: str
    low: float | None
    high: float | None
    below: float
    above: float
    doubt: float

    @classmethod
    def of(cls, name: str, one: Marginal) -> Capped:
        """Return what a released marginal says."""
        low, high = one.capped
        return cls(
            name,
            one.low if low else None,
            one.high if high else None,
            one.below,
            one.above,
            one.doubt,
        )

    def words(self, schema: Schema) -> str:
        """Return one sentence's part: what counts as what."""
        ends = []
        unit = getattr(schema[self.column], "unit", None)
        beside = f" {unit}" if unit else ""
        for end, side, share in ((self.low, "below", self.below), (self.high, "above", self.above)):
            if end is not None:
                at = f"{rounded(end, max(abs(end), 1e-12) / 20)}{beside}"
                ends.append(f"{side} {at} ({self._rows(share)}) as {at}")
        return f"{schema.label(self.column)} {joined(ends)}"

    def _rows(self, share: float) -> str:
        """Return how many rows that is: at most what noise leaves, where it hides whether there are any."""
        most = min(share + _Z * self.doubt, 1.0)
        if share <= _Z * self.doubt:
            return f"at most {most:.1%} of rows"
        unsure = f", at most {most:.1%}" if most > _UNSURE * share else ""
        return f"about {share:.1%} of rows{unsure}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "low": self.low,
            "high": self.high,
            "share_below": self.below,
            "share_above": self.above,
            "share_noise": self.doubt,
        }


@dataclass(frozen=True)
class Limited:
    """Caps, and what clipping of scores took.

    Attributes:
        capped: the columns that were cut.
        rows: how many rows had scores that were shortened, about.
        moved: by how much that could move each coefficient, in standard errors.
    """

    capped: tuple[Capped, ...] = ()
    rows: float = 0.0
    moved: tuple[tuple[str, float], ...] = ()

    def notes(self, schema: Schema, count: float) -> Sequence[str]:
        """Return what was limited, in sentences."""
        notes = []
        if self.capped:
            cut = "; ".join(each.words(schema) for each in self.capped)
            notes.append(f"Cells beyond caps count as the caps, here and in what intervals cover: {cut}.")
        if self.rows >= _FEW and self.moved:
            name, most = max(self.moved, key=lambda each: each[1])
            share = self.rows / max(count, 1.0)
            could = (
                "by less than .05 standard errors"
                if most < _SMALL
                else (f"by {most:.2g} standard errors at most ({name})")
            )
            notes.append(
                f"Scores of about {share:.1%} of rows were shortened to keep noise small; that could move "
                f"coefficients {could}, which intervals count."
            )
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "caps": {each.column: each.to_dict() for each in self.capped},
            "shortened_rows": self.rows,
            "moved": dict(self.moved),
        }


NOTHING = Limited()
