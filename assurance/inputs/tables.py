"""A site's rows: text files, Parquet files and frames, whose cells are secrets that can be recognised."""

from __future__ import annotations

import contextlib
import datetime
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from assurance.inputs.bend import bend_bytes, pick
from assurance.inputs.surface import Surface
from cape.blocks import Axis, Counts, Design, Gram, Moments, Table
from cape.data import Category, Csv, Number, Schema
from cape.data.survey import survey
from cape.data.troubles import missing, remedy, stops, warnings

__all__ = ["CANARIES", "SCHEMA", "Frames", "ParquetFiles", "TextFiles", "question"]

WORD, NUMERAL = "canary-" + "7f3a91", "48151" + ".62342"
CANARIES = ("canary", "7f3a9", "48151", "62342")  # a part is enough to tell
SCHEMA = Schema(
    x=(0, 100),
    g=["a", "b"],
    i=Category((0, 1)),
    b=Category((False, True)),
    n=Number(0, 1, missing=False),
)
_HEADER = ["x", "g", "i", "b", "n", "note"]
_CELLS: dict[str, list[str]] = {
    "x": ["1.5", "2", "", "99.9", NUMERAL],
    "g": ["a", "b", ""],
    "i": ["0", "1", "1.0", ""],
    "b": ["true", "False", "1", ""],
    "n": ["0.5", "1", "0"],
    "note": [WORD, NUMERAL, "free text"],
}
_ODD = [
    WORD,
    f'"{WORD}"',
    f'"{WORD}\n{WORD}"',
    f'"{WORD}',
    NUMERAL,
    f"-{NUMERAL}e9",
    f"{NUMERAL}e9999",
    "nan",
    "inf",
    "NULL",
    "?",
    "1,5",
    "0x1F",
    "１",
    "2020-01-01",
    "\x00",
    "\ufeff",
    " ",
    "\t",
    "'",
    "1" * 400,
    "9" * 5000,
    "é",
    "\\",
    "=cmd()",
]


def question(table: Table) -> None:
    """Ask a table all that it can be asked here."""
    table.rows()
    table.check()
    table.clamped()
    table.sums(
        [
            Moments(("x", "n")),
            Counts((Axis("g"), Axis("i"))),
            Counts((Axis("x", (0.0, 10.0, 100.0)),)),
            Gram(("x", "n")),
        ]
    )
    table.vectors(Design(("x", "g"), target="n"))


def look(source: Any) -> None:
    """Survey the rows of a source; what a steward is shown of them contains no cell."""
    found = survey("alpha", source, SCHEMA).shown()
    said = "\n".join(map(str, [*stops(found), *warnings(found), missing(found), remedy(found)]))
    if any(secret in said for secret in CANARIES):
        raise AssertionError("a survey shows a cell")


def _rows(random: np.random.Generator) -> list[list[str]]:
    return [[pick(random, _CELLS[name]) for name in _HEADER] for _ in range(int(random.integers(0, 8)))]


class TextFiles(Surface):
    """CSV: cells, headers, quotes, separators, encodings and sizes bent."""

    secrets = CANARIES

    def make(self, random: np.random.Generator) -> tuple[bytes, dict[str, Any]]:
        """Return a file's bytes, and how somebody describes it."""
        header, rows, separator = list(_HEADER), _rows(random), ","
        if rows and random.random() < 0.6:
            for _ in range(int(random.integers(1, 3))):
                row = pick(random, rows)
                row[int(random.integers(len(row)))] = pick(random, _ODD)
        if random.random() < 0.15:
            self._bend_header(header, random)
        if rows and random.random() < 0.1:
            row = pick(random, rows)
            row += [WORD] if random.random() < 0.5 else []
            del row[int(random.integers(len(row))) :]
        if rows and random.random() < 0.01:
            pick(random, rows)[-1:] = [pick(random, [WORD * 100_000, f'"{WORD * 50_000}', "\n" * 100_000])]
        if random.random() < 0.01:
            header += [f"c{i}" for i in range(3000)]
        if random.random() < 0.1:
            separator = pick(random, [";", "\t", "|", " ", "\x1f"])
        lines = [separator.join(row) for row in ([] if random.random() < 0.05 else [header]) + rows]
        text = pick(random, ["\n", "\n", "\n", "\r\n", "\r"]).join(lines)
        text += pick(random, ["", "\n", "\n", "\n\n", "\r\n", "\x1a"])
        data = self._encode(text, random)
        if random.random() < 0.3:
            data = bend_bytes(data, random, other=data)
        return data, self._described(random, separator)

    @staticmethod
    def _bend_header(header: list[str], random: np.random.Generator) -> None:
        at = int(random.integers(len(header)))
        kind = int(random.integers(6))
        if kind == 0:
            del header[at]
        elif kind == 1:
            header[at] = pick(random, _HEADER)
        elif kind == 2:
            header[at] = header[at].upper()
        elif kind == 3:
            header[at] = ""
        elif kind == 4:
            header.insert(at, pick(random, ["x_duplicated_0", "x", '"g"', " i ", "b\n"]))
        else:
            header.reverse()

    @staticmethod
    def _encode(text: str, random: np.random.Generator) -> bytes:
        if random.random() < 0.9:
            return text.encode()
        coding = pick(random, ["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig", "utf-7"])
        data = text.encode(coding, "replace")
        if random.random() < 0.1:
            import gzip

            data = gzip.compress(data)
        return data

    @staticmethod
    def _described(random: np.random.Generator, separator: str) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if separator != "," and random.random() < 0.7:
            told["separator"] = separator
        if random.random() < 0.3:
            told["null_values"] = pick(random, [["?"], ["?", "NULL"], [""], [WORD], ["nan"], []])
        if random.random() < 0.1:
            told["columns"] = pick(random, [list("xgibn"), [*"xgibn", "note"], ["x"], [*"xgibn", *"uvwyz"]])
        if random.random() < 0.03:
            told["separator"] = pick(random, ["é", '"', "\n", "\x00", "a", "", "ab", "\ud800"])
        return told

    def show(self, given: tuple[bytes, dict[str, Any]]) -> bytes:
        """Return the file, and in its last line how it was described."""
        return given[0] + f"\n--- {given[1]!r}".encode("utf-8", "backslashreplace")

    def feed(self, given: tuple[bytes, dict[str, Any]]) -> None:
        """Write it, open it, ask it."""
        data, told = given
        path = self.folder / "rows.csv"
        path.write_bytes(data)
        source = Csv(path, **told) if told else path
        look(source)
        question(Table("alpha", source, SCHEMA))


_SERIES: list[Any] = [
    lambda n: [48151.62342] * n,
    lambda n: [1.0, None, float("nan"), float("inf")] * n,
    lambda n: [0, 1] * n,
    lambda n: [2**63 - 1, -(2**63)] * n,
    lambda n: ["a", "b", None] * n,
    lambda n: [WORD] * n,
    lambda n: [True, False, None] * n,
    lambda n: [None] * n,
    lambda n: [datetime.date(2020, 1, 1)] * n,
    lambda n: [datetime.datetime(2020, 1, 1, 3)] * n,
    lambda n: [datetime.timedelta(seconds=48151)] * n,
    lambda n: [WORD.encode()] * n,
    lambda n: [[1.0, 2.0], []] * n,
    lambda n: [[WORD]] * n,
    lambda n: [{"k": WORD}] * n,
    lambda n: [Decimal(NUMERAL)] * n,
    lambda n: pl.Series([WORD, "a"] * n, dtype=pl.Categorical),
    lambda n: pl.Series(["a", "b"] * n, dtype=pl.Enum(["a", "b"])),
    lambda n: pl.Series([[WORD]] * n, dtype=pl.List(pl.Enum([WORD]))),
    lambda n: pl.Series([{WORD: 1}] * n),
    lambda n: pl.Series([1, 200] * n, dtype=pl.UInt8),
    lambda n: pl.Series([1.5] * n, dtype=pl.Float32),
    lambda n: pl.Series([2**100, 1] * n, dtype=pl.Int128),
    lambda n: pl.Series([WORD * 20_000] * n),
]


def _frame(random: np.random.Generator) -> pl.DataFrame:
    """Return a frame that fits the schema but for a few of its columns."""
    rows = int(random.integers(0, 9))
    right: dict[str, Any] = {
        "x": [1.5, None, 48151.62342, 99.0],
        "g": ["a", "b", None, "a"],
        "i": [0, 1, 1, None],
        "b": [True, False, None, True],
        "n": [0.5, 1.0, 0.0, 0.25],
        "note": [WORD] * 4,
    }
    columns = [pl.Series(name, (values * rows)[:rows], strict=False) for name, values in right.items()]
    for _ in range(int(random.integers(0, 4))):
        at = int(random.integers(len(columns)))
        made = pl.Series(columns[at].name, pick(random, _SERIES)(rows), strict=False)
        columns[at] = made.head(rows).extend_constant(None, rows - min(rows, len(made)))
    if random.random() < 0.1:
        del columns[int(random.integers(len(columns)))]
    if random.random() < 0.1:
        at = int(random.integers(len(columns)))
        columns[at] = columns[at].rename(pick(random, ["", "X", "g ", "note2", "\n"]))
    names: set[str] = set()
    return pl.DataFrame([c for c in columns if not (c.name in names or names.add(c.name))])  # type: ignore[func-returns-value]


class ParquetFiles(Surface):
    """Parquet: columns of any type, and files whose footer, pages or length are bent."""

    secrets = CANARIES

    def make(self, random: np.random.Generator) -> bytes:
        """Write a frame, and bend the file; mostly where its footer is."""
        out = io.BytesIO()
        _frame(random).write_parquet(
            out, compression=pick(random, ["uncompressed", "snappy", "zstd", "gzip", "lz4"])
        )
        data = out.getvalue()
        way = random.random()
        if way < 0.35:
            return data
        if way < 0.65:  # the footer: thrift, then its length, then PAR1
            length = int.from_bytes(data[-8:-4], "little")
            start = len(data) - 8 - length
            footer = bend_bytes(data[start:-8], random)
            size = len(footer) if random.random() < 0.8 else int(random.integers(2**32))
            return data[:start] + footer + size.to_bytes(4, "little") + b"PAR1"
        if way < 0.7:
            return data[: int(random.integers(len(data) + 1))]
        return bend_bytes(data, random, other=data)

    def feed(self, given: bytes) -> None:
        """Write it, open it, ask it."""
        path: Path = self.folder / "rows.parquet"
        path.write_bytes(given)
        look(path)
        question(Table("alpha", path, SCHEMA))


_OBJECTS: list[Any] = [
    WORD,
    NUMERAL,
    48151.62342,
    None,
    float("nan"),
    float("-inf"),
    0,
    1,
    True,
    "a",
    "b",
    "1",
    10**400,
    -(10**400),
    Decimal(NUMERAL),
    Decimal("nan"),
    Decimal("snan"),
    Decimal("inf"),
    datetime.date(2020, 1, 1),
    pd.NA,
    pd.NaT,
    pd.Timestamp("2020-01-01"),
    np.float32(1.5),
    np.int8(1),
    np.datetime64("NaT"),
    [WORD],
    {"k": WORD},
    (1, 2),
    b"canary-7f3a91",
    1j,
    object,
    np.array([1.0, 48151.62342]),
    np.array(48151.62342),
]


class Frames(Surface):
    """Frames in memory: polars, pandas and Arrow, with columns of mixed Python objects."""

    secrets = CANARIES

    def make(self, random: np.random.Generator) -> Any:
        """Return a frame."""
        frame = _frame(random)
        way = random.random()
        if way < 0.2:
            return frame
        if way < 0.35:
            return frame.lazy()
        if way < 0.5:
            try:
                return frame.to_arrow()
            except Exception:  # not every type of polars is one of Arrow
                return frame
        rows = int(random.integers(0, 6))
        columns = (
            {name: [0.5] * rows for name in "xn"} | {"g": ["a"] * rows} | dict.fromkeys("ib", [0] * rows)
        )
        for name in columns:
            if random.random() < 0.4:
                columns[name] = pd.Series([pick(random, _OBJECTS) for _ in range(rows)], dtype=object)
        made = pd.DataFrame(columns)
        if random.random() < 0.2:
            made.columns = [pick(random, ["x", "g", 1, None, ("a", "b"), "", "n"]) for _ in made.columns]
        if random.random() < 0.1 and rows:
            made.index = [pick(random, _OBJECTS[:12]) for _ in range(rows)]
        if random.random() < 0.2:
            with contextlib.suppress(Exception):  # not every object can be turned into every type
                return made.astype(pick(random, ["category", "string", "object"]))
        return made

    def feed(self, given: Any) -> None:
        """Ask it."""
        look(given)
        question(Table("alpha", given, SCHEMA))

    def show(self, given: Any) -> bytes:
        """Return its rows."""
        return super().show(given.collect() if isinstance(given, pl.LazyFrame) else given)
