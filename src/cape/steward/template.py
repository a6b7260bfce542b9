"""The policy that `cape site init` writes, for a data steward to change; and one that is made of values."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from cape.steward.keyring import public_text

__all__ = ["plain_policy", "site_toml"]

_TEXT = """\
# What this site allows. Whoever asks, the site's own software reads this file first, and refuses what it does
# not allow. After a change run `cape site check`. Lines that start with # are remarks.

[site]
name = @NAME@           # what the other sites call you: the same name at all of them

# Where the rows are: one row for each person. A CSV or Parquet file, seen from this folder, or one of
#   data = {path = "rows.csv", separator = ";", null_values = ["?", "NA"]}
#   data = {query = "SELECT * FROM patients", connection = "postgresql://..."}
data = "data.csv"

# The last day on which anything is answered. Look at this file again before you change it.
expires = @EXPIRES@

# About how many rows there are, if everyone may know it. Needed only with adjacency = ["add-remove"] below.
# expected_rows = 1000

# "auto" answers what this file allows; "ask" holds every study until you run `cape site approve STUDY`.
approve = "ask"

# The columns that may be talked about, with bounds or categories that you know without looking at the rows.
# Never compute a bound from the data: it would give away a patient's value. Cells outside are moved to the
# bound. A study must have the same bounds for the columns that it uses. Where no cell is ever empty, you may
# say so: weight = {low = 40, high = 140, missing = false}
[schema]
age = [18, 90]
sex = ["female", "male"]

[allow]
# The kinds of analyses that are answered: all there are. None of them runs code that a study brings.
analyses = [
    @KINDS@,
]
# The columns of the schema that may be used; all of them if you leave this out.
# columns = ["age"]
# "cape": your noise and that of other honest sites protect together, under secure aggregation.
# "conventional": your noise protects you by itself; answers are less exact.
schemes = ["cape", "conventional"]
# What a patient's neighbour is. "replace-one": the same number of rows, one of them another; how many rows
# there are is public. "add-remove": one row more or less; how many there are is told to nobody. With both,
# what is asked under add-remove is charged what it costs under replace-one at most: twice its mu.
adjacency = ["replace-one"]

[protect]
# With fewer rows than this nothing is answered (with adjacency = ["add-remove"]: fewer expected_rows).
min_rows = 100
# How many other honest sites must be in every sum ("cape" only).
other_honest = 1
# How many sites a study must at least suppose to side with the aggregator ("cape" only).
colluding = 1

# What may be spent, as (epsilon, delta): the smaller, the better protected. A release that was refused costs
# nothing; one that broke off may have cost all the same. Years are calendar years, in UTC.
[budget]
release = {epsilon = 1.0, delta = 1e-6}        # the most that one analysis may cost
coordinator = {epsilon = 1.0, delta = 1e-6}    # what each coordinator may spend in a year
year = {epsilon = 2.0, delta = 1e-6}           # what all of them together may spend in a year
total = {epsilon = 4.0, delta = 1e-6}          # what may be spent ever

# Who may ask, and which sites may be in the same sum: names and public keys; see `cape site trust FILE`.
[coordinators]

[peers]
"""


def site_toml(name: str, expires: date, kinds: list[str]) -> str:
    """Return the text of a new policy."""
    quoted = ", ".join(f'"{kind}"' for kind in kinds)
    shown = textwrap.fill(quoted, 90, subsequent_indent="    ", break_on_hyphens=False)
    text = _TEXT.replace("@KINDS@", shown).replace("@EXPIRES@", expires.isoformat())
    return text.replace("@NAME@", json.dumps(name, ensure_ascii=False))


def plain_policy(
    name: str,
    schema: Mapping[str, Any],
    analyses: Sequence[str],
    *,
    data: str = "rows.csv",
    expires: date = date(2999, 12, 31),
    approve: str = "auto",
    columns: Sequence[str] | None = None,
    min_rows: int = 100,
    other_honest: int = 1,
    colluding: int = 1,
    epsilon: tuple[float, float, float] = (1.0, 1.0, 1.0),
    total: float | None = None,
    delta: float = 1e-6,
    adjacency: Sequence[str] = ("replace-one",),
    expected_rows: int | None = None,
    coordinators: Mapping[str, bytes] | None = None,
    peers: Mapping[str, bytes] | None = None,
) -> str:
    """Return a policy without remarks: for rehearsals, and for what attacks a site.

    `schema` is as a study file gives it; `epsilon` is of a release, of a coordinator and of a year, and
    `total` of all years: without it, that of one.
    """
    ever = epsilon[-1] if total is None else total
    budget = zip(("release", "coordinator", "year", "total"), (*epsilon, ever), strict=True)
    sections: dict[str, Mapping[str, Any]] = {
        "site": {"name": name, "data": data, "expires": expires, "approve": approve}
        | ({} if expected_rows is None else {"expected_rows": expected_rows}),
        "schema": schema,
        "allow": {"analyses": list(analyses)}
        | ({} if columns is None else {"columns": list(columns)})
        | {"schemes": ["cape", "conventional"], "adjacency": list(adjacency)},
        "protect": {"min_rows": min_rows, "other_honest": other_honest, "colluding": colluding},
        "budget": {key: {"epsilon": most, "delta": delta} for key, most in budget},
        "coordinators": {key: public_text(value) for key, value in (coordinators or {}).items()},
        "peers": {key: public_text(value) for key, value in (peers or {}).items()},
    }
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{_key(key)} = {_toml(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else json.dumps(name, ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
