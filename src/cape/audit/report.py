"""What is kept of an audit: audit.json, a picture, and a page in Markdown with the date and the command."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cape import __version__
from cape.audit.cases import FLOOR, FLOOR_FAST, samples_too
from cape.audit.picture import draw
from cape.audit.run import Audit
from cape.audit.table import ERROR, Row
from cape.errors import InvalidInput

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
    "asked",
    "noise",
    "runs",
    "verdict",
)


def write(found: Audit, out: Path, command: str) -> list[Path]:
    """Write everything into a folder; return the files."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        plain = out / "audit.json"
        text = json.dumps(_finite({"command": command, **found.to_dict()}), indent=2, allow_nan=False)
        plain.write_text(text + "\n", encoding="utf-8")
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
    "An audit that cannot find a bug has found nothing: the project's tests plant nine bugs in the code, one "
    "at a time, and each is flagged (tests/audit/test_planted.py)."
)


def told(found: Audit) -> str:
    """Return how many tests were made, and how they share the error."""
    return (
        f"{found.tests} tests on {len(found.rows)} rows, one to three on each, with equal parts of the "
        f"error: all together are wrong with probability at most {ERROR:.0%}."
    )


def left_out() -> list[str]:
    """Return what could not be played here, in words."""
    return [] if samples_too() else ["Rows over samples were left out: they need the extra `accounting`."]


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
        f"in {found.seconds / 60:.1f} minutes. Do not edit: it is generated.",
        "",
        *([told(found), ""] if found.rows else []),
        "Lower bounds on mu and on epsilon need no assumption about the mechanism; the interval for the "
        "noise, over its claimed scale, assumes that it is normal. *Attained* is the mu of the two tables "
        "that the search found, by the noise that the code reckons with; *its epsilon* is that of a Gaussian "
        "release with the bound on mu; *ratio* is bound over claim, of mu or of its epsilon, whichever is "
        "less, and *asked* what it must be at least: with few runs, or a small epsilon, a claim that holds "
        "cannot be told from a better one. "
        "How it works, and what it does not cover: [the audit](audit.md).",
        "",
    ]
    for line in left_out():
        lines += [line, ""]
    if plain:
        lines += ["## What must hold", ""]
        if tight:
            lines += [
                f"The least ratio of the {len(tight)} tight rows is {min(tight):.2f}; {floor:g} is needed.",
                "",
            ]
        if least is not None:
            lines += [
                f"Nearest to its floor is `{least.name}`, with {least.ratio:.2f} where {least.needed:.2f} is "
                "needed.",
                "",
            ]
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


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
