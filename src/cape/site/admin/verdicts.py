"""What a site would say to each analysis of a held study, computed again only if something has changed.

Claim. The verdicts that `verdicts` returns are those of `preview` with this policy and ledger in this year.
Reason. They depend on the study, who asks, the policy, the lines of the ledger and the year, and on nothing
else. The last chain value of a ledger stands for all of its lines. A coordinator may submit many studies of a
hundred analyses: an inbox that computed all of them at every visit would keep the daemon busy.
Tested in tests/unit/site/test_desk.py.
"""

from __future__ import annotations

from pathlib import Path

from cape.site.decide.held import Held
from cape.site.decide.policy import Policy
from cape.site.decide.preview import Verdict, preview
from cape.site.ledger.book import Book

__all__ = ["verdicts"]

_MOST_KEPT = 500  # studies
_kept: dict[tuple[Path, str, bytes], tuple[Policy, bytes, int, list[Verdict]]] = {}


def verdicts(policy: Policy, book: Book, held: Held) -> list[Verdict]:
    """Return what this site would say to each analysis of a study now."""
    key = policy.path, held.study_hash, held.coordinator
    found = _kept.get(key)
    if found is not None and found[:3] == (policy, book.head, book.year):
        return found[3]
    head, year = book.head, book.year
    new = preview(policy, book, held.study, held.coordinator)
    if (book.head, book.year) == (head, year):  # another thread may have read new lines
        while len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept), key), None)
        _kept[key] = policy, head, year, new
    return new
