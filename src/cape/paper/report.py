"""REPRODUCTION.md: written from what was found, never by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cape.paper.figure import Claim
from cape.paper.registry import names
from cape.paper.store import write

__all__ = ["PAGE", "Section", "page", "record"]

PAGE = "REPRODUCTION.md"
_HEAD = """# The paper, drawn again

Written by `cape paper`; do not edit. Each figure is drawn twice: *as published*, with the paper's own
formulas and calibration, and *at equal true (epsilon, delta)*, with the exact accountant. The paper is
H. Imtiaz, J. Mohammadi and A. D. Sarwate, *Distributed Differentially Private Computation of Functions with
Correlated Noise*.
"""
_COUNTED = {True: "hold", False: "do not hold", None: "are open"}


@dataclass(frozen=True)
class Section:
    """What one figure came to."""

    name: str
    title: str
    fast: bool
    seeds: tuple[int, ...]
    cells: int
    pictures: tuple[str, ...]
    claims: tuple[Claim, ...]
    notes: str = ""
    skipped: str = ""


def record(section: Section, out: Path) -> None:
    """Keep a section, and write the page from all that are there."""
    write(out / "sections" / f"{section.name}.json", json.dumps(asdict(section), indent=1) + "\n")
    write(out / PAGE, page(_kept(out)))


def page(sections: Sequence[Section]) -> str:
    """Return the page."""
    claims = [(section, claim) for section in sections for claim in section.claims]
    counts = {name: sum(claim.holds is holds for _, claim in claims) for holds, name in _COUNTED.items()}
    summary = ", ".join(f"{many} {name}" for name, many in counts.items() if many)
    lines = [_HEAD, f"Of {len(claims)} claims: {summary}.\n"]
    lines += ["| | claim | verdict |", "|---|---|---|"]
    lines += [f"| [{s.name}](#{s.name}) | {_cell(c.says)} | {_verdict(c)} |" for s, c in claims]
    for section in sections:
        lines += ["", f"## {section.name}", "", f"**{section.title}.** {_how(section)}", ""]
        if section.skipped:
            lines += [f"Not drawn: {section.skipped}"]
            continue
        lines += [f"![{section.name}, {Path(file).stem}]({file})\n" for file in section.pictures]
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
    kind = " --fast" if section.fast else ""
    return f"`cape paper {section.name}{kind}`, {shown}."


def _verdict(claim: Claim) -> str:
    return claim.verdict.capitalize()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _kept(out: Path) -> list[Section]:
    sections = []
    for name in names():
        file = out / "sections" / f"{name}.json"
        if file.is_file():
            held = json.loads(file.read_text(encoding="utf-8"))
            held["claims"] = tuple(Claim(**claim) for claim in held["claims"])
            sections.append(
                Section(**held | {"seeds": tuple(held["seeds"]), "pictures": tuple(held["pictures"])})
            )
    return sections
