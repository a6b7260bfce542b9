"""Connections to databases that compute sums themselves: DuckDB, SQLite, PostgreSQL, MariaDB and Spark;
their dialects, timeouts and snapshots.

Not here: which sums are asked (`blocks/sql`), and databases whose rows are only fetched (`data`).

What each writes differently is in `dialects`; how each is opened, read and asked, in the others.
"""

from __future__ import annotations

from cape.data.databases.connect import check_timeout, open_connection, open_frame
from cape.data.databases.one_select import dialect_of, require_select
from cape.data.databases.reader import SqlReader

__all__ = ["SqlReader", "check_timeout", "dialect_of", "open_connection", "open_frame", "require_select"]
