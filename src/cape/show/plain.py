"""Plain data, as JSON that any reader takes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["plain", "to_csv", "to_json"]


def to_json(value: Any, indent: int | None = 2) -> str:
    """Return plain data as JSON; a number that is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=indent is not None)


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records with the same keys as CSV; what is not known is empty."""
    text = io.StringIO()
    if records:
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(plain, records))
    return text.getvalue()


def plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return data as dicts, lists, numbers and text; an array is a list, a number that is not finite None."""
    return {str(key): _finite(inner) for key, inner in value.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (np.generic, np.ndarray)):
        return _finite(value.tolist())
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
