"""All that a site knows of a study: its text, its plan, its sites, and what left for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cape.core import check
from cape.core.errors import CapeError
from cape.engine.plan import make_plan
from cape.site.admin import data, shown
from cape.site.decide.held import Held
from cape.site.decide.policy import Policy
from cape.site.decide.review import takes_long
from cape.site.keyring import fingerprint
from cape.site.ledger.book import Book
from cape.site.template import assignments
from cape.study.document import read

__all__ = ["study_file"]

_MOST_LINES = 1000  # of the ledger
_MOST_PLANNED = 20  # analyses of a study: each takes up to a second
_MOST_ENTRIES = 20_000  # that an analysis releases at once
_LONG = 20_000  # characters of a line
_MOST_PLANS = 500
_ROWS = 1000  # at each site, where it is not known how many rows this one has
_plans: dict[tuple[str, int, int], data.PlanLine] = {}
_ABOUT = ("name", "description", "where")
_TERMS = ("epsilon", "delta", "noise", "colluding", "min_sites", "scheme", "neighbours")


def study_file(
    policy: Policy, own: bytes, book: Book, held: Held, told: data.Study, rows: int | None
) -> data.StudyFile:
    """Return what the site knows of a study, planned as if each site had as many rows as this one."""
    theirs = book.select(held.coordinator, held.study_hash)
    released = book.read(theirs[::-1][:_MOST_LINES])
    numbers = range(1, len(told.analyses) + 1)
    return data.StudyFile(
        told,
        text_of(held.study),
        rows,
        tuple(_plan(held, number, rows or _ROWS) for number in numbers[:_MOST_PLANNED]),
        tuple(_party(policy, own, str(name)) for name in held.study["sites"]),
        tuple(shown.line_of(policy, line) for line in released),
        shown.spent(len(theirs), book.cost(theirs), policy.year.delta),
    )


def text_of(study: Mapping[str, Any]) -> str:
    """Return a study's document in the notation of a study file, which says the same."""
    sections: dict[str, Any] = {
        "study": {key: study.get(key) or None for key in _ABOUT},
        "privacy": {key: study.get(key) for key in _TERMS},
        "schema": study.get("schema"),
        "person": study.get("person"),
        "sites": {str(name): {} for name in study.get("sites") or ()},
    }
    lines = []
    for name, values in sections.items():
        if isinstance(values, Mapping):
            lines += [f"[{name}]", *assignments(values), ""]
    for analysis in study.get("analyses") or ():
        lines += ["[[analysis]]", *(assignments(analysis) if isinstance(analysis, Mapping) else ()), ""]
    return "\n".join(check.plain(line, _LONG) for line in lines)[: data.MOST_TEXT]


def _plan(held: Held, number: int, rows: int) -> data.PlanLine:
    """Return the plan of an analysis; it is made once, because it depends on the study and rows alone."""
    key = held.study_hash, number, rows
    found = _plans.get(key)
    if found is None:
        while len(_plans) >= _MOST_PLANS:
            _plans.pop(next(iter(_plans)), None)
        found = _plans[key] = _made(held.study, number, rows)
    return found


def _made(study: Mapping[str, Any], number: int, rows: int) -> data.PlanLine:
    """Return the plan of an analysis for so many rows at each site."""
    title = f"Analysis {number}"
    try:
        asked = read(study, number)
        title = f"{number}. {asked.analysis.sentence}"
        if takes_long(asked):
            return data.PlanLine(number, title, problem="This analysis takes too long to be planned here.")
        entries = sum(array.size for array in asked.query.arrays(asked.setting.schema))
        if entries > _MOST_ENTRIES:
            return data.PlanLine(
                number, title, problem=f"{entries:,} numbers are too many to be planned here."
            )
        sizes = {str(name): rows for name in study["sites"]}
        plan = make_plan(asked.analysis, asked.setting, asked.scheme, float(asked.stages.share), sizes)
        table = plan.table()
        whole = asked.analysis.whole
        return data.PlanLine(number, title, table.columns, table.rows, tuple(plan.notes()), whole=whole)
    except CapeError as error:
        return data.PlanLine(number, title, problem=check.plain(str(error), 300))


def _party(policy: Policy, own: bytes, name: str) -> data.Party:
    key = own if name == policy.name else policy.peers.get(name)
    return data.Party(check.plain(name), "" if key is None else fingerprint(key), name == policy.name)
