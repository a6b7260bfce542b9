"""*Policy*: a form that edits site.toml, with a diff before anything is saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cape.core.errors import InvalidInput
from cape.desk.page import Form, Page, form, render, see, site
from cape.desk.site import edit
from cape.desk.site.edit import Field, Sheet
from cape.site.admin import Client, Desk

__all__ = ["PAGES"]

_MOST_TRIED = 40  # fields that are looked at one by one


@dataclass
class Change:
    """What a person wants to change: the new text, which fields, and what is wrong with them."""

    text: str
    changed: list[Field] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


def show(request: Request) -> Response:
    """Show the policy as a form."""
    with site(request) as desk:
        now = desk.policy()
    try:
        sheet = Sheet(now.text)
    except InvalidInput as error:  # it can be mended as text
        return _as_text(request, now.text, now.hash, now.problem or str(error))
    return _as_form(request, sheet, now.hash, now.problem)


def show_text(request: Request) -> Response:
    """Show the whole file."""
    with site(request) as desk:
        now = desk.policy()
    return _as_text(request, now.text, now.hash, now.problem)


def try_form(request: Request) -> Response:
    """Check what was written in the form, field by field, and show how the file would change."""
    asked = form(request)
    with site(request) as desk:
        now = desk.policy()
        _require_same(now.hash, asked.get("hash", ""))
        change = changes(desk, now.text, asked)
        if not change.wrong and change.changed:
            tried = desk.try_policy(change.text)
            if tried.problem is None:
                return _confirm(request, change.text, now.hash, tried.diff, change.changed)
            change.wrong = _blame(desk, now.text, change) | {"": _within(tried.problem)}
    if not change.changed and not change.wrong:
        return see(request, "/policy", said="Nothing was changed.")
    return _as_form(request, Sheet(now.text), now.hash, None, change)


def try_text(request: Request) -> Response:
    """Check a whole text, and show how it differs."""
    asked = form(request)
    text = asked.get("text", "")
    with site(request) as desk:
        now = desk.policy()
        _require_same(now.hash, asked.get("hash", ""))
        if text == now.text:
            return see(request, "/policy", said="Nothing was changed.")
        tried = desk.try_policy(text)
    if tried.problem is not None:
        return _as_text(request, text, now.hash, tried.problem)
    return _confirm(request, text, now.hash, tried.diff, [])


def save(request: Request) -> Response:
    """Put a text in force, if the file is still the one that was read."""
    asked = form(request)
    with site(request) as desk:
        done = desk.save_policy(asked.get("text", ""), asked.get("hash", ""))
    if not done.saved:
        raise InvalidInput(f"the policy was not saved: {done.problem}")
    return see(request, "/policy", said="The policy was saved, and is in force.")


def changes(desk: Client | Desk, text: str, asked: Form) -> Change:
    """Return the text with what a person wrote in the form."""
    sheet = Sheet(text)
    change = Change(text)

    def get(name: str) -> str:
        return asked.get(name, "")

    for each in sheet.fields:
        if each.section == "schema":  # the site's own user edits it: see cape.site.admin.reserved
            continue
        value = edit.read(each, get, asked.all)
        change.values[each.name] = edit.shown(each, value)
        if value != sheet.get(each):
            _put(sheet, change, each, value)
    change.text = sheet.text
    return change


def _put(sheet: Sheet, change: Change, each: Field, value: Any) -> None:
    change.changed.append(each)
    try:
        sheet.set(each, value)
    except InvalidInput as error:
        change.wrong[each.name] = str(error)


def _blame(desk: Client | Desk, text: str, change: Change) -> dict[str, str]:
    """Return which fields are invalid by themselves, as the policy's reader says."""
    wrong = {}
    whole = Sheet(change.text)
    for each in change.changed[:_MOST_TRIED]:
        alone = Sheet(text)
        value = whole.get(each)
        alone.set(each, None if each.key not in whole.keys(each.section) else value)
        problem = desk.try_policy(alone.text).problem
        if problem is not None:
            wrong[each.name] = _within(problem)
    return wrong


def _within(problem: str) -> str:
    """Return what is wrong without the path of the file, which the page names already."""
    return problem.partition("site.toml: ")[2] or problem


def _require_same(now: str, was: str) -> None:
    if now != was:
        raise InvalidInput("site.toml has changed since it was read; read it again, and repeat the change")


def _as_form(
    request: Request, sheet: Sheet, hash_: str, problem: str | None, change: Change | None = None
) -> Response:
    change = change or Change(sheet.text)
    values = {each.name: edit.shown(each, sheet.get(each)) for each in sheet.fields} | change.values
    groups = (
        ("Decisions", "site"),
        ("What may be asked", "allow"),
        ("Protection", "protect"),
        ("Budget", "budget"),
        ("Columns", "schema"),
    )
    return render(
        request,
        "site/policy.html",
        status=422 if change.wrong else 200,
        groups=[
            (title, section, [each for each in sheet.fields if each.section == section])
            for title, section in groups
        ],
        values=values,
        wrong=change.wrong,
        problem=problem,
        hash=hash_,
        name=sheet.get(Field("site", "name", "text", "")),
        data=sheet.get(Field("site", "data", "value", "")),
    )


def _as_text(request: Request, text: str, hash_: str, problem: str | None) -> Response:
    return render(request, "site/policy-text.html", text=text, hash=hash_, problem=problem)


def _confirm(request: Request, text: str, hash_: str, diff: str, changed: list[Field]) -> Response:
    lines = diff.splitlines()[2:]
    return render(
        request,
        "site/policy-diff.html",
        text=text,
        hash=hash_,
        lines=lines,
        changed=[f.label for f in changed],
    )


PAGES = (
    Page("/policy", show, title="Policy"),
    Page("/policy/text", show_text),
    Page("/policy/try", try_form, role="admin", method="POST", decides=False),
    Page("/policy/text/try", try_text, role="admin", method="POST", decides=False),
    Page("/policy/save", save, role="admin", method="POST"),
)
