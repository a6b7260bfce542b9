"""Tables, figures and notes as HTML that needs nothing from elsewhere: a page, or a notebook's cell."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from html import escape
from importlib.resources import files

from cape.show.figures import KEY, Figure, Panel
from cape.show.plain import to_csv
from cape.show.shown import Framed, Shown
from cape.show.svg import NARROW, WIDE, draw
from cape.show.tables import Table

__all__ = ["body", "document", "downloads", "figure", "fragment", "table"]

_MOST_SAVED = 8  # pictures of one result
_MOST_OPEN = 16  # rows of a table that is not folded beside a figure


def document(title: str, parts: Iterable[str]) -> str:
    """Return a page with the report's style."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_style('page')}{_style('figures')}</style>\n</head>\n"
        f"<body>\n<main>\n{chr(10).join(parts)}\n</main>\n</body>\n</html>\n"
    )


def fragment(shown: Framed) -> str:
    """Return what a notebook shows; the style is for this fragment only."""
    style = _style("figures").replace(":root", "&")
    own = "background: var(--paper); color: var(--ink); font: 14px/1.5 sans-serif; max-width: 60rem;"
    return f'<div class="cape"><style>.cape {{ {own}\n{style}}}</style>{body(shown)}</div>'


def body(shown: Framed) -> str:
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
    """Return a table; `kind` is its CSS class. On a narrow page each row becomes a list of its cells."""
    if told.drawn is not None:
        told = told.without(told.drawn)
    width = f' colspan="{len(told.columns)}"'
    rows, under = [], ""
    for row in told.rows:
        if len(row) == 1:
            under = ' class="under"'
            rows.append(f'<tr class="head"><th scope="rowgroup"{width}>{escape(row[0])}</th></tr>')
        else:
            cells = "".join(map(_cell, told.columns[1:], row[1:]))
            rows.append(f'<tr{under}><th scope="row">{escape(row[0])}</th>{cells}</tr>')
    if told.more:
        rows.append(f"<tr><td{width}>... and {told.more:,} more in results.json</td></tr>")
    corner, *names = told.columns
    head = f"<th>{escape(corner)}</th>" if corner else "<td></td>"
    head += "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    kind = kind or ("words" if told.words else "clinical" if under else "numbers")
    title = f"<h3>{escape(told.title)}</h3>" if told.title else ""
    caption = f'<p class="note">{escape(told.caption)}</p>' if told.caption else ""
    return (
        f'{title}<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{caption}"
    )


def _cell(name: str, text: str) -> str:
    """Return a cell, with the name of its column for narrow pages; an empty one is left out there."""
    return f'<td data-of="{escape(name)}">{escape(text)}</td>' if text else '<td class="none"></td>'


def figure(told: Figure) -> str:
    """Return a figure with its caption, drawn for a wide and for a narrow page."""
    caption = escape(told.caption).replace(KEY, '<span class="key"></span>')
    panels = "".join(draw(panel, WIDE) + draw(panel, NARROW) for panel in told.panels)
    return f'<figure><div class="plot">{panels}</div><figcaption>{caption}</figcaption></figure>'


def downloads(shown: Shown, name: str) -> str:
    """Return links that save its numbers as CSV and its pictures as SVG; the files are inside the page."""
    links = [_saved(f"{name}.csv", "text/csv", to_csv(shown.records()), "numbers (CSV)")]
    panels = [panel for each in shown.figures() for panel in each.panels]
    for place, panel in enumerate(panels, 1):
        end = f"-{place}" if len(panels) > 1 else ""
        if place <= _MOST_SAVED:
            links.append(_saved(f"{name}{end}.svg", "image/svg+xml", _alone(panel), f"picture{end} (SVG)"))
    return f'<p class="save">Save: {" · ".join(links)}</p>'


def _saved(name: str, kind: str, text: str, told: str) -> str:
    data = b64encode(text.encode()).decode()
    return f'<a download="{escape(name)}" href="data:{kind};base64,{data}">{escape(told)}</a>'


def _alone(panel: Panel) -> str:
    """Return a picture as a file of its own, with its style, in light colours."""
    style = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", _style("figures"))
    head = '<svg xmlns="http://www.w3.org/2000/svg" '
    return draw(panel, WIDE).replace("<svg ", head, 1).replace(">", f"><style>{escape(style)}</style>", 1)


def _style(name: str) -> str:
    return files("cape.show").joinpath(f"{name}.css").read_text(encoding="utf-8")
