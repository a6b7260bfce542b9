"""A site's folder and its kit have nothing of each other: what the network writes to cannot touch the ledger.

Claim. `cape site serve` and `cape join` start only if neither folder lies in the other.
Reason. NVFLARE writes to and deletes in the kit; whoever takes over the link may do so anywhere below it.
Tested in tests/steward/test_apart.py.
"""

from __future__ import annotations

from pathlib import Path

from cape.errors import InvalidInput

__all__ = ["require_apart"]

_OF_A_SITE = ("site.toml", "ledger.sqlite", "identity.key")
_OF_A_KIT = Path("startup", "fed_client.json")
_MOST_ENTRIES = 100_000  # a kit has a few dozen, and some for each job


def require_apart(kit: Path | None, site: Path | None) -> None:
    """Raise if a site's folder lies in a kit, or a kit in a site's folder.

    Args:
        kit: the kit, where it is known (`cape join`).
        site: the site's folder, where it is known (`cape site serve`).
    """
    if kit is not None and site is not None:
        inner, outer = kit.resolve(), site.resolve()
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            raise InvalidInput(_told(site, kit))
    if kit is not None:
        for number, path in enumerate(kit.resolve().rglob("*")):
            if path.name in _OF_A_SITE:
                raise InvalidInput(_told(path.parent, kit))
            if number > _MOST_ENTRIES:
                raise InvalidInput(f"{kit} has more files than a kit; make room in it, or take a fresh copy")
    if site is not None:
        place = site.resolve()
        for above in (place, *place.parents):
            if (above / _OF_A_KIT).is_file():
                raise InvalidInput(_told(site, above))


def _told(site: Path, kit: Path) -> str:
    return (
        f"the site's folder {site} and the kit {kit} must not lie in each other: the network writes to the "
        "kit; move the site's folder to a place of its own"
    )
