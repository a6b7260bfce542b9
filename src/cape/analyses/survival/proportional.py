"""What regressions of hazards have in common: how their features are given, and how steep they can be."""

from __future__ import annotations

from typing import Any

from cape.analyses.regression.formula import expand
from cape.core.errors import InvalidInput
from cape.engine.arguments import features_of

__all__ = ["MOST_MOVED", "MOST_WEIGHTS", "terms"]

# An assumption, which results name: no column changes log-hazards by more than 10 as it goes through its
# range, which is a ratio of 22,000.
MOST_MOVED = 10.0
MOST_WEIGHTS = 1000  # matrices of all pairs are made, for every stage of a request


def terms(what: str, features: Any, formula: Any) -> tuple[str, ...]:
    """Return the features, which a formula may say instead: it has no left side, since time and event do."""
    if formula is None:
        if features is None:
            raise InvalidInput(f"{what} must have features, or a formula, as in 'age * sex'")
        return features_of(features, False)
    if features is not None:
        raise InvalidInput("a formula says features: give either the formula or these")
    target, found = expand(formula)
    if target is not None:
        raise InvalidInput(
            f"the formula of {what} has no target, since time and event are it: leave out {target!r} and '~'"
        )
    return features_of(found, False)
