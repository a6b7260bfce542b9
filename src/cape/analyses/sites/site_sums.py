"""Second moments by site: how one release shares out its noise among them, and what comes back.

Claim. One person moves the sums of `site_query`, each divided by its scale, by at most its sensitivity.
Reason. `regression.sensitivity` proves how far a row, replaced, added or left out, moves the sums of y, y²,
x, xy and xx'. Sums by group are parts of these.

- *Added or left out*: one group's sums and the count move as sums over everybody would.
- *Replaced at its own site* (`stays`): the group is the same, and again the sums move as sums over everybody
  would. The counts do not move if nothing may be missing: they are the public sizes of sites, and cost
  nothing. Else a row may be replaced by an incomplete one: a single row, and 1 in a count.
- *Replaced by a row of another group* (groups that are not sites, or persons at several sites): sums hold
  two rows apart, at most twice what one row holds.

Numbers by site become public: each site's sums leave it in a total that holds no other site's in the same
place, with the noise of all sites. What the noise of a release hides, of whom, and from whom, is the same as
for sums over all sites. Tested in tests/unit/analyses/sites/test_site_sums.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cape.analyses.regression.moments import XX, XY, YY, X, Y
from cape.analyses.tensor_sums import moved
from cape.blocks import GroupedProducts, Term
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Category, Schema
from cape.engine.query import Answer, Neighbours, Query

__all__ = ["PUBLIC", "SiteSums", "require_groups", "site_query", "stays"]

PUBLIC = 4096.0  # the weight of a count that is public: its noise is 1/64 of that of weight 1
_TERMS: dict[str, Term] = {"y": Y, "yy": YY, "x": X, "xy": XY, "xx": XX}


def stays(schema: Schema, by: str) -> bool:
    """Return whether a replaced row stays in its group: at a site, where each person is at one only."""
    column, person = schema.category(by), schema.person
    return column.site and (person is None or person.sites == 1)


def require_groups(schema: Schema, by: str) -> None:
    """Raise unless there are two sites or more."""
    if len(schema.category(by).values) < 2:
        what = "site" if schema.category(by).site else "category"
        raise InvalidInput(f"column {by!r} has one {what}, and differences between sites need two or more")


def site_query(
    block: GroupedProducts, weights: Mapping[str, float], schema: Schema, neighbours: Neighbours
) -> Query:
    """Return the query for products by group; `weights` are 1 / scale² of y, y², x, xy and xx'."""
    require_groups(schema, block.by)
    target = block.design.target
    if target is not None and isinstance(schema[target], Category):
        raise InvalidInput(f"target {target!r} must have bounds")
    terms, each = tuple(_TERMS.values()), tuple(weights[name] for name in _TERMS)
    alone = moved(terms, each, "add-remove")
    missing = block.design.missing(schema) or schema[block.by].missing
    if neighbours == "add-remove":
        count = alone / 8
        total = alone + count
    elif stays(schema, block.by):
        total = moved(terms, each, "replace-one")
        count = max(total - alone, total / 8) if missing else PUBLIC
        total = max(total, alone + count) if missing else total
    else:
        apart = 2 * sum(weights.values())
        count = apart / 16
        total = max(moved(terms, each, "replace-one"), apart + 2 * count)
    scales = []
    for products in block.products(schema):
        name = {"square": "xx", "cross": "xx"}.get(products.name, products.name)
        weight = count if name == "count" else weights[name]
        scales.append(1 / math.sqrt(weight * (2 if products.name == "cross" else 1)))
    return Query((block,), (tuple(scales),), math.sqrt(total) * (1 + 1e-12))


@dataclass(frozen=True)
class SiteSums:
    """Noisy sums of the products of (1, x, y) of a design, by group.

    Attributes:
        groups: (groups, 1 + width + 1, 1 + width + 1).
        group_noise: the variance of the noise in each entry of a group.
    """

    groups: Floats
    group_noise: Floats

    @classmethod
    def of(cls, answer: Answer, block: GroupedProducts) -> SiteSums:
        """Return what the answer to `site_query` holds."""
        size = block.design.width(answer.schema) + 2
        many = len(answer.schema.category(block.by).values)
        groups, variances = np.zeros((many, size, size)), np.zeros((size, size))
        each = zip(block.products(answer.schema), answer.sums[0], answer.noise[0], strict=True)
        for products, sums, noise in each:
            for place, (i, j) in enumerate(products.places):
                for a, b in ((i, j), (j, i)):
                    groups[:, a, b], variances[a, b] = sums[:, place], noise**2
        return cls(groups, variances)
