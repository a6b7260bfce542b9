"""What all surfaces have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["PaidForNothing", "Secret", "Surface", "WrongSum"]


class Secret(Exception):
    """Something that was said holds what nobody may see."""


class WrongSum(Exception):
    """A run ended with a sum that is not the survivors'."""


class PaidForNothing(Exception):
    """An analysis gave up after the tables were asked: the budget is spent, and there is no answer."""


class Surface:
    """One kind of input. `make` is a function of the generator alone, so that an input can be made again."""

    secrets: tuple[str, ...] = ()  # none of them may stand in anything that is said

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, random: np.random.Generator) -> Any:
        """Return an input."""
        raise NotImplementedError

    def feed(self, given: Any) -> None:
        """Let the product take it in: it may return, or raise a `CapeError`."""
        raise NotImplementedError

    def show(self, given: Any) -> bytes:
        """Return an input as bytes, to be kept if it is a finding."""
        return given if isinstance(given, bytes) else repr(given).encode("utf-8", "backslashreplace")

    def said(self) -> str:
        """Return what was said beside an exception since the last input: answers, logs."""
        return ""
