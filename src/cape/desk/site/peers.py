"""*Peers*: this site's own key, and the keys that it trusts.

Claim. A key is trusted here only by somebody who typed its fingerprint, and was not shown it.
Reason. It takes two steps: somebody gives a card, then types what the owner of the key reads out. The page
compares that with the key, and shows the fingerprint of no card, so that it cannot be copied from the screen.
Tested in tests/unit/desk/test_peers_page.py.
"""

from __future__ import annotations

import hmac
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cape.core.errors import InvalidInput
from cape.desk.page import Page, form, render, see, site
from cape.site.keyring import Card, fingerprint, public_text, read_public

__all__ = ["PAGES"]


def show(request: Request) -> Response:
    """Show the site's own key, and those that the policy trusts."""
    with site(request) as desk:
        mine, now = desk.mine(), desk.policy()
    trusted = () if now.summary is None else now.summary.trusted
    return render(request, "site/peers.html", mine=mine, trusted=trusted, problem=now.problem)


def card(request: Request) -> Response:
    """Return the site's card, as `cape site export-key` prints it."""
    with site(request) as desk:
        mine = desk.mine()
    text = Card(mine.name, read_public("key", mine.key), "site").to_text()
    name = re.sub(r"[^A-Za-z0-9._-]", "_", mine.name)[:80]
    headers = {"content-disposition": f'attachment; filename="{name}.card"'}
    return PlainTextResponse(text, headers=headers)


def read_card(request: Request) -> Response:
    """Read a card, and ask for the fingerprint that its owner reads out."""
    given = Card.parse(form(request).get("card", ""), Path("the card"))
    with site(request) as desk:
        summary = desk.policy().summary
    known = [each for each in (summary.trusted if summary is not None else ()) if each.name == given.name]
    return _ask(request, given, [each for each in known if each.key != public_text(given.key)])


def trust(request: Request) -> Response:
    """Trust a key if the fingerprint that was typed is its own."""
    asked = form(request)
    key, name, role = asked.get("key", ""), asked.get("name", ""), asked.get("role", "")
    own = fingerprint(read_public("key", key))
    coordinator = {"coordinator": True, "site": False}.get(asked.get("as", role))
    if coordinator is None:
        raise InvalidInput("say whether the key is that of a coordinator or of a site")
    if not hmac.compare_digest(_digits(asked.get("fingerprint", "")), _digits(own)):
        raise InvalidInput(
            f"that is not the fingerprint of the card of {name!r}: somebody may have exchanged the card, or "
            "a digit was misheard. Nothing was changed; ask for the card again, and compare once more"
        )
    with site(request) as desk:
        done = desk.trust(name, key, role, coordinator)
    word = "Trusted from now on" if done.changed else "Trusted already"
    what = "coordinator" if coordinator else "site"
    return see(request, "/peers", said=f"{word}: {what} {done.name}, fingerprint {done.fingerprint}.")


def revoke(request: Request) -> Response:
    """Trust a key no longer."""
    asked = form(request)
    with site(request) as desk:
        done = desk.revoke(asked.get("name", ""), asked.get("as") == "coordinator")
    what = "coordinator" if done.coordinator else "site"
    return see(request, "/peers", said=f"No longer trusted: {what} {done.name}.")


def _ask(request: Request, given: Card, others: list[object]) -> Response:
    return render(
        request, "site/peers-trust.html", card=given, key=public_text(given.key), renewed=bool(others)
    )


def _digits(text: str) -> bytes:
    """Return the letters and digits of a fingerprint, however it was typed."""
    return re.sub(r"[^0-9a-z]", "", text.lower()).encode()


PAGES = (
    Page("/peers", show, title="Peers"),
    Page("/peers/card", card),
    Page("/peers/read", read_card, role="admin", method="POST", decides=False),
    Page("/peers/trust", trust, role="admin", method="POST"),
    Page("/peers/revoke", revoke, role="admin", method="POST"),
)
