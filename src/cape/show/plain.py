"""Plain data, as JSON that any reader takes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

__all__ = ["plain", "to_json"]


def to_json(value: Any) -> str:
    """Return plain data as JSON; a number that is not finite becomes null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def plain(value: dict[str, Any]) -> dict[str, Any]:
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
