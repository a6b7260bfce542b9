"""Pages on which a study is written: a form beside its plan, the text itself, a review before it is sent.

The study is its text. The page holds all of it, so nothing is kept here between two requests; a draft is
saved when somebody says so.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response

from cape.core.errors import CapeError, InvalidInput
from cape.desk.coordinator.fields import Column, Fields, fields_of
from cape.desk.coordinator.form import applied, start, with_analysis
from cape.desk.coordinator.inputs import kinds
from cape.desk.coordinator.pages import shown, workspace
from cape.desk.coordinator.study import Planned
from cape.desk.page import Form, Page, form, see
from cape.engine.query import Neighbours
from cape.site.decide.policy import SCHEMES

__all__ = ["PAGES"]

_CHOICES = (
    ("noise", "Kind of noise", ("gaussian", "laplace", "auto")),
    ("scheme", "Scheme", tuple(SCHEMES)),
    ("neighbours", "What may change in the data", get_args(Neighbours)),
)
_WAITS = (
    (0, "do not wait"),
    (600, "10 minutes"),
    (3600, "1 hour"),
    (86_400, "1 day"),
    (604_800, "7 days"),
)
_USUAL_WAIT = 86_400
_REMOVE = re.compile(r"remove-(column|analysis)-(\d{1,4})\Z")
_MOST_NAME = 200  # characters of a study's name in a title


def new(request: Request) -> Response:
    """Show the form of a new study at all sites whose keys are known."""
    return _form(request, start(workspace(request).sites), "", blank=1)


def draft(request: Request) -> Response:
    """Show the form of a draft."""
    name = request.path_params["name"]
    return _form(request, workspace(request).draft(name), name)


def plan(request: Request) -> Response:
    """Show the plan of what is in the form now, or what is still missing."""
    return shown(request, "plan", **_planned(request, _sent_text(form(request))))


def change(request: Request) -> Response:
    """Do what a button of the form says."""
    sent = form(request)
    do, name = sent.get("do", "plan"), sent.get("draft", "")
    removed = _REMOVE.match(do)
    if removed:
        return _form(request, _sent_text(_without(sent, f"{removed[1]}.{removed[2]}.")), name)
    text = _sent_text(sent)
    match do:
        case "add-column":
            return _form(request, text, name, blank=1)
        case "add-analysis":
            return _form(request, with_analysis(text, sent.get("new", "")), name)
        case "show-text":
            return _text(request, text, name)
        case "show-form":
            return _form(request, text, name)
        case "save":
            saved = workspace(request).save(text, name, _name(text))
            return see(request, f"/drafts/{saved}", said=f"The draft {saved} is saved.")
        case "discard":
            workspace(request).discard(name)
            return see(request, "/", said=f"The draft {name} is discarded.")
        case "review":
            return _review(request, text, name, sent.get("mode") == "text")
        case _:
            return _text(request, text, name) if sent.get("mode") == "text" else _form(request, text, name)


def submit(request: Request) -> Response:
    """Submit a study that was reviewed."""
    sent, here = form(request), workspace(request)
    try:
        wait = float(sent.get("wait", "0"))
    except ValueError:
        raise InvalidInput("wait must be a number of seconds") from None
    made = here.submit(sent.get("text", ""), request.state.person.name, wait)
    if sent.get("draft"):
        with suppress(InvalidInput):  # the study is submitted, whatever becomes of its draft
            here.discard(sent["draft"])
    return see(request, f"/submissions/{made.id}", said=f"{made.about.name} is submitted.")


def _sent_text(sent: Form) -> str:
    """Return the study that a page holds."""
    if sent.get("mode") == "text":
        return sent.get("text", "")
    return applied(sent.get("base", ""), sent)


def _without(sent: Form, start: str) -> Form:
    return Form([(name, value) for name in sent for value in sent.all(name) if not name.startswith(start)])


def _name(text: str) -> str:
    try:
        return fields_of(text).about["name"][:_MOST_NAME]
    except InvalidInput:
        return ""


def _form(request: Request, text: str, draft: str, blank: int = 0) -> Response:
    """Show the form; a text that it cannot show is shown as text."""
    try:
        fields: Fields = fields_of(text, workspace(request).sites)
    except InvalidInput:
        return _text(request, text, draft)
    return shown(
        request,
        "study",
        fields=fields,
        text=text,
        draft=draft,
        blank=[Column("")] * (blank or not fields.columns),
        kinds=kinds(),
        choices=_CHOICES,
        **_planned(request, text),
    )


def _text(request: Request, text: str, draft: str) -> Response:
    return shown(request, "text", name=_name(text), text=text, draft=draft, **_planned(request, text))


def _review(request: Request, text: str, draft: str, as_text: bool) -> Response:
    told = _planned(request, text)
    if told["problem"]:
        return _text(request, text, draft) if as_text else _form(request, text, draft)
    return shown(request, "review", text=text, draft=draft, waits=_WAITS, usual=_USUAL_WAIT, **told)


def _planned(request: Request, text: str) -> dict[str, object]:
    """Return the plan of a text and what is to be noted, or what is wrong with it."""
    problem, made, notes = "", None, list[str]()
    try:
        made = workspace(request).planner.plan(text)
        notes = _notes(request, made)
    except CapeError as error:
        problem = str(error).removeprefix("study: ")
        problem = f"{problem[:1].upper()}{problem[1:]}{'' if problem.endswith(('.', '?')) else '.'}"
    return {"problem": problem, "plan": made, "notes": notes}


def _notes(request: Request, made: Planned) -> list[str]:
    known = workspace(request).sites
    missing = [name for name in made.sites if name not in known]
    said = [f"{text[:1].upper()}{text[1:]}." for text in made.warnings]
    if missing:
        said.append(
            f"No key of {', '.join(missing)} is pinned in this kit, so the study cannot be submitted: get "
            "the file of each (`cape site export-key`) and run `cape deploy trust FILE`."
        )
    return said


PAGES = (
    Page("/studies/new", new, role="steward", title="New study"),
    Page("/drafts/{name}", draft, role="steward"),
    Page("/study/plan", plan, role="steward", method="POST", decides=False),
    Page("/study", change, role="steward", method="POST"),
    Page("/submissions", submit, role="steward", method="POST"),
)
