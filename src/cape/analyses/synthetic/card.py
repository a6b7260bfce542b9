"""The card that goes with synthetic rows: what they are made of, and what cannot be learnt from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cape.engine.arguments import joined
from cape.show.numbers import count

if TYPE_CHECKING:
    from cape.analyses.synthetic.synthetic_model import SyntheticModel
    from cape.engine.result import Release

__all__ = ["data_card"]

_WITHIN = 0.05  # the distance up to which a table is called trustworthy
_LIMITS = """\
- Nothing about one person: no row is anybody's, and a row that looks like somebody is chance.
- How three or more columns go together, beyond what tables of two columns imply.
- Rare values and rare combinations: counts below about twice the noise of a cell are noise.
- Numbers more finely than their bins: within a bin they are drawn evenly.
- Differences between sites, and anything over time that is not a column.
- An exact answer to anything: a mean, a test or a model of these rows has more error than its own standard
  error says. `cape.synthetic.combine` counts it. Where an analysis of cape answers the question, a direct
  release is more precise (docs/analyses.md).
"""


def data_card(model: SyntheticModel, release: Release) -> str:
    """Return the card, as Markdown."""
    guarantee, measured = release.guarantee, model.measured
    pairs, all_pairs = len(measured.chosen.tables), len(measured.doubles.tables)
    shares = [f"{share:.0%}" for share in model.shares]
    told = [
        "# Synthetic data: data card",
        "",
        f"Rows of made-up people with the columns {joined(model.columns)}, from a model that was fitted "
        "to private tables of counts. More rows can be drawn at no cost: they say nothing new.",
        "",
        "## Privacy",
        "",
        f"epsilon = {guarantee.epsilon:.4g} at delta = {guarantee.delta:g} (mu = {guarantee.mu:.4g}), for "
        f"the release that the rows come from, over {', '.join(release.participants)}. {guarantee}",
        "",
        "## What was measured",
        "",
        f"- the values of each of {len(measured.axes)} columns ({shares[0]} of the budget share)",
        f"- all {count(all_pairs, 'pair')} of columns, coarsely ({shares[1]})",
        f"- {count(pairs, 'pair')} of columns, finely ({shares[2]}), chosen from the tables released before",
        "",
        "| column | values | groups in pairs | noise of a count (SD) |",
        "|---|---|---|---|",
    ]
    for i, name in enumerate(model.columns):
        levels, groups = len(measured.chosen.groups[i]), measured.chosen.sizes[i]
        told.append(f"| {name} | {levels} | {groups} | {measured.singles.noise[i,]:.3g} |")
    told += ["", "| pair measured finely | cells | noise of a count (SD) |", "|---|---|---|"]
    for pair, noise in measured.chosen.noise.items():
        names = " × ".join(model.columns[i] for i in pair)
        told.append(f"| {names} | {measured.chosen.tables[pair].size} | {noise:.3g} |")
    if measured.possible:
        facts = ", ".join(" × ".join(model.columns[i] for i in pair) for pair in measured.possible)
        told += ["", f"Public facts about {facts} hold in every row."]
    told += ["", "## Which tables are trustworthy", "", *_trust(model)]
    told += ["", "## What cannot be learnt from these rows", "", _LIMITS]
    return "\n".join(told)


def _trust(model: SyntheticModel) -> list[str]:
    found = model.evaluate(_WITHIN)
    doubted = found.filter(~found["trustworthy"])
    said = [
        f"The expected distance in total variation from the data's own table is at most {_WITHIN:g} for "
        f"{found.height - doubted.height} of {count(found.height, 'table')} of one or two columns, by the "
        "noise and by the released coarse tables.",
    ]
    if doubted.height:
        names = ", ".join(" × ".join(names) for names in doubted["columns"].to_list())
        said += ["", f"Not trustworthy: {names}."]
    return said
