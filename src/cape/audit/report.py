"""The files of an audit: audit.json, a picture, and a Markdown page with the date and the command."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cape import __version__
from cape.audit.cases import FLOOR, FLOOR_FAST, samples_too
from cape.audit.picture import draw
from cape.audit.run import Audit
from cape.audit.table import ERROR, Row
from cape.core.errors import InvalidInput
from cape.show.numbers import count
from cape.show.plain import to_json

__all__ = ["COLUMNS", "PLANTED", "cells", "left_out", "page", "told", "write"]

COLUMNS = (
    "row",
    "claim mu",
    "epsilon at delta",
    "attained",
    "mu >=",
    "its epsilon",
    "epsilon >=",
    "ratio",
    "floor",
    "noise",
    "runs",
    "verdict",
)


def write(found: Audit, out: Path, command: str) -> list[Path]:
    """Write everything into a folder; return the files."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        plain = out / "audit.json"
        plain.write_text(to_json({"command": command, **found.to_dict()}) + "\n", encoding="utf-8")
        said = out / "assurance-privacy.md"
        said.write_text(page(found, command), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--out: {out} cannot be written: {error.strerror}") from None
    pictures = draw(found, out / "audit") if found.rows else []
    return [plain, *pictures, said]


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as text, in the order of COLUMNS."""
    scale = "" if row.scale is None else f"{row.scale[0]:.3f} to {row.scale[1]:.3f}"
    return (
        row.name,
        f"{row.claim_mu:.3f}",
        f"{row.claim_epsilon:.2f} at {row.delta:g}",
        f"{row.attained:.3f}" if row.scale else "",
        f"{row.mu_bound:.3f}",
        f"{row.epsilon_from_mu:.2f}",
        f"{row.epsilon_bound:.2f}",
        f"{row.ratio:.2f}",
        f"{row.needed:g}" if row.needed else "",
        scale,
        f"{row.runs:,}",
        row.verdict,
    )


PLANTED = (
    "An audit that could not find a bug would show nothing: the project's tests plant fifteen bugs in the "
    "code, one at a time, and the audit flags each of them."
)


def told(found: Audit) -> str:
    """Return how many tests were made, and how they divide the error."""
    tests, rows = count(found.tests, "test"), count(len(found.rows), "row")
    shared = "of the error"
    if found.among != found.tests:
        tests, shared = f"{tests} of {found.among}", "of the error of all slices"
    return (
        f"{tests} on {rows}, one to three on each, with equal parts {shared}: the probability that any "
        f"of them is wrong is at most {ERROR:.0%}."
    )


def left_out() -> list[str]:
    """Return which rows could not be run here, in words."""
    return [] if samples_too() else ["Rows with sampling were skipped: they need the extra `accounting`."]


def page(found: Audit, command: str) -> str:
    """Return the page."""
    floor = FLOOR_FAST if found.fast else FLOOR
    plain = [row for row in found.rows if not row.must_flag]
    wrong = [row for row in found.rows if row.must_flag]
    tight = [row.ratio for row in plain if row.needed == floor]
    least = min((row for row in plain if row.needed), key=lambda row: row.ratio / row.needed, default=None)
    lines = [
        "# Empirical privacy and rounding",
        "",
        f"Made on {datetime.now(UTC):%Y-%m-%d} with cape {__version__} by `{command}`, "
        f"in {found.seconds / 60:.1f} minutes. This page is generated: do not edit it.",
        "",
        *([told(found), ""] if found.rows else []),
        "Lower bounds on mu and epsilon need no assumption about the mechanism. The interval for the noise, "
        "relative to its claimed scale, assumes normal noise. *Attained* is the mu of the two tables that "
        "the search found, computed from the noise that the code calibrates to; *its epsilon* is that of a "
        "Gaussian release with the bound on mu; *ratio* is bound over claim, for mu or its epsilon, "
        "whichever is less; *floor* is the least ratio allowed: with few runs, or a small epsilon, no test "
        "comes near the claim. docs/audit.md in the source says how it works, and what it does not cover.",
        "",
    ]
    for line in left_out():
        lines += [line, ""]
    if plain:
        lines += ["## What must hold", ""]
        if tight:
            lines += [
                f"The least ratio of {count(len(tight), 'tight row')} is {min(tight):.2f}; floor {floor:g}.",
                "",
            ]
        if least is not None:
            lines += [f"Nearest to its floor of {least.needed:.2f}: `{least.name}`, {least.ratio:.2f}.", ""]
        lines += [*_table(plain), ""]
    if wrong:
        lines += ["## What must be flagged", "", PLANTED, "", *_table(wrong), ""]
    if found.rows:
        lines += ["![Claim, bound and power of every row](audit.svg)", ""]
    if found.rounding:
        lines += ["## Floating point and rounding", "", "| check | | found |", "|---|---|---|"]
        lines += [f"| {c.name} | {'holds' if c.holds else '**FAILS**'} | {c.found} |" for c in found.rounding]
        lines += [""]
    return "\n".join(lines)


def _table(rows: list[Row]) -> list[str]:
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return head + ["| " + " | ".join(cells(row)) + " |" for row in rows]
