"""The label of a coefficient that belongs to a product of columns, such as "age:sex=male", taken apart."""

from __future__ import annotations

import re
from collections.abc import Container

__all__ = ["pieces", "spline_of"]

_SPLINE = re.compile(r"spline\((?:`(?P<quoted>(?:[^`]|``)*)`|(?P<name>[^`,]*)), .*\)\[(?P<knot>[^\[\]]+)\]")


def pieces(label: str, columns: Container[str]) -> list[str]:
    """Return the factors of a label, each of which starts with a column; one if it is no product."""
    found: list[str] = []
    for piece in label.split(":"):
        if piece.partition("=")[0] in columns or piece.startswith("spline("):
            found.append(piece)
        elif not found:
            return [label]
        else:  # a value, or a name, that holds a colon
            found[-1] += f":{piece}"
    return found


def spline_of(label: str) -> tuple[str, str] | None:
    """Return the column and the knot of a spline's coefficient, from a label such as "spline(bmi, 4)[30]"."""
    found = _SPLINE.fullmatch(label)
    return None if found is None else ((found["quoted"] or found["name"]).replace("``", "`"), found["knot"])
