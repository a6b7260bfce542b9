"""No pair of neighbouring tables moves a query further than it says, on the grid; and some pair nearly does.

Sums over rows are exact and additive, so neighbouring tables differ by the difference of two rows' vectors
(replace-one) or by one (add-remove): searching over rows is searching over tables.
"""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from cape.analyses import (
    ECDF,
    Association,
    ContingencyTable,
    Correlation,
    CorrelationTest,
    Count,
    Covariance,
    Difference,
    Evaluate,
    Heterogeneity,
    Histogram,
    KaplanMeier,
    LinearRegression,
    LogRank,
    Mean,
    Proportion,
    Quantiles,
    RankTest,
    StandardDeviation,
    Sum,
    SyntheticData,
    TableOne,
    Tables,
    Variance,
)
from cape.analyses.moments import Weights
from cape.data import Category, Number, Schema
from tests.unit.analyses.slow_sums import exact, is_number, vectors

SCHEMA = Schema(
    age=(18, 90),
    chol=Number(100, 600),
    bmi=Number(-3, 1, missing=False),
    dose=Number(0, 7, missing=False),
    sex=["female", "male"],
    stage=Category(("I", "II", "III"), missing=False),
    disease=["no", "yes"],
)


def both(batch):
    """A vector that is longer than the bound where both cells are large."""
    return np.nan_to_num(np.stack([batch["age"] - 54, 350 - batch["chol"]], axis=1)) / 40


RISKS = {
    "target": "disease",
    "link": "logit",
    "intercept": -5.4,
    "coefficients": {"age": 0.1, "sex=male": 0.5},
}
NUMBERS = {"target": "chol", "link": "identity", "intercept": -2350, "coefficients": {"age": 50}}
ANALYSES = [
    Evaluate(RISKS, bins=4),
    Evaluate(RISKS, edges=[0.1, 0.4], threshold=0.4),
    Evaluate(NUMBERS),
    Count(),
    Count("age", "chol", "bmi", "sex"),
    Count(sex="female"),
    Count("chol", sex="male", disease="yes"),
    Mean("age"),
    Mean("bmi"),
    Mean("age", "chol", "bmi", "dose"),
    Sum("age"),
    Sum("chol"),
    Sum("age", "bmi", "dose"),
    Sum.of(both, columns=["age", "chol"], bound=3.0, shape=2),
    Variance("age", "bmi"),
    StandardDeviation("age"),
    Covariance("age", "chol"),
    Correlation("age", "chol", "bmi"),
    Covariance("bmi", "dose"),
    Heterogeneity(Mean("age"), by="stage"),
    Heterogeneity(Mean("bmi", "age"), by="stage"),
    Heterogeneity(Difference("age", by="disease"), by="stage"),
    Heterogeneity(Difference("bmi", by="disease"), by="stage"),
    Heterogeneity(Proportion("disease"), by="stage"),
    Heterogeneity(Association("sex", "disease"), by="stage"),
    Heterogeneity(LinearRegression("bmi", ["dose"]), by="stage"),
    Heterogeneity(LinearRegression("age", ["chol", "sex"]), by="disease"),
    Histogram("age", edges=[18, 30, 60, 90]),
    Histogram("bmi", bins=7),
    Histogram("stage"),
    ContingencyTable("sex", "disease"),
    Tables(["age", "sex", "stage"], bins=3),
    Tables(["bmi", "sex", "stage", "disease"], ways=3, edges={"bmi": [-3, -1, 1]}, workload={"sex": 5}),
    Tables(["stage", "dose", "disease"], workload=[["stage", "dose"], ["stage", "disease"]], bins=2),
    Association("sex", "stage", trend=True),
    Proportion("stage"),
    Difference("age", by="disease"),
    RankTest("age", by="stage", bins=5),
    KaplanMeier("age", "disease", bins=6),
    KaplanMeier("age", "stage", by="sex", edges=[30, 60, 80]),
    LogRank("age", "disease", by="sex", strata="stage", bins=3),
    RankTest("bmi", by="sex", edges=[-3, 0, 1]),
    Difference("bmi", "dose", "age", by="stage"),
    Proportion("sex", "stage", by="disease"),
    ECDF("age", bins=16),
    Quantiles("age", "bmi", bins=64),
    Quantiles("age", "bmi"),
    Quantiles("bmi", probs=[0.5]),
    TableOne("age", "bmi", "sex"),
    TableOne("age", "bmi", "stage", by="disease"),
    TableOne("sex", by="disease"),
    TableOne("age", by="stage"),
    SyntheticData(["age", "bmi", "stage"], bins=3),
    SyntheticData(["sex", "disease"]),
    CorrelationTest("age", "chol"),
    CorrelationTest("age", "bmi", method="spearman", edges={"bmi": [-3, -2, 1]}),
    Count(by="stage"),
    Count("age", "bmi", by="sex"),
    Count(sex="female", by="stage"),
    Mean("age", by="sex"),
    Mean("age", "chol", "bmi", "dose", by="stage"),
    Sum("age", "chol", by="sex"),
    Sum("bmi", "dose", by="stage"),
    Variance("age", "bmi", by="stage"),
    StandardDeviation("age", by="sex"),
    Covariance("age", "chol", by="sex"),
    Correlation("bmi", "dose", by="stage"),
    Histogram("age", edges=[18, 30, 60, 90], by="sex"),
    Histogram("stage", by="disease"),
    ECDF("age", bins=16, by="stage"),
    Quantiles("age", "bmi", bins=16, by="sex"),
    Quantiles("age", "bmi", probs=[0.5], by="sex"),
]
RELATIONS = ["replace-one", "add-remove"]
EACH = pytest.mark.parametrize(
    "analysis", ANALYSES, ids=lambda analysis: re.sub(r" at 0x\w+", "", repr(analysis))
)
RELATION = pytest.mark.parametrize("neighbours", RELATIONS)


def used(analysis):
    """The columns that an analysis reads."""
    if isinstance(analysis, Evaluate):
        return [*analysis.model.features, analysis.model.target]
    if isinstance(analysis, Heterogeneity):
        return [*used(analysis.of), analysis.by]
    if isinstance(analysis, LinearRegression):
        return [*analysis.features, analysis.target]
    names = [*getattr(analysis, "columns", ()), *(name for name, _ in getattr(analysis, "categories", ()))]
    names += [getattr(analysis, part, None) for part in ("column", "time", "event", "by")]
    names = [name for name in (*names, *getattr(analysis, "strata", ())) if name]
    return list(dict.fromkeys(names)) or ["age"]


def as_table(names, rows):
    """Rows of cells, None for missing, as arrays: numbers, or codes of categories."""
    return {
        name: np.array([math.nan if r[i] is None else r[i] for r in rows], float)
        if is_number(SCHEMA, name)
        else np.array([-1 if r[i] is None else SCHEMA.category(name).values.index(r[i]) for r in rows], int)
        for i, name in enumerate(names)
    }


def extreme(name):
    """Cells where a bound may be attained."""
    column = SCHEMA[name]
    cells = [None] if column.missing else []
    if isinstance(column, Number):
        inside = [column.middle + column.half * t for t in (-1, 0, 2 - math.sqrt(5), 1)]
        return [*cells, *inside]
    return [*cells, *column.values]


def anywhere(name, rng):
    """A cell at random, within the bounds."""
    column = SCHEMA[name]
    if isinstance(column, Number):
        return rng.uniform(column.low, column.high)
    return column.values[rng.integers(len(column.values))]


def cells(name):
    """Any cell of a column, within the bounds, outside, and right at the edges of the grid."""
    column = SCHEMA[name]
    nothing = [st.none()] if column.missing else []
    if not isinstance(column, Number):
        return st.one_of(*nothing, st.sampled_from(column.values))
    step = column.half * 2.0**-20
    near = [column.low, column.high, column.middle, column.low + step, column.high - step / 2]
    return st.one_of(
        *nothing,
        st.sampled_from([*near, column.low - 1e9, column.high + 1e9]),
        st.floats(column.low, column.high),
    )


def furthest(query, table, neighbours):
    """The largest distance between the tables that hold one of these rows each."""
    found = vectors(query, SCHEMA, table)
    if neighbours == "add-remove":
        return math.sqrt((found**2).sum(axis=1).max())
    products = found @ found.T
    norms = np.diag(products)
    return math.sqrt((norms[:, None] + norms[None, :] - 2 * products).max())


@EACH
@RELATION
def test_the_extremes_attain_the_sensitivity_and_never_exceed_it(analysis, neighbours):
    query = analysis.query(SCHEMA, neighbours)
    if not query.blocks:
        assert query.sensitivity == 0
        return
    names = used(analysis)
    rng = np.random.default_rng(1)
    rows = list(itertools.product(*map(extreme, names)))
    rows = [rows[i] for i in rng.permutation(len(rows))[:1200]]
    rows += [tuple(anywhere(name, rng) for name in names) for _ in range(400)]
    top = furthest(query, as_table(names, rows), neighbours)
    assert top <= query.sensitivity * (1 + 1e-12)
    assert top > 0.975 * query.sensitivity  # so the same search catches a bound that is 5% too small


PURE = [each.under(True) for each in ANALYSES if each.query(SCHEMA, "add-remove").l1 is not None]
_WORK = 2e7  # products that one search may cost


def furthest_l1(query, schema, table, neighbours, alone=False):
    """As `furthest`, in the L1 norm; `alone` if a row may also be replaced by one that does not count."""
    found = vectors(query, schema, table)
    if neighbours == "add-remove":
        return np.abs(found).sum(axis=1).max()
    some = found[: max(40, int(math.sqrt(_WORK / found.shape[1])))]
    top = cdist(some, some, "cityblock").max()
    return max(top, np.abs(found).sum(axis=1).max()) if alone else top


@pytest.mark.parametrize("analysis", PURE, ids=repr)
@RELATION
@pytest.mark.parametrize("where", [None, "dose < 9"])
def test_the_extremes_attain_the_l1_sensitivity_and_never_exceed_it(analysis, neighbours, where):
    schema = SCHEMA if where is None else SCHEMA.only(where)
    query = analysis.query(schema, neighbours)
    if not query.blocks:
        assert query.sensitivity == 0
        return
    names, rng = used(analysis), np.random.default_rng(1)
    rows = list(itertools.product(*map(extreme, names)))
    rows = [rows[i] for i in rng.permutation(len(rows))[:1200]]
    rows += [tuple(anywhere(name, rng) for name in names) for _ in range(100)]
    top = furthest_l1(query, schema, as_table(names, rows), neighbours, alone=where is not None)
    assert 0.975 * query.l1 < top <= query.l1 * (1 + 1e-12)


@pytest.mark.one_in(4, seconds=0.3)
@pytest.mark.parametrize(
    "analysis", [*ANALYSES, *PURE], ids=lambda each: re.sub(r" at 0x\w+", "", repr(each))
)
@RELATION
@given(data=st.data())
def test_no_neighbouring_tables_differ_by_more(analysis, neighbours, data):
    query = analysis.query(SCHEMA, neighbours)
    if not query.blocks:
        return
    names = used(analysis)
    row = st.tuples(*map(cells, names))
    one, other, *shared = data.draw(st.lists(row, min_size=2, max_size=4))
    tables = [as_table(names, [first, *shared]) for first in (one, other)]
    if neighbours == "add-remove":
        tables[1] = as_table(names, [other, one, *shared])
        tables[0] = as_table(names, [other, *shared])
    sums = [exact(query, SCHEMA, table) for table in tables]
    pairs = [pair for left, right in zip(*sums, strict=True) for pair in zip(left, right, strict=True)]
    apart = [(a - b) / scale for (a, b), scale in zip(pairs, query.flat_scales, strict=True)]
    assert math.sqrt(sum(float((each**2).sum()) for each in apart)) <= query.sensitivity * (1 + 1e-12)
    if query.l1 is not None:
        assert sum(float(np.abs(each).sum()) for each in apart) <= query.l1 * (1 + 1e-12)


@RELATION
@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("second", [0.0, 0.3, 1.0, 2.0, 2.5, 2.7724, 2.7726, 3.0, 5.0, 50.0])
@pytest.mark.parametrize("count", [0.2, 1.0, 4.0])
def test_moved_is_the_exact_supremum_for_any_weights(neighbours, missing, second, count):
    weights = Weights(1.0, second, count)
    t = np.linspace(-1, 1, 801)
    rows = np.stack([np.ones_like(t), t, t**2]) * np.sqrt([[count], [1.0], [second]])
    apart = ((rows[:, :, None] - rows[:, None, :]) ** 2).sum(axis=0).max()
    alone = (rows**2).sum(axis=0).max()
    either = max(apart, alone) if missing else apart
    expected = alone if neighbours == "add-remove" else either
    assert weights.moved(neighbours, missing) == pytest.approx(expected, rel=2e-5)


@RELATION
@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("second", [0.0, 0.2, 0.5, 0.51, 1.0, 7.0])
def test_moved_l1_is_the_exact_supremum_for_any_weights(neighbours, missing, second):
    weights = Weights.of_l1(1.0, second, 0.7)
    t = np.linspace(-1, 1, 401)
    rows = np.stack([np.full_like(t, 0.7), t, second * t**2])
    apart = np.abs(rows[:, :, None] - rows[:, None, :]).sum(axis=0).max()
    alone = np.abs(rows).sum(axis=0).max()
    expected = alone if neighbours == "add-remove" else max(apart, alone) if missing else apart
    assert weights.moved_l1(neighbours, missing) == pytest.approx(expected, rel=2e-5)


def test_the_second_moment_is_free_up_to_a_quarter_of_the_golden_ratio_to_the_fifth():
    golden = (1 + math.sqrt(5)) / 2
    limit = golden**5 / 4
    assert Weights(1.0, limit, 1.0).moved("replace-one", missing=False) == pytest.approx(4.0, rel=1e-12)
    assert Weights(1.0, limit * 1.01, 1.0).moved("replace-one", missing=False) > 4.004


def test_what_the_docstrings_say_about_each_sensitivity():
    said = {
        Mean("age", "chol"): (2 * math.sqrt(2), 2.0),
        Variance("age", "chol"): (2 * math.sqrt(2), 2 * math.sqrt(2)),
        Sum("age", "bmi"): (2 * math.sqrt(2), math.sqrt(2)),
        Covariance("age", "chol"): (math.sqrt(2) * 2.5, math.sqrt(7)),
        Histogram("sex"): (math.sqrt(2), 1.0),
        Heterogeneity(Mean("age", "chol"), by="sex"): (2 * math.sqrt(2), 2.0),
        Heterogeneity(Proportion("sex", "disease"), by="stage"): (2.0, math.sqrt(2)),
        Difference("age", "chol", by="sex"): (2 * math.sqrt(2), 2.0),
        Quantiles("age", bins=64): (math.sqrt(6), 2.0),
        Mean("age", "chol", by="sex"): (2 * math.sqrt(2), 2.0),
        Histogram("age", bins=9, by="stage"): (math.sqrt(2), 1.0),
        TableOne("age", "bmi", "sex"): (math.sqrt(20), math.sqrt(12)),
        Evaluate(RISKS): (math.sqrt(11 / 4), math.sqrt(3 / 2)),
        Evaluate(NUMBERS): (math.sqrt(20), math.sqrt(20)),
        TableOne("age", "bmi", "sex", by="disease"): (math.sqrt(24), math.sqrt(12)),
    }
    for analysis, wanted in said.items():
        found = [analysis.query(SCHEMA, relation).sensitivity for relation in RELATIONS]
        assert found == pytest.approx(wanted), analysis
