"""The rows of one site: the schema of their columns, and the files, frames and databases they come from.

Nothing is added up here (`cape.blocks`), and nothing leaves a site from here.
The sources load polars and narwhals, and are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cape.data.files import Csv, Excel, File
from cape.data.omop import Omop
from cape.data.person import Person
from cape.data.schema import Category, Number, Schema, Site

if TYPE_CHECKING:
    from cape.data.sources import Database

__all__ = ["Category", "Csv", "Database", "Excel", "File", "Number", "Omop", "Person", "Schema", "Site"]


def __getattr__(name: str) -> Any:
    if name == "Database":
        from cape.data.sources import Database

        return Database
    raise AttributeError(f"module 'cape.data' has no attribute {name!r}")
