"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["exports"]


def exports(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package: `homes` has the names that each module holds.

    A module itself can be named, too, as in {"cape.noise": ["noise"]}. The same names are imported under
    `TYPE_CHECKING`, for whoever reads types.
    """
    home = {name: module for module, names in homes.items() for name in names}
    own = vars(sys.modules[package])

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(home[name])
        value = module if home[name] == f"{package}.{name}" else getattr(module, name)
        own[name] = value
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*own, *home})

    return __getattr__, __dir__
