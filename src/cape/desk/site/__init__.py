"""The steward's pages: they show what `cape.site.admin` returns, and have no rule of their own."""

from cape.desk.site import events, inbox, ledger, log, peers, policy, rows, study

__all__ = ["PAGES"]

PAGES = (
    *inbox.PAGES,
    *study.PAGES,
    *ledger.PAGES,
    *policy.PAGES,
    *rows.PAGES,
    *peers.PAGES,
    *log.PAGES,
    *events.PAGES,
)
