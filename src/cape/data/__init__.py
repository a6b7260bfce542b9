"""The rows of one site: the schema of their columns, the files, frames, databases and cohorts they come from,
how cells, missing ones and persons are read, and which persons are held out for a test, the same at every
site.

Not here: sums (`blocks`). Nothing leaves a site from here.

The sources load polars and narwhals, and are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cape.core.lazy import exports

if TYPE_CHECKING:
    from cape.data.files import Csv, Excel, File
    from cape.data.omop import Omop
    from cape.data.person import Person
    from cape.data.schema import Category, Number, Schema, Site
    from cape.data.sources import Database
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "cape.data.files": ["Csv", "Excel", "File"],
            "cape.data.omop": ["Omop"],
            "cape.data.person": ["Person"],
            "cape.data.schema": ["Category", "Number", "Schema", "Site"],
            "cape.data.sources": ["Database"],
        },
    )

__all__ = ["Category", "Csv", "Database", "Excel", "File", "Number", "Omop", "Person", "Schema", "Site"]
