"""*Ledger*: every release, the running total against the allowance, the chain, and exports."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cape.core.errors import CapeError, InvalidInput
from cape.desk.page import Page, is_fragment, render, site
from cape.desk.site import pictures, words
from cape.show.plain import csv_rows
from cape.site.admin import Client, Desk
from cape.site.admin.data import Ledger, Line, Verified

__all__ = ["PAGES"]

_PAGE = 50
_AT_ONCE = 2000  # lines that are checked without being asked
_CHECKING = threading.Lock()
_NEVER = Verified(False, "", 0, "", "", None, (), "")
_MOST = 2000  # lines that are read at once for a file


def show(request: Request) -> Response:
    """Show a page of releases, and what all of them add up to; or where the ledger breaks."""
    chosen = _chosen(request)
    before = request.query_params.get("before", "")
    if before and not (before.isascii() and before.isdigit() and len(before) < 16):
        raise InvalidInput("before must be the number of a line")
    with site(request) as desk:
        try:
            book = desk.ledger(after=int(before) if before else None, most=_PAGE, newest=True, **chosen)
            curve = desk.curve()
        except InvalidInput:
            raise
        except CapeError as error:  # a line was changed: nothing is answered, and the page says where
            problem = str(error)
            return render(request, "site/ledger-broken.html", problem=problem, **_verified(request, desk))
        names = _coordinators(desk)
    last = getattr(request.app.state, "verified", _NEVER)
    points = [(datetime.fromisoformat(at), epsilon) for at, epsilon in curve.points]
    most = f"allowed ever: {curve.most:g}"
    about = f"The running total of all releases, epsilon {words.epsilon(book.total.epsilon)}; {most}"
    return render(
        request,
        "site/ledger.html",
        book=book,
        chosen={name: value or "" for name, value in chosen.items()},
        query=urlencode({name: value for name, value in chosen.items() if value}),
        coordinators=names,
        filtered=any(chosen.values()),
        before=before,
        picture=pictures.running(points, curve.most, most, about),
        allowances=words.allowances(book.limits),
        delta=curve.delta,
        at_once=book.total.lines <= _AT_ONCE,
        **_checked(last),
    )


def chain(request: Request) -> Response:
    """Check every line's chain, signature, time and totals, and show where that fails."""
    with site(request) as desk:
        told = _verified(request, desk)
    return render(request, "site/chain-part.html" if is_fragment(request) else "site/chain.html", **told)


def _verified(request: Request, desk: Client | Desk) -> dict[str, Any]:
    """Check the ledger, for one page at a time: 100,000 lines take some ten seconds of the daemon."""
    if not _CHECKING.acquire(blocking=False):
        raise CapeError("the ledger is being checked for another page; look again in a minute")
    try:
        request.app.state.verified = found = desk.verify()
    finally:
        _CHECKING.release()
    return _checked(found)


def _checked(found: Verified) -> dict[str, Any]:
    return {"found": found, "strip": pictures.chain(found.lines, found.line), "words": words}


def as_csv(request: Request) -> Response:
    """Return the chosen lines as CSV, as `cape site ledger --csv` prints them."""
    chosen = _chosen(request)
    first = _some(request, chosen, None)  # before a byte is sent: what is wrong must be a page
    return StreamingResponse(
        _csv(request, chosen, first), media_type="text/csv", headers=_saved("ledger.csv")
    )


def _some(request: Request, chosen: dict[str, Any], after: int | None) -> Ledger:
    with site(request) as desk:
        return desk.ledger(after=after, most=_MOST, lines=True, **chosen)


def _csv(request: Request, chosen: dict[str, Any], book: Ledger) -> Iterator[str]:
    yield csv_rows([Line.__struct_fields__])
    while True:
        yield csv_rows(map(msgspec.structs.astuple, book.releases))
        if book.next is None:
            return
        book = _some(request, chosen, book.next)


def as_json(request: Request) -> Response:
    """Return the whole ledger as a signed text, which `cape site verify --export` checks."""
    with site(request) as desk:
        text = desk.ledger_export()
    return Response(text, media_type="application/json", headers=_saved("ledger.json"))


def _chosen(request: Request) -> dict[str, Any]:
    asked = request.query_params
    found: dict[str, Any] = {name: asked.get(name, "").strip() or None for name in ("coordinator", "study")}
    for name in ("since", "until"):
        given = asked.get(name, "").strip()
        try:
            found[name] = date.fromisoformat(given).isoformat() if given else None
        except ValueError:
            raise InvalidInput(f"{name} must be a day such as {datetime.now(UTC):%Y-%m-%d}") from None
    return found


def _coordinators(desk: Client | Desk) -> list[str]:
    summary = desk.policy().summary
    return [each.name for each in (summary.trusted if summary else ()) if each.coordinator]


def _saved(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


PAGES = (
    Page("/ledger", show, title="Ledger"),
    Page("/ledger/chain", chain),
    Page("/ledger.csv", as_csv),
    Page("/ledger.json", as_json),
)
