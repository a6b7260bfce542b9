"""Keeps a site's folder and its kit apart: the network writes to the kit, and must not reach the ledger.

Claim. `cape site serve` and `cape join` start only if neither folder is inside the other.
Reason. NVFLARE writes and deletes files in the kit; whoever takes over the link can do so anywhere below it.
Tested in tests/unit/site/test_apart.py.
"""

from __future__ import annotations

from pathlib import Path

from cape.core.errors import InvalidInput

__all__ = ["require_apart"]

_OF_A_SITE = ("site.toml", "ledger.sqlite", "identity.key")
_OF_A_KIT = Path("startup", "fed_client.json")
_MOST_ENTRIES = 100_000  # a kit has a few dozen, and some for each job


def require_apart(kit: Path | None, site: Path | None) -> None:
    """Raise if one of the folders is inside the other.

    Args:
        kit: the kit, where it is known (`cape join`).
        site: the site's folder, where it is known (`cape site serve`).
    """
    if kit is not None and site is not None:
        inner, outer = kit.resolve(), site.resolve()
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            raise InvalidInput(_nested(site, kit))
    if kit is not None:
        for number, path in enumerate(kit.resolve().rglob("*")):
            if path.name in _OF_A_SITE:
                raise InvalidInput(_nested(path.parent, kit))
            if number > _MOST_ENTRIES:
                raise InvalidInput(f"{kit} has more files than a kit; delete old jobs, or use a fresh copy")
    if site is not None:
        place = site.resolve()
        for above in (place, *place.parents):
            if (above / _OF_A_KIT).is_file():
                raise InvalidInput(_nested(site, above))


def _nested(site: Path, kit: Path) -> str:
    return (
        f"the site's folder {site} and the kit {kit} must not contain each other: the network writes to the "
        "kit; move the site's folder elsewhere"
    )
