"""What people expect of a column, from the literature or from earlier studies: for plans only.

Public like the bounds, never computed from the rows, and never used on them: a plan knows from it how large
the sums will be, before any row is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["Expected", "Form", "shares", "spread"]

Form = Literal["smooth", "few", "tailed", "crowded"]
"""How cells lie around their mean: as a beta or a lognormal distribution (smooth, tailed), in few values, or
many of them at the nearer bound (crowded)."""

_ONE = 1e-6  # how far from 1 shares may add up to
_NAMED = 3  # values in the example of an error


@dataclass(frozen=True)
class Expected:
    """The mean and the standard deviation of a numeric column, in its unit.

    `form` and `loading` are not for study files: plans vary them where mean and SD do not settle the noise.
    Two columns with loadings a and b on what columns have in common are correlated a b.
    """

    mean: float
    sd: float
    form: Form = "smooth"
    loading: float = 0.0

    def taking(self, form: Form) -> Expected:
        """Return the same mean and SD with cells that lie otherwise around them."""
        return replace(self, form=form)

    def to_dict(self) -> dict[str, float]:
        """Return what a study file would say."""
        return {"mean": self.mean, "sd": self.sd}


def spread(given: Any, low: float, high: float) -> Expected:
    """Return the mean and SD that people expect within these bounds, or raise `InvalidInput`.

    Of all distributions within bounds, the one with cells at both ends only has the largest SD:
    sqrt((mean - low)(high - mean)).
    """
    if isinstance(given, Mapping):
        if set(given) != {"mean", "sd"}:
            raise InvalidInput(
                "expected must have mean and sd, as in {mean = 61, sd = 12}, not "
                f"{check.show(sorted(map(str, given)))}"
            )
        given = Expected(given["mean"], given["sd"])
    if not isinstance(given, Expected):
        raise InvalidInput(
            f"expected must be a mean and an sd, as in {{mean = 61, sd = 12}}, not {check.show(given)}"
        )
    mean, sd = check.real("expected mean", given.mean), check.real("expected sd", given.sd, above=0.0)
    if not low < mean < high:
        raise InvalidInput(f"expected mean must lie between the bounds {low:g} and {high:g}, not at {mean:g}")
    most = math.sqrt(mean - low) * math.sqrt(high - mean)
    if sd > most:
        raise InvalidInput(
            f"expected sd must be at most {most:.4g}, as for cells at both bounds with a mean of {mean:g}, "
            f"not {sd:g}"
        )
    return replace(given, mean=mean, sd=sd)


def shares(given: Any, values: Sequence[object]) -> tuple[float, ...]:
    """Return the share of rows that people expect to hold each value, or raise `InvalidInput`."""
    if isinstance(given, Mapping):
        by_name = {str(key): share for key, share in given.items()}
        if set(by_name) == {"share"} and len(values) == 2:
            second = check.real("expected share", by_name["share"], least=0.0, most=1.0)
            given = (1 - second, second)
        elif len(by_name) == len(given) and set(by_name) == set(map(str, values)):
            given = [by_name[str(value)] for value in values]
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or len(given) != len(values):
        each = ", ".join(f"{value} = {1 / len(values):.2g}" for value in values[:_NAMED])
        more = ", ..." if len(values) > _NAMED else ""
        share = f", or {{share = 0.1}} for that of {check.show(values[1])}" if len(values) == 2 else ""
        raise InvalidInput(
            f"expected must give the share of every category, as in {{{check.plain(each)}{more}}}{share}, "
            f"not {check.show(given)}"
        )
    found = tuple(check.real("expected share", share, least=0.0, most=1.0) for share in given)
    if abs(sum(found) - 1) > _ONE:
        raise InvalidInput(f"expected shares must add up to 1, not {sum(found):.6g}")
    if min(found) == 0:
        raise InvalidInput("expected shares must be above 0; for a value that hardly occurs write 0.001")
    return found
