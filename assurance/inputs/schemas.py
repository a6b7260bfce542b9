"""Schemas made in Python: whatever somebody may put between the brackets of `Schema(...)`."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from assurance.inputs.bend import NASTY, bend, pick
from assurance.inputs.surface import Surface
from cape.data import Category, Number, Schema

__all__ = ["Schemas"]

_RIGHT: dict[Any, Any] = {
    "age": (18, 90),
    "weight": {"low": 40.0, "high": 140.0, "missing": False},
    "sex": ["female", "male"],
    "stage": {"categories": [0, 1, 2]},
    "smoker": [False, True],
}


def _objects() -> list[Any]:
    return [
        *NASTY,
        None,
        b"bytes",
        b"",
        1j,
        Decimal("1e999"),
        Decimal("nan"),
        Fraction(1, 3),
        np.float32(1.5),
        np.int64(3),
        np.bool_(True),
        np.datetime64("2020-01-01"),
        np.array([1.0, 2.0]),
        np.array([[1.0], [2.0]]),
        np.array(["a", "b"]),
        np.array(1.0),
        np.zeros(0),
        range(2),
        range(10**9, 10**9 + 3),
        {1, 2},
        frozenset(["a"]),
        (n for n in (1, 2)),
        iter([1, 2]),
        object,
        len,
        ...,
        (18, 90, 100),
        (90, 18),
        (1, 1 + 1e-16),
        ("18", "90"),
        [None, None],
        [["a"], ["b"]],
        [[1, 2], [3]],
        {"low": 0},
        {"low": [0], "high": {}},
        {"categories": "ab"},
        {"categories": {"a": 1}},
        {"categories": 5},
        {1: 2},
        {"low": 0, "high": 1, "missing": "no"},
        list(range(50_000)),
        ["x" * 4000, "y" * 4000],
        "\ud800",
    ]


class Schemas(Surface):
    """`Schema(...)`, and all that it can say of itself."""

    def make(self, random: np.random.Generator) -> Any:
        """Bend a schema; keys may be anything that a dictionary takes."""
        objects = _objects()
        given: Any = dict(_RIGHT)
        for _ in range(int(random.integers(1, 4))):
            given = bend(given, random, objects)
            if not isinstance(given, dict):
                return given
        if random.random() < 0.1:
            given[pick(random, [1, None, b"a", ("a",), "", "\n", "a" * 5000, 1.5, True])] = (0, 1)
        return given

    def feed(self, given: Any) -> None:
        """Make it, from a mapping or from names; then ask it."""
        schema = Schema(given)
        repr(schema)
        for name in schema:
            column = schema[name]
            if isinstance(column, Number):
                _ = column.middle, column.half
                schema.number(name)
            else:
                assert isinstance(column, Category)
                schema.category(name)
        again = Schema(schema.to_dict())
        assert dict(again) == dict(schema), "a schema must survive being written down"
