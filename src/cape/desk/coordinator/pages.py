"""What the handlers of the coordinator's pages share."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from cape.desk.coordinator.workspace import Workspace
from cape.desk.page import render
from cape.show import Table, html

__all__ = ["shown", "when", "workspace"]


def workspace(request: Request) -> Workspace:
    """Return the coordinator's workspace of this desk."""
    found: Workspace = request.app.state.coordinator
    return found


def shown(request: Request, template: str, **context: Any) -> Response:
    """Return a page of the coordinator."""
    told = {"table": _table, "when": when, "writes": request.state.person.may("steward")}
    return render(request, f"coordinator/{template}.html", **(told | context))


def when(moment: datetime) -> str:
    """Return a moment as pages show it."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _table(told: Table) -> Markup:
    text = html.table(told)  # it escapes every cell
    return Markup(text.replace('<div class="wide">', '<div class="wide" tabindex="0">', 1))  # keys scroll it
