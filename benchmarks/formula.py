"""Interactions and splines: what noise leaves of curves, and how long their vectors take."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.interpolate import BSpline

from benchmarks.harness import Result, bench, paired_seconds
from cape.blocks import Design, Table, Tensors, Term
from cape.blocks.splines import SplineBasis
from cape.blocks.terms import Factor, Spline
from cape.data import Category, Number, Schema

Floats = NDArray[np.float64]
_ROWS = 200_000


def _b_splines(x: Floats, column: Number, freedom: int) -> Floats:
    """Return cubic B-splines with equal knots, (rows, freedom), without the first: at most 1 long."""
    inner = np.linspace(column.low, column.high, freedom - 1)[1:-1]
    knots = np.concatenate([[column.low] * 4, inner, [column.high] * 4])
    below = np.clip(x, column.low, np.nextafter(column.high, column.low))
    return np.asarray(BSpline.design_matrix(below, knots, 3).toarray()[:, 1:])


def _noise(x: Floats) -> float:
    """Return the noise that is left in predictions, over rows, where sums of x y have noise of 1 a row."""
    return math.sqrt(np.trace(np.linalg.inv(np.cov(x.T))))


@bench("formula.splines")
def splines() -> Result:
    """Noise in predictions of a curve by natural splines, over that by B-splines of the same freedom."""
    draw = np.random.default_rng(0)
    found = {}
    columns = {
        "bmi": (Number(15, 50), draw.normal(27, 5, 40_000)),
        "age": (Number(18, 90), draw.normal(55, 15, 40_000)),
        "cost": (Number(0, 1000), draw.gamma(1, 100, 40_000)),
    }
    for name, (column, x) in columns.items():
        for freedom in (3, 4, 5, 6):
            ours = SplineBasis(Factor(name, Spline(freedom)), column).at(x).T
            found[f"{name} {freedom}"] = _noise(ours) / _noise(_b_splines(x, column, freedom))
    return Result(max(found.values()), 1.0, "lower", detail={k: round(v, 3) for k, v in found.items()})


@bench("formula.time")
def time() -> Result:
    """Seconds for second moments with an interaction and a spline, over those of as many plain entries."""
    draw = np.random.default_rng(0)
    names = [f"x{i}" for i in range(5)]
    frame = pl.DataFrame(
        {name: draw.uniform(0, 1, _ROWS) for name in (*names, "y")}
        | {"sex": draw.choice(["F", "M"], _ROWS), "place": draw.choice(list("abcd"), _ROWS)}
    )
    unit = Number(0, 1, missing=False)
    schema = Schema(
        dict.fromkeys((*names, "y"), unit)
        | {"sex": Category(("F", "M"), missing=False), "place": Category(tuple("abcd"), missing=False)}
    )
    terms = (Term(0, (0.0, 1.0)), Term(1), Term(1, (0.0, 1.0)), Term(2))
    ours = Tensors(Design(("x0", "sex", "x0:sex", "spline(x1, 3)", "place"), "y"), terms)
    plain = Tensors(Design((*names[:5], "sex", "place"), "y"), terms)
    assert ours.design.width(schema) == plain.design.width(schema)

    def seconds(block: Tensors) -> None:
        Table("site", frame, schema).sums([block])

    mine, theirs = paired_seconds(lambda: seconds(ours), lambda: seconds(plain), repeat=5)
    return Result(mine / theirs, 3.0, "lower", detail={"seconds": round(mine, 3), "plain": round(theirs, 3)})
