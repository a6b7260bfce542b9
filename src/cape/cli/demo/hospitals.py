"""Five sites with 569 patients, a study of them, its Table One, and the same table under other schemes."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cape.analyses import TableOne
from cape.cli.demo.data import at_sites
from cape.cli.screen import Steps
from cape.core.errors import PrivacyLeakWarning, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.consortium import Consortium
from cape.engine.query import Analysis
from cape.engine.result import Release
from cape.privacy import Budget
from cape.stats.estimates import Estimate
from cape.study import Study

__all__ = ["COLUMNS", "GROUPS", "RUNS", "SITES", "Compared", "Demo", "rehearse", "written"]

SITES = {"north": 40, "east": 70, "south": 110, "west": 140, "centre": 209}
GROUPS = ("malignant", "benign")
# Features of cell nuclei. The bounds are round numbers chosen by hand, not computed from the data.
COLUMNS = {
    "radius": Number(5, 30, missing=False),
    "texture": Number(5, 40, missing=False),
    "perimeter": Number(30, 200, missing=False),
}
SHARE = 0.8
RUNS = 12
_SCHEMES = {
    "pooled": "a curator who sees every row",
    "cape": "nobody; secure aggregation",
    "cape-gaussian": "nobody; the paper's variances",
    "conventional": "nobody; all noise adds up",
    "local": "nobody; largest site alone",
}
_LABELS = tuple(f"{name} mean | diagnosis={group}" for name in COLUMNS for group in GROUPS)

Labelled = dict[str, Estimate]


@dataclass(frozen=True)
class Compared:
    """One scheme: its planned noise over that of pooled, and the error of its group means.

    The error is a root mean square over means and runs, in percent of a column's bounds.
    """

    scheme: str
    meaning: str
    over_pooled: float
    error: float


@dataclass(frozen=True)
class Demo:
    """What each scheme released, the truth, and the errors."""

    study: Study
    release: Release
    budget: Budget
    colluding: int
    released: dict[str, Labelled]
    truth: Labelled
    compared: list[Compared]


def written(folder: Path, budget: Budget, colluding: int) -> Study:
    """Write the rows of each site and a study file, as a user would have them, and return the study."""
    (folder / "data").mkdir(exist_ok=True)
    for name, rows in at_sites(SITES).items():
        rows.select([*COLUMNS, "diagnosis"]).write_csv(folder / "data" / f"{name}.csv")
    columns = "".join(
        f"{name} = {{low = {each.low:g}, high = {each.high:g}, missing = false}}\n"
        for name, each in COLUMNS.items()
    )
    sites = "".join(f'{name} = {{path = "data/{name}.csv", rows = {rows}}}\n' for name, rows in SITES.items())
    path = folder / "study.toml"
    path.write_text(_STUDY.format(budget=budget, colluding=colluding, columns=columns, sites=sites), "utf-8")
    return Study.load(path)


_STUDY = """[study]
name = "tumours"
description = "Nuclei of benign and malignant tumours in 569 patients at five sites"

[privacy]
epsilon = {budget.epsilon:g}
delta = {budget.delta:g}
colluding = {colluding}

[schema]
{columns}diagnosis = {{categories = ["malignant", "benign"], missing = false}}

[sites]
{sites}
[[analysis]]
kind = "table-one"
columns = ["radius", "texture", "perimeter"]
by = "diagnosis"
bins = 16
share = 0.8
"""


def rehearse(study: Study, budget: Budget, colluding: int, steps: Steps) -> Demo:
    """Release the table once, then by every scheme several times, and compare with the exact answer."""
    steps.start("loading the data")
    sites = at_sites(SITES)
    schema = Schema(COLUMNS, diagnosis=Category(GROUPS, missing=False))
    open_ = partial(Consortium, sites, schema, budget, colluding=colluding, sizes=SITES)
    analysis = TableOne(*COLUMNS, by="diagnosis", bins=16)
    steps.done()
    consortium = study.consortium()
    (entry,) = study.analyses
    release = _released(consortium, entry.analysis)
    first = {"cape": _labelled(release)}
    truth = _release(open_(scheme="none"), analysis)
    squares = dict.fromkeys(_SCHEMES, 0.0)
    for run in range(RUNS):
        steps.start(f"comparing schemes, run {run + 1}")
        for scheme in _SCHEMES:
            released = _release(open_(scheme=scheme), analysis)
            first.setdefault(scheme, released)
            squares[scheme] += sum(_relative(released, truth, label) ** 2 for label in _LABELS)
        steps.done()
    errors = {name: 100 * math.sqrt(total / RUNS / len(_LABELS)) for name, total in squares.items()}
    compared = [
        Compared(name, meaning, _over_pooled(open_(scheme=name), analysis, name), errors[name])
        for name, meaning in _SCHEMES.items()
    ]
    return Demo(study, release, consortium.budget, colluding, first, truth, compared)


def _release(consortium: Consortium, analysis: Analysis) -> Labelled:
    return _labelled(_released(consortium, analysis))


def _labelled(release: Release) -> Labelled:
    return {estimate.label: estimate for estimate in release.estimates}


def _released(consortium: Consortium, analysis: Analysis) -> Release:
    with warnings.catch_warnings():
        # The truth is released on purpose: the data is public. And other schemes may be too noisy.
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        warnings.simplefilter("ignore", TooNoisyWarning)
        return consortium.release(analysis, share=SHARE)


def _over_pooled(consortium: Consortium, analysis: TableOne, scheme: str) -> float:
    noise = consortium.plan(analysis, SHARE).noise[_LABELS[0]]
    return noise[scheme] / noise["pooled"]


def _relative(released: Labelled, truth: Labelled, label: str) -> float:
    column = COLUMNS[label.split(" ")[0]]
    return (released[label].value - truth[label].value) / (2 * column.half)
