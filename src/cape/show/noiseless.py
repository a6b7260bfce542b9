"""What is shown of a release without noise: the same, without the words and columns that speak of noise.

Analyses write for releases with noise. Where there was none, "privacy noise counted" is not untrue, but says
that there was some. Tested in tests/unit/show/test_noiseless.py, over all analyses.
"""

from __future__ import annotations

import re
from dataclasses import replace

from cape.show.figures import Figure
from cape.show.tables import Table

__all__ = ["noiseless", "noiseless_figure", "noiseless_table"]

_COLUMNS = ("from privacy", "privacy error", "noise (SD)")
# What speaks of noise, and what says the same without: the first that applies to each place.
_SAID = tuple(
    (re.compile(found), instead)
    for found, instead in (
        (r"; \[key\] marks the part of an interval that [^.]*privacy noise[^.]*\.", "."),
        (r", and count the noise\b", ""),
        (r",( ties) and privacy noise counted\b", r",\1 counted"),
        (r",( privacy)? noise counted\b", ""),
        (r", noise taken off\b", ""),
        (r", less what noise adds\b", ""),
        (r"; privacy noise is counted\b", ""),
        (r"(^|(?<=\. ))(Privacy noise is counted|P counts privacy noise)\.\s*", ""),
        (r" and count privacy noise\b", ""),
        (r", from privacy noise\b", ""),
        (r"\b(from|count) (rows, )?(sampling|sites) and privacy noise\b", r"\1 \2\3"),
        (r"\bcount rows, sites\b", "count rows and sites"),
        (r" Variances are corrected for what noise adds\.", ""),
        (r"\bthey cover privacy noise, not sampling\b", "they do not cover sampling"),
        (r"± is one standard deviation of the noise\.", ""),
        (r" \(noise 0\)", ""),
        (r", the noise 0 an entry\b", ""),
        (r", up to noise and clipping, which intervals count\b", ""),
    )
)


def noiseless(text: str) -> str:
    """Return a text without what it says of noise."""
    for found, instead in _SAID:
        text = found.sub(instead, text)
    return text.strip()


def noiseless_table(table: Table) -> Table:
    """Return a table without columns of noise."""
    for name in _COLUMNS:
        if name in table.columns:
            table = table.without(table.columns.index(name))
    return replace(table, title=noiseless(table.title), caption=noiseless(table.caption))


def noiseless_figure(figure: Figure) -> Figure:
    """Return a figure whose caption says nothing of noise."""
    return replace(figure, caption=noiseless(figure.caption))
