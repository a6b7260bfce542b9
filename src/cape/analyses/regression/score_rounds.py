"""How many steps a regression by scores takes, and how its share is divided among them.

Shares and weights were chosen as `cape.stats.score_steps` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from cape.analyses.regression.score_query import Parts

__all__ = ["MOST_ROUNDS", "ROUNDS", "parts_of", "shares_of"]

ROUNDS = 5  # for "auto"
MOST_ROUNDS = 30
_MARGINALS = 0.06  # the share of the first stage
_ALONE = Parts(1.0, 1.0, 0.3, 0.5)
_FIRST, _MIDDLE = Parts(0.08, 1.0, 0.3, 0.5), Parts(0.06, 1.0, 0.3, 0.5)
_LOOK, _LAST = Parts(0.14, 0.5, 0.5, 0.8), Parts(0.60, 0.2, 0.5, 0.0)


def parts_of(steps: int) -> list[Parts]:
    """Return the steps: the last is asked most, and the one before says how to clip it."""
    if steps == 1:
        return [_ALONE]
    if steps == 2:
        return [Parts(0.25, 1.0, 0.3, 0.5), Parts(0.75, 0.5, 0.3, 0.0)]
    return [_FIRST, *[_MIDDLE] * (steps - 3), _LOOK, _LAST]


def shares_of(parts: Sequence[Parts]) -> tuple[float, ...]:
    """Return the share of each stage, that of the marginals first."""
    shares = [part.share for part in parts]
    rest = (1 - _MARGINALS) / sum(shares)
    return (_MARGINALS, *(share * rest for share in shares))
