"""The steward's pages: inbox, study, ledger, policy, data, log, and the keys of others.

Not here: rules of its own. It shows what `cape.site.admin` returns.
"""

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
