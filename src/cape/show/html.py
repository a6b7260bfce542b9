"""Tables, figures and notes as HTML that needs nothing from elsewhere: a page, or a notebook's cell."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files

from cape.show.figures import KEY, Figure
from cape.show.shown import Shown
from cape.show.svg import draw
from cape.show.tables import Table

__all__ = ["body", "document", "figure", "fragment", "table"]

_MOST_OPEN = 16  # rows of a table that is not folded beside a figure


def document(title: str, parts: Iterable[str]) -> str:
    """Return a page with the report's style."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_style('page')}{_style('figures')}</style>\n</head>\n"
        f"<body>\n<main>\n{chr(10).join(parts)}\n</main>\n</body>\n</html>\n"
    )


def fragment(shown: Shown) -> str:
    """Return what a notebook shows; the style is for this fragment only."""
    style = _style("figures").replace(":root", "&")
    own = "background: var(--paper); color: var(--ink);"
    return f'<div class="cape"><style>.cape {{ {own}\n{style}}}</style>{body(shown)}</div>'


def body(shown: Shown) -> str:
    """Return tables, figures and notes; a long table that a figure shows is folded."""
    figures = "".join(map(figure, shown.figures()))
    opened: list[Table] = []
    folded: list[Table] = []
    for each in shown.tables():
        long = each.folded or (figures and len(each.rows) + each.more > _MOST_OPEN)
        (folded if long else opened).append(each)
    closed = "".join(
        f"<details><summary>All {len(each.rows) + each.more:,} numbers with their intervals</summary>"
        f"{table(each)}</details>"
        for each in folded
    )
    notes = "".join(f"<p>{escape(text)}</p>" for text in shown.notes())
    return f"{''.join(map(table, opened))}{figures}{closed}{notes}"


def table(told: Table, kind: str = "") -> str:
    """Return a table that scrolls if it is wider than the page; `kind` is its CSS class."""
    if told.drawn is not None:
        told = told.without(told.drawn)
    width = f' colspan="{len(told.columns)}"'
    rows, under = [], ""
    for row in told.rows:
        if len(row) == 1:
            under = ' class="under"'
            rows.append(f'<tr class="head"><td{width}>{escape(row[0])}</td></tr>')
        else:
            rows.append(f"<tr{under}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>")
    if told.more:
        rows.append(f"<tr><td{width}>... and {told.more:,} more in results.json</td></tr>")
    head = "".join(f"<th>{escape(name)}</th>" for name in told.columns)
    kind = kind or ("clinical" if under else "numbers")
    title = f"<h3>{escape(told.title)}</h3>" if told.title else ""
    caption = f'<p class="note">{escape(told.caption)}</p>' if told.caption else ""
    return (
        f'{title}<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{caption}"
    )


def figure(told: Figure) -> str:
    """Return a figure with its caption."""
    caption = escape(told.caption).replace(KEY, '<span class="key"></span>')
    panels = "".join(map(draw, told.panels))
    return f'<figure><div class="plot">{panels}</div><figcaption>{caption}</figcaption></figure>'


def _style(name: str) -> str:
    return files("cape.show").joinpath(f"{name}.css").read_text(encoding="utf-8")
