"""A survey of a site's rows in sentences: what would end a run, what is read otherwise, what to do.

For those who hold the rows. With `Survey.shown` no sentence contains a cell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cape.core import check
from cape.data.categories import Value
from cape.data.columns import Number, as_date
from cape.data.schema import Schema
from cape.data.surveyed import Absent, ColumnSurvey, Ids, Spots, Survey

__all__ = ["Trouble", "beyond", "missing", "remedy", "stops", "toml", "toml_key", "warnings"]

_MANY = 10
_OFTEN = 0.02  # of the cells of a column
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?")
_SUPPOSED = {
    "separator": "cells separated by {!r}",
    "encoding": "the encoding {}",
    "decimal": "a decimal comma",
}
_KINDS = {"number": "not a number", "category": "not a listed category", "date": "not a date"}


@dataclass(frozen=True)
class Trouble:
    """One sentence about a column, or about the file if `column` is empty."""

    column: str
    text: str

    def __str__(self) -> str:
        return f"{self.column}: {self.text}" if self.column else self.text


def stops(survey: Survey) -> list[Trouble]:
    """Return what would end a run, or keep a site's daemon from answering."""
    return list(_file(survey)) + ([] if survey.lenient else list(_cells(survey)))


def warnings(survey: Survey) -> list[Trouble]:
    """Return what counts otherwise than it stands in the file."""
    found = list(_cells(survey)) if survey.lenient else []
    if survey.supposed and survey.lenient:
        found.append(Trouble("", f"the file seems to have {_layout(survey)}, and is not read so"))
    for column in survey.columns:
        found += _beyond(column)
        if (odd := column.fractions).count:
            counts = "it counts" if odd.count == 1 else "they count"
            found.append(
                Trouble(
                    column.name,
                    f"{_count(odd.count, 'cell')} not whole {_at(survey, odd)}{_shown(odd)}, and the schema "
                    f"says integer = true: in tables and synthetic rows {counts} as the whole number below",
                )
            )
        if survey.rows and column.missing == survey.rows:
            found.append(Trouble(column.name, f"empty: all {_number(survey.rows)} cells are missing"))
    if survey.joined and survey.broken.count:
        found.append(
            Trouble(
                "",
                f"{_count(survey.broken.count, 'line')} {_at(survey, survey.broken)} belong to quoted cells "
                "with a line break in them: `cape run` reads them; a daemon takes every line for a row",
            )
        )
    if survey.blank.count:
        found.append(
            Trouble(
                "",
                f"{_count(survey.blank.count, survey.unit)} without any cell {_at(survey, survey.blank)}: "
                "each counts as a person; delete what is no person",
            )
        )
    for ids in survey.ids:
        found += _persons(ids)
    return found


def beyond(schema: Schema, cells: Mapping[str, int]) -> list[Trouble]:
    """Return how many cells lie beyond the bounds of their columns, where a database counted them."""
    found = []
    for name, count in cells.items():
        column = schema.stated[name]
        if count and isinstance(column, Number):
            ends = [_end(bound, date=column.date) for bound in (column.low, column.high)]
            verb = "counts" if count == 1 else "count"
            found.append(
                Trouble(name, f"{_count(count, 'cell')} beyond {ends[0]} to {ends[1]} {verb} as the bound")
            )
    return found


def missing(survey: Survey) -> str:
    """Return how many cells are missing, by column; empty if none is."""
    return ", ".join(
        f"{column.name} {_number(column.missing)} ({_percent(column.missing / survey.rows)})"
        for column in survey.columns
        if 0 < column.missing < survey.rows
    )


def remedy(survey: Survey) -> str:
    """Return the keys for the site's entry in [sites] that would mend most of it; empty if there are none."""
    keys = [f"{key} = {toml(value)}" for key, value in survey.supposed.items()]
    signs = dict.fromkeys(cell for column in survey.columns for cell in column.null_values)
    nulls = [cell for cell in signs if not _NUMBER.fullmatch(cell.strip())]
    if nulls:
        keys.append(f"null_values = {toml(nulls)}")
    rename = {absent.name: absent.same[0] for absent in survey.absent if len(absent.same) == 1}
    if rename:
        keys.append(f"rename = {toml(rename)}")
    meant = {
        column.name: {**column.recode, **_to_missing(column), **column.unclear} for column in survey.columns
    }
    recode = {name: cells for name, cells in meant.items() if cells}
    if recode:
        keys.append(f"recode = {toml(recode)}")
    return ", ".join(keys)


def _to_missing(column: ColumnSurvey) -> dict[str, Value]:
    """Return the numbers that mean a missing cell in this column; in others they may be cells as any."""
    numbers = [cell for cell in column.null_values if _NUMBER.fullmatch(cell.strip())]
    return dict.fromkeys((*numbers, *column.codes), "")


def _file(survey: Survey) -> Iterator[Trouble]:
    yield from (Trouble("", problem) for problem in survey.problems)
    if survey.supposed and not survey.lenient:
        yield Trouble("", f"the file seems to have {_layout(survey)}; what follows supposes it")
    if survey.headless:
        yield Trouble("", _headless(survey))
        return
    for absent in survey.absent:
        yield Trouble(absent.name, _absent(absent))
    for name in survey.twice:
        yield Trouble(name, "the file has more than one column of this name; rename one")


def _layout(survey: Survey) -> str:
    return ", ".join(_SUPPOSED[key].format(value) for key, value in survey.supposed.items())


def _headless(survey: Survey) -> str:
    names = ", ".join(check.show(each.name) for each in survey.absent[:3])
    said = f"no column of the study stands in the first line of the file ({names}, ...)"
    if any(each.same for each in survey.absent):
        return f"{said}; did you mean {', '.join(repr(n) for each in survey.absent for n in each.same)}?"
    return f"{said}; if it has no header, name its columns (columns = [...])"


def _absent(absent: Absent) -> str:
    like = [*absent.same, *absent.near]
    if like:
        advice = f"did you mean {' or '.join(check.show(name) for name in like)}?"
    elif absent.others:
        names = ", ".join(check.show(name) for name in absent.others)
        key = f"rename = {{{toml_key(absent.name)} = ...}}"
        advice = f"the file also has {names}: if it is one of these, write {key}"
    else:
        advice = "add it"
    return f"no such column in the file; {advice}"


def _cells(survey: Survey) -> Iterator[Trouble]:
    """Yield the cells and lines that do not fit."""
    counted = "; they count as missing" if survey.lenient else ""
    if survey.encoding.count and (survey.supposed or survey.lenient or not survey.joined):
        yield Trouble(
            "", f"{_count(survey.encoding.count, 'line')} not in UTF-8 {_at(survey, survey.encoding)}"
        )
    if survey.broken.count and not survey.joined:
        yield Trouble(
            "",
            f"{_count(survey.broken.count, 'line')} with too many cells or an open quote "
            f"{_at(survey, survey.broken)}{counted}",
        )
    for column in survey.columns:
        if column.misfits.count:
            yield Trouble(
                column.name,
                f"{_count(column.misfits.count, 'cell')} {_KINDS[column.kind]} {_at(survey, column.misfits)}"
                f"{counted}{_shown(column.misfits)}{_meant(column)}",
            )
        if column.gaps.count:
            otherwise = (
                "they are replaced by a value within" if survey.lenient else "the schema says that none is"
            )
            yield Trouble(
                column.name,
                f"{_count(column.gaps.count, 'cell')} missing {_at(survey, column.gaps)}; {otherwise}",
            )


def _beyond(column: ColumnSurvey) -> Iterator[Trouble]:
    explained = ""
    if column.unit is not None:
        times = f"multiplied by {column.unit.factor:.4g}"
        if column.unit.factor < 1:
            times = f"divided by {1 / column.unit.factor:.4g}"
        if column.unit.name == "°F":
            times = "as °F"
        name = f"is this column in {column.unit.name}?" if column.unit.name else "is it in another unit?"
        explained = f"; {times}, they would lie within: {name}"
    for count, word, bound in ((column.below, "below", column.low), (column.above, "above", column.high)):
        if not count or bound is None:
            continue
        share = count / max(column.present, 1)
        end = _end(bound, date=column.kind == "date")
        verb = "counts" if count == 1 else "count"
        said = f"{_count(count, 'cell')} {word} {end} ({_percent(share)}) {verb} as {end}"
        if share > _OFTEN:
            counts = f"{_count(count, 'cell')}, which {verb} as {end}"
            said = f"{_percent(share)} {word} {end} ({counts}){explained}"
        yield Trouble(column.name, said)
    for code, cells in column.codes.items():
        yield Trouble(column.name, f"{_count(cells, 'cell')} of {code}: a code for a missing cell?")


def _end(bound: float, *, date: bool) -> str:
    return str(as_date(bound)) if date else f"{bound:g}"


def _persons(ids: Ids) -> Iterator[Trouble]:
    if ids.rows is None and ids.persons < ids.cells:
        rows = f"{_number(ids.cells)} rows, up to {_number(ids.most)} rows each"
        yield Trouble(
            ids.name,
            f"{_number(ids.persons)} different ids in {rows}: without [person] every row counts as another "
            "person, and one with many rows is protected less",
        )
    if ids.beyond:
        verb = "does" if ids.beyond == 1 else "do"
        yield Trouble(
            ids.name,
            f"{_count(ids.beyond, 'row')} {verb} not count: a person has up to {_number(ids.most)}, and "
            f"[person] lets {_number(ids.rows or 1)} of them count",
        )
    if ids.nobody:
        verb = "counts" if ids.nobody == 1 else "count"
        yield Trouble(ids.name, f"{_count(ids.nobody, 'row')} without an id, which {verb} for nobody")


def _meant(column: ColumnSurvey) -> str:
    wanted = dict.fromkeys(str(value) for value in column.recode.values())
    return f"; did you mean {' or '.join(repr(value) for value in wanted)}?" if wanted else ""


def _shown(spots: Spots) -> str:
    if not spots.cells:
        return ""
    more = spots.distinct - len(spots.cells)
    each = ", ".join(
        check.show(cell, 40) + (f" ({_number(count)})" if count > 1 else "")
        for cell, count in spots.cells.items()
    )
    return f": {each}" + (f" and {_number(more)} more" if more > 0 else "")


def _at(survey: Survey, spots: Spots) -> str:
    word = survey.unit if len(spots.places) == 1 else f"{survey.unit}s"
    shown = spots.places if spots.count * 2 <= survey.rows or spots.count < _MANY else spots.places[:3]
    more = spots.count - len(shown)
    return f"({word} {', '.join(shown)}" + (f" and {_number(more)} more" if more > 0 else "") + ")"


def _count(number: int, word: str) -> str:
    return f"{_number(number)} {word}" + ("" if number == 1 else "s")


def _number(number: int) -> str:
    return f"{number:,}"


def _percent(share: float) -> str:
    if share > 0.9995 and share < 1:
        return "99.9%"
    return (
        f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.1f}%" if share >= 0.001 else "below 0.1%"
    )


def toml(value: object) -> str:
    """Return a text, a number, a list or a table as TOML writes it, in one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(str(key))} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, Iterable):
        return "[" + ", ".join(toml(each) for each in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def toml_key(name: str) -> str:
    """Return a name as a key of TOML."""
    return name if _BARE.fullmatch(name) else toml(name)
