"""The command in this process, and a study, as for tests of the command line."""

from __future__ import annotations

from tests.unit.cli.conftest import cape, change, study

__all__ = ["cape", "change", "study"]
