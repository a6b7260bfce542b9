"""The authors' published values, from a file that a reader may have: light markers beside our curves."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from cape.core.errors import InvalidInput

__all__ = ["Point", "Reference"]

_COLUMNS = ("file", "x_name", "x", "epsilon", "delta", "S", "algo", "metric", "mean", "std", "n")


@dataclass(frozen=True)
class Point:
    """One plotted point: where, its mean over runs, their spread, and how many there were."""

    x: float
    mean: float
    std: float
    runs: int


class Reference:
    """Curves by experiment (the `file` column), algorithm and metric."""

    def __init__(self, curves: dict[tuple[str, str, str], list[Point]]) -> None:
        self._curves = curves

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Reference:
        """Read a CSV with one row for each plotted point."""
        curves: dict[tuple[str, str, str], list[Point]] = {}
        try:
            with Path(path).open(newline="", encoding="utf-8") as lines:
                rows = csv.DictReader(lines)
                missing = [name for name in _COLUMNS if name not in (rows.fieldnames or [])]
                if missing:
                    raise InvalidInput(f"--reference: {path} has no column {', '.join(missing)}")
                for row in rows:
                    key = row["file"].removesuffix(".mat"), row["algo"], row["metric"]
                    x, mean, std = (float(row[name] or "nan") for name in ("x", "mean", "std"))
                    curves.setdefault(key, []).append(Point(x, mean, std, int(row["n"] or 0)))
        except OSError as error:
            raise InvalidInput(f"--reference: {path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, AttributeError, csv.Error):
            raise InvalidInput(f"--reference: {path} is not a CSV with a number for each point") from None
        return cls({key: sorted(points, key=lambda point: point.x) for key, points in curves.items()})

    def curve(self, file: str, algo: str, metric: str) -> list[Point]:
        """Return the points of one curve; none if the file does not have it."""
        return list(self._curves.get((file.removesuffix(".mat"), algo, metric), []))

    def __len__(self) -> int:
        return len(self._curves)
