"""What is said of a regression by scores: faults of its data and of its fit, and what its estimates are.

Each sentence follows from released numbers. What spoils a result is a warning as well.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cape.analyses.regression.faults import (
    by_feature,
    empty_values,
    sentence,
    separated,
    target_fault,
    together,
    unvaried,
    warn,
)
from cape.analyses.regression.inference import unreliable
from cape.analyses.regression.score_regression_estimate import Fitted
from cape.core.arrays import Floats
from cape.engine.arguments import joined

__all__ = ["HIDDEN", "note_of", "score_faults"]

HIDDEN = 0.45  # of a coefficient: from there on noise hides it, or another column that repeats it
_ODDS = ("log-odds", "probits")  # predictors whose ends are probabilities of 0 and 1


def score_faults(
    fitted: Fitted,
    target: str,
    predictor: str,
    unsettled: float,
    slopes: Callable[[Floats, int], Floats],
    by_x: Callable[[Floats], Floats],
    empty: str = "",
) -> tuple[str, ...]:
    """Return what is wrong with the data, or the fit, as sentences; with a warning of what spoils it.

    Args:
        fitted: what the steps say.
        target: the column that is explained.
        predictor: what is linear in the features, in words.
        unsettled: standard errors that a last step may leave: more are worth a warning.
        slopes: takes the weights of features out of those of (1, x), which have this width.
        by_x: makes weights of (1, x) of those of a step.
        empty: what is said already of categories in which nobody is.
    """
    last, schema, found = fitted.steps[-1], fitted.units.schema, []
    same = [] if empty else target_fault(fitted.marginals, target, schema)
    unsure = fitted.left > unsettled
    apart = None
    if not (same or empty) and (last.endless or (predictor in _ODDS and unsure)):
        apart = _separated(fitted, predictor, slopes, by_x)
    if apart is not None:
        found.append(apart)
    elif unsure and not (same or empty):
        found.append(
            f"steps had not converged: the last one changed {predictor} by an SD of "
            f"{last.moved(last.change):.2g}; intervals include it. More rounds, rows or epsilon would "
            "help"
        )
    parts = by_feature(dict(fitted.hidden), fitted.units.names)
    hidden = [name for name, part in parts.items() if part >= HIDDEN]
    if hidden and apart is None:  # where rows are separated, curvature fades
        every = np.array([*parts.values()])
        found.append(unreliable([*parts], every, noise=last.curvature_noise > 0))
    for text in found:
        warn(text)
    features, plain = fitted.units.design.sources, set(fitted.units.design.features)
    every_hidden = {*hidden, *(label for label, part in fitted.hidden if part >= HIDDEN)}
    return (
        *(sentence(text, fitted.units.names) for text in found),
        *same,
        *empty_values(fitted.marginals, features, schema),
        *unvaried(fitted.marginals, features, fitted.joint, schema, hidden),
        *together(fitted.joint, plain, schema, every_hidden),
    )


def _separated(
    fitted: Fitted,
    predictor: str,
    slopes: Callable[[Floats, int], Floats],
    by_x: Callable[[Floats], Floats],
) -> str | None:
    """Return a text on features that separate rows with one target from all others, or nearly so."""
    last, units = fitted.steps[-1], fitted.units
    width = 1 + len(units.names)
    if fitted.marginals is None:
        return separated(np.zeros(width - 1), units.names, predictor, 0.0, last.endless)
    change = slopes(by_x(last.point.turn.T @ last.change), width)
    weights = slopes(fitted.estimated, width)
    x = fitted.marginals.rows(units.design, units.schema)
    moved = np.abs(change).max(axis=0) * x.std(axis=0)
    spread = float((x @ weights.T).std(axis=0).max())
    return separated(moved, units.names, predictor, spread, last.endless)


def note_of(fitted: Fitted, assumed: str) -> str:
    """Return what the estimates are; `assumed` is what is taken to be possible where noise hides all."""
    last = fitted.steps[-1]
    names = [name for name, part in dict(fitted.hidden).items() if part >= HIDDEN]
    if names:
        budget = " at this budget" if last.curvature_noise else ""
        return (
            f"Not identified{budget}: {joined(names)}. Intervals assume that {assumed}. {_drawn(fitted)}"
        ).rstrip()
    if last.score_noise == 0:
        return "Maximum-likelihood estimates."
    note = "Maximum-likelihood estimates, up to noise and clipping, which intervals count."
    return f"{note} {_drawn(fitted)}".rstrip()


def _drawn(fitted: Fitted) -> str:
    """Return how far predictions are from what the estimates say, if they are."""
    if fitted.kept == 1.0:
        return ""
    if fitted.kept == 0.0:
        return "Predictions count no feature, because noise hides whether any matters."
    return f"Predictions count {fitted.kept:.0%} of each effect, because noise hides the rest."
