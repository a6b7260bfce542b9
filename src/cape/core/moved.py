"""Modules that have moved: their former names still import, with a `DeprecationWarning`.

The list holds what pages and examples have named, and the packages above them. It is asked before the path:
below `cape.steward`, which is `cape.site`, the path would find modules of that package and load them again.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import warnings
from types import ModuleType
from typing import Any

__all__ = ["MOVED", "install"]

MOVED = {
    "cape.analyses.regression.sensitivity": "cape.analyses.tensor_sums",
    "cape.analyses.site_scores": "cape.analyses.sites.site_scores",
    "cape.errors": "cape.core.errors",
    "cape.noise.law": "cape.stats.law",
    "cape.steward": "cape.site",
    "cape.steward.admin": "cape.site.admin",
    "cape.steward.amount": "cape.privacy.accounting",
    "cape.steward.daemon": "cape.site.daemon",
    "cape.unix": "cape.core.unix",
}


class _Finder:
    """Finds a former name before all other finders, and loads the module as it is called now.

    It subclasses nothing of `importlib.abc`, which loads fifty modules that `import cape` does without.
    """

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a former name, None for any other."""
        loader: Any = self
        return importlib.machinery.ModuleSpec(fullname, loader) if fullname in MOVED else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave it to Python to make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module under its former name, too."""
        former = module.__name__
        warnings.warn(f"{former} is called {MOVED[former]} now", DeprecationWarning, stacklevel=2)
        sys.modules[former] = importlib.import_module(MOVED[former])


def install() -> None:
    """Have former names found, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
