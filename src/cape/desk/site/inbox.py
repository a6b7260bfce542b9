"""*Inbox*: the studies that wait, each on a card that anybody can decide on; and what was decided."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cape.core.errors import InvalidInput
from cape.desk.page import Form, Page, form, render, see, site
from cape.desk.site import words
from cape.site.admin.data import People, Study

__all__ = ["PAGES", "card"]

_MOST_CARDS = 20  # the others are listed, and have pages of their own


def show(request: Request) -> Response:
    """Show what waits, and what was decided."""
    with site(request) as desk:
        found = desk.inbox()
        people, now = desk.people(), desk.status()
    waiting = found.of("waiting")
    return render(
        request,
        "site/inbox.html",
        now=now,
        waiting=len(waiting),
        cards=[card(each, people) for each in waiting[:_MOST_CARDS]],
        others=waiting[_MOST_CARDS:],
        decided=[*found.of("approved"), *found.of("refused")],
        unreadable=found.unreadable,
        words=words,
    )


def card(study: Study, people: People) -> dict[str, Any]:
    """Return what a card shows besides the study itself."""
    return {
        "study": study,
        "short": words.short(study),
        "bet": words.bet(study),
        "people": words.touched(study, people),
        "allowances": words.allowances(study.limits),
        "refused": [each for each in study.analyses if not each.allowed],
    }


def approve(request: Request) -> Response:
    """Approve a study, once or from now on."""
    asked = form(request)
    once = asked.get("how") == "once"
    with site(request) as desk:
        why, was = asked.get("reason", ""), asked.get("was") or None
        done = desk.approve(*_which(asked), reason=why, once=once, was=was).study
    if done.state == "waiting":
        missing = done.needed - len(done.approvals)
        said = f"You approved {done.study}. It waits for {missing} more, by somebody else."
    else:
        said = f"Approved{' once' if once else ''}: {done.study}. It is answered when {done.who} asks again."
    return see(request, "/inbox", said=said)


def refuse(request: Request) -> Response:
    """Refuse a study."""
    asked = form(request)
    with site(request) as desk:
        done = desk.refuse(*_which(asked), reason=asked.get("reason", "")).study
    return see(request, "/inbox", said=f"Refused: {done.study}. Nothing of it is answered.")


def ask(request: Request) -> Response:
    """Ask the coordinator a question; the study waits on."""
    asked = form(request)
    study, coordinator = _which(asked)
    with site(request) as desk:
        done = desk.ask(study, asked.get("question", ""), coordinator).study
    return see(request, "/inbox", said=f"Your question about {done.study} is told to {done.who}.")


def _which(asked: Form) -> tuple[str, str | None]:
    """Return the study's whole hash, and who asks."""
    study = asked.get("study", "")
    if len(study) != 64:
        raise InvalidInput("the form does not say which study is meant; load the page again")
    return study, asked.get("coordinator") or None


PAGES = (
    Page("/inbox", show, title="Inbox"),
    Page("/inbox/approve", approve, role="steward", method="POST"),
    Page("/inbox/refuse", refuse, role="steward", method="POST"),
    Page("/inbox/ask", ask, role="steward", method="POST"),
)
