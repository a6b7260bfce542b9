"""The coordinator's pages: studies are written, planned, submitted and watched.

Not here: rules of its own. What it submits, `cape submit` submits; what it plans, `cape plan` plans.

`PAGES` are its pages; they need what `state` returns as `app.state.coordinator`.
"""

from pathlib import Path

from cape.desk.coordinator.watching import PAGES as _WATCHING
from cape.desk.coordinator.workspace import Workspace
from cape.desk.coordinator.writing import PAGES as _WRITING

__all__ = ["PAGES", "Workspace", "state"]

PAGES = (*_WATCHING[:1], *_WRITING, *_WATCHING[1:])


def state(kit: Path, work: Path) -> Workspace:
    """Return what the pages work on: the coordinator's kit, and a folder for drafts and submissions."""
    return Workspace(kit, work)
