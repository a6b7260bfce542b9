"""The arguments that regressions by scores have in common, checked."""

from __future__ import annotations

from typing import Any

from cape.analyses.regression.marginals import checked_cap
from cape.analyses.regression.score_rounds import MOST_ROUNDS
from cape.core import check
from cape.core.errors import InvalidInput
from cape.engine.arguments import features_of

__all__ = ["score_arguments"]


def score_arguments(
    target: Any, features: Any, *, rounds: Any, intercept: Any, norm: Any, cap: Any
) -> dict[str, Any]:
    """Return the arguments that these regressions have in common, or raise `InvalidInput`."""
    if not isinstance(target, str):
        raise InvalidInput(f"target must be a column's name, not {target!r}")
    if not isinstance(intercept, bool):
        raise InvalidInput(f"intercept must be True or False, not {intercept!r}")
    return {
        "target": target,
        "features": features_of(features, intercept),
        "rounds": rounds
        if isinstance(rounds, str) and rounds == "auto"
        else check.integer("rounds", rounds, least=1, most=MOST_ROUNDS),
        "intercept": intercept,
        "norm": None if norm is None else check.real("norm", norm, above=0.0),
        "cap": checked_cap(cap),
    }
