"""Errors for the people at a site whose table cannot be used: the column, the row and what was expected.

Never a cell: texts are made here from the schema, names and types alone. Exceptions of other libraries
quote cells, so `guarded` drops them and keeps only the name of their type.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from polars.exceptions import PanicException

from cape.core import check
from cape.core.check import hint
from cape.core.errors import CapeError, DataError
from cape.data.columns import as_date
from cape.data.schema import Category, Column, Number

__all__ = [
    "Unanswered",
    "empty",
    "guarded",
    "missing_cell",
    "moved",
    "no_column",
    "no_header",
    "not_in_header",
    "not_recoded",
    "not_renamed",
    "renamed_twice",
    "too_large",
    "twice",
    "unknown_category",
    "wrong_type",
]

_SHOWN = 12
T = TypeVar("T")


class Unanswered(Exception):
    """A database does not answer; the text may be shown to people at the site."""


def guarded(site: str, what: str, advice: str, call: Callable[[], T]) -> T:
    """Return what `call` returns; turn whatever goes wrong in other people's code into a `DataError`."""
    try:
        return call()
    except CapeError:
        raise
    except (Exception, PanicException) as error:  # a panic of Rust is no Exception
        kind = str(error) if isinstance(error, Unanswered) else type(error).__name__
    # Raised out here, so that the error does not carry the other one, which may quote a cell.
    raise DataError(site, f"{what} could not be read ({kind}); {advice}")


@contextmanager
def guarded_batches(
    site: str, what: str, advice: str, call: Callable[[], Iterator[T]]
) -> Iterator[Iterator[T]]:
    """Give what `call` returns, each of its batches `guarded`, and close it at the end, whatever that is.

    A cursor must be closed in the thread that opened it, and an error keeps what it went through alive.
    """
    batches = guarded(site, what, advice, call)

    def each() -> Iterator[T]:
        while (batch := guarded(site, what, advice, lambda: next(batches, None))) is not None:
            yield batch

    try:
        yield each()
    finally:
        if isinstance(batches, Generator):
            guarded(site, what, advice, batches.close)


def empty(site: str) -> DataError:
    """A table without rows."""
    return DataError(site, "the table has no rows; a site takes part with at least one")


def moved(site: str) -> DataError:
    """Rows of persons that are not where they were: a choice among them would not hold."""
    return DataError(
        site,
        "the rows came in another order, or changed, since the rows of each person were chosen; give a query "
        "an ORDER BY, and leave the table as it is while a study runs",
    )


def _named(column: str) -> str:
    return check.show(column, 120)


def no_column(site: str, column: str, known: Iterable[str]) -> DataError:
    """A column of the schema that the table does not have."""
    return DataError(site, f"no column {_named(column)} in the table{hint(column, map(str, known))}", column)


def not_in_header(site: str, column: str, known: Iterable[str]) -> DataError:
    """A column that the first line of a text file does not have; what else stands there may be cells.

    This happens where line ends are not recognised, or the first line runs into the second. Only a
    name that is the schema's own but for case, spaces and signs is shown.
    """
    same = [name for name in known if _letters(name) == _letters(column)]
    advice = f"did you mean {check.show(same[0])}?" if same else "compare it with the schema's names"
    return DataError(site, f"no column {_named(column)} in the table; {advice}", column)


def not_recoded(site: str, column: str) -> DataError:
    """A column that `recode` names, and a file does not have."""
    return DataError(site, f"recode names a column {_named(column)}, which is not in the file; correct it")


def not_renamed(site: str, column: str) -> DataError:
    """A column that `rename` names, and a file does not have."""
    return DataError(site, f"rename names a column {_named(column)}, which is not in the file; correct it")


def renamed_twice(site: str, column: str) -> DataError:
    """A name that `rename` gives to one column, and the file to another."""
    return DataError(
        site,
        f"rename calls a column {_named(column)}, and the file has another of this name; rename that, too",
        column,
    )


def no_header(site: str, column: str) -> DataError:
    """A text file in which no name of the schema stands in the first line: it may be a person's cells."""
    return DataError(
        site,
        f"no column {_named(column)}, nor any other of the schema, in the first line of the file; if it has "
        "no header, name its columns (columns = [...]), and if another sign separates its cells, say which "
        "(separator = ';')",
        column,
    )


def too_large(site: str) -> DataError:
    """A table whose vectors would take more memory than is kept."""
    return DataError(
        site,
        "as vectors the table would need more than 512 MB of memory; divide it into several sites, or use "
        "fewer features",
    )


def twice(site: str, column: str) -> DataError:
    """A name that two columns of the table have."""
    return DataError(site, f"the table has more than one column {_named(column)}; rename one", column)


def type_name(kind: Any) -> str:
    """Return the bare name of a column's type: in its brackets may stand cells, as the values of an Enum."""
    return (kind if isinstance(kind, type) else type(kind)).__name__


def wrong_type(
    site: str, name: str, column: Column, found: str, row: int | None = None, *, in_file: bool = False
) -> DataError:
    """A cell, or a whole column, of a type that cannot hold what the schema says."""
    advice = _as_categories(column)
    if in_file and not advice:
        advice = (
            "; if a sign such as '?' stands for a missing cell, say so: null_values = ['?'], in the study "
            "file or in Csv(path, ...)"
        )
        if found == "text" and not (isinstance(column, Number) and column.date):
            advice += "; if numbers have a decimal comma: decimal = ','"
    elif "text" in found and not advice:
        advice = "; if a sign such as '?' stands for a missing cell, make it null first"
    return _fault(site, name, row, f"expected {_expected(column)}, found {found}{advice}")


def _as_categories(column: Column) -> str:
    """Return what to write where a list of two numbers, or of digits in quotes, was meant otherwise."""
    if isinstance(column, Category):
        digits = [int(v) for v in column.values if isinstance(v, str) and v.isascii() and v.isdigit()]
        if len(digits) < len(column.values) or [str(number) for number in digits] != list(column.values):
            return ""
        return f"; for numbers write them without quotes: {{categories = {digits[:_SHOWN]}}}"
    low, high = column.low, column.high
    if column.date or high - low != 1 or not low.is_integer():
        return ""
    pair = [int(low), int(high)]
    return f"; if {pair[0]} and {pair[1]} are its values, and not bounds, write {{categories = {pair}}}"


def unknown_category(site: str, name: str, column: Category, row: int | None = None) -> DataError:
    """A cell that is not one of the schema's categories."""
    return _fault(
        site, name, row, f"expected {_expected(column)}; correct the cell, or the schema at every site"
    )


def missing_cell(site: str, name: str, row: int | None = None) -> DataError:
    """An empty cell where the schema says that no cell is missing."""
    return _fault(
        site,
        name,
        row,
        "the cell is missing, and the schema says that none is; leave missing = false out of it if some are",
    )


def _letters(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())


def _fault(site: str, name: str, row: int | None, problem: str) -> DataError:
    place = f"column {_named(name)}" if row is None else f"column {_named(name)}, row {row} (the first is 0)"
    return DataError(site, f"{place}: {problem}", name)


def _expected(column: Column) -> str:
    if not isinstance(column, Category) and column.date:
        return (
            "a date, or a text such as 2020-01-31 or 31.01.2020 (the schema clamps it to "
            f"{as_date(column.low)} to {as_date(column.high)})"
        )
    if not isinstance(column, Category):
        return f"a number (the schema clamps it to {column.low:g} to {column.high:g})"
    shown = ", ".join(repr(value) for value in column.values[:_SHOWN])
    more = len(column.values) - _SHOWN
    return f"one of {shown}" + (f" and {more} more" if more > 0 else "")
