"""*Data*: the policy checked against the rows and a study, as `cape site check` does. For stewards only."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cape.core.errors import InvalidInput
from cape.data import troubles
from cape.data.surveyed import ColumnSurvey
from cape.desk.page import Page, form, is_fragment, render, site
from cape.site.admin.data import Checked

__all__ = ["PAGES"]


def show(request: Request) -> Response:
    """Show the page at once; the rows are read by the part of it that asks for them."""
    return render(request, "site/data.html", checked=None, study="", coordinator="")


def check(request: Request) -> Response:
    """Check the policy against the rows."""
    with site(request) as desk:
        checked = desk.check()
    return _shown(request, checked)


def check_study(request: Request) -> Response:
    """Check the rows and what the policy says to a study file."""
    asked = form(request)
    text, who = asked.get("study", ""), asked.get("coordinator", "").strip()
    if not text.strip():
        raise InvalidInput("paste the text of a study file, or choose the file")
    with site(request) as desk:
        checked = desk.check(text, who or None, "study.toml")
    return _shown(request, checked, text, who)


def _shown(request: Request, checked: Checked, study: str = "", coordinator: str = "") -> Response:
    survey = checked.survey
    return render(
        request,
        "site/data-checked.html" if is_fragment(request) else "site/data.html",
        checked=checked,
        study=study,
        coordinator=coordinator,
        stops=[] if survey is None else list(map(str, troubles.stops(survey))),
        warnings=[] if survey is None else list(map(str, troubles.warnings(survey))),
        missing="" if survey is None else troubles.missing(survey),
        remedy="" if survey is None else troubles.remedy(survey),
        columns=[] if survey is None else [(each, _bounds(each), _beyond(each)) for each in survey.columns],
    )


def _bounds(column: ColumnSurvey) -> str:
    if column.low is None or column.high is None:
        return column.kind
    if column.kind == "date":
        return "date"
    return f"{column.low:g} to {column.high:g}"


def _beyond(column: ColumnSurvey) -> int:
    return column.below + column.above


PAGES = (
    Page("/data", show, role="steward", title="Data"),
    Page("/data/check", check, role="steward"),
    Page("/data/study", check_study, role="steward", method="POST", decides=False),
)
