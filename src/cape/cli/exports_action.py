"""What `cape results` does: imported when it is run, and not where options are listed."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.markup import escape
from rich.text import Text

from cape.app import words
from cape.app.folder import RESULTS
from cape.cli import screen
from cape.cli.exports import Format
from cape.core.errors import InvalidInput, MissingExtra
from cape.show import Table
from cape.show.plain import to_csv
from cape.show.terminal import Fitted

__all__ = ["results"]


class _Analysis(msgspec.Struct):
    number: int
    description: str
    findings: list[str]
    tables: list[Table]
    records: list[dict[str, Any]]
    notes: list[str]
    warnings: list[str]

    @property
    def title(self) -> str:
        return f"{self.number}. {words.capital(self.description)}"


class _Study(msgspec.Struct):
    name: str
    description: str = ""


class _Guarantee(msgspec.Struct):
    statement: str


class _Stored(msgspec.Struct):
    """The part of `results.json` that is shown."""

    study: _Study
    finished: str
    analyses: list[_Analysis]
    guarantee: _Guarantee | None = None
    error: str | None = None


def results(folder: Path, *, format: Format | None, out: Path | None, as_json: bool) -> None:
    """Carry out `cape results`."""
    stored = _read(folder)
    if format is not None:
        written = _WRITERS[format](stored, _writable(out or folder))
        typer.echo(f"Written: {', '.join(map(str, written))}")
    elif as_json:
        typer.echo((folder / RESULTS).read_text(encoding="utf-8"), nl=False)
    else:
        _show(stored)


def _read(folder: Path) -> _Stored:
    path = folder / RESULTS if folder.is_dir() else folder
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Stored)
    except FileNotFoundError:
        raise InvalidInput(
            f"{folder} holds no {RESULTS}: name the folder that `cape run STUDY --out DIR` wrote"
        ) from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InvalidInput(
            f"{path} is not a results file of this version of cape: name the folder that `cape run STUDY "
            "--out DIR` wrote"
        ) from None


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"--out: {folder} cannot be written: {error.strerror}") from None
    return folder


def _show(stored: _Stored) -> None:
    console = screen.console()
    about = f": {escape(stored.study.description)}" if stored.study.description else ""
    console.print(f"\n[bold]{escape(stored.study.name)}[/bold]{about} [dim]({stored.finished[:10]})[/dim]\n")
    for each in stored.analyses:
        console.print(Text(each.title, style="italic"))
        for table in each.tables:
            if not table.folded:
                console.print(Fitted(table))
        for note in each.notes:
            console.print(Text(note, style="dim"))
        for warning in each.warnings:
            console.print(f"[yellow]Warning: {escape(warning)}[/yellow]")
        console.print()
    if stored.guarantee is not None:
        console.print(f"[dim]{escape(stored.guarantee.statement)}[/dim]")
    if stored.error:
        console.print(f"[yellow]{escape(stored.error)}[/yellow]")


def _csv(stored: _Stored, folder: Path) -> list[Path]:
    written = []
    for each in stored.analyses:
        path = folder / f"analysis-{each.number}.csv"
        path.write_text(to_csv(each.records), encoding="utf-8")
        written.append(path)
    return written


def _latex(stored: _Stored, folder: Path) -> list[Path]:
    written = []
    for each in stored.analyses:
        path = folder / f"analysis-{each.number}.tex"
        path.write_text("\n".join(_great(table, each.title).as_latex() for table in _open(each)), "utf-8")
        written.append(path)
    return written


def _html(stored: _Stored, folder: Path) -> list[Path]:
    path = folder / "tables.html"
    parts = [_great(table, each.title).as_raw_html() for each in stored.analyses for table in _open(each)]
    title = f"<title>{html.escape(stored.study.name)}</title>"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8">{title}'
    path.write_text(head + "\n".join(parts), "utf-8")
    return [path]


def _great(table: Table, title: str) -> Any:
    """Return a table of great-tables, which writes LaTeX and HTML."""
    try:
        import great_tables
    except ImportError:
        raise MissingExtra("export", "this format") from None
    import polars

    names = _unique(table.columns)
    heads, rows, group = [], [], ""
    for row in table.rows:
        if len(row) == 1:
            group = row[0]
        else:
            heads.append(group)
            rows.append(row)
    frame = polars.DataFrame(
        {name: [row[place] for row in rows] for place, name in enumerate(names)} | {"group": heads},
        schema=dict.fromkeys([*names, "group"], polars.String),
    )
    grouped = "group" if any(heads) else None
    made = great_tables.GT(frame if grouped else frame.drop("group"), names[0], grouped)
    made = made.tab_header(title=title, subtitle=table.title or None)
    made = made.cols_label(dict(zip(names, table.columns, strict=True)))
    return made.tab_source_note(table.caption) if table.caption else made


def _unique(columns: tuple[str, ...]) -> list[str]:
    """Return the names of columns with numbers behind those that occur again."""
    return [
        f"{name or 'name'}{place if columns.index(name) != place else ''}"
        for place, name in enumerate(columns)
    ]


def _docx(stored: _Stored, folder: Path) -> list[Path]:
    try:
        import docx
    except ImportError:
        raise MissingExtra("export", "this format") from None
    document = docx.Document()
    document.add_heading(stored.study.name, 0)
    for each in stored.analyses:
        document.add_heading(each.title, 1)
        for table in _open(each):
            if table.title:
                document.add_paragraph(table.title)
            made = document.add_table(rows=1, cols=len(table.columns), style="Light List")
            for cell, name in zip(made.rows[0].cells, table.columns, strict=True):
                cell.text = name
            for row in table.rows:
                cells = made.add_row().cells
                for cell, text in zip(cells, row, strict=False):
                    cell.text = text
        for note in each.notes:
            document.add_paragraph(note)
    if stored.guarantee is not None:
        document.add_paragraph(stored.guarantee.statement)
    path = folder / "tables.docx"
    document.save(str(path))
    return [path]


def _xlsx(stored: _Stored, folder: Path) -> list[Path]:
    try:
        import xlsxwriter
    except ImportError:
        raise MissingExtra("export", "this format") from None
    path = folder / "tables.xlsx"
    with xlsxwriter.Workbook(path, {"strings_to_formulas": False, "strings_to_urls": False}) as book:
        bold = book.add_format({"bold": True})
        for each in stored.analyses:
            sheet = book.add_worksheet(f"{each.number}")
            sheet.write(0, 0, each.title, bold)
            line = 2
            for table in _open(each):
                sheet.write_row(line, 0, table.columns, bold)
                for row in table.rows:
                    line += 1
                    sheet.write_row(line, 0, row, bold if len(row) == 1 else None)
                line += 2
            for note in each.notes:
                sheet.write(line, 0, note)
                line += 1
            sheet.autofit(420)
    return [path]


def _open(analysis: _Analysis) -> list[Table]:
    """Return the tables that a terminal would show, or all if it would show none."""
    return [table for table in analysis.tables if not table.folded] or analysis.tables


_WRITERS: dict[Format, Callable[[_Stored, Path], list[Path]]] = {
    Format.csv: _csv,
    Format.xlsx: _xlsx,
    Format.docx: _docx,
    Format.latex: _latex,
    Format.html: _html,
}
