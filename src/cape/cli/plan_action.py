"""What `cape plan` does: imported when it is run, and not where options are listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from cape.app.planned import remarks, setup, totals
from cape.cli import screen
from cape.engine.plan import Plan
from cape.show.terminal import Fitted
from cape.study import Entry, Study

__all__ = ["plan"]


def plan(study_file: Path, *, as_json: bool) -> None:
    """Carry out `cape plan`."""
    study = Study.load(study_file)
    plans = [(entry, study.plan(entry)) for entry in study.analyses]
    if as_json:
        screen.print_json(_as_dict(study, plans))
    else:
        _show(screen.console(), study, plans)


def _as_dict(study: Study, plans: list[tuple[Entry, Plan]]) -> dict[str, Any]:
    total = study.total(study.analyses)
    return {
        "study": study.to_dict(),
        "analyses": [{"number": entry.number, **plan.to_dict()} for entry, plan in plans],
        "total": {"share": float(total.spent), "guarantee": study.guarantee(total.spent).to_dict()},
        "left": float(total.remaining),
        "noise": study.setting.noise,
        "chosen": study.chosen,
        "better_noise": study.better_noise
        and {"kind": study.better_noise.kind, "times": study.better_noise.times},
        "warnings": list(study.warnings),
    }


def _show(console: Console, study: Study, plans: list[tuple[Entry, Plan]]) -> None:
    console.print(
        f"\n[bold]{escape(study.name)}[/bold]: {escape(setup(study))} "
        "Numbers are standard deviations of privacy noise, in the column's unit.\n"
    )
    if study.chosen:
        console.print(f"{escape(study.chosen)}\n")
    for entry, plan in plans:
        title = (
            f"{entry.number}. {plan.analysis.sentence}: share {entry.share:.4g}, "
            f"epsilon {plan.guarantee.epsilon:.3g}"
        )
        console.print(Fitted(replace(plan.table(), title=title)))
        for table in plan.outlook:
            console.print(Fitted(table))
        if plan.no_answer:
            console.print(f"[bold]{escape(plan.no_answer)}[/bold]")
        if plan.advice:
            console.print(f"[dim]{escape(plan.advice)}[/dim]")
        console.print()
    if study.better_noise is not None:
        console.print(f"[bold]{escape(str(study.better_noise))}[/bold]\n")
    for sentence in study.asked_twice:
        console.print(f"{escape(sentence)}\n")
    console.print(Fitted(totals(study, plans)))
    for text in remarks(study, plans):
        console.print(f"\n[dim]{escape(text)}[/dim]")
    console.print()
