"""What of a policy cannot be changed at the desk: it is the site's own user's, at the command line.

Claim. Whoever works as the desk's user cannot choose what a check of the rows counts, which program
`cape site notify` runs, or to which server it sends its secrets.
Reason. A check says how many cells of a column lie beyond its bounds, exactly. Whoever could move a bound and
check again would find every cell by bisection; likewise with another table, another query, or another column
of persons. So a text that comes from the desk is put in force only if `data`, [schema] and [person] say the
same as before, in the same order and types, and [notify] keeps its command and servers (`pinned`). All else
in the policy can be changed.
Tested in tests/unit/site/test_reserved.py.
"""

from __future__ import annotations

from typing import Any

from cape.core import documents
from cape.core.errors import CapeError, InvalidInput
from cape.site.admin.compared import loaded
from cape.site.notify import NOBODY, Notify, pinned

__all__ = ["require_kept"]

_OWN = "the site's own user edits this part of site.toml, on the site's machine: "
_ROWS = (
    f"{_OWN}`data` under [site], [schema] and [person] decide which cells a check of the rows counts, so "
    "they cannot be changed at the desk; leave them as they were"
)
_NOTICES = (
    f"{_OWN}whoever sends notices runs the command and reaches the servers of [notify] with secrets of their "
    "own, so they cannot be changed at the desk; leave them as they were, remove them, or change recipients"
)
_BROKEN = f"{_OWN}the file in force is not valid TOML, so it is not known what may be changed at the desk"


def require_kept(text: str, old: str) -> None:
    """Raise `InvalidInput` if a new text changes what the desk's user may not change."""
    before = loaded(old)
    if before is None:
        raise InvalidInput(_BROKEN)
    after = loaded(text)
    if after is None:
        return  # refused for that
    if _of_rows(before) != _of_rows(after):
        raise InvalidInput(_ROWS)
    if repr(before.get("notify")) != repr(after.get("notify")) and not _sends_where_it_did(before, after):
        raise InvalidInput(_NOTICES)


def _of_rows(document: dict[str, Any]) -> str:
    """Return what decides which cells count how, as a text in which 1, 1.0 and true differ."""
    site = document.get("site")
    data = site.get("data") if isinstance(site, dict) else site
    return repr([data, document.get("schema"), document.get("person")])


def _sends_where_it_did(before: dict[str, Any], after: dict[str, Any]) -> bool:
    try:
        told = _notify(after)
        return pinned(told, _notify(before)) == told
    except CapeError:
        return False


def _notify(document: dict[str, Any]) -> Notify:
    given = document.get("notify")
    return NOBODY if given is None else documents.decode(given, Notify, file=True)
