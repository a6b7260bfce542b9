"""What is said of a plan as a whole: who takes part, what each analysis costs, and what was assumed."""

from __future__ import annotations

import math

from cape.app import words
from cape.engine.outlook import LEGEND
from cape.engine.plan import Plan
from cape.show import Table
from cape.study import Entry, Study

__all__ = ["remarks", "setup", "totals"]


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
