"""A study as the desk takes it: the text of a study file that names no file, and its plan.

Claim. Text that somebody types into the desk opens no file and no connection of the coordinator's machine,
and no page shows where a site's rows are.
Reason. A study may name files in three places: the source of a site's rows, a model and a checkpoint. The
desk refuses all three before the study is read; across machines a site alone knows where its rows are.
Tested in tests/unit/desk/test_study_text.py.

Whatever else is valid here is what `cape.study` accepts: the same as on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from cape.app import planned
from cape.core import check, documents
from cape.core.errors import InvalidInput
from cape.engine.plan import Plan
from cape.show import Table
from cape.site.decide.policy import SCHEMES
from cape.study import Entry, Study
from cape.study.document import document
from cape.study.named_files import refuse_named_files

__all__ = ["MOST_TEXT", "PlanOfAnalysis", "Planned", "Reply", "make_plan", "parse", "parse_toml"]

MOST_TEXT = 1 << 16
"""Bytes of a study at the desk."""

_PLACE = Path("study")  # the name of the text in errors
_PLANS = 256  # that are remembered


def parse_toml(text: str) -> dict[str, Any]:
    """Return the contents of a text, or raise `InvalidInput`."""
    if len(text.encode()) > MOST_TEXT:
        raise InvalidInput(
            f"a study may have at most {MOST_TEXT >> 10} kB here; submit a larger one with `cape submit`"
        )
    return documents.parse(_PLACE, text)


def parse(text: str) -> Study:
    """Return the study of a text, or raise `InvalidInput` that names the place."""
    document = parse_toml(text)
    with documents.at(str(_PLACE)):
        _refuse_files(document)
    study = Study.parse(text, _PLACE)
    if study.scheme not in SCHEMES:
        raise InvalidInput(
            f"{_PLACE}: [privacy]: scheme {study.scheme!r} cannot be run across machines; use one of "
            f"{', '.join(SCHEMES)}"
        )
    return study


def _refuse_files(document: Mapping[str, Any]) -> None:
    sites = document.get("sites")
    for name, described in sites.items() if isinstance(sites, Mapping) else ():
        if not isinstance(described, Mapping) or not set(described) <= {"rows"}:
            raise InvalidInput(
                f"[sites] {check.plain(str(name))}: write {{}} or {{rows = 400}}, the rows that you expect; "
                "each site alone knows where its rows are"
            )
    refuse_named_files(document)


class PlanOfAnalysis(msgspec.Struct, frozen=True):
    """The plan of one analysis: its tables, and what is to be said of it."""

    sentence: str
    title: str
    tables: tuple[Table, ...]
    no_answer: str
    advice: str


class Planned(msgspec.Struct, frozen=True):
    """The plan of a whole study, as `cape plan` shows it, as plain data."""

    name: str
    description: str
    sites: tuple[str, ...]
    warnings: tuple[str, ...]
    setup: str
    analyses: tuple[PlanOfAnalysis, ...]
    totals: Table
    remarks: tuple[str, ...]


class Reply(msgspec.Struct, frozen=True):
    """A plan, or what is wrong with the study."""

    plan: Planned | None = None
    problem: str = ""


def make_plan(study: Study) -> Planned:
    """Return the plan; what did not change since it was planned last is not computed again."""
    terms = {
        key: value for key, value in document(study).items() if key not in ("name", "description", "analyses")
    }
    sizes = tuple(study.sizes.items()) if study.sizes else None
    plans = [
        (entry, _plan(msgspec.json.encode(terms), sizes, _Asked(study, entry))) for entry in study.analyses
    ]
    return Planned(
        study.name,
        study.description,
        tuple(study.sites),
        study.warnings,
        planned.setup(study),
        tuple(
            PlanOfAnalysis(
                plan.analysis.sentence,
                f"{entry.number}. {plan.analysis.sentence}: share {entry.share:.4g}, "
                f"epsilon {plan.guarantee.epsilon:.3g}",
                (_alone(plan.table()), *plan.outlook),
                plan.no_answer,
                plan.advice,
            )
            for entry, plan in plans
        ),
        planned.totals(study, plans),
        tuple(
            text
            for text in (
                *study.asked_twice,
                study.chosen,
                str(study.better_noise or ""),
                *planned.remarks(study, plans),
            )
            if text
        ),
    )


def _alone(table: Table) -> Table:
    """Return the table of a plan without its title; there is no file that has its other rows."""
    return replace(table, title="", more=0, caption=f"and {table.more} more numbers" if table.more else "")


class _Asked:
    """An analysis of a study, equal to one that asks the same, after the same, with the same share."""

    def __init__(self, study: Study, entry: Entry) -> None:
        self.study, self.entry = study, entry
        earlier = entry.analysis.follows
        before = None if earlier is None else study.analyses[earlier - 1].analysis.to_dict()
        self._key = msgspec.json.encode(
            msgspec.to_builtins([entry.analysis.to_dict(), before, entry.share], str_keys=True)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=_PLANS)
def _plan(terms: bytes, sizes: tuple[tuple[str, int], ...] | None, asked: _Asked) -> Plan:
    return asked.study.plan(asked.entry)
