"""Families of generalised linear models as `GLM` names them: what each is, and which targets it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cape.blocks.families import (
    Cloglog,
    Family,
    Gamma,
    Gaussian,
    Logit,
    NegativeBinomial,
    Poisson,
    Probit,
)
from cape.core.errors import InvalidInput
from cape.data import Number, Schema

__all__ = ["LIKELIHOODS", "Likelihood"]


_LEAST, _MOST = 1e-4, 1e4  # of alpha


def _overdispersed(alpha: float) -> NegativeBinomial:
    return NegativeBinomial(min(max(alpha, _LEAST), _MOST))


@dataclass(frozen=True)
class Likelihood:
    """A family with its link.

    Attributes:
        family, link: their names.
        predictor: what is linear in the features, in words.
        made: the family, of a dispersion where it has one.
        ratio: what the exponential of a coefficient is, in words; empty if it is nothing.
        least: what the target must be at least, or above if `open`; None for anything.
        dispersed: what its dispersion is called; empty if there is none.
        curved: whether the curvature of scores changes with the weights.
    """

    family: str
    link: str
    predictor: str
    made: Callable[[float], Family]
    ratio: str = ""
    least: float | None = None
    open: bool = False
    dispersed: str = ""
    curved: bool = True

    @property
    def binary(self) -> bool:
        """Whether the target has two categories."""
        return self.made(1.0).binary

    def check(self, target: str, schema: Schema) -> None:
        """Raise `InvalidInput` for a target that the family does not fit."""
        column = schema[target]
        if self.binary:
            if isinstance(column, Number) or len(column.values) != 2:
                found = "bounds" if isinstance(column, Number) else f"{len(column.values)}"
                raise InvalidInput(
                    f"target {target!r} must have two categories for family 'binomial'; the schema gives it "
                    f"{found}. For more use family='multinomial' or, if they are ordered, 'ordinal'"
                )
            return
        if not isinstance(column, Number):
            raise InvalidInput(
                f"target {target!r} must be a number with bounds for family {self.family!r}; the schema "
                "gives it categories, for which there are families 'binomial', 'multinomial' and 'ordinal'"
            )
        if self.least is not None and (column.low < self.least or (self.open and column.low == self.least)):
            wanted = f"above {self.least:g}" if self.open else f"of at least {self.least:g}"
            raise InvalidInput(
                f"target {target!r} must have a lower bound {wanted} for family {self.family!r}, not "
                f"{column.low:g}"
            )


LIKELIHOODS: dict[tuple[str, str], Likelihood] = {
    (each.family, each.link): each
    for each in (
        Likelihood(
            "gaussian", "identity", "the target", lambda _: Gaussian(), dispersed="dispersion", curved=False
        ),
        Likelihood("binomial", "logit", "log-odds", lambda _: Logit(), "odds ratio"),
        Likelihood("binomial", "probit", "probits", lambda _: Probit()),
        Likelihood("binomial", "cloglog", "log hazards", lambda _: Cloglog(), "hazard ratio"),
        Likelihood(
            "poisson", "log", "log rates", lambda _: Poisson(), "rate ratio", 0.0, dispersed="dispersion"
        ),
        Likelihood(
            "negative-binomial", "log", "log rates", _overdispersed, "rate ratio", 0.0, dispersed="alpha"
        ),
        Likelihood("gamma", "log", "log means", lambda _: Gamma(), "ratio of means", 0.0, True, "dispersion"),
    )
}
"""By the names of family and link; the first link of a family is its default."""
