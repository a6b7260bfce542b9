"""Regression models outside of cape: public numbers, and JSON that other programs read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cape.analyses.predictor import Predictor
from cape.core.errors import InvalidInput
from cape.data import Category, Number
from cape.show import Shown
from cape.show.numbers import LEVEL
from cape.show.plain import plain

if TYPE_CHECKING:
    from cape.blocks.design import Design
    from cape.data import Schema
    from cape.stats.estimates import Estimate

__all__ = ["Portable"]

_FORMAT = "cape model 1"


class Portable(Shown):
    """A model with coefficients that can leave cape: `predictor` for sites, `portable` for other programs."""

    if TYPE_CHECKING:
        target: str
        design: Design
        schema: Schema
        estimates: Sequence[Estimate]
        intercept: float

        @property
        def link(self) -> str: ...

        @property
        def coefficients(self) -> Mapping[str, float]: ...

    @property
    def predictor(self) -> Predictor:
        """Its predictions as public numbers, in the columns' units."""
        if getattr(self, "offset", None) is not None:
            raise InvalidInput(
                "a model with an offset predicts a rate times what the offset says; it can be written with "
                "to_json, and cannot be evaluated"
            )
        return self._numbers()

    @property
    def _predicting(self) -> Mapping[str, float]:
        """The coefficients of predictions."""
        return self.coefficients

    def _numbers(self) -> Predictor:
        return Predictor(
            self.target,
            tuple(self.design.features),
            self.link,
            float(self.intercept),
            tuple((name, float(value)) for name, value in self._predicting.items()),
            self.schema,
            tuple((name, each.low, each.high) for name, each in self.design.cut),
        )

    def portable(self) -> dict[str, Any]:
        """Return it as plain data for other programs: estimates are columns of equal length."""
        estimates = list(self.estimates)
        ends = [estimate.interval(LEVEL) for estimate in estimates]
        covariance = getattr(self, "covariance", None)
        told = self._numbers().to_dict()
        columns = {name: self.schema[name] for name in (*self.design.columns,)}
        stated = self.schema.to_dict()
        return plain(
            {
                "format": _FORMAT,
                "target": told["target"],
                "features": told["features"],
                "link": told["link"],
                "coefficients": {
                    "name": [estimate.label for estimate in estimates],
                    "estimate": [estimate.value for estimate in estimates],
                    "standard_error": [estimate.standard_error for estimate in estimates],
                    "privacy_error": [estimate.privacy for estimate in estimates],
                    "low": [low for low, _ in ends],
                    "high": [high for _, high in ends],
                },
                "level": LEVEL,
                "covariance": None if covariance is None else covariance.to_dict(),
                "predictions": {"intercept": told["intercept"], "coefficients": told["coefficients"]},
                **({"caps": told["caps"]} if "caps" in told else {}),
                "columns": {
                    name: stated.get(name) or {"categories": getattr(column, "values", ())}
                    for name, column in columns.items()
                },
                "units": {
                    name: column.unit
                    for name, column in columns.items()
                    if isinstance(column, Number) and column.unit
                },
                "reference": {
                    name: column.values[0]
                    for name, column in columns.items()
                    if isinstance(column, Category) and name != self.target
                },
                "event": getattr(self, "classes", (None, None))[1],
                "offset": getattr(self, "offset", None),
            }
        )
