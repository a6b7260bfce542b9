"""The policy that `cape site init` writes, for a data steward to edit; and one made from values."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from cape.site.keyring import public_text

__all__ = ["assignments", "plain_policy", "site_toml"]

_TEXT = """\
# What this site allows. The site's software reads this file before it answers a request, and refuses what it
# does not allow. After a change run `cape site check`. Lines that start with # are comments.

[site]
name = @NAME@           # the name that all other sites use for you

# Where the rows are: one row for each person, unless [person] below says otherwise. A file, relative to this
# folder, or one of
#   data = {path = "rows.csv", separator = ";", encoding = "windows-1252", decimal = ",", null_values = ["?"]}
#   data = {path = "rows.xlsx", sheet = "patients", recode = {sex = {f = "female", m = "male"}}}
#   data = {path = "rows.csv", rename = {age = "AGE_AT_VISIT"}}
#   data = {query = "SELECT * FROM patients", connection = "postgresql://..."}
data = "data.csv"

# The last day on which anything is answered. Review this file before you extend it.
expires = @EXPIRES@

# A public estimate of the number of rows. Needed only with adjacency = ["add-remove"] below.
# expected_rows = 1000

# "auto" answers what this file allows; "ask" holds every study until you run `cape site approve STUDY`.
approve = "ask"
# How many different persons must approve a study: 2 means four eyes.
# approvals = 2

# The columns that studies may use, with bounds or categories that you know without looking at the rows.
# Never compute a bound from the data: it would reveal a patient's value. Cells outside are moved to the
# bound. A study must have the same bounds for the columns that it uses. For a column without empty cells,
# you may write: weight = {low = 40, high = 140, missing = false}
[schema]
age = [18, 90]
sex = ["female", "male"]

# If a person may have several rows: the column that says whose a row is (it never leaves this site, and is in
# no study), how many rows of a person may count in a study, and at how many sites a person may appear.
# [person]
# id = "patient_id"
# rows = 4
# sites = 1

[allow]
# The kinds of analyses that are answered: here all kinds. None of them runs code from a study.
analyses = [
    @KINDS@,
]
# The columns of the schema that may be used; all of them if you leave this out.
# columns = ["age"]
# Whether results may be given for each site, by the column "site" that every study has.
# by_site = true
# Whether tables may be measured to draw synthetic rows from, and how many columns a table of counts may have:
# all that analyses allows, if you leave these out.
# synthetic = false
# ways = 2
# "cape": the noise of all honest sites together protects you, under secure aggregation.
# "conventional": your noise alone protects you; answers are less accurate.
schemes = ["cape", "conventional"]
# Which tables must be indistinguishable. "replace-one": those that differ in one row; the number of rows is
# public. "add-remove": those with one row more or less; the number of rows is private. With both, a release
# under add-remove is charged at most what it costs under replace-one: twice its mu.
adjacency = ["replace-one"]

[protect]
# With fewer rows than this nothing is answered (with adjacency = ["add-remove"]: fewer expected_rows).
min_rows = 100
# How many other honest sites must be in every sum ("cape" only). A study guarantees min_sites - colluding
# - 1 of them: at least 1 if it leaves min_sites out.
other_honest = 1
# How many sites a study must at least assume to collude with the aggregator ("cape" only).
colluding = 1

# What may be spent, as (epsilon, delta): smaller values protect better. A refused release costs nothing; a
# release that broke off may still have cost something. Years are calendar years, in UTC. Without delta, only
# releases with Laplace noise are covered, which need none.
[budget]
release = {epsilon = 1.0, delta = 1e-6}        # the most that one analysis may cost
coordinator = {epsilon = 1.0, delta = 1e-6}    # what each coordinator may spend in a year
year = {epsilon = 2.0, delta = 1e-6}           # what all of them together may spend in a year
total = {epsilon = 4.0, delta = 1e-6}          # what may be spent ever

# Who is told when a study waits, is answered or refused, or 80% of a budget is spent. `cape site notify`
# sends notices, with nothing about the rows. Passwords stay in the environment of that process.
# [notify]
# command = ["/usr/local/bin/our-hook"]        # gets the notice as JSON on its standard input
# smtp = {host = "mail.clinic.org", from = "cape@clinic.org", to = ["steward@clinic.org"]}
# webhook = {url = "https://clinic.org/hook", secret_env = "CAPE_NOTIFY_WEBHOOK"}

# Coordinators that may ask, and sites that may be in the same sum: names and public keys. `cape site trust
# FILE` adds one.
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
    delta: float = 1e-6,
    coordinators: Mapping[str, bytes] | None = None,
    peers: Mapping[str, bytes] | None = None,
) -> str:
    """Return a policy without comments, for rehearsals and audits.

    `schema` is as in a study file; `epsilon` is that of a release, of a coordinator and of a year; all years
    together have that of one.
    """
    budget = zip(("release", "coordinator", "year", "total"), (*epsilon, epsilon[-1]), strict=True)
    sections: dict[str, Mapping[str, Any]] = {
        "site": {"name": name, "data": data, "expires": expires, "approve": approve},
        "schema": schema,
        "allow": {"analyses": list(analyses)}
        | ({} if columns is None else {"columns": list(columns)})
        | {"schemes": ["cape", "conventional"], "adjacency": ["replace-one"]},
        "protect": {"min_rows": min_rows, "other_honest": other_honest, "colluding": colluding},
        "budget": {key: {"epsilon": most, "delta": delta} for key, most in budget},
        "coordinators": {key: public_text(value) for key, value in (coordinators or {}).items()},
        "peers": {key: public_text(value) for key, value in (peers or {}).items()},
    }
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]", *assignments(values)]
    return "\n".join(lines) + "\n"


def assignments(values: Mapping[Any, Any]) -> list[str]:
    """Return a line of TOML for each value, except for missing ones."""
    return [f"{_key(str(key))} = {_toml(value)}" for key, value in values.items() if value is not None]


def _key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else json.dumps(name, ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{" + ", ".join(assignments(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)
