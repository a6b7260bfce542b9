"""What a form says, written into the study's text.

`applied` writes fields that were sent into the text from which the form was made (`fields`). Only what
differs is written, so comments, sections that have no field ([derive], [person]) and values that no field can
show stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from cape.analyses.registry import KINDS
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data.troubles import toml_key
from cape.desk.coordinator.fields import (
    ABOUT,
    MOST,
    PRIVACY,
    Analysis,
    Column,
    column_of,
    fields_of,
    mapping,
    table_of,
    text_of,
)
from cape.desk.coordinator.inputs import parsed, value_of
from cape.desk.coordinator.study import parse_toml
from cape.desk.page import Form

__all__ = ["applied", "start", "with_analysis"]

_WORDS = ("noise", "scheme", "neighbours")  # of [privacy]: these are texts
_TEXTS = ("unit", "label")
_FIELD = re.compile(r"(column|site|analysis)\.(\d{1,4})\.([a-z_]{1,40})\Z")


def start(sites: Sequence[str]) -> str:
    """Return the text of a new study at these sites."""
    lines = "".join(f"{toml_key(name)} = {{}}\n" for name in sites)
    return f'[study]\nname = ""\n\n[privacy]\nepsilon = 1.0\ndelta = 1e-6\n\n[schema]\n\n[sites]\n{lines}'


def applied(base: str, sent: Form) -> str:
    """Return a text with what a form says; the form was made from the text `base`."""
    before, old, document = fields_of(base), parse_toml(base), _document(base)
    told = {name: sent.get(name, "").strip() for name in ABOUT}
    _write_section(document, "study", before.about, told, ABOUT)
    told = {name: sent.get(f"privacy.{name}", "").strip() for name in PRIVACY}
    _write_section(document, "privacy", before.privacy, told, _WORDS)
    rows = _rows(sent)
    _write_schema(document, before.columns, rows["column"])
    _write_sites(document, table_of(old, "sites"), rows["site"])
    _write_analyses(document, before.analyses, rows["analysis"], sent)
    for name in ("study", "privacy", "schema", "sites"):
        if name not in old and not document[name]:
            document.pop(name)
    return tomlkit.dumps(document)


def with_analysis(text: str, kind: str) -> str:
    """Return a text with one more analysis, of which nothing is said but its kind."""
    if kind not in KINDS:
        raise InvalidInput(f"there is no analysis of kind {check.show(kind)}")
    document = _document(text)
    _blocks(document).append(_block({"kind": kind}))
    return tomlkit.dumps(document)


def _document(text: str) -> Any:
    parse_toml(text)
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, RecursionError):  # tomllib reads it, so this is a difference between the two
        raise InvalidInput("the text of the study cannot be edited by the form; edit it as text") from None


def _blocks(document: Any) -> Any:
    """Return the [[analysis]] tables; a list in one line becomes such tables."""
    tables = document.get("analysis")
    if not isinstance(tables, tomlkit.items.AoT):
        given = tables.unwrap() if isinstance(tables, tomlkit.items.Array) else []
        document.pop("analysis", None)
        document["analysis"] = tomlkit.aot()
        tables = document["analysis"]
        for each in given:
            tables.append(_block(mapping(each)))
    return tables


def _rows(sent: Form) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each kind that were sent, in the order of their numbers; each knows its number."""
    found: dict[str, dict[int, dict[str, str]]] = {"column": {}, "site": {}, "analysis": {}}
    for name in sent:
        match = _FIELD.match(name)
        if match:
            kind, number, key = match[1], int(match[2]), match[3]
            found[kind].setdefault(number, {"number": match[2]})[key] = sent.get(name, "")
    return {kind: [rows[number] for number in sorted(rows)][:MOST] for kind, rows in found.items()}


def _write_section(
    document: Any, name: str, before: Mapping[str, str], told: Mapping[str, str], texts: Sequence[str]
) -> None:
    section = _section(document, name)
    for key, text in told.items():
        if text != before[key]:
            _put(section, key, (text or None) if key in texts else parsed("value", text))


def _write_schema(document: Any, before: Sequence[Column], rows: Sequence[Mapping[str, str]]) -> None:
    schema, known = _section(document, "schema"), {column.name: column for column in before}
    kept: dict[str, Any] = {}
    for row in rows:
        name, was = row.get("name", "").strip(), row.get("was", "")
        if not name or row.get("remove"):
            continue
        if name in kept:
            raise InvalidInput(f"[schema]: column {name!r} is there twice; give one of them another name")
        old = schema[was] if was in known else None
        column = _sent_column(row, known.get(was))
        same = old is not None and column == known[was]
        kept[name] = old if same else _described(column, old)
    if list(kept) == list(schema):
        for name, described in kept.items():
            if described is not schema[name]:
                schema[name] = described
        return
    for name in list(schema):
        del schema[name]
    for name, described in kept.items():
        schema.add(tomlkit.key(name), described)


def _sent_column(row: Mapping[str, str], before: Column | None) -> Column:
    """Return a row of the form under the name that the column had."""
    if before is not None and before.kind == "other":
        return before
    texts = {key: row.get(key, "").strip() for key in ("low", "high", "values", "mean", "sd", *_TEXTS)}
    kind = "category" if row.get("kind") == "category" else "number"
    if kind == "category":
        texts |= {"low": "", "high": "", "unit": "", "mean": "", "sd": ""}
    else:
        texts["values"] = ""
    return Column(before.name if before else "", kind, missing=row.get("missing") == "yes", **texts)


def _described(column: Column, old: Any) -> Any:
    """Return a column as TOML; keys that the form does not know are kept."""
    given = old.unwrap() if old is not None else None
    kept = dict(given) if isinstance(given, Mapping) else {}
    shown = column_of("", given) if given is not None else None
    known = {"low", "high", "bounds", "categories", "missing", *_TEXTS}
    same_kind = shown is not None and shown.kind == column.kind
    extra = {key: value for key, value in kept.items() if key not in known} if same_kind else {}
    told: dict[str, Any]
    if column.kind == "number":
        told = {"low": _bound(column.low), "high": _bound(column.high)}
        if shown is None or (column.mean, column.sd) != (shown.mean, shown.sd):
            extra.pop("expected", None)
            expected = {"mean": parsed("value", column.mean), "sd": parsed("value", column.sd)}
            expected = {key: value for key, value in expected.items() if value is not None}
            extra |= {"expected": expected} if expected else {}
    else:
        values = parsed("list", column.values) or []
        if shown is not None and shown.values == column.values:
            values = kept.get("categories", given)
        told = {"categories": values}
    told |= {key: getattr(column, key) or None for key in _TEXTS}
    told |= {"missing": None if column.missing else False} | extra
    told = {key: value for key, value in told.items() if value is not None}
    if set(told) == {"categories"} and all(isinstance(each, str) for each in told["categories"]):
        return _item(told["categories"])
    return _item(told)


def _bound(text: str) -> Any:
    value = parsed("value", text)
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            return value
    return value


def _write_sites(document: Any, before: Mapping[str, Any], rows: Sequence[Mapping[str, str]]) -> None:
    section, listed = _section(document, "sites"), set()
    for row in rows:
        name = row.get("name", "").strip()
        if not name or row.get("asked") != "yes":
            continue
        listed.add(name)
        rows_told = row.get("rows", "").strip()
        shown = text_of(mapping(before.get(name)).get("rows"))
        if name not in section or rows_told != shown:
            number = parsed("value", rows_told)
            section[name] = _item({} if number is None else {"rows": number})
    for name in [name for name in section if name not in listed]:
        del section[name]


def _write_analyses(
    document: Any, before: Sequence[Analysis], rows: Sequence[Mapping[str, str]], sent: Form
) -> None:
    tables = _blocks(document)
    kept = set()
    for row in rows:
        was, kind = row.get("was", ""), row.get("kind", "")
        if was.isascii() and was.isdigit() and int(was) < min(len(before), len(tables)):
            kept.add(int(was))
            _write_analysis(tables[int(was)], before[int(was)], row, sent)
        elif kind in KINDS:
            table = _block({"kind": kind})
            _write_analysis(table, Analysis(kind), row, sent)
            tables.append(table)
    for place in reversed(range(len(before))):
        if place not in kept:
            del tables[place]
    if not len(tables):
        document.pop("analysis")


def _write_analysis(table: Any, before: Analysis, row: Mapping[str, str], sent: Form) -> None:
    for option in before.options:
        values = sent.all(f"analysis.{row['number']}.{option.name}")
        shown = before.values.get(option.name, [] if option.kind == "columns" else "")
        if option.kind == "flag":
            same = ("yes" in values) == (shown == "yes" if before.values else option.flag)
        elif option.kind == "columns":
            same = [each for each in values if each] == shown
        else:
            same = (values[-1] if values else "").strip() == shown
        if not same:
            _put(table, option.name, value_of(option, values))
    share = row.get("share", "").strip()
    if share != before.share:
        _put(table, "share", parsed("value", share))


def _section(document: Any, name: str) -> Any:
    if not isinstance(document.get(name), Mapping):
        document.pop(name, None)
        document[name] = tomlkit.table()
    return document[name]


def _put(table: Any, key: str, value: Any) -> None:
    """Set a key, or remove it if there is no value."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = _item(value)


def _block(given: Mapping[str, Any]) -> Any:
    table = tomlkit.table()
    for key, value in given.items():
        table.add(tomlkit.key(key), _item(value))
    return table


def _item(value: Any) -> Any:
    """Return a value as TOML writes it in one line."""
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        for key, each in value.items():
            table.append(tomlkit.key(str(key)), _item(each))
        return table
    if isinstance(value, (list, tuple)):
        array = tomlkit.array()
        for each in value:
            array.append(_item(each))
        return array
    return tomlkit.item(value)
