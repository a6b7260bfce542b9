"""Files that hold a site's rows, described: where they are, and how their cells are written.

Only descriptions stand here, checked when they are made; `cape.data.sources` opens them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data.encodings import encoding_of
from cape.data.identity import Identity, of_files

__all__ = [
    "ARROW",
    "NULLS",
    "PARQUET",
    "SHEETS",
    "STATISTICS",
    "TEXT",
    "Csv",
    "Excel",
    "File",
    "Words",
    "file_at",
]

TEXT = {".csv": ",", ".tsv": "\t"}
PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
STATISTICS = (".sav", ".zsav", ".por", ".dta", ".sas7bdat", ".xpt")

NULLS = ("NA", "N/A", "#N/A", "NaN", "null", ".")
"""What stands for a missing cell in every file, in any case, besides an empty one."""
_TRUE, _FALSE = ("true", "yes", "y"), ("false", "no", "n")


@dataclass(frozen=True)
class Words:
    """What certain texts in a file mean; see `File`."""

    null_values: tuple[str, ...] = ()
    true: tuple[str, ...] = _TRUE
    false: tuple[str, ...] = _FALSE
    everywhere: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class File:
    """A file (or a glob of them) with what its cells mean.

    Args:
        path: a path or a glob.
        null_values: what stands for a missing cell besides the usual: an empty one, NA, N/A, #N/A, NaN, null
            and a dot. A category of the schema is never taken for missing.
        true: what stands for true, or 1, in columns with the categories false and true, or 0 and 1, besides
            true, yes and y.
        false: what stands for false, or 0, besides false, no and n.
        recode: what cells are read as: {"sex": {"f": "F", "m": "M"}} in one column, and {"f": "F"} in every
            column that has the category F, and no category f. An empty text stands for a missing cell.
        rename: what the file calls columns of the schema: {"stay": "Aufenthaltsdauer"}.

    Upper and lower case make no difference in these words, except in recode. Space around a cell is not part
    of it.
    """

    path: str | Path
    null_values: tuple[str, ...] = ()
    true: tuple[str, ...] = field(default=(), kw_only=True)
    false: tuple[str, ...] = field(default=(), kw_only=True)
    recode: Mapping[str, Any] = field(default_factory=dict, kw_only=True, hash=False)
    rename: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, Path)):
            raise InvalidInput(f"path must be text or a Path, not {type(self.path).__name__}")
        for name in ("null_values", "true", "false"):
            object.__setattr__(self, name, texts(name, getattr(self, name)))
        object.__setattr__(self, "rename", _renamed(self.rename))
        _ = self.words

    @cached_property
    def words(self) -> Words:
        """What certain texts mean, with the usual ones."""
        everywhere, columns = _recoded(self.recode)
        meant: dict[str, str] = {}
        for name in ("null_values", "true", "false"):
            for word in getattr(self, name):
                other = meant.setdefault(word.strip().lower(), name)
                if other != name:
                    raise InvalidInput(f"{check.show(word)} must be in {other} or in {name}, not in both")
        usual = [tuple(word for word in each if word not in meant) for each in (_TRUE, _FALSE)]
        true, false = (*self.true, *usual[0]), (*self.false, *usual[1])
        return Words(self.null_values, true, false, everywhere, columns)

    @property
    def identity(self) -> Identity:
        """The files, however their paths are spelt."""
        return of_files(self.path)


@dataclass(frozen=True)
class Csv(File):
    """A text file (or glob of them) whose layout has to be described.

    Args:
        path, null_values, true, false, recode, rename: as for `File`.
        separator: the character between cells; a comma, or a semicolon where the decimal mark is a comma.
        columns: the names of the columns, for a file without a header line.
        encoding: utf-8 unless the file starts as UTF-16 does; or latin-1, windows-1252, ...
        decimal: the decimal mark, "." or ",".
        thousands: a mark between groups of three digits, as the dot in 1.234.567,8.
    """

    separator: str | None = None
    columns: tuple[str, ...] | None = None
    encoding: str | None = field(default=None, kw_only=True)
    decimal: str = field(default=".", kw_only=True)
    thousands: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoding is not None:
            object.__setattr__(self, "encoding", encoding_of(self.encoding))
        if self.decimal not in (".", ","):
            raise InvalidInput(f"decimal must be '.' or ',', not {check.show(self.decimal)}")
        if self.thousands not in (None, ".", ",", "'", "’", " ", "_") or self.thousands == self.decimal:
            raise InvalidInput(
                "thousands must be a dot, a comma, an apostrophe, a blank or an underscore, but not the mark "
                f"{self.decimal!r} of decimals, not {check.show(self.thousands)}"
            )
        if self.separator is None:
            usual = TEXT.get(Path(str(self.path)).suffix.lower(), ",")
            object.__setattr__(self, "separator", ";" if (usual, self.decimal) == (",", ",") else usual)
        if not isinstance(self.separator, str) or len(self.separator) != 1:
            raise InvalidInput(f"separator must be one character, not {check.show(self.separator)}")
        if not self.separator.isascii() or self.separator in '"\r\n':
            raise InvalidInput(
                "separator must be a character of ASCII, and neither a quote nor a line end, not "
                f"{check.show(self.separator)}"
            )
        if self.columns is not None:
            columns = texts("columns", self.columns)
            if not columns or len(set(columns)) != len(columns):
                raise InvalidInput("columns must be different names, at least one")
            object.__setattr__(self, "columns", columns)


@dataclass(frozen=True)
class Excel(File):
    """A sheet of a spreadsheet (.xlsx, .xlsb, .xls, .ods), with the names of the columns in its first row.

    `sheet` is its name, or its number, counted from 1; the first one by default. Needs cape-dp[excel].
    """

    sheet: str | int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.sheet, int) and not isinstance(self.sheet, bool) and self.sheet >= 1
        if not number and not (isinstance(self.sheet, str) and self.sheet):
            raise InvalidInput(
                f"sheet must be the name of a sheet, or its number from 1 on, not {check.show(self.sheet)}"
            )


def file_at(path: str | Path) -> File:
    """Return what a path alone describes."""
    suffix = Path(str(path)).suffix.lower()
    return Csv(path) if suffix in TEXT else Excel(path) if suffix in SHEETS else File(path)


def _recoded(given: Any) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return what `recode` says for all columns, and for each one that it names."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f'recode must be a table such as {{sex = {{f = "F"}}}}, not {check.show(given)}')
    everywhere, columns = {}, {}
    for key, value in given.items():
        if isinstance(value, Mapping):
            columns[str(key)] = {str(old).strip(): _cell(new) for old, new in value.items()}
        else:
            everywhere[str(key).strip()] = _cell(value)
    return everywhere, columns


def _renamed(given: Any) -> dict[str, str]:
    """Return what the file calls each column, or raise `InvalidInput`."""
    pairs = given.items() if isinstance(given, Mapping) else [(None, None)]
    if not all(isinstance(text, str) and text.strip() for pair in pairs for text in pair):
        raise InvalidInput(
            "rename must be a table with the name of each column in the file, as in "
            f'{{stay = "Aufenthaltsdauer"}}, not {check.show(given)}'
        )
    found = {name.strip(): there.strip() for name, there in given.items()}
    if len(set(found.values())) != len(found):
        raise InvalidInput("rename must give every column of the file one name only")
    return found


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise InvalidInput(f"recode must give texts or numbers, not {check.show(value)}")
    return value.strip() if isinstance(value, str) else repr(value)


def texts(name: str, values: Any) -> tuple[str, ...]:
    """Return a text, or a list of texts, as a tuple, or raise `InvalidInput`."""
    try:
        given = (values,) if isinstance(values, str) else tuple(values)
    except TypeError:
        given = (None,)
    if not all(isinstance(text, str) for text in given):
        raise InvalidInput(f"{name} must be a list of texts")
    return given
