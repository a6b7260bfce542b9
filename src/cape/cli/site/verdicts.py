"""A site's verdicts on the analyses of a study, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from cape.site.admin.data import Analysis

__all__ = ["verdict_table"]


def verdict_table(analyses: Sequence[Analysis], delta: float) -> Table:
    """Return what each analysis would cost, and whether it would be answered."""
    table = Table(title="What this site would say", title_justify="left")
    table.add_column("", justify="right")
    table.add_column("analysis")
    for title in ("mu", f"epsilon at {delta:g}"):
        table.add_column(title, justify="right")
    table.add_column("")
    for each in analyses:
        table.add_row(
            str(each.number),
            escape(each.description or each.kind),
            f"{each.mu:.4g}",
            f"{each.epsilon:.4g}",
            _word(each),
        )
    return table


def _word(each: Analysis) -> str:
    if each.refusal is None:
        return "allowed"
    return f"[red]refused[/red]: {escape(f'{each.refusal.code}: {each.refusal.sentence}')}"
