"""CAPE: private statistics across sites, with the accuracy of a trusted curator.

`import cape` loads nothing heavy: every name below is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cape.errors import (
    BudgetExceeded,
    CapeError,
    InvalidInput,
    MissingExtra,
    OverflowRisk,
    PrivacyLeakWarning,
)

if TYPE_CHECKING:
    from cape import noise, privacy
    from cape.privacy import Budget, Guarantee

__version__ = "0.1.0"

# name -> the module that holds it; a module's own name stands for the module itself
_LAZY = {
    "privacy": "cape.privacy",
    "noise": "cape.noise",
    "Budget": "cape.privacy",
    "Guarantee": "cape.privacy",
}

__all__ = [
    "Budget",
    "BudgetExceeded",
    "CapeError",
    "Guarantee",
    "InvalidInput",
    "MissingExtra",
    "OverflowRisk",
    "PrivacyLeakWarning",
    "noise",
    "privacy",
]


def __getattr__(name: str) -> Any:
    try:
        home = _LAZY[name]
    except KeyError:
        raise AttributeError(f"module 'cape' has no attribute {name!r}") from None
    module = importlib.import_module(home)
    value = module if home == f"cape.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
