"""The page docs/assurance.md, made of the JSON files in assurance-out; never edited by hand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from assurance.results import load

__all__ = ["PAGE", "page", "write"]

PAGE = Path("docs/assurance.md")
AUDIT, PICTURE = "assurance-privacy.md", "img/audit.png"

_HEAD = """\
# Assurance

The attacks and checks that this software went through, and their results. This page is generated:
`make audit` runs everything and writes it; `python -m assurance page` writes it again from the results in
`assurance-out`.
Each row has the date and the commit of its measurement; *+ changes* means that files were not committed.
"""

# part -> (title, what it is about)
_PARTS = {
    "fuzz": (
        "Bad input",
        "Valid study files, schemas, expressions, tables (CSV, Parquet, SQLite, DuckDB if installed, "
        "frames), messages of secure aggregation, messages to a site, calls to an aggregator, requests, "
        "policies, keys, pending studies, ledgers, records and checkpoints, corrupted at random; and the "
        "commands that read them (`cape plan` and `run`, and as *stewards* `cape site check`, `approve`, "
        "`refuse`, `trust` and `ledger`). Each input must work or be refused with an error of one or two "
        "lines, within 5 seconds and 1 GB. Cells of tables are recognisable values, and no error, log or "
        "output may contain one. "
        "*Answers*: noise is steered to where formulas break; no analysis may fail once it is paid for. "
        "*Panics below*: files that made the Parquet reader below us panic; they were refused, and it "
        "printed a trace. *Tried again*: took longer than 5 seconds on a busy machine, and less in a second "
        "try.",
    ),
    "load": (
        "Load",
        "The real protocol with many sites, many releases in a row and long vectors. In *sites* and "
        "*entries* every sum is compared exactly with the sum of the survivors' vectors, computed in the "
        "clear. In *releases in a row* and *numbers in a release* answers contain noise, and each must lie "
        "within 8 standard deviations of the truth. *Growth* over releases excludes their results: a "
        "consortium keeps those in `releases` for its user, and the check empties that list.",
    ),
    "soak": (
        "Soak",
        "Sessions of random sizes one after the other, in which sites drop out in random protocol rounds "
        "and come back.",
    ),
    "kills": (
        "Kills",
        "A site's process is killed (SIGKILL) at random points between the request and the answer. Whatever "
        "left the site must be in its ledger.",
    ),
    "attacks": (
        "The protocol under attack",
        "An aggregator, a coordinator and a colluding site that lie, against four sites with real folders "
        "and ledgers ([how](audit.md#the-protocol)). *Refused*: the sites refused; the code of each "
        "refusal, and how often. *Paid for*: the number of vectors that left the sites; their ledgers have "
        "at least as many lines, with this total mu²: the attacker got what was paid for, under noise, and "
        "nothing else. *Passed*: nothing left a site unpaid, no site's vector was exposed, no sum was wrong, "
        "and none held less noise of honest sites than was paid for.",
    ),
    "edge": (
        "A deployment under attack",
        "Real processes on this machine (an aggregator, sites with their daemons and links, a coordinator), "
        "attacked by a hostile administrator, a hostile site, code that runs in a link, and anybody who "
        "reaches the port. V1 to V8 are vulnerabilities that an attack on version 0.1.0 found; they are "
        "fixed.",
    ),
    "mutants": (
        "Mutants",
        "Small wrong edits of the code that guards privacy: a mask's sign, a threshold less one, a check "
        "left out, noise from a public key, the price of one stage for all. Each is made in a copy of the "
        "source. The tests named with it must fail with the edit and pass without it. Survivors are listed: "
        "each needs another test.",
    ),
    "supply": (
        "Supply chain",
        "Packages with known vulnerabilities, and the licences of all installed packages, in the "
        "environment that ran this and in those for NVFLARE (`.venv-flare`) and torch (`.venv-torch`), if "
        "they exist; for these two, tables list only what the first does not have in the same version. "
        "*Library*: may be used as it is, under its own terms.",
    ),
}
_SIGNS = {"pass": "passed", "fail": "**failed**", "skip": "**not checked**"}


def write(out: Path, path: Path) -> Path:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(out), encoding="utf-8")
    drawn = out / "audit.png"
    if drawn.is_file():
        picture = path.parent / PICTURE
        picture.parent.mkdir(exist_ok=True)
        shutil.copyfile(drawn, picture)
    return path


def page(out: Path) -> str:
    """Return the page."""
    parts = [_HEAD, *_audit(out)]
    for name, (title, about) in _PARTS.items():
        parts.append(f"## {title}\n\n{about}\n")
        file = out / f"{name}.json"
        if not file.is_file():
            parts.append(f"Not run yet: `python -m assurance {name}`.\n")
            continue
        parts += [_table(load(file)), *_more(load(file))]
    return "\n".join(parts)


def _audit(out: Path) -> list[str]:
    """Return the part about `cape audit`: the page that it made, one level lower."""
    about = "## The guarantee\n\n`cape audit` takes the adversary's side: [how](audit.md).\n"
    file = out / AUDIT
    if not file.is_file():
        return [about, "Not run yet: `cape audit --out assurance-out`.\n"]
    lines = file.read_text(encoding="utf-8").splitlines()
    body = [f"#{line}" if line.startswith("#") else line for line in lines if not line.startswith("# ")]
    return [about, "\n".join(body).replace("](audit.svg)", f"]({PICTURE})").strip() + "\n"]


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| check | verdict | figures | date | commit | command |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = (
            row.get("name", ""),
            _SIGNS.get(str(row.get("verdict")), str(row.get("verdict", ""))),
            _figures(row.get("figures", {})),
            str(row.get("date", ""))[:10],
            row.get("commit") or "unknown",
            f"`{row['command']}`" if row.get("command") else "",
        )
        lines.append("| " + " | ".join(_cell(str(cell)) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _figures(figures: dict[str, Any]) -> str:
    shown = []
    for key, value in figures.items():
        if isinstance(value, (list, dict)):
            continue
        if isinstance(value, float):
            value = f"{value:.4g}"
        shown.append(
            f"{key.replace('_', ' ')} {value:,}"
            if isinstance(value, int)
            else f"{key.replace('_', ' ')} {value}"
        )
    return ", ".join(shown)


def _more(rows: list[dict[str, Any]]) -> list[str]:
    """Return remarks, and tables that a result brings with it."""
    found = []
    for row in rows:
        notes = row.get("notes") or []
        if notes:
            found.append(f"{row['name']}:\n\n" + "\n".join(f"- {_cell(note)}" for note in notes) + "\n")
        table = row.get("figures", {}).get("table")
        if table:
            lines = ["| package | version | licence | kind |", "|---|---|---|---|"]
            lines += ["| " + " | ".join(_cell(str(cell)) for cell in line) + " |" for line in table]
            found.append("\n".join(lines) + "\n")
    return found


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())[:600]
