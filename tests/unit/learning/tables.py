"""Small tables for tests of learning: two Gaussians, three classes, a curve."""

from __future__ import annotations

import numpy as np
import polars as pl

from cape import Budget, Category, Consortium, Number, Schema
from cape.noise import SecureStream

COLUMNS = [f"x{i}" for i in range(6)]
SCHEMA = Schema(
    {
        **{name: Number(-4, 4, missing=False) for name in COLUMNS},
        "label": Category(("a", "b"), missing=False),
        "kind": Category(("p", "q", "r"), missing=False),
        "y": Number(-10, 10, missing=False),
    }
)
LARGE = Budget(1e4, 1e-6)


def table(rows, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, rows)
    x = rng.normal(size=(rows, len(COLUMNS))) + np.where(label, 0.8, -0.8)[:, None]
    kind = np.digitize(x[:, 0], [-0.7, 0.7])
    return pl.DataFrame(
        {
            **{name: x[:, i] for i, name in enumerate(COLUMNS)},
            "label": np.array(["a", "b"])[label],
            "kind": np.array(["p", "q", "r"])[kind],
            "y": 2.0 * x[:, 0] - x[:, 1] + 1.0 + 0.3 * rng.normal(size=rows),
        }
    )


TABLES = {name: table(rows, i) for i, (name, rows) in enumerate([("a", 700), ("b", 400), ("c", 500)])}
TEST = table(2000, 99)


def consortium(budget=LARGE, key=b"learning", **options):
    options.setdefault("colluding", 1)
    options.setdefault("stream", SecureStream(key.ljust(32, b"-")))
    return Consortium(TABLES, SCHEMA, budget, **options)
