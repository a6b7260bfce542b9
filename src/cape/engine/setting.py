"""All that the noise of a release depends on, besides what is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cape.data import Schema
from cape.engine.calibration import discretisation_error
from cape.engine.query import Neighbours, Query
from cape.engine.result import ReleaseGuarantee
from cape.engine.schemes import Parties, Scheme
from cape.errors import InvalidInput
from cape.privacy import Budget

__all__ = ["Setting"]


@dataclass(frozen=True)
class Setting:
    """All that the calibration of a release depends on, besides the analysis."""

    schema: Schema
    budget: Budget
    parties: Parties
    neighbours: Neighbours

    def local_std(self, scheme: Scheme, share: float) -> float | None:
        """Return a site's noise per unit of sensitivity for a release paid for by this share."""
        return scheme.local_std(self.budget.cost(share).mu, self.parties)

    def mu(self, scheme: Scheme, share: float) -> float:
        """Return what the release really costs."""
        local_std = self.local_std(scheme, share)
        return math.inf if local_std is None else scheme.cost_mu(local_std, self.parties)

    def guarantee(
        self, scheme: Scheme, share: float, query: Query | None = None, slack: float = 0.0
    ) -> ReleaseGuarantee:
        """Return the guarantee of releases that spend this share, or of the release of one query.

        `slack` is what sampling adds to delta.
        """
        if query is not None and not query.private:  # nothing is asked of the tables
            return ReleaseGuarantee(0.0, self.budget.delta, scheme.name, self.parties, self.neighbours)
        extra = discretisation_error(self.parties.honest) + scheme.failure(self.parties) + slack
        if extra >= self.budget.delta / 2:
            raise InvalidInput(
                f"delta must be more than twice {extra:.2g}, the chance that the random graph of masks among "
                f"{self.parties.sites} sites does not hide a site; not {self.budget.delta:g}"
            )
        return ReleaseGuarantee(
            self.mu(scheme, share), self.budget.delta, scheme.name, self.parties, self.neighbours, extra
        )
