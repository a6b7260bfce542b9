"""Tables of one release: they agree with each other and with the rows, and their errors are what they say."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import chi2_contingency

import cape
from cape.analyses import Tables
from cape.analyses.tables import plan as tables_plan
from cape.analyses.tables.marginals import Measured
from cape.analyses.tables.tables_model import TablesModel
from cape.blocks import Table
from cape.core.errors import InvalidInput
from cape.data import Category, Number, Schema
from cape.engine.query import Answer
from cape.privacy import Budget

SCHEMA = Schema(
    age=Number(18, 90, label="Age"),
    sex=Category(("f", "m"), missing=False),
    stage=["I", "II", "III"],
    ill=Category(("no", "yes"), missing=False),
    ward=Category(("only",), missing=False),
)
ASKED = Tables(["age", "sex", "stage", "ill"], ways=3, edges={"age": [18, 40, 65, 90]})


def frame(rows=4000, seed=1):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, rows)
    ill = rng.random(rows) < 0.1 + 0.2 * sex
    age = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(50 + 10 * ill, 12))
    return pl.DataFrame(
        {
            "age": pl.Series(age).fill_nan(None),
            "sex": [("f", "m")[i] for i in sex],
            "stage": [("I", "II", "III", None)[i] for i in rng.choice(4, rows, p=[0.5, 0.3, 0.1, 0.1])],
            "ill": [("no", "yes")[int(i)] for i in ill],
            "ward": ["only"] * rows,
        }
    )


FRAME = frame()


def answered(analysis, neighbours="replace-one", noise=0.0, rng=None, data=FRAME, schema=SCHEMA):
    """The model that a release with so much noise per scale would give."""
    query = analysis.query(schema, neighbours)
    sums = Table("a", data, schema).sums(query.blocks)
    stds = tuple(tuple(noise * scale for scale in scales) for scales in query.scales)
    noised = tuple(
        tuple(
            array * 2.0**-20 + (rng.normal(size=array.shape) * std if noise else 0.0)
            for array, std in zip(arrays, each, strict=True)
        )
        for arrays, each in zip(sums, stds, strict=True)
    )
    public = neighbours == "replace-one" and not schema.open
    return analysis.finish(Answer(noised, stds, data.height if public else None, schema)).model


def counts(data, *columns):
    """Counts of each combination, from the rows."""
    codes, shape = [], []
    for name in columns:
        cells = data[name].to_list()
        if name == "age":
            found = [3 if x is None else int(x >= 40) + int(x >= 65) for x in cells]
        else:
            values = [*SCHEMA.category(name).values, None]
            found = [values.index(x) for x in cells]
        codes.append(found)
        shape.append(4 if name in ("age", "stage") else len(SCHEMA.category(name).values))
    table = np.zeros(shape, int)
    np.add.at(table, tuple(codes), 1)
    return table


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_without_noise_every_table_is_that_of_the_rows(neighbours):
    model = answered(ASKED, neighbours)
    for many in (1, 2, 3):
        for columns in itertools.permutations(ASKED.columns, many):
            found = model.table(*columns, missing=True)
            assert np.allclose(found.values, counts(FRAME, *columns), atol=1e-3), columns
    assert np.allclose(model.table("stage", "sex").values, counts(FRAME, "stage", "sex")[:3], atol=1e-3)


def test_tables_agree_with_each_other_and_with_the_public_total():
    model = answered(ASKED, noise=40.0, rng=np.random.default_rng(2))
    three = model.table("age", "stage", "ill", missing=True)
    assert three.values.sum() == pytest.approx(FRAME.height, abs=1e-6)
    assert np.allclose(three.values.sum(axis=1), model.table("age", "ill", missing=True).values)
    other = model.table("ill", "age", "sex", missing=True)
    assert np.allclose(other.values.sum(axis=2), model.table("ill", "age", missing=True).values)
    assert np.allclose(
        model.table("sex", "ill", where="stage is not null", missing=True).values
        + model.table("sex", "ill", where={"stage": None}, missing=True).values,
        model.table("sex", "ill").values,
    )


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_noise_of_tables_has_the_covariance_that_they_say(neighbours):
    """Noise in a coordinate moves a table along a line: the squares of all of them add up."""
    model = answered(ASKED, neighbours, noise=7.0, rng=np.random.default_rng(3))
    released = model.measured
    nothing = {b: np.zeros(np.shape(z)) for b, z in released.coordinates.items()}
    for columns in (("sex",), ("ill", "stage"), ("stage", "age", "sex")):
        said = released.marginal(columns).known()
        covariance = np.zeros((said.values.size, said.values.size))
        for b, zeros in nothing.items():
            for at in np.ndindex(*zeros.shape):
                one = zeros.copy()
                one[at] = released.noise[b]
                if {released.levels[i].column for i in b} <= set(columns):
                    moved = Measured(released.levels, nothing | {b: one}, released.noise).marginal(columns)
                    line = moved.known().values.reshape(-1)
                    covariance += np.outer(line, line)
        assert np.allclose(said.covariance, covariance)
        assert np.allclose(said.variance.reshape(-1), np.diag(covariance))
        weights = np.random.default_rng(4).normal(size=said.values.shape)
        flat = weights.reshape(-1)
        assert said.variance_of(weights) == pytest.approx(float(flat @ covariance @ flat))


def test_where_takes_a_part_of_a_larger_table():
    model = answered(ASKED)
    table = counts(FRAME, "age", "stage", "sex")
    assert np.allclose(
        model.table("sex", where="age >= 40 and stage = 'II'").values, table[1:3, 1].sum(0), atol=1e-3
    )
    assert np.allclose(
        model.table("sex", where="age >= 65 or stage = 'I'").values,
        (table[2].sum(0) + table[:, 0].sum(0) - table[2, 0]),
        atol=1e-3,
    )
    assert np.allclose(
        model.table("sex", where={"age": "[40, 65)", "stage": ["I", "III"]}).values,
        table[1, [0, 2]].sum(0),
        atol=1e-3,
    )
    noisy = answered(ASKED, noise=9.0, rng=np.random.default_rng(1))
    whole = noisy.measured.marginal(("stage", "sex", "ill"))
    part = noisy.table("sex", "ill", where="stage = 'I' or stage = 'II'").counts
    mask = np.zeros((4, 2, 2))
    mask[:2, 0, 1] = 1.0
    assert part.variance[0, 1] == pytest.approx(whole.variance_of(mask))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("age >= 50", "divides the bin"),
        ("age = 50", "divides the bin"),
        ("stage = 'V'", "not among the values"),
        ("bmi > 2", "no column 'bmi'"),
        ({"sex": "x"}, "no value 'x'"),
        ({"bmi": 1}, "not among those of these tables"),
        ({}, "must name a column"),
        (3, "must be a condition"),
        ("age", "must be a condition"),
        ("ill = 'yes'", "both in the table and in where"),
    ],
)
def test_a_condition_that_tables_cannot_answer_is_refused(where, said):
    with pytest.raises(InvalidInput, match=said):
        answered(ASKED).table("ill", where=where)


def test_a_table_that_was_not_released_is_refused():
    model = answered(Tables(["sex", "ill", "stage"], workload=[["sex", "ill"], ["stage"]]))
    assert model.table("sex", "ill").values.shape == (2, 2)
    with pytest.raises(InvalidInput, match="was not released"):
        model.table("sex", "stage")
    with pytest.raises(InvalidInput, match="was not released"):
        answered(Tables(["sex", "ill", "stage"])).table("ill", where="sex = 'f' and stage = 'I'")
    with pytest.raises(InvalidInput, match="must be different"):
        model.table("sex", "sex")
    with pytest.raises(InvalidInput, match="needs a column"):
        model.table()


def test_without_noise_effects_are_the_usual_ones():
    model = answered(ASKED)
    table, true = model.table("sex", "ill"), counts(FRAME, "sex", "ill")
    (a, b), (c, d) = true
    ratio = table.odds_ratio()
    assert ratio.value == pytest.approx(a * d / (b * c), rel=1e-6)
    reach = 1.959964 * math.sqrt(1 / a + 1 / b + 1 / c + 1 / d)
    assert ratio.interval() == pytest.approx(
        (ratio.value * math.exp(-reach), ratio.value * math.exp(reach)), rel=1e-5
    )
    assert table.risk_ratio().value == pytest.approx(d / (c + d) / (b / (a + b)), rel=1e-6)
    test = table.independence()
    wanted = chi2_contingency(true, correction=False)
    assert (test.statistic, test.p_value) == pytest.approx((wanted.statistic, wanted.pvalue), rel=1e-5)
    assert table.cramers_v().value == pytest.approx(math.sqrt(wanted.statistic / true.sum()), rel=1e-5)
    assert table.shares()[3].label == "ill=yes | sex=m"
    assert table.shares()[3].value == pytest.approx(d / (c + d), rel=1e-6)
    ages = counts(FRAME, "age")[:3]
    middles = np.array([29, 52.5, 77.5])
    assert model.table("age").mean().value == pytest.approx(middles @ ages / ages.sum(), rel=1e-6)
    both = counts(FRAME, "age", "ill")[:3]
    x, y = np.repeat(middles, both.sum(1)), np.concatenate([np.repeat([0, 1], row) for row in both])
    assert model.table("age", "ill").correlation().value == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-5)
    picked = model.table("stage", "ill").odds_ratio(rows=("I", "III"))
    part = counts(FRAME, "stage", "ill")
    assert picked.value == pytest.approx(part[0, 0] * part[2, 1] / (part[0, 1] * part[2, 0]), rel=1e-5)
    with pytest.raises(InvalidInput, match="say which two"):
        model.table("stage", "ill").odds_ratio()
    with pytest.raises(InvalidInput, match="no value 'V'"):
        model.table("stage", "ill").odds_ratio(rows=("I", "V"))
    with pytest.raises(InvalidInput, match="2 columns"):
        model.table("stage").independence()


@pytest.mark.slow(20)
def test_intervals_of_effects_cover_with_sampling_and_noise():
    """600 samples at epsilon 1: .95 within three standard errors, .027; without the noise it would be .88."""
    rng, asked = np.random.default_rng(5), Tables(["sex", "ill"])
    schema = Schema(sex=Category(("f", "m"), missing=False), ill=Category(("no", "yes"), missing=False))
    mu = float(cape.privacy.mu(1.0, 1e-6))
    risk = np.array([0.1, 0.25])
    true = {"odds": risk[1] / (1 - risk[1]) / (risk[0] / (1 - risk[0])), "share": 0.25}
    held, runs, size = {"odds": 0, "share": 0, "v": 0, "test": 0}, 600, 0
    for _ in range(runs):
        sex = rng.integers(0, 2, 1500)
        ill = rng.random(1500) < risk[sex]
        data = pl.DataFrame(
            {"sex": [("f", "m")[i] for i in sex], "ill": [("no", "yes")[int(i)] for i in ill]}
        )
        model = answered(asked, noise=1.118 / mu, rng=rng, data=data, schema=schema)
        table = model.table("sex", "ill")
        for name, estimate in (("odds", table.odds_ratio()), ("share", table.shares()[3])):
            low, high = estimate.interval()
            held[name] += low <= true[name] <= high
        shuffled = data.with_columns(pl.Series("sex", rng.permutation(data["sex"].to_numpy()).tolist()))
        null = answered(asked, noise=1.118 / mu, rng=rng, data=shuffled, schema=schema).table("sex", "ill")
        size += null.independence().p_value < 0.05
    assert held["odds"] / runs == pytest.approx(0.95, abs=0.027)
    assert held["share"] / runs == pytest.approx(0.95, abs=0.027)
    assert size / runs == pytest.approx(0.05, abs=0.027)


def test_a_whole_release_answers_through_the_release():
    sites = {f"s{i}": FRAME[i * 800 : (i + 1) * 800] for i in range(5)}
    made = cape.Consortium(sites, SCHEMA, Budget(3.0, 1e-6), colluding=1)
    release = made.release(ASKED, share=0.9)
    table = release.table("sex", "ill")
    assert np.abs(table.values - counts(FRAME, "sex", "ill")).max() < 6 * table.standard_error.max()
    assert table.values.sum() == pytest.approx(FRAME.height, abs=1e-6)
    polars, pandas = table.to_polars(), table.to_pandas()
    assert polars.columns == ["sex", "ill", "count", "standard_error", "low", "high"]
    assert isinstance(pandas, pd.DataFrame)
    assert pandas["count"].tolist() == polars["count"].to_list() == table.values.reshape(-1).tolist()
    assert polars["sex"].to_list() == ["f", "f", "m", "m"]
    assert release.estimates.labels[:2] == ["age in [18, 40)", "age in [40, 65)"]
    text = str(release)
    assert "Largest associations" in text
    assert "Cramér's V of pairs" in text
    assert release.figures()[0].panels[0].rows == ("Age", "sex", "stage", "ill")
    assert "sum" in str(table)
    assert "<svg" in table._repr_html_()
    read = TablesModel.from_dict(json.loads(json.dumps(release.model.to_dict())), SCHEMA)
    assert np.allclose(read.table("ill", "sex").values.T, table.values)
    mean = made.release(cape.Mean("age"), share=0.1)
    with pytest.raises(InvalidInput, match="holds no tables"):
        mean.table("age")


def test_counts_for_looking_at_are_not_negative_and_have_the_same_total():
    model = answered(ASKED, noise=300.0, rng=np.random.default_rng(4))
    table = model.table("age", "stage", "ill")
    shown = table.nonnegative()
    assert (table.values < 0).any()
    assert (shown >= 0).all()
    assert shown.sum() == pytest.approx(table.values.sum())
    calm = answered(ASKED).table("sex", "ill")
    assert np.allclose(calm.nonnegative(), calm.values)


def test_a_column_of_one_value_has_tables_too():
    model = answered(Tables(["sex", "ward", "ill"], ways=3))
    assert np.allclose(model.table("ward", "sex").values, counts(FRAME, "sex")[None], atol=1e-3)
    assert np.allclose(model.table("sex", "ward", "ill").values[:, 0], counts(FRAME, "sex", "ill"), atol=1e-3)
    free = Tables(["ward"]).query(SCHEMA, "replace-one")
    assert not free.private


def test_a_private_number_of_rows_is_one_of_the_sums():
    only = SCHEMA.only("age >= 40")
    model = answered(ASKED, schema=only)
    kept = FRAME.filter(pl.col("age") >= 40)
    assert model.rows()[0] == pytest.approx(kept.height, abs=1e-3)
    assert np.allclose(model.table("sex", "ill").values, counts(kept, "sex", "ill"), atol=1e-3)


def test_too_much_noise_is_said_and_not_divided_by():
    model = answered(ASKED, noise=1e6, rng=np.random.default_rng(6))
    table = model.table("sex", "ill")
    assert table.independence() is None
    assert table.odds_ratio().interval() == (0.0, math.inf)
    assert table.cramers_v().interval() == (0.0, 1.0)
    assert str(model)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"columns": []}, "at least one column"),
        ({"columns": ["sex", "sex"]}, "named twice"),
        ({"columns": ["sx"]}, "no column 'sx'"),
        ({"columns": ["sex"], "ways": 0}, "ways"),
        ({"columns": ["age"]}, "give its edges"),
        ({"columns": ["age"], "edges": {"age": [0, 40, 90]}}, "within its bounds, 18 to 90"),
        ({"columns": ["age"], "edges": {"age": [40, 18]}}, "rise"),
        ({"columns": ["age"], "edges": [18, 90]}, "by column"),
        ({"columns": ["sex"], "edges": {"age": [18, 90]}}, "not among the columns"),
        ({"columns": ["sex"], "bins": {"sex": 3}}, "has categories"),
        ({"columns": ["age"], "bins": 0}, "bins"),
        ({"columns": ["sex", "ill"], "workload": {"stage": 2}}, "not among the columns"),
        ({"columns": ["sex", "ill"], "workload": {"sex": -2}}, "weight of 'sex'"),
        ({"columns": ["sex", "ill"], "workload": "sex"}, "workload must be"),
        ({"columns": ["sex", "ill"], "workload": []}, "at least one table"),
        ({"columns": ["sex", "ill"], "workload": [["sex", "ill"]], "ways": 1}, "more than ways = 1"),
        ({"columns": ["sex", "ill"], "workload": [{"columns": ["sex"], "size": 2}]}, "columns and weight"),
    ],
)
def test_a_question_that_is_none_is_refused(arguments, said):
    with pytest.raises(InvalidInput, match=said):
        Tables(**arguments).query(SCHEMA, "replace-one")


def test_tables_too_large_to_hold_are_refused_with_their_size_and_something_coarser():
    schema = Schema({f"c{i}": (0, 1) for i in range(60)} | {f"k{i}": list("abcdefghij") for i in range(3)})
    asked = Tables(list(schema), ways=4, bins=20)
    with pytest.raises(InvalidInput, match=r"595,665 tables with [\d,]+ numbers.*ways = 2 \(1,953 tables"):
        asked.query(schema, "replace-one")
    with pytest.raises(InvalidInput, match="at most 6 bins for each number"):
        Tables([f"c{i}" for i in range(60)], ways=3, bins=40).query(schema, "replace-one")
    wide = Schema(k=list(range(3000)), h=list(range(3000)))
    with pytest.raises(InvalidInput, match=r"fewer categories of k \(3,001 values\)"):
        Tables(["k", "h"], workload=[["k", "h"]]).query(wide, "replace-one")


def test_a_plan_says_the_noise_of_each_table_and_keeps_it():
    sites = {f"s{i}": FRAME[i * 800 : (i + 1) * 800] for i in range(5)}
    made = cape.Consortium(sites, SCHEMA, Budget(1.0, 1e-6), colluding=1)
    plan = made.plan(ASKED, share=0.5)
    release = made.release(ASKED, share=0.5)
    planned = [by["cape"] for by in plan.noise.values()]
    assert planned == pytest.approx(release.estimates.privacy.tolist(), rel=2e-3)
    (outlook,) = plan.outlook
    told = {row[0]: row[2] for row in outlook.rows}
    assert float(told["sex by ill"]) == pytest.approx(
        release.table("sex", "ill").standard_error[0, 0], rel=2e-3
    )
    many = Schema({f"c{i}": ["a", "b"] for i in range(12)})
    wide = cape.Consortium(sites, many, Budget(1.0, 1e-6), colluding=1)
    (grouped,) = wide.plan(Tables(list(many)), share=0.5).outlook
    assert grouped.rows[1][0] == "c0 by c1, and 65 more of that size"


def test_a_heavier_column_has_better_tables():
    plain = answered(Tables(["sex", "stage", "ill"]), noise=5.0, rng=np.random.default_rng(1))
    heavy = answered(
        Tables(["sex", "stage", "ill"], workload={"sex": 9}), noise=5.0, rng=np.random.default_rng(1)
    )
    assert heavy.table("sex", "ill").standard_error[0, 0] < plain.table("sex", "ill").standard_error[0, 0]
    assert heavy.table("stage", "ill").standard_error[0, 0] > plain.table("stage", "ill").standard_error[0, 0]


def test_a_table_of_no_rows_is_refused_where_sizes_are_public():
    sites = {"a": FRAME[:0], "b": FRAME, "c": FRAME, "d": FRAME}
    made = cape.Consortium(sites, SCHEMA, Budget(1.0, 1e-6), colluding=1)
    with pytest.raises(cape.DataError, match="no rows"):
        made.release(ASKED, share=0.5)


def test_a_workload_of_too_many_sets_of_columns_is_refused_before_any_is_planned():
    names = [f"c{i}" for i in range(120)]
    schema = Schema({name: Category(("no", "yes"), missing=False) for name in names})
    rng = np.random.default_rng(1)
    listed = [[names[i] for i in sorted(rng.permutation(120)[:8])] for _ in range(1500)]
    with pytest.raises(InvalidInput, match="more than 200,000 sets of columns"):
        Tables(names, ways=8, workload=listed).query(schema, "replace-one")


def test_a_coarser_cut_of_a_long_workload_is_found_in_few_tries(monkeypatch):
    names = [f"n{i}" for i in range(6)]
    schema = Schema({name: Number(0, 1) for name in names})
    tried, of = [], tables_plan._Size.of
    monkeypatch.setattr(
        tables_plan._Size, "of", classmethod(lambda cls, *given: tried.append(given) or of(*given))
    )
    with pytest.raises(InvalidInput, match="at most 160 bins for each number"):
        Tables(names, ways=3, bins=4096, workload=[names[:3], names[3:]]).query(schema, "replace-one")
    assert len(tried) < 30
