"""What models that are fitted by clipped scores say until their intervals hold on data that no model fits."""

from __future__ import annotations

__all__ = ["CAUTION"]

CAUTION = (
    "Caution: on data that the model does not fit exactly, the interval may miss the non-private estimate by "
    "several standard errors; use it for exploration."
)
