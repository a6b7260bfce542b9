"""Squares of influences: their sensitivity, their bounds, and the intervals that they make hold."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.columns import SCHEMA, population, sample
from cape import PCA, Budget, Consortium, Correlation, Covariance, StandardDeviation, Variance
from cape.analyses.influence import Influence, product_bound, squares
from cape.blocks import Design, Form, Table
from cape.data import Schema
from cape.noise import SecureStream
from tests.slices import examples

NAMES = ("inpatient", "motion")
OF_TWO = Schema({name: SCHEMA[name] for name in NAMES})


@given(
    st.tuples(*[st.floats(-5, 5)] * 3),
    st.tuples(*[st.floats(-2, 0)] * 2),
    st.tuples(*[st.floats(0, 2)] * 2),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=20),
)
@examples(200)
def test_no_point_of_the_box_exceeds_the_bound_and_some_point_reaches_it(form, low, high, places):
    a, b, c = form
    boxes = list(zip(low, high, strict=True))
    bound = product_bound(form, boxes)
    for at in places:
        x, y = (lo + part * (hi - lo) for part, (lo, hi) in zip(at, boxes, strict=True))
        assert abs(a * x * x + b * x * y + c * y * y) <= bound + 1e-9
    grid = [np.linspace(*box, 201) for box in boxes]
    x, y = np.meshgrid(*grid)
    found = np.abs(a * x * x + b * x * y + c * y * y).max()
    assert found == pytest.approx(bound, abs=1e-2 * (1 + bound))


def test_one_row_moves_the_squares_by_at_most_the_root_of_their_number_and_some_row_does():
    """Whatever the centre and the forms; bounds that are too small are cut, not exceeded."""
    random, most = np.random.default_rng(1), 0.0
    corners = list(itertools.product((0.0, 10.0), (0.0, 1.0)))
    for _ in range(40):
        centre = random.uniform(-1, 1, 2)
        influences = [
            Influence(
                Form(((0, 0, 1.0), (0, 1, float(random.normal()))), float(random.uniform(0.1, 4))), 0, 1
            )
            for _ in range(3)
        ]
        query = squares([(Design(NAMES, cube=True), centre, influences)])
        rows = [pl.DataFrame([row], schema=list(NAMES), orient="row") for row in corners]
        sums = [Table("a", row, OF_TWO).sums(query.blocks)[0][0] / 2**40 for row in rows]
        moved = max(
            np.linalg.norm(one - two) for one, two in itertools.product([*sums, np.zeros(3)], repeat=2)
        )
        assert moved <= query.sensitivity
        most = max(most, moved / query.sensitivity)
    assert most > 0.99


def test_a_variance_asks_twice_and_spends_all_of_its_share_only_then():
    random = np.random.default_rng(2)
    rows = sample(2000, random)
    tables = {name: pl.DataFrame({c: rows[c][part::2] for c in NAMES}) for part, name in enumerate("ab")}
    consortium = Consortium(tables, OF_TWO, Budget(3.0, 1e-6), colluding=0)
    release = consortium.release(Variance("inpatient"), 0.5)
    assert consortium.budget.spent == 0.5
    assert release.estimates[0].sampling > 0
    tiny = Consortium(
        {name: table[:2] for name, table in tables.items()}, OF_TWO, Budget(0.1, 1e-6), colluding=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tiny.release(Correlation(*NAMES), 1.0)
    assert float(tiny.budget.spent) == pytest.approx(0.91), "what cannot be known is not asked for"


def _covered(analysis, truth, *, drop: bool, runs: int = 120) -> np.ndarray:
    """Return how often intervals hold the truth, with or without the last stage."""
    random, hits = np.random.default_rng(3), []
    for run in range(runs):
        rows = sample(20_000, random)
        table = pl.DataFrame({name: rows[name] for name in NAMES})
        key = SecureStream(run.to_bytes(32, "big"))
        consortium = Consortium(
            {"a": table[:10_000], "b": table[10_000:]},
            OF_TWO,
            Budget(10.0, 1e-6),
            colluding=0,
            scheme="pooled",
            stream=key,
        )
        if drop:  # as if the sums of squares had never been asked for: a normal population's errors
            session = type(analysis)(*analysis.columns)
            object.__setattr__(session, "__class__", _without_squares(type(analysis)))
            release = consortium.release(session, 1.0)
        else:
            release = consortium.release(analysis, 1.0)
        ends = np.array([estimate.interval(0.95) for estimate in release.estimates])
        hits.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    return np.mean(hits, axis=0)


def _without_squares(kind):
    class Without(kind):
        def stages(self):
            return (1.0,)

        def conduct(self, schema, neighbours):
            answer = yield self.query(schema, neighbours)
            return self.finish(answer)

    Without.kind = kind.kind
    return Without


def _truths() -> dict[str, np.ndarray]:
    rows = np.stack([population()[name] for name in NAMES])
    cov = np.cov(rows, bias=True)
    halves = np.array([OF_TWO.number(name).half for name in NAMES])
    values = np.linalg.eigvalsh(cov / np.outer(halves, halves))[::-1]
    return {
        "variance": np.diag(cov),
        "sd": np.sqrt(np.diag(cov)),
        "covariance": np.array([cov[0, 0], cov[0, 1], cov[1, 1]]),
        "correlation": np.array([np.corrcoef(rows)[0, 1]]),
        "pca": np.array([values[0], values[0] / values.sum(), values[1], values[1] / values.sum()]),
    }


@pytest.mark.slow(30)
@pytest.mark.parametrize(
    ("name", "analysis"),
    [
        ("variance", Variance(*NAMES)),
        ("sd", StandardDeviation(*NAMES)),
        ("covariance", Covariance(*NAMES)),
        ("pca", PCA(*NAMES)),
    ],
)
def test_intervals_hold_on_skewed_columns_and_fail_without_the_squares(name, analysis):
    truth = _truths()[name]
    held, dropped = (_covered(analysis, truth, drop=drop) for drop in (False, True))
    assert held.min() > 0.88, held  # five standard errors below 95%
    assert dropped.min() < 0.75, dropped
