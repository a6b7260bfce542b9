"""A policy checked against the rows: what is wrong, and a survey without cells, for the steward only."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import structs

from cape.core.errors import CapeError
from cape.data import troubles
from cape.data.survey import survey
from cape.data.surveyed import Survey
from cape.site.admin.hidden import scrub
from cape.site.decide.policy import Policy
from cape.site.folder import SiteFolder

__all__ = ["surveyed"]


def surveyed(folder: SiteFolder, policy: Policy) -> tuple[list[str], Survey | None]:
    """Return problems, and a survey of the rows without cells."""
    problems: list[str] = []
    found = None
    try:
        folder.identity  # noqa: B018  raises if others can read its file
        schema = policy.schema.of_persons(policy.person)
        found = survey(policy.name, policy.data.source(), schema, lenient=True).shown()
        found = structs.replace(found, problems=tuple(map(scrub, found.problems)))
        problems += [f"the table cannot be used: {trouble}" for trouble in troubles.stops(found)]
        if not problems:
            problems += _too_few(folder, policy, found.rows)
    except CapeError as error:
        problems.append(str(error))
    if policy.expires < datetime.now(UTC).date():
        problems.append(f"the policy expired on {policy.expires}; nothing is answered")
    return problems, found


def _too_few(folder: SiteFolder, policy: Policy, rows: int) -> list[str]:
    """Return the problem that there are too few rows, or persons, if there are."""
    what = "rows"
    if policy.person is not None:
        rows, what = folder.table(policy).of(policy.schema.of_persons(policy.person)).rows(), "persons"
    if rows >= policy.min_rows:
        return []
    return [f"there are {rows:,} {what}, and min_rows asks for {policy.min_rows:,}"]
