"""Modules that have moved: their former names still import, with a `DeprecationWarning`.

The list holds what pages and examples have named, and the packages above them. A name below one of them,
such as `cape.steward.folder`, is looked up where its package is now. The list is asked before the path:
below `cape.steward`, which is `cape.site`, the path would find modules of that package and load them again.
Former names in `cape` itself are attributes, too: `import cape` used to load some of them.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["MOVED", "install", "now_called", "with_former_names"]

MOVED = {
    "cape.analyses.regression.sensitivity": "cape.analyses.tensor_sums",
    "cape.analyses.regression.scores": "cape.analyses.regression.score_query",
    "cape.analyses.site_scores": "cape.analyses.sites.site_scores",
    "cape.check": "cape.core.check",
    "cape.errors": "cape.core.errors",
    "cape.noise.law": "cape.stats.law",
    "cape.steward": "cape.site",
    "cape.steward.admin": "cape.site.admin",
    "cape.steward.amount": "cape.privacy.accounting",
    "cape.steward.daemon": "cape.site.daemon",
    "cape.unix": "cape.core.unix",
}


def now_called(former: str) -> str | None:
    """Return what a module is called now, or None if this was never its name."""
    above, rest = former, ""
    while above and above not in MOVED:
        above, _, last = above.rpartition(".")
        rest = f".{last}{rest}"
    return MOVED[above] + rest if above else None


def _load(former: str, now: str) -> ModuleType:
    """Import a module as it is called now."""
    try:
        return importlib.import_module(now)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{now}.".startswith(f"{error.name}."):
            raise  # the module is there, and misses another one
        raise ModuleNotFoundError(
            f"No module named {former!r}: it would be called {now} now, which does not exist", name=former
        ) from None


def _warn(former: str, now: str) -> None:
    warnings.warn(f"{former} is called {now} now", DeprecationWarning, stacklevel=3)


class _Finder:
    """Finds a former name before all other finders, and loads the module as it is called now.

    It subclasses nothing of `importlib.abc`, which loads fifty modules that `import cape` does without.
    """

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a former name, None for any other."""
        loader: Any = self
        return importlib.machinery.ModuleSpec(fullname, loader) if now_called(fullname) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave it to Python to make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module under its former name, too."""
        former = module.__name__
        now = now_called(former)
        assert now is not None, "find_spec has asked"
        sys.modules[former] = _load(former, now)
        _warn(former, now)


def install() -> None:
    """Have former names found, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def with_former_names(package: str, found: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return `__getattr__` of a package: its former modules are found as well as what `found` returns."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        former = f"{package}.{name}"
        if former not in MOVED:
            return found(name)
        module = _load(former, MOVED[former])
        _warn(former, MOVED[former])
        setattr(sys.modules[package], name, module)
        return module

    return __getattr__
