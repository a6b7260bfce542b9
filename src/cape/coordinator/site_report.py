"""A site's report on a study, before anything is computed from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cape.core import check
from cape.site.decide.codes import ASKS, Code
from cape.site.wire import Present, Refused

__all__ = ["SiteReport"]


@dataclass(frozen=True)
class SiteReport:
    """A site's report on a study.

    Attributes:
        present: the site's name, key and version; None if it did not answer.
        key_differs: whether its key or name is not the pinned one.
        refusals: for each analysis why it would be refused; None where it would be answered.
        refused: why it refused the study as a whole, if it did.
        rows: its number of rows, where public.
    """

    site: str
    present: Present | None
    key_differs: bool
    refusals: tuple[Refused | None, ...]
    refused: Refused | None
    rows: int | None

    @property
    def held(self) -> bool:
        """Whether the study waits for the site's steward."""
        return any(each is not None and each.code == Code.APPROVAL for each in self.refusals)

    @property
    def ready(self) -> bool:
        """Whether every analysis would be answered now."""
        return bool(self.refusals) and all(map(self.would_answer, range(1, len(self.refusals) + 1)))

    def would_answer(self, number: int) -> bool:
        """Return whether an analysis, counted from 1, would be answered now."""
        well = self.present is not None and not self.key_differs and self.refused is None
        return well and len(self.refusals) >= number and self.refusals[number - 1] is None

    def could_answer(self, number: int) -> bool:
        """Return whether it would, possibly after the steward's approval."""
        refusal = self.refusals[number - 1] if len(self.refusals) >= number else None
        return self.would_answer(number) or (refusal is not None and refusal.code == Code.APPROVAL)

    @property
    def question(self) -> str:
        """What the site's steward asks, if the study waits for an answer."""
        asked = [
            each.sentence.removeprefix(ASKS)
            for each in self.refusals
            if each is not None and each.code == Code.APPROVAL and each.sentence.startswith(ASKS)
        ]
        return check.plain(asked[0], 600) if asked else ""

    def __str__(self) -> str:
        if self.present is not None and self.key_differs:
            return f"{self.site}: answers as {self.present.name!r} with another key than the pinned one"
        if self.refused is not None:  # possibly even to give its name: its policy may be broken
            return f"{self.site}: refused ({self.refused})"
        if self.present is None:
            return f"{self.site}: is not connected"
        refused: dict[str, list[str]] = {}
        for number, each in enumerate(self.refusals, 1):
            if each is not None:
                refused.setdefault(str(each), []).append(str(number))
        if refused and all(each is None or each.code == Code.APPROVAL for each in self.refusals):
            asks = f", who asks: {self.question}" if self.question else ""
            return f"{self.site}: waits for its steward{asks}"
        why = [f"{self._which(them)} ({reason})" for reason, them in refused.items()]
        return f"{self.site}: " + (f"refuses {'; '.join(why)}" if why else "would answer")

    def _which(self, numbers: Sequence[str]) -> str:
        if len(numbers) == len(self.refusals) > 1:
            return f"all {len(numbers)} analyses"
        return f"{'analysis' if len(numbers) == 1 else 'analyses'} {', '.join(numbers)}"
