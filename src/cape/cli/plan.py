"""`cape plan`: what a study costs in privacy and gives in accuracy, before any row is read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from cape.cli import screen, words
from cape.cli.options import AsJson, StudyFile
from cape.engine.outlook import LEGEND
from cape.engine.plan import Plan
from cape.show import Table
from cape.show.terminal import Fitted
from cape.study import Entry, Study

__all__ = ["plan", "remarks", "setup", "totals"]


def plan(study_file: StudyFile, as_json: AsJson = False) -> None:
    """Show noise, expected error and guarantee of every analysis, beside other schemes. Reads no data.

    Example: [bold]cape plan study.toml[/bold]
    """
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
    for sentence in study.asked_twice:
        console.print(f"{escape(sentence)}\n")
    console.print(Fitted(totals(study, plans)))
    for text in remarks(study, plans):
        console.print(f"\n[dim]{escape(text)}[/dim]")
    console.print()


def setup(study: Study) -> str:
    """Return who takes part, whom the noise protects from, and the budget, in sentences."""
    parties = study.setting.parties
    return (
        f"{words.count(parties.sites, 'site')} ({', '.join(study.sites)}), scheme {study.scheme}, "
        f"{words.count(parties.colluding, 'site')} may collude, at least {parties.min_sites} must answer. "
        f"{words.budget(study.budget)}"
    )


def remarks(study: Study, plans: list[tuple[Entry, Plan]]) -> list[str]:
    """Return what is to be said of the whole plan: the guarantee, as a bet too, and what was assumed."""
    promised = study.guarantee(study.total(study.analyses).spent)
    said = [str(promised)]
    if math.isfinite(promised.mu):
        said.append(words.bet(promised))
    if any(plan.shapes.assumed for _, plan in plans):
        said.append(LEGEND)
    part = 0.8 if study.setting.noise == "gaussian" else 0.7
    assumed = " (1,000 a site assumed; give rows in the study file for yours)" if study.sizes is None else ""
    said.append(f"Expected error is the mean |error| from privacy noise: {part} of its SD.")
    said.append(f"Planned for {plans[0][1].rows:,} rows{assumed}. Nothing was read and nothing is spent.")
    return said


def totals(study: Study, plans: list[tuple[Entry, Plan]]) -> Table:
    """Return what each analysis costs, all of them, and what is left."""
    rows: list[tuple[str, ...]] = [
        (
            f"{entry.number}. {plan.analysis.kind}",
            f"{study.cost(entry):.4g}",
            f"{plan.guarantee.mu:.4g}",
            f"{plan.guarantee.epsilon:.4g}",
        )
        for entry, plan in plans
    ]
    total = study.total(study.analyses)
    whole = study.guarantee(total.spent)
    rows.append(("total", f"{float(total.spent):.4g}", f"{whole.mu:.4g}", f"{whole.epsilon:.4g}"))
    rows.append(("left", f"{float(total.remaining):.4g}", "", ""))
    if study.setting.noise == "laplace":  # there mu is no measure
        rows = [(name, share, epsilon) for name, share, _, epsilon in rows]
        return Table(("", "share", "epsilon"), tuple(rows), "The budget")
    return Table(("", "share", "mu", f"epsilon at {study.budget.delta:g}"), tuple(rows), "The budget")
