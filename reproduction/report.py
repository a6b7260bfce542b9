"""REPRODUCTION.md: written from what was found, never by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cape.core.errors import InvalidInput
from reproduction import main_claims
from reproduction.figure import Claim
from reproduction.main_claims import Judged
from reproduction.registry import names
from reproduction.seeds import FIRST_SEED
from reproduction.store import write

__all__ = ["PAGE", "Section", "kept", "page", "record"]

PAGE = "REPRODUCTION.md"
_MOST = 1 << 24  # bytes of a section
_HEAD = """# The paper, drawn again

Each figure is drawn twice: *as published*, with the paper's own formulas and calibration, and *at equal true
(epsilon, delta)*, with the exact accountant. One more curve is CAPE's own method at true (epsilon, delta).
Bands are one standard deviation over runs (on a logarithmic axis as a factor up and down); rings, where there
are any, are the authors' values. The paper is H. Imtiaz, J. Mohammadi and A. D. Sarwate, *Distributed
Differentially Private Computation of Functions with Correlated Noise*.
"""
_COUNTED = {True: "hold", False: "do not hold", None: "are open"}


@dataclass(frozen=True)
class Section:
    """What one figure came to; `date` is when it first did, `reference` whether there were values."""

    name: str
    title: str
    fast: bool
    seeds: tuple[int, ...]
    cells: int
    pictures: tuple[str, ...]
    claims: tuple[Claim, ...]
    notes: str = ""
    skipped: str = ""
    reference: bool = False
    date: str = ""

    @property
    def options(self) -> str:
        """What stands behind the figure's name on the command line."""
        seed = self.seeds[0] if self.seeds else FIRST_SEED
        parts = [" --fast"] if self.fast else []
        parts += [f" --seed {seed}"] if seed != FIRST_SEED else []
        parts += [" --reference FILE"] if self.reference else []
        return "".join(parts)


def record(section: Section, out: Path) -> None:
    """Keep a section, and write the page from all that are there.

    A section that is as it was keeps its date, so that a second run writes the same bytes.
    """
    before = _read(out, section.name)
    if before is not None and replace(before, date="") == replace(section, date=""):
        section = before
    else:
        section = replace(section, date=_today())
    write(out / "sections" / f"{section.name}.json", json.dumps(asdict(section), indent=1) + "\n")
    write(out / PAGE, page(kept(out)))


def page(sections: Sequence[Section], shown: Mapping[str, str] | None = None) -> str:
    """Return the page; `shown` says which pictures it shows, and where they lie: by default all."""
    claims = [(section, claim) for section in sections for claim in section.claims]
    counts = {name: sum(claim.holds is holds for _, claim in claims) for holds, name in _COUNTED.items()}
    summary = ", ".join(f"{many} {name}" for name, many in counts.items() if many)
    lines = [_HEAD, "## The ten main claims\n"]
    lines += main_claims.table([Judged(section.name, claim.says, claim.holds) for section, claim in claims])
    lines += ["", "## All claims\n", *(f"{line}\n" for line in _made(sections))]
    lines += [f"Of {len(claims)} claims: {summary}.\n", "| | claim | verdict |", "|---|---|---|"]
    lines += [f"| [{s.name}](#{s.name}) | {_cell(c.says)} | {_verdict(c)} |" for s, c in claims]
    for section in sections:
        lines += ["", f"## {section.name}", "", f"**{section.title}.** {_how(section)}", ""]
        if section.skipped:
            lines += [f"Not drawn: {section.skipped}"]
            continue
        there = {file: file for file in section.pictures} if shown is None else shown
        here = [file for file in section.pictures if file in there]
        lines += [f"![{section.name}, {Path(file).stem}]({there[file]})\n" for file in here]
        for claim in section.claims:
            lines += [f"- {claim.where}: {claim.says}", f"  **{_verdict(claim)}.** {claim.measured}"]
            lines += [f"  *Why:* {claim.why}"] if claim.why else []
        lines += ["", section.notes.strip()] if section.notes else []
    return "\n".join(lines).rstrip() + "\n"


def _how(section: Section) -> str:
    if section.skipped:
        return ""
    seeds = section.seeds
    shown = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    return f"`python -m reproduction {section.name}{section.options}`, {shown}."


def _made(sections: Sequence[Section]) -> Iterator[str]:
    """Say by which commands the page came about, and when."""
    runs: dict[tuple[str, str], list[str]] = {}
    for section in sections:
        if not section.skipped:
            runs.setdefault((section.options, section.date), []).append(section.name)
    for (options, date), drawn in runs.items():
        what = "all" if drawn == names() else " ".join(drawn)
        yield f"*Generated by `python -m reproduction {what}{options}` on {date}; do not edit.*"


def _today() -> str:
    """Return the date; SOURCE_DATE_EPOCH sets it, as it does for other tools."""
    set_to = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(set_to), UTC) if set_to.isdigit() else datetime.now(UTC)
    return now.date().isoformat()


def _verdict(claim: Claim) -> str:
    return claim.verdict.capitalize()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def kept(out: Path) -> list[Section]:
    """Return all sections that were recorded there; raise an error that names the file if one is none."""
    return [held for name in names() if (held := _read(out, name)) is not None]


def _read(out: Path, name: str) -> Section | None:
    file = out / "sections" / f"{name}.json"
    if not os.path.isfile(file):  # False for a name that is too long, where Path raises
        return None
    try:
        if file.stat().st_size > _MOST:
            raise ValueError
        held = json.loads(file.read_text(encoding="utf-8"))
        section = _section(held)
        if section.name != name:
            raise ValueError
        page([section])  # whatever its types are, a page can be made of it
        return section
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        pass
    raise InvalidInput(f"--out: {file} is not what cape keeps of a figure; remove it, or take another folder")


def _section(held: dict[str, Any]) -> Section:
    """Return a section, or raise if something in it is of another type."""
    claims = tuple(Claim(**claim) for claim in held["claims"])
    section = Section(
        **held | {"seeds": tuple(held["seeds"]), "pictures": tuple(held["pictures"]), "claims": claims}
    )
    texts = [section.name, section.title, section.notes, section.skipped, section.date, *section.pictures]
    for claim in claims:
        texts += [claim.where, claim.says, claim.measured, claim.why]
        if claim.holds not in (True, False, None):
            raise TypeError
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    "".join(texts).encode()  # no halves of signs, which cannot be written
    if not all(isinstance(number, int) for number in (section.fast, section.cells, *section.seeds)):
        raise TypeError
    if not (section.seeds or section.skipped):
        raise ValueError
    return section
