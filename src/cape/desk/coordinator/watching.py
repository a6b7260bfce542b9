"""Pages on which submissions are watched: who answers, what came, what it cost; by server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from cape.core.errors import CapeError, InvalidInput
from cape.desk.coordinator.network import connected
from cape.desk.coordinator.pages import shown, when, workspace
from cape.desk.coordinator.submitted import Submitted
from cape.desk.coordinator.view import file_of, look, report_of, sentence
from cape.desk.page import Page, see
from cape.show.plain import to_csv
from cape.site.keyring import fingerprint

__all__ = ["PAGES"]

_REPORT = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox allow-downloads"
)
"""The policy of a report: no script, nothing from elsewhere, no origin, so that it reaches nothing here."""

_SHOWN = 50  # submissions, unless all are asked for
_EVERY = 1.0  # seconds between two looks
_PULSE = 15.0  # seconds between two signs of life, which find a browser that has gone
_LONGEST = 300.0  # seconds of one stream; the browser then asks again, with a session that still holds


def studies(request: Request) -> Response:
    """Show drafts and submissions."""
    here = workspace(request)
    here.planner.start()
    found, most = here.submissions(), None if request.query_params.get("all") else _SHOWN
    lines = []
    for each in found[:most]:
        lines.append(
            {
                "id": each.id,
                "name": each.about.name,
                "by": each.about.by,
                "when": when(each.about.submitted),
                "state": each.state,
                "answered": f"{each.done} of {len(each.about.analyses)}",
            }
        )
    older = len(found) - len(lines)
    return shown(request, "studies", submissions=lines, older=older, drafts=here.drafts(), live="/events")


def submission(request: Request) -> Response:
    """Show one submission."""
    seen = look(_submission(request))
    return shown(request, "submission", seen=seen, live=f"/submissions/{seen.id}/events")


def study(request: Request) -> Response:
    """Show the study that was submitted, with its plan."""
    each = _submission(request)
    problem, plan = "", None
    try:
        plan = workspace(request).planner.plan(each.text)
    except CapeError as error:
        problem = str(error)
    told: dict[str, object] = {"problem": problem, "plan": plan, "notes": []}
    return shown(request, "submitted_study", id=each.id, about=each.about, text=each.text, **told)


def study_file(request: Request) -> Response:
    """Hand out the study file."""
    each = _submission(request)
    return _download(each.text.encode(), f"{each.id}.toml", "application/toml")


def report(request: Request) -> Response:
    """Show the report, as a document with nothing to do with the desk."""
    path = report_of(_submission(request))
    if path is None:
        raise InvalidInput("this submission has no report yet")
    return Response(
        path.read_bytes(), media_type="text/html; charset=utf-8", headers={"content-security-policy": _REPORT}
    )


def file(request: Request) -> Response:
    """Hand out a file of the results."""
    path = file_of(_submission(request), request.path_params["name"])
    return FileResponse(path, filename=path.name, media_type="application/octet-stream")


def numbers(request: Request) -> Response:
    """Hand out the numbers of one analysis as CSV."""
    kept, number = _submission(request).kept, request.path_params["number"]
    for each in kept.analyses if kept else ():
        if each.number == number:
            return _download(to_csv(each.records).encode(), f"analysis-{number}.csv", "text/csv")
    raise InvalidInput(f"analysis {number} has no answer yet")


def cancel(request: Request) -> Response:
    """Interrupt a submission."""
    each = _submission(request)
    each.cancel()
    return see(request, f"/submissions/{each.id}", said=f"{each.about.name} is being cancelled.")


def again(request: Request) -> Response:
    """Submit again, or resume."""
    each = _submission(request)
    each.start()
    return see(request, f"/submissions/{each.id}", said=f"{each.about.name} is submitted again.")


def copy(request: Request) -> Response:
    """Make a draft of a submission's study."""
    each = _submission(request)
    name = workspace(request).save(each.text, title=each.about.name)
    return see(
        request, f"/drafts/{name}", said=f"The draft {name} is a copy of the study; the submission stays."
    )


def sites(request: Request) -> Response:
    """Show the pinned keys, and on demand who is connected."""
    here = workspace(request)
    card = here.folder.card
    told: dict[str, object] = {"connected": {}, "heard": ""}
    if request.query_params.get("ask"):
        told["connected"], told["heard"] = connected(here.kit)
    keys = [(name, fingerprint(key)) for name, key in sorted(here.folder.sites.items())]
    return shown(request, "sites", sites=keys, own=card, own_print=fingerprint(card.key), **told)


def events(request: Request) -> Response:
    """Say when a submission changes."""
    each = _submission(request)
    return _stream(lambda: each.mark, lambda: sentence(each))


def all_events(request: Request) -> Response:
    """Say when any submission changes."""
    return _stream(workspace(request).mark, lambda: "A submission goes on.")


def _stream(mark: Callable[[], object], said: Callable[[], str]) -> Response:
    async def tell() -> AsyncIterator[str]:
        before, quiet, left = await asyncio.to_thread(mark), 0.0, _LONGEST
        yield "retry: 2000\n\n"
        while left > 0:
            await asyncio.sleep(_EVERY)
            left, quiet = left - _EVERY, quiet + _EVERY
            now = await asyncio.to_thread(mark)
            if now != before:
                before, quiet = now, 0.0
                told = {"kind": "submission", "sentence": await asyncio.to_thread(said)}
                yield f"event: site\ndata: {json.dumps(told)}\n\n"
            elif quiet >= _PULSE:
                quiet = 0.0
                yield ": still here\n\n"

    return StreamingResponse(tell(), media_type="text/event-stream")


def _submission(request: Request) -> Submitted:
    return workspace(request).submission(request.path_params["id"])


def _download(data: bytes, name: str, kind: str) -> Response:
    return Response(data, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})


PAGES = (
    Page("/", studies, title="Studies"),
    Page("/events", all_events, stream=True),
    Page("/submissions/{id}", submission),
    Page("/submissions/{id}/events", events, stream=True),
    Page("/submissions/{id}/study", study),
    Page("/submissions/{id}/study.toml", study_file),
    Page("/submissions/{id}/report", report),
    Page("/submissions/{id}/files/{name}", file),
    Page("/submissions/{id}/analysis-{number:int}.csv", numbers),
    Page("/submissions/{id}/cancel", cancel, role="steward", method="POST"),
    Page("/submissions/{id}/start", again, role="steward", method="POST"),
    Page("/submissions/{id}/copy", copy, role="steward", method="POST"),
    Page("/sites", sites, title="Sites"),
)
