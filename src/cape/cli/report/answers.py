"""One section of the report for each analysis: what was asked, a table, and a plot with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from cape.analyses import TableOne
from cape.analyses.regression.logistic_model import LogisticModel
from cape.cli import words
from cape.cli.report.figures import figure
from cape.cli.results import Answered
from cape.engine.query import Estimate
from cape.engine.result import between, number
from cape.learning.neural_network import NetworkModel

__all__ = ["answer"]

_MOST_OPEN = 16
_MOST_ROWS = 200


def answer(answered: Answered) -> str:
    """Return the section of one analysis."""
    release = answered.release
    said = "".join(f'<p class="warning">{escape(words.sentence(text))}</p>' for text in answered.warnings)
    who = ", ".join(release.participants) + ("" if release.rows is None else f" ({release.rows:,} rows)")
    odds = isinstance(release.model, LogisticModel)
    table = f'<div class="wide">{_table(release.estimates, odds)}</div>' if release.estimates else ""
    shown = figure(answered)
    if isinstance(release.analysis, TableOne):
        shown = _clinical(*release.analysis.layout(release.estimates)) + shown
    if len(release.estimates) > _MOST_OPEN:
        count = f"All {len(release.estimates):,} numbers with their intervals"
        table = f"{shown}<details><summary>{count}</summary>{table}</details>"
    else:
        table += shown
    title = words.capital(release.describe())
    notes = "".join(f"<p>{escape(text)}</p>" for text in answered.notes)
    return (
        f"<section><h2>{answered.entry.number}. {escape(title)}</h2>{said}"
        f'{table}{notes}{_summary(release.model)}<p class="note">From {escape(who)}, for '
        f"{words.percent(release.share)} of the budget.</p></section>"
    )


def _clinical(header: list[str], rows: list[list[str]]) -> str:
    """Return the first table of a clinical paper: a name once, and under it what is said about it."""
    body, last = [], ""
    for name, *cells in rows:
        stem, _, what = name.rpartition(", ")
        column, equals, value = stem.partition(" = ")
        title = f"{column}, {what}" if equals else column
        if title != last:
            body.append(f'<tr class="head"><td colspan="{len(header)}">{escape(title)}</td></tr>')
        last = title
        body.append(
            f'<tr class="under"><td>{escape(value or what)}</td>'
            f"{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        )
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    return (
        f'<div class="wide"><table class="clinical"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _summary(model: Any) -> str:
    """Return a model's own table as text, for those who want it as Python prints it."""
    told = getattr(model, "summary", None)
    if not callable(told):
        return ""
    only = " open" if isinstance(model, NetworkModel) else ""  # there may be nothing else to see
    head = f"<details{only}><summary>The model as Python prints it</summary>"
    return f"{head}<pre>{escape(told())}</pre></details>"


def _ratio(e: Estimate) -> tuple[str, str]:
    if e.label == "intercept":
        return "", ""
    value, low, high = (math.exp(min(end, 700.0)) for end in (e.value, *e.interval(0.95)))
    return number(value), between((low, high))


def _table(estimates: Sequence[Estimate], odds: bool = False) -> str:
    rows = []
    for e in estimates[:_MOST_ROWS]:
        cells = (
            number(e.value),
            between(e.interval(0.95)),
            number(e.standard_error),
            number(e.privacy),
            *(_ratio(e) if odds else ()),
        )
        rows.append(f"<tr><td>{escape(e.label)}</td>{''.join(f'<td>{c}</td>' for c in cells)}</tr>")
    if len(estimates) > _MOST_ROWS:
        rows.append(
            f'<tr><td colspan="5">... and {len(estimates) - _MOST_ROWS:,} more in results.json</td></tr>'
        )
    return (
        "<table><thead><tr><th></th><th>value</th><th>95% interval</th><th>standard error</th>"
        f"<th>of it privacy</th>{'<th>odds ratio</th><th>95% interval</th>' if odds else ''}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
