"""A bug to plant, so that tests can show that they would find it."""

from __future__ import annotations

from cape.secagg.chain import Chain
from cape.secagg.keys import derive


def same_keys_in_every_step(monkeypatch) -> None:
    """Plant the bug: a step's number makes no difference to a site's secrets."""
    monkeypatch.setattr(Chain, "_next", lambda self, link, step: link)
    monkeypatch.setattr(
        Chain, "_secrets", lambda self, link, step: (derive(link, b"", "s", 0), derive(link, b"", "k", 0))
    )
