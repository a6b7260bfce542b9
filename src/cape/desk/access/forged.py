"""Forged requests: forms that another site's page sends in the name of a person who has logged in here.

Claim. A form passes only if the browser says that a page of this desk sent it, or says nothing about that,
and only with the CSRF token of the person's session.
Reason. The token is random, of 256 bits, stands on this desk's own pages only, and is compared in constant
time. `cape.desk.app` asks here before any handler of a form.
Tested in tests/unit/desk/test_routes.py (over all routes) and test_app.py.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from cape.desk.access.sessions import Session
from cape.desk.page import form

__all__ = ["require_own", "same_origin"]


def require_own(request: Request, session: Session) -> None:
    """Raise unless a page of this desk sent the form, for this session."""
    if not same_origin(request.headers):
        raise HTTPException(403, "the form was sent from another site's page; nothing was done")
    given = request.headers.get("x-csrf-token") or form(request).get("csrf", "")
    if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), session.csrf.encode()):
        raise HTTPException(
            403, "the form is not of this session; load the page again, and repeat. Nothing was done"
        )


def same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether the browser says that a page of this desk sent a form, or says nothing about it."""
    fetched, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if fetched is not None:
        return fetched == "same-origin"
    try:
        return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
    except ValueError:
        return False
