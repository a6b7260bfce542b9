"""What is wrong with the data of a regression, as far as released numbers show it: named, in sentences.

Nothing is asked for it: columns are those of the first stage (`marginals`), and what cannot be told apart is
seen in the covariance of the estimates. Each sentence is true of released numbers whatever their noise is:
where noise could hide what it says, it says so.
Tested in tests/unit/analyses/test_faults.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from cape.analyses.empty import nobody
from cape.analyses.regression.joint import Joint
from cape.analyses.regression.marginals import Marginals
from cape.core.arrays import Floats
from cape.core.errors import TooNoisyWarning, outside
from cape.data import Schema
from cape.engine.arguments import joined
from cape.stats.capping import Marginal

__all__ = [
    "by_feature",
    "empty_values",
    "events_only",
    "no_events",
    "sentence",
    "separated",
    "target_fault",
    "together",
    "unvaried",
    "warn",
]

_SURE = 5.0  # standard errors: a column whose coefficient is so far from 0 surely varies
_WIDER = 10.0  # times: as wide an interval as two columns that vary together make
_ALIKE = 0.98  # the correlation of the estimates of two such columns
_HAZARDS = "log-hazards"  # what is linear in the features where targets are times to an event
_SPREAD = 3.0  # the SD of log-odds from which on most rows are nearly sure


def sentence(text: str, names: Collection[str] = ()) -> str:
    """Return a text as a sentence of its own; one of these names keeps its first letter."""
    start = text[0] if text.startswith(tuple(names)) and names else text[0].upper()
    return start + text[1:] + ("" if text.endswith((".", "?")) else ".")


def warn(text: str) -> None:
    """Warn that noise hides something."""
    warnings.warn(text, TooNoisyWarning, stacklevel=outside())


def unvaried(
    marginals: Marginals | None, names: Sequence[str], joint: Joint, schema: Schema, said: Collection[str]
) -> list[str]:
    """Return a sentence for each feature that is a number and lies in one bin, unless its coefficient says
    that it varies. What is `said` is left out."""
    found = []
    errors = _errors(joint)
    for name in names:
        one = None if marginals is None else marginals.numbers.get(name)
        places = [i for i, label in enumerate(joint.labels) if label == name or label.startswith(f"{name} [")]
        if one is None or name in said or not places or not joint.values:
            continue
        between = _one_bin(one, schema, name)
        if between and all(abs(joint.values[i]) < _SURE * errors[i] for i in places):
            found.append(
                f"{schema.label(name)} lies {between} in all rows, as far as is seen: if it does not vary, "
                "its coefficient and its P say nothing. Drop it, give it narrower bounds, or make it a "
                "category if it has few values."
            )
    return found


def empty_values(marginals: Marginals | None, names: Sequence[str], schema: Schema) -> list[str]:
    """Return a sentence for each value of a feature in which nobody is, as far as is seen."""
    found = []
    for name in names:
        if marginals is None or name not in marginals.counts:
            continue
        counts, noise = marginals.counts[name]
        values = schema.category(name).values
        for value in (v for v, each in zip(values, counts, strict=True) if nobody(float(each), noise)):
            who = schema.title(f"{name}={value}")
            what = "the others, which are compared with it" if value == values[0] else "its coefficient"
            start = f"Noise hides whether anybody has {who}" if noise else f"Nobody has {who}"
            found.append(f"{start}: {'little' if noise else 'nothing'} can be said of {what}.")
    return found


def target_fault(marginals: Marginals | None, target: str, schema: Schema) -> list[str]:
    """Return a sentence about a target that is the same in all rows, as far as is seen."""
    if marginals is None:
        return []
    if target in marginals.numbers:
        between = _one_bin(marginals.numbers[target], schema, target)
        said = (
            f"{schema.label(target)} lies {between} in all rows, as far as is seen: if it does not vary, "
            "there is nothing that features could explain."
        )
        return [said] if between else []
    counts, noise = marginals.counts[target]
    seen = [not nobody(float(each), noise) for each in counts]
    if sum(seen) > 1 or len(counts) > 2:
        return []
    few = [value for value, there in zip(schema.category(target).values, seen, strict=True) if not there]
    named = joined([schema.title(f"{target}={value}") for value in few])
    who = f"Noise hides whether any row has {named}" if noise else f"No row has {named}"
    return [f"{who}: {'little' if noise else 'nothing'} can be said of what sets such rows apart."]


def no_events(event: str, schema: Schema, until: str = "", *, noise: bool) -> str:
    """Return a text on events that nobody has, or that noise hides."""
    had = schema.title(f"{event}={schema.category(event).values[1]}")
    few = (
        f"noise hides whether there are any events ({had})"
        if noise
        else f"there are no events ({had}){until}"
    )
    return f"{few}: nothing can be said of any coefficient"


def events_only(name: str, value: object, schema: Schema) -> str:
    """Return a text on a value of a category at which noise hides whether there are any events."""
    without = schema.title(f"{name}={value}")
    values = [schema.title(f"{name}={each}") for each in schema.category(name).values]
    others = " or ".join(each for each in values if each != without)
    return (
        f"as far as is seen there are events only where {others}: noise hides whether there are any where "
        f"{without}"
    )


def together(joint: Joint, plain: Collection[str], schema: Schema, said: Collection[str]) -> list[str]:
    """Return a sentence on features that vary together so that none can be told from the others.

    The interval of each is many times as wide as if the other coefficients were known, and estimates are
    nearly opposite. Interactions and splines are left out, whose terms vary together by nature.
    """
    places = [
        i
        for i, (label, owner) in enumerate(zip(joint.labels, joint.owners or joint.labels, strict=True))
        if owner in plain and label not in said
    ]
    if len(places) < 2 or not joint.values:
        return []
    covariance = (np.array(joint.privacy) + np.array(joint.sampling))[np.ix_(places, places)]
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    alike = covariance / np.outer(scale, scale)
    if not np.isfinite(alike).all():
        return []
    values, vectors = np.linalg.eigh(alike)
    inverse = (vectors / np.maximum(values, 1e-12)) @ vectors.T
    wider = np.sqrt(np.maximum(np.diag(inverse), 1.0))
    owners = [(joint.owners or joint.labels)[i] for i in places]
    found = dict.fromkeys(
        owners[i]
        for i in range(len(places))
        for j in range(len(places))
        if owners[i] != owners[j] and abs(alike[i, j]) > _ALIKE and min(wider[i], wider[j]) > _WIDER
    )
    if len(found) < 2:
        return []
    named = joined([schema.label(name) for name in found])
    most = max(wider[i] for i in range(len(places)) if owners[i] in found)
    return [
        f"{named} vary together, as far as is seen: each interval is up to {most:.0f} times as wide as if "
        "the other effects were known. Drop one of them."
    ]


def separated(
    moved: Floats, names: Sequence[str], predictor: str, spread: float, endless: bool
) -> str | None:
    """Return a text on features that separate rows with one target, or events, from all others; None if none
    are seen.

    `moved` is by how much the last step moved the predictor along each feature, and `spread` the SD of
    predictors.
    """
    if not endless and not spread > _SPREAD:
        return None
    most = float(np.max(moved, initial=0.0))
    which = [name for name, each in zip(names, moved, strict=True) if most > 0 and each >= most / 2]
    one = len(which) == 1
    named = joined(which) if which else "features"
    who = f"{named} {'separates' if one else 'separate'} rows with one target from all others"
    if predictor == _HAZARDS:
        who = f"there are events only where {named} {'has' if one else 'have'} some of the values"
    if endless:
        drop = "it" if one else "the feature that does"
        return (
            f"{predictor} grow with every step, as where {who}: estimates may have no end, and say only the "
            f"direction. Drop {drop}"
        )
    return (
        f"{predictor} differ between rows by an SD of about {spread:.2g}, and still changed in the last "
        f"step: {who}, or nearly so. Estimates may have no end"
    )


def _one_bin(one: Marginal, schema: Schema, name: str) -> str:
    """Return between what numbers all rows lie, if that is one bin; empty if it is not."""
    if one.only is None:
        return ""
    low, high = one.only
    unit = getattr(schema[name], "unit", None)
    return f"between {low:.4g} and {high:.4g}" + (f" {unit}" if unit else "")


def _errors(joint: Joint) -> list[float]:
    return [
        math.sqrt(max(a[i] + b[i], 0.0))
        for i, (a, b) in enumerate(zip(joint.privacy, joint.sampling, strict=True))
    ]


def by_feature(hidden: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Return the largest part that noise hides of each feature's coefficients, of several predictors.

    What is no feature's, such as a shape, counts by its own name.
    """
    found = dict.fromkeys(names, 0.0)
    for label, part in hidden.items():
        name = label if label in found else label.rpartition(" [")[0] or label
        found[name] = max(found.get(name, 0.0), part)
    return found
