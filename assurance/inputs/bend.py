"""Ways to bend what is right: bytes, and plain values of any depth. All from one generator, so repeatable."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import numpy as np

__all__ = ["NASTY", "bend", "bend_bytes", "pick", "to_toml"]

Random = np.random.Generator

_TEXTS: list[Any] = [
    "",
    " ",
    "\n",
    "two\nlines",
    "\x1b[31mred\x1b[0m",
    "\x00",
    "\u202etxt",
    "[bold]x[/italic]",
    "{0}{name}",
    "%s%n",
    "'; DROP TABLE releases; --",
    "../../../../etc/passwd",
    "/dev/zero",
    "*",
    "nowhere://x/y.parquet",
    "é" * 3,
    "x" * 5000,
    "NaN",
    "1e400",
    "true",
    "2024-01-01",
    "𝔘𝔫𝔦",
]
_NUMBERS: list[Any] = [
    0,
    -1,
    1,
    2,
    3,
    7,
    64,
    1000,
    10**6,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63),
    10**30,
    10**400,
    0.0,
    -0.0,
    0.5,
    1.0,
    1.5,
    1e-9,
    5e-324,
    1e-300,
    1e300,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
]
_OTHERS: list[Any] = [
    True,
    False,
    [],
    {},
    [[]],
    [1, 2],
    [2, 1],
    [1, 1],
    ["a"],
    ["a", "a"],
    [1, "1"],
    [True, 1],
    [0.1, "x"],
    {"low": 0, "high": 1},
    {"categories": []},
    datetime.date(2030, 1, 1),
    datetime.datetime(2030, 1, 1, 12),
    datetime.time(12),
]
NASTY = [*_TEXTS, *_NUMBERS, *_OTHERS]
_TOKENS = (
    b"\n",
    b'"',
    b"'",
    b"[",
    b"]",
    b"{",
    b"}",
    b"=",
    b",",
    b"#",
    b'"""',
    b"\\u",
    b"\x00",
    b"\xff",
    b"nan",
)
_EDGES = (0x00, 0x7F, 0x80, 0x90, 0xC0, 0xC4, 0xC6, 0xDC, 0xDD, 0xFF)


def pick(random: Random, values: Any) -> Any:
    """Return one of the values; `Generator.choice` would make an array of them."""
    return values[int(random.integers(len(values)))]


def bend_bytes(data: bytes, random: Random, other: bytes = b"", least: int = 1, most: int = 4) -> bytes:
    """Return the bytes with a few changes: flipped, cut, repeated, put together from two."""
    out = bytearray(data)
    for _ in range(int(random.integers(least, most + 1))):
        kind, at = int(random.integers(9)), int(random.integers(len(out) + 1))
        if kind == 0 and at < len(out):
            out[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            out[at : at + int(random.integers(1, 9))] = random.bytes(int(random.integers(9)))
        elif kind == 2 and random.random() < 0.3:
            del out[at:]
        elif kind == 3:
            out[at:at] = out[at : at + int(random.integers(1, 200))]
        elif kind == 4 and at < len(out):
            out[at] = pick(random, _EDGES)
        elif kind == 5 and other:
            out[at:] = other[int(random.integers(len(other))) :]
        elif kind == 6:
            out[at:at] = pick(random, _TOKENS)
        elif kind == 7 and random.random() < 0.05:
            out[at:at] = pick(random, (b"[", b"{", b"9", b"\x91", b"a.")) * int(random.integers(100, 20_000))
        else:
            del out[at : at + int(random.integers(1, 9))]
    return bytes(out)


def bend(value: Any, random: Random, nasty: list[Any] | None = None) -> Any:
    """Return a plain value with one place in it changed: another value, a key gone, renamed or added, ..."""
    nasty = NASTY if nasty is None else nasty
    if isinstance(value, dict) and value and random.random() < 0.85:
        out, key = dict(value), pick(random, list(value))
        kind = int(random.integers(10))
        if kind < 6:
            out[key] = bend(out[key], random, nasty)
        elif kind == 6:
            del out[key]
        elif kind == 7:
            out[_key(random, key)] = out.pop(key)
        elif kind == 8:
            out[_key(random, key)] = pick(random, nasty)
        else:
            out[key] = out[pick(random, list(value))]
        return out
    if isinstance(value, (list, tuple)) and value and random.random() < 0.85:
        items, at = list(value), int(random.integers(len(value)))
        kind = int(random.integers(8))
        if kind < 5:
            items[at] = bend(items[at], random, nasty)
        elif kind == 5:
            del items[at]
        elif kind == 6:
            items.insert(at, items[at])
        else:
            items.append(pick(random, nasty))
        return items
    if isinstance(value, bytes) and random.random() < 0.8:
        return bend_bytes(value, random)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and random.random() < 0.3:
        return pick(
            random, [-value, value + 1, value * 2, value / 2 if abs(value) < 1e300 else 0, str(value)]
        )
    if isinstance(value, str) and random.random() < 0.3:
        return pick(random, [value.upper(), value[:-1], value + "x", f" {value} ", [value], value * 50])
    if random.random() < 0.02:
        return _deep(random, int(random.integers(5, 120)))
    return pick(random, nasty)


def _deep(random: Random, depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if random.random() < 0.7 else {"k": value}
    return value


def _key(random: Random, key: Any) -> Any:
    others = ["x", "", "a b", "a.b", "\n", "\x1b[2J", "k" * 3000, "missing", "share", "kind", "ä", f"{key}s"]
    return pick(random, others)


def to_toml(document: dict[str, Any]) -> str:
    """Return a document as TOML; not pretty, but every value that TOML can hold."""
    lines = []
    for name, value in document.items():
        if isinstance(value, dict):
            lines.append(f"[{_text(str(name))}]")
            lines += [f"{_text(str(key))} = {_value(inner)}" for key, inner in value.items()]
        elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            for each in value:
                lines.append(f"[[{_text(str(name))}]]")
                lines += [f"{_text(str(key))} = {_value(inner)}" for key, inner in each.items()]
        else:
            lines.insert(0, f"{_text(str(name))} = {_value(value)}")
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else {True: "nan"}.get(math.isnan(value), f"{value}")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(str(key))} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
