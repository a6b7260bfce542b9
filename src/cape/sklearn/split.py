"""Rows of an array as the tables of several sites."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d

from cape.core import check
from cape.core.errors import IgnoredParameterWarning, InvalidInput, outside
from cape.sklearn.bounds import Box

__all__ = ["frames", "split"]

Floats = NDArray[np.float64]

_CHUNK = 1 << 11  # rows that are turned into columns at once, within a processor's cache


def split(rows: int, n_sites: Any, labels: Any, random: Any, *, public: bool) -> dict[str, NDArray[np.int64]]:
    """Return which rows each site has: by labels, or about as many for each, at random.

    Fewer rows than sites make fewer sites, if the number of rows is public: the number of sites always is.
    """
    if labels is None:
        many = check.integer("n_sites", n_sites, least=2)
        if rows < (2 if public else many):
            raise InvalidInput(
                f"n_samples={rows} is less than {'two' if public else f'n_sites={many}'}: every site "
                "must have at least one row"
            )
        if rows < many:
            warnings.warn(
                f"n_sites={many} is more than there are rows: each of {rows} sites gets one. "
                f"Give n_sites={rows} or less",
                IgnoredParameterWarning,
                stacklevel=outside(),
            )
            many = rows
        parts = np.array_split(random.permutation(rows), many)
        return {f"site {i + 1}": np.sort(part) for i, part in enumerate(parts)}
    given = column_or_1d(labels)
    check_consistent_length(np.empty(rows), given)
    try:
        names, places = np.unique(given, return_inverse=True)
    except TypeError:
        raise InvalidInput("sites must be labels of one kind, all text or all numbers") from None
    if len(names) < 2:
        raise InvalidInput(f"sites must name at least two sites, not {len(names)}")
    order = np.argsort(places, kind="stable")
    ends = np.cumsum(np.bincount(places))[:-1]
    return {str(name): part for name, part in zip(names, np.split(order, ends), strict=True)}


def frames(
    X: Floats,
    box: Box,
    names: Sequence[str],
    targets: Mapping[str, pl.Series],
    rows: Mapping[str, NDArray[np.int64]],
) -> dict[str, pl.DataFrame]:
    """Return each site's table: its rows of X, cut to the box, and of the targets."""
    tables, cut = {}, not box.at_sites
    for site, where in rows.items():
        cells = np.empty((len(names), len(where)))
        for start in range(0, len(where), _CHUNK):
            part = X[where[start : start + _CHUNK]]
            cells[:, start : start + _CHUNK] = (box.cut(part) if cut else part).T
        columns = [pl.Series(name, column) for name, column in zip(names, cells, strict=True)]
        tables[site] = pl.DataFrame([*columns, *(y.gather(where).alias(name) for name, y in targets.items())])
    return tables
