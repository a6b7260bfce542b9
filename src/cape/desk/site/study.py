"""*Study*: its file, the plan with the expected accuracy, its sites, and what left for it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cape.desk.page import Page, render, site
from cape.desk.site import words
from cape.desk.site.inbox import card
from cape.site.admin import Client, Desk
from cape.site.admin.data import PlanLine, StudyFile

__all__ = ["PAGES"]


def show(request: Request) -> Response:
    """Show all that the site knows of a study."""
    with site(request) as desk:
        found, people = _found(request, desk), desk.people()
    return render(request, "site/study.html", file=found, card=card(found.study, people), words=words)


def plan(request: Request) -> Response:
    """Show the expected accuracy alone, as a part of another page."""
    with site(request) as desk:
        found = _found(request, desk)
    return render(request, "site/accuracy.html", file=found, doubts=_doubts)


def _found(request: Request, desk: Client | Desk) -> StudyFile:
    """Return the study; its plan goes by the number of rows for those only who may know it."""
    counted = request.state.person.may("steward")
    return desk.study(request.path_params["hash"], request.query_params.get("coordinator") or None, counted)


def _doubts(line: PlanLine) -> list[str]:
    """Return what a plan says of numbers that will have no answer, or perhaps none."""
    return [note for note in line.notes if note.startswith(("No answer", "Perhaps no answer"))]


PAGES = (Page("/study/{hash}", show), Page("/study/{hash}/plan", plan))
