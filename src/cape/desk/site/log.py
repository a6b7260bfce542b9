"""*Log*: every decision, and the details of every refusal, newest first."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cape.desk.page import Page, render, site
from cape.desk.site import words
from cape.site.folder import MISSING

__all__ = ["PAGES"]

_MOST = 5000
_STEPS = (100, 1000, _MOST)


def show(request: Request) -> Response:
    """Show the last lines that contain a word."""
    try:
        most = min(max(int(request.query_params.get("lines", "")), 1), _MOST)
    except ValueError:
        most = _STEPS[0]
    word = request.query_params.get("word", "").strip()[:200]
    with site(request) as desk:
        lines = desk.log(most).lines
    if not request.state.person.may("steward"):
        lines = tuple(line for line in lines if MISSING not in line)
    found = [line for line in reversed(lines) if word.lower() in line.lower()]
    return render(
        request,
        "site/log.html",
        lines=list(map(_apart, found)),
        most=most,
        read=len(lines),
        word=word,
        steps=_STEPS,
    )


def _apart(line: str) -> tuple[str, str]:
    """Return when a line was written, and what it says."""
    at, _, what = line.partition(" ")
    return (words.time(at), what) if at[10:11] == "T" else ("", line)


PAGES = (Page("/log", show, title="Log"),)
