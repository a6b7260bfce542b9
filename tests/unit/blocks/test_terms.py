from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Design, Table, Tensors, Term
from cape.blocks.rows import Converter
from cape.blocks.splines import SplineBasis
from cape.blocks.terms import Factor, Spline, parse, quoted, same
from cape.blocks.typical import rows as typical_rows
from cape.blocks.typical import vectors as typical_vectors
from cape.blocks.units import Units
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from tests.slices import examples

SCHEMA = Schema(
    age=(18, 90),
    chol=(100, 400),
    low=(-45, 10),
    sex=["F", "M"],
    stage=["I", "II", "III"],
    place=["a", "b", "c", "d"],
    y=(0, 3),
)
FORMULAS = [  # and the longest row, squared: the root of the number of parts is its length
    ("age + sex", 2),
    ("age * sex", 2),
    ("age:sex", 1),
    ("sex + age:sex", 2),
    ("age * chol * low", 7),
    ("chol + low:chol", 2),
    ("sex * stage", 1),
    ("sex:stage", 1),
    ("age * sex * stage", 2),
    ("sex * stage + stage * place + sex * place", 3),
    ("age * sex + age * place + sex * place", 3),
    ("age * spline(low, 4)", 3),
    ("spline(low, 4):sex", 1),
    ("spline(low, 2) * sex", 2),
    ("spline(age, knots=[30, 70]):spline(low, 3)", 1),
    ("sex:stage + age:chol:sex", 2),
]
EACH = pytest.mark.parametrize(("formula", "parts"), FORMULAS, ids=[each for each, _ in FORMULAS])


def their_spline(x: Any, df: int = 0, knots: Any = None) -> dict[int, Any]:
    """The same spline by patsy, with all knots but the first."""
    import patsy

    column = SCHEMA.number(x.name)
    inner = knots or np.linspace(column.low, column.high, df + 1)[1:-1].tolist()
    told = {"x": np.asarray(x), "inner": inner, "low": column.low, "high": column.high}
    formula = "patsy.cr(x, knots=inner, lower_bound=low, upper_bound=high) - 1"
    return dict(enumerate(np.asarray(patsy.dmatrix(formula, told | {"patsy": patsy})).T[1:], 1))


def design_of(formula: str, target: str | None = None, **options: Any) -> Design:
    from cape.analyses.regression.formula import expand

    return Design(expand(formula)[1], target, **options)


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame: dict[str, Any] = {
        name: draw.uniform(c.low, c.high, rows) for name, c in SCHEMA.items() if isinstance(c, Number)
    }
    for name in ("sex", "stage", "place"):
        values = list(SCHEMA.category(name).values)
        frame[name] = pd.Categorical(draw.choice(values, rows), values)
    return pd.DataFrame(frame)


@EACH
def test_coefficients_are_those_of_the_columns_that_formulaic_makes(formula: str, parts: int) -> None:
    from formulaic import model_matrix

    data, units = table(150), Units(design_of(formula), SCHEMA)
    columns = np.asarray(model_matrix(formula, data, context={"spline": their_spline}), float)
    x = np.column_stack([np.ones(len(data)), units.rows(data)])
    assert columns.shape == x.shape
    assert np.linalg.matrix_rank(x) == x.shape[1]
    weights = np.random.default_rng(1).normal(size=x.shape[1])
    np.testing.assert_allclose(columns @ units.values(weights), x @ weights, rtol=1e-9, atol=1e-9)
    assert len(set(units.names)) == len(units.names) == len(units.owners)


def _ends(column: Number, many: int) -> list[float]:
    return np.linspace(column.low, column.high, many).tolist()


@EACH
def test_the_longest_row_is_exactly_as_long_as_the_bound_says(formula: str, parts: int) -> None:
    design = design_of(formula)
    basis = design.basis(SCHEMA)
    assert len(basis.parts) == parts
    assert design.bound(SCHEMA) == math.sqrt(parts)
    names = design.sources
    numbers = [n for n in names if isinstance(SCHEMA[n], Number)]
    groups = [n for n in names if n not in numbers]
    smooth = {factor.column for term in design.terms for factor in term.factors if factor.spline}
    fine = {1: 4001, 2: 301}.get(len(smooth), 2)
    ends = [_ends(SCHEMA.number(n), fine if n in smooth else 2) for n in numbers]
    codes = [range(len(SCHEMA.category(n).values)) for n in groups]
    corners = list(itertools.product(*ends, *codes))
    cells = {n: np.array([float(c[i]) for c in corners]) for i, n in enumerate(numbers)}
    cells |= {n: np.array([int(c[len(numbers) + i]) for c in corners]) for i, n in enumerate(groups)}
    at_corners = np.linalg.norm(basis.evaluate(cells, len(corners)), axis=1)
    inside = np.linalg.norm(Units(design, SCHEMA).rows(table(2000)), axis=1)
    assert at_corners.max() == pytest.approx(math.sqrt(parts), rel=1e-4 if smooth else 1e-12)
    assert at_corners.max() <= math.sqrt(parts) * (1 + 1e-15)
    assert inside.max() <= 1


CELLS = {
    "age": st.floats(0, 120) | st.sampled_from([18.0, 90.0, 54.0, float("inf")]),
    "chol": st.floats(allow_nan=False) | st.sampled_from([100.0, 400.0]),
    "low": st.floats(-60, 20) | st.sampled_from([-45.0, 10.0, -17.5, 5e-324]),
    "sex": st.sampled_from(["F", "M"]),
    "stage": st.sampled_from(["I", "II", "III"]),
    "place": st.sampled_from(["a", "b", "c", "d"]),
    "y": st.floats(0, 3),
}
KINDS = {name: pl.String if name in ("sex", "stage", "place") else pl.Float64 for name in CELLS}
DESIGNS = [
    design_of("age * sex * stage + age * chol", "y"),
    design_of("spline(low, 4) * age + spline(chol, knots=[150, 200]):sex", intercept=0.7),
    design_of("low:chol + sex:place + spline(chol, 30)", "y", norm=0.9, intercept=1.3),
    design_of("age:sex:stage + low * place", cube=True),
]


@pytest.mark.parametrize("design", DESIGNS, ids=lambda d: " + ".join(d.features))
@given(rows=st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=8))
@examples(40)
def test_vectors_are_whole_steps_of_length_at_most_one_and_the_true_ones_rounded_toward_zero(
    design: Design, rows: list[dict[str, Any]]
) -> None:
    frame = pl.DataFrame(rows, schema=KINDS)
    x, _ = Table("a", frame, SCHEMA).vectors(design)
    assert np.array_equal(x, np.trunc(x))
    if design.cube:
        assert np.abs(x).max() <= 2**20
    else:
        assert all(sum(int(k) ** 2 for k in row) <= 2**40 for row in x.tolist())
    shrink = math.hypot(1.0, design.intercept)
    true = Units(design, SCHEMA).rows(frame.to_pandas()) / shrink * 2**20
    found = x[:, int(design.intercept > 0) :]
    assert np.all(np.abs(found) <= np.abs(true) + 2**-8)
    assert np.all(np.abs(found - true) <= 2 + 2**-8)  # a category's entry is the root of a whole number
    assert np.all(found * true >= 0)


SPLINES = [Spline(4), Spline(2), Spline(30), Spline(3, (20.0, 70.0)), Spline(3, (18.01, 18.02))]


@pytest.mark.parametrize("spline", SPLINES, ids=str)
def test_splines_are_the_natural_ones_of_patsy_divided_by_their_largest_length(spline: Spline) -> None:
    curve = SplineBasis(Factor("age", spline), Number(18, 90))
    x = pd.Series(np.concatenate([np.linspace(18, 90, 5001), np.linspace(18, 18.05, 301)]), name="age")
    theirs = np.array(list(their_spline(x, spline.freedom, list(spline.knots or ())).values()))
    ours = curve.at(x.to_numpy())
    np.testing.assert_allclose(ours * curve.size, theirs, atol=1e-9 * curve.size)
    squares = [sum(Fraction(v) ** 2 for v in row) for row in ours.T[::7].tolist()]
    assert max(squares) <= 1
    assert (ours**2).sum(axis=0).max() > 1 - 1e-4
    assert curve.at(np.array([0.0, 120.0])).tolist() == curve.at(np.array([18.0, 90.0])).tolist()
    assert np.isnan(curve.at(np.array([np.nan]))).all()


def test_the_length_of_splines_is_a_bound_that_is_hardly_too_large() -> None:
    draw = np.random.default_rng(4)
    for _ in range(8):
        inner = tuple(np.sort(draw.uniform(18.5, 89.5, draw.integers(1, 6))).tolist())
        curve = SplineBasis(Factor("age", Spline(len(inner) + 1, inner)), Number(18, 90))
        longest = (curve.at(np.linspace(18, 90, 20_001)) ** 2).sum(axis=0).max()
        assert 1 - 1e-5 < longest <= 1


def test_knots_may_be_so_close_and_no_vector_is_longer_than_one() -> None:
    narrow = Schema(y=(0, 3), wide=(-1e200, 1e200), dot=(1.0, 1.0000000000000004))
    for feature in ("spline(y, knots=[1e-11, 2e-11, 2.5])", "spline(y, knots=[2.9, 2.99999999])"):
        design = Design((feature,))
        ((_, curve),) = design.basis(narrow).parts[0].curves
        cells = np.concatenate(
            [a + (b - a) * np.linspace(0, 1, 500) for a, b in itertools.pairwise(curve._knots.tolist())]
        )
        found = Converter(narrow, design).convert({"y": cells}, len(cells))
        squares = (found.x**2).sum(axis=0)
        assert found.count == len(cells)
        assert 0.999 * 2**40 < squares.max() <= 2**40
    for name in ("wide", "dot"):
        with pytest.raises(InvalidInput, match="too close"):
            Design((f"spline({name}, 8)",)).check(narrow)


@pytest.mark.slow(2)
def test_vectors_that_are_too_long_are_shortened_whatever_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    design, schema = Design(("spline(y, 4)",)), Schema(y=(0, 2.99))  # other bounds: nothing is remembered
    monkeypatch.setattr(SplineBasis, "_longest", lambda self: 0.7)
    cells = np.linspace(0, 2.99, 1000)
    found = Converter(schema, design).convert({"y": cells}, len(cells))
    assert (found.x**2).sum(axis=0).max() <= 2**40


def test_sums_over_terms_are_the_same_in_every_order_batch_and_engine() -> None:
    frame = pl.from_pandas(table(9000).astype({"sex": str, "stage": str, "place": str}))
    frame = frame.with_columns(pl.when(pl.col("age") < 20).then(None).otherwise(pl.col("age")).alias("age"))
    design = design_of("age * sex + spline(low, 4):stage", "y")
    block = Tensors(design, (Term(1), Term(1, (0.0, 1.0)), Term(2)))
    whole = Table("a", frame, SCHEMA).sums([block])[0]
    shuffled = Table("b", frame.sample(fraction=1.0, shuffle=True, seed=3), SCHEMA).sums([block])[0]
    duck = Table("c", duckdb.connect().from_arrow(frame.to_arrow()), SCHEMA).sums([block])[0]
    halves = [Table("d", part, SCHEMA).sums([block])[0] for part in (frame[:4000], frame[4000:])]
    for i, array in enumerate(whole):
        assert array.tolist() == shuffled[i].tolist() == duck[i].tolist()
        assert array.tolist() == (halves[0][i] + halves[1][i]).tolist()
    assert int(whole[0][0]) == frame["age"].is_not_null().sum()


def test_cells_outside_their_bounds_count_as_the_bounds() -> None:
    design = design_of("age:chol + spline(low, 4):sex")
    outside = {"age": [500.0, -7.0], "chol": [1e300, -np.inf], "low": [99.0, -99.0], "sex": ["M", "F"]}
    at_bounds = {"age": [90.0, 18.0], "chol": [400.0, 100.0], "low": [10.0, -45.0], "sex": ["M", "F"]}
    found, wanted = (
        Table("a", pl.DataFrame(each), SCHEMA).vectors(design)[0] for each in (outside, at_bounds)
    )
    assert found.tolist() == wanted.tolist()
    assert (found**2).sum(axis=1).max() <= 2**40


def test_what_a_design_reads_are_the_columns_below_its_terms() -> None:
    design = Design(("age:sex", "spline(low, 4)", "sex"), "y")
    assert design.columns == ("age", "sex", "low", "y")
    assert not design.plain
    with pytest.raises(InvalidInput, match="must not be one of the features"):
        Design(("age:y",), "y")
    with pytest.raises(InvalidInput, match="only once"):
        Design(("age:sex", "sex:age"))


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (("agee:sex",), r"feature 'agee:sex': no column 'agee' in the schema.*'age'"),
        (("spline(sex, 4)",), "a spline is of a number"),
        (("spline(age, knots=[10])",), "between the bounds"),
        (("spline(y, knots=[5e-324])",), "too close to each other"),
        (("spline(y, knots=[1e-300, 2e-300])",), "too close to each other"),
        (("age:spline(y, knots=[1e-150, 2e-150, 1])",), "too close to each other"),
        (("age", "spline(age, 4)"), "say the same in part"),
        (("spline(age, 4)", "age:sex"), "say the same in part"),
        (("stage:place", "sex"), None),
    ],
)
def test_features_that_do_not_fit_the_schema_are_refused_by_name(
    features: tuple[str, ...], said: str | None
) -> None:
    if said is None:
        Design(features).check(SCHEMA)
        return
    with pytest.raises(InvalidInput, match=said):
        Design(features).check(SCHEMA)


@pytest.mark.slow(2)
def test_many_entries_with_a_column_in_several_ways_are_refused_before_they_are_compared() -> None:
    wide = Schema(a=(0, 1), b=(0, 1), g=list(range(100)), h=list(range(100)))
    Design(("g:h", "spline(b, 2)")).check(wide)
    with pytest.raises(InvalidInput, match="'b' is used in several ways among"):
        Design(("g:h", "spline(b, 2)", "b:g")).check(wide)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a term"),
        (":age", "on both sides"),
        ("age:", "on both sides"),
        ("age:age", "twice"),
        ("`age", "without its second one"),
        ("a`b`", "at both ends"),
        ("spline(age)", "cannot be read"),
        ("spline(age, x)", "cannot be read"),
        ("spline(age, knots=[a])", "must be numbers"),
        ("spline(age, 4, degree=2)", "cannot be read"),
        ("spline(age, 1)", "from 2 to 30"),
        ("a" * 3000, "at most 2000 characters"),
        ("a:b:c:d:e:f:g", "at most 6 factors"),
    ],
)
def test_a_term_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse(text)


@given(st.lists(st.text("ab:`,()[] =4spline", min_size=1, max_size=12), min_size=1, max_size=3))
@examples(200)
def test_any_text_is_a_term_that_reads_the_same_again_or_is_refused(parts: list[str]) -> None:
    try:
        term = parse(":".join(parts))
    except InvalidInput:
        return
    assert parse(str(term)) == term


@pytest.mark.parametrize(
    "name", ["age", "a:b", "spline(a, 4)", " a", "a, b", "age (years)", "a=b", "`", "a`b"]
)
def test_a_quoted_name_is_a_term_that_is_this_column_alone(name: str) -> None:
    term = parse(quoted(name))
    assert term.plain
    assert term.columns == (name,)


def test_terms_are_the_same_whatever_the_order_of_their_factors() -> None:
    assert same("age:spline(low,4)", "spline(low, 4):age")
    assert not same("age", "age:sex")
    assert not same("", "age")


def test_a_column_whose_name_has_a_colon_is_a_feature_in_backticks() -> None:
    schema = Schema({"a:b": (0, 2), "c": (0, 1)})
    design = Design(("`a:b`", "c"))
    assert design.columns == ("a:b", "c")
    assert design.names(schema) == ("a:b", "c")
    assert Units(design, schema).rows({"a:b": [2.0], "c": [0.5]}).tolist() == [[1 / math.sqrt(2), 0.0]]


def test_typical_rows_have_the_moments_that_plans_use() -> None:
    design = design_of("age * sex + spline(low, 4)")
    mean, covariance = typical_vectors(design, SCHEMA)
    x = typical_rows(design, SCHEMA, 4096)
    np.testing.assert_allclose(mean, x.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(covariance, np.cov(x.T, bias=True), atol=1e-9)
    plain_mean, plain_covariance = typical_vectors(Design(("age", "sex")), SCHEMA)
    cells = design.names(SCHEMA).index("sex=M")
    assert mean[cells] * design.length(SCHEMA) == pytest.approx(plain_mean[1] * math.sqrt(2), abs=1e-3)
    assert plain_covariance.shape == (2, 2)


def test_weights_reach_no_further_than_what_factors_may_move() -> None:
    """Predictions that no factor moves by more than 1 have weights within `reach`: some attain it."""
    for formula, most in (
        ("age * sex", [0.5, 1.0, 0.5]),
        ("spline(low, 3)", [1.0] * 3),
        ("age:sex", [1.25] * 2),
    ):
        units = Units(design_of(formula), SCHEMA)
        curve = units.reach.max() / max(most)
        np.testing.assert_allclose(units.reach / curve, most, rtol=1e-9)
        assert curve == pytest.approx(1.0, rel=0.05)
