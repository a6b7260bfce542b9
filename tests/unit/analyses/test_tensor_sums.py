"""No two rows move the sums of a regression further than it says, and some two rows nearly do."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from cape.analyses import tensor_sums as sensitivity
from cape.analyses.regression.linear import LinearRegression
from cape.analyses.regression.polynomial import PolynomialLoss
from cape.analyses.tensor_sums import joint, least_product, moved, second_moments
from cape.blocks import Design, Term
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from tests.unit.analyses.regression.tables import row_parts, vectors

POLY = np.polynomial.polynomial.polyval
X, Y, YY, XY, XX = Term(1), Term(0, (0.0, 1.0)), Term(0, (0.0, 0.0, 1.0)), Term(1, (0.0, 1.0)), Term(2)
CASES = [
    ((XY, XX), (1.0, 0.5)),
    ((XY, XX), (0.75, 1.0)),
    ((Y, YY, X, XY, XX), (0.2, 1.0, 0.3, 0.75, 1.0)),
    ((Y, X, XY, XX), (0.25, 0.25, 1.0, 0.375)),
    ((YY, XX), (3.0, 0.1)),
    ((Term(1, (0.0, 1.0)), Term(2), Term(3, (0.0, 1.0)), Term(4)), (1.0, 1.0, 1.0, 1.0)),
    ((Term(1, (0.0, -1.0)), Term(2, (0.0, 0.0, 0.5)), Term(3, (0.2, 0.3)), Term(4, (0.2, 0.0, 0.3))),
     (1.0, 1.0, 2.0, 1.0)),
    ((Term(1, (0.5, 0.5)), Term(2, (0.5, -0.5))), (1.0, 1.0)),
    ((Term(0, (0.0, 1.5, 0.0, -0.5)), Term(2, (0.0, 1.0))), (0.4, 2.0)),
]  # fmt: skip
CASE = pytest.mark.parametrize(("terms", "weights"), CASES)


def distance(terms, weights, s, y, u):
    """What replacing a unit vector by another with product s does, and y by u."""
    total = 0.0
    for term, weight in zip(terms, weights, strict=True):
        at, to = POLY(y, term.target), POLY(u, term.target)
        total = total + weight * (at**2 + to**2 - 2 * at * to * s**term.degree)
    return total


def furthest(terms, weights, least=-1.0, signs=False):
    """The largest distance that a grid and descents from its best points find."""
    s = np.linspace(least, 1, 81)
    y = np.array([-1.0, 1.0]) if signs else np.linspace(-1, 1, 61)
    grid = np.stack([g.ravel() for g in np.meshgrid(s, y, y)])
    values = distance(terms, weights, *grid)
    best = values.max()
    for at in np.argsort(values)[-4:]:
        held = [(g, g) for g in grid[1:, at]] if signs else [(-1, 1), (-1, 1)]
        bounds = [(least, 1), *held]
        end = minimize(lambda v: -distance(terms, weights, *v), grid[:, at], bounds=bounds, method="L-BFGS-B")
        best = max(best, -end.fun)
    return best


@CASE
@pytest.mark.parametrize("target", ["interval", "signs"])
@pytest.mark.parametrize("least", [-1.0, -0.6, 0.0])
def test_the_bound_holds_and_is_attained(terms, weights, target, least):
    bound = moved(terms, weights, "replace-one", target, least)
    top = furthest(terms, weights, least, target == "signs")
    assert top <= bound * (1 + 1e-12)
    assert top >= bound * (1 - 2e-6)
    assert not top <= 0.999 * bound  # what the same search would say of a bound that is 0.1% too small


@CASE
def test_boxes_and_closed_forms_agree(terms, weights):
    named = sensitivity._as_second_moments(terms, weights)
    if named is not None:
        boxes = sensitivity._top_of_boxes(terms, weights, -1.0)
        assert second_moments(*named) == pytest.approx(boxes, rel=2e-6)


@CASE
@pytest.mark.parametrize("target", ["interval", "signs"])
def test_a_row_that_comes_or_goes_adds_at_most_the_largest_sum_of_squares(terms, weights, target):
    y = np.array([-1.0, 1.0]) if target == "signs" else np.linspace(-1, 1, 4001)
    top = sum(w * POLY(y, t.target) ** 2 for t, w in zip(terms, weights, strict=True)).max()
    bound = moved(terms, weights, "add-remove", target)
    assert top <= bound * (1 + 1e-12)
    assert top == pytest.approx(bound, rel=2e-6)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 2), (1, 3), (1, 10), (0.3, 1), (5, 0.1)])
def test_the_functional_mechanism_for_least_squares(a, b):
    known = 16 * a if 2 * a >= b else 2 * b * (1 + 2 * a / b) ** 2
    terms = (Term(1, (0.0, 2.0)), Term(2))
    assert moved(terms, (a, b), "replace-one") == pytest.approx(known, rel=1e-9)


def test_what_is_free():
    alone = second_moments(0, 0, 0, 1.0, 0)
    assert alone == pytest.approx(4.0)
    assert second_moments(0, 0, 0, 1.0, 0.5) == pytest.approx(alone)
    assert second_moments(0, 0, 0, 1.0, 0.51) > alone
    assert second_moments(0.3, 0.2, 0, 0.75, 1) == pytest.approx(
        second_moments(0.3, 0.2, 1, 0.75, 1), rel=1e-6
    )


@given(data=st.data())
def test_no_two_rows_in_the_ball_move_the_sums_further(data):
    """Rows of any length, not only 1, in three dimensions, and tensors written out."""
    terms, weights = data.draw(st.sampled_from(CASES))
    number = st.floats(-1, 1)
    rows = np.array(data.draw(st.tuples(*[st.tuples(*[number] * 4)] * 2)))
    x = rows[:, :3] / np.maximum(np.linalg.norm(rows[:, :3], axis=1, keepdims=True), 1)
    total = alone = 0.0
    for term, weight in zip(terms, weights, strict=True):
        tensors = [POLY(y, term.target) * outer(v, term.degree) for v, y in zip(x, rows[:, 3], strict=True)]
        total += weight * float(((tensors[0] - tensors[1]) ** 2).sum())
        alone += weight * float((tensors[0] ** 2).sum())
    assert total <= moved(terms, weights, "replace-one") * (1 + 1e-12)
    assert alone <= moved(terms, weights, "add-remove") * (1 + 1e-12)


def outer(v, degree):
    out = np.array(1.0)
    for _ in range(degree):
        out = np.multiply.outer(out, v)
    return out


@given(
    weights=st.tuples(*[st.floats(0.01, 10)] * 5),
    s=st.floats(-1, 1), y=st.floats(-1, 1), u=st.floats(-1, 1),
)  # fmt: skip
def test_second_moments_bound_any_pair_for_any_weights(weights, s, y, u):
    x, wy, yy, xy, xx = weights
    terms = (X, Y, YY, XY, XX)
    assert distance(terms, (x, wy, yy, xy, xx), s, y, u) <= second_moments(*weights) * (1 + 1e-12)


SCHEMA = Schema(
    age=Number(18, 90, missing=False),
    chol=Number(100, 600),
    bmi=Number(10, 60, missing=False),
    sex=["female", "male"],
    stage=["I", "II", "III"],
    disease=["no", "yes"],
)
ANALYSES = [
    LinearRegression("bmi", ["age"]),
    LinearRegression("bmi", ["age", "chol", "sex"]),
    LinearRegression("bmi", ["age", "chol", "stage"], norm=1.0),
    LinearRegression("bmi", ["age", "chol"], intercept=False),
    LinearRegression("bmi", ["age", "sex", "age:sex", "spline(chol, 4)", "stage:sex"]),
    LinearRegression("bmi", ["age:chol", "spline(chol, 3):stage"]),
    PolynomialLoss("bmi", ["age", "chol"], {1: [0, -2], 2: [1]}),
    PolynomialLoss("disease", ["age", "sex"], {1: [0, -0.5], 2: [0, 0, 0.08], 4: [-0.002]}, norm=0.8),
]


@pytest.mark.parametrize("analysis", ANALYSES, ids=lambda a: f"{a.kind} {a.target} {a.features}")
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_no_rows_of_a_table_move_a_query_further(analysis, neighbours):
    """Corners, middles and random rows, with arrays and scales as they are released."""
    query = analysis.query(SCHEMA, neighbours)
    (block,) = query.blocks
    design = block.design
    cells = []
    for name in design.columns:
        column = SCHEMA[name]
        if isinstance(column, Number):
            cells.append([column.low, column.middle, column.high, column.middle + 0.6 * column.half])
        else:
            cells.append(list(column.values))
    rows = list(itertools.product(*cells))
    rng = np.random.default_rng(1)
    rows = [rows[i] for i in rng.permutation(len(rows))[:600]]
    table = {name: np.array([row[i] for row in rows]) for i, name in enumerate(design.columns)}
    parts = row_parts(block, *vectors(design, SCHEMA, table))
    scaled = np.concatenate([p / s for p, s in zip(parts, query.flat_scales, strict=True)], axis=1)
    if neighbours == "replace-one" and design.missing(SCHEMA):
        scaled = np.concatenate([scaled, np.zeros((1, scaled.shape[1]))])  # an incomplete row
    squares = (scaled**2).sum(axis=1)
    top = squares.max()
    if neighbours == "replace-one":
        if not design.missing(SCHEMA):
            scaled[:, 0] = 0.0  # the count is public
        products = scaled @ scaled.T
        top = (np.diag(products)[:, None] + np.diag(products)[None] - 2 * products).max()
    assert math.sqrt(top) <= query.sensitivity * (1 + 1e-12)
    assert math.sqrt(top) > 0.6 * query.sensitivity


def test_noise_is_shared_out_by_weight_and_multiplicity():
    design = Design(("age", "bmi"), "chol")
    query = joint(design, (XY, Term(3, (0.5, 0.5))), (2.0, 3.0), SCHEMA, "replace-one", count=5.0)
    want = [1 / math.sqrt(w) for w in (5.0, 2.0, 3.0, 9.0)]
    assert query.flat_scales == pytest.approx(want)
    exact = math.sqrt(max(moved((XY, Term(3, (0.5, 0.5))), (2.0, 3.0), "replace-one"), 5 + 5))
    rounded = 2 * 2.0**-20 * math.sqrt(3.0 * 2**3)
    assert query.sensitivity == pytest.approx(exact + rounded, rel=1e-9)


def test_an_intercept_keeps_rows_from_being_opposite():
    design = Design(("age",), "bmi", intercept=1.0)
    assert least_product(design) == pytest.approx(0.0, abs=1e-5)
    assert least_product(Design(("age",), "bmi")) == -1.0
    terms = (XY, XX)
    assert moved(terms, (0.1, 1.0), "replace-one", "interval", 0.0) <= moved(terms, (0.1, 1.0), "replace-one")


def test_weights_are_checked():
    with pytest.raises(InvalidInput, match="one weight for each term"):
        moved((XY,), (1.0, 2.0), "replace-one")
    with pytest.raises(InvalidInput, match="weights"):
        moved((XY,), (0.0,), "replace-one")
    with pytest.raises(InvalidInput, match="within -1 and 1"):
        joint(Design(("age",), "bmi"), (Term(1, (0.0, 2.0)),), (1.0,), SCHEMA, "replace-one")


@pytest.mark.parametrize("degree", [5, 6, 7, 8])
@pytest.mark.parametrize("power", [1, 2])
def test_polynomials_that_turn_often_have_a_tight_bound_too(degree, power):
    """Chebyshev's: their coefficients are far larger than they are."""
    shape = tuple(map(float, np.polynomial.chebyshev.cheb2poly([0] * degree + [1])))
    terms, weights = (Term(power, shape), Term(1, (0.0, 1.0))), (1.0, 0.3)
    bound, top = moved(terms, weights, "replace-one"), furthest(terms, weights)
    assert top <= bound <= top * (1 + 1e-3)


def test_a_search_that_is_cut_short_says_no_more_than_any_two_rows_can_do(monkeypatch):
    monkeypatch.setattr(sensitivity, "_MOST_BOXES", 1)
    shape = tuple(map(float, np.polynomial.chebyshev.cheb2poly([0] * 8 + [1])))
    bound = sensitivity._top_of_boxes((Term(2, shape),), (1.0,), -1.0)
    assert furthest((Term(2, shape),), (1.0,)) <= bound <= 4 * (1 + 1e-5)


def test_the_top_of_a_polynomial_counts_the_intervals_that_were_closed():
    """Two tops that differ by less than what closes an interval: the bound of either must not be lost."""
    rng = np.random.default_rng(9)
    for _ in range(200):
        c = rng.normal(size=7)
        top = sensitivity._top_of_polynomial(c, -1.0)
        turns = np.polynomial.polynomial.polyroots(np.polynomial.polynomial.polyder(c))
        at = [t.real for t in turns if abs(t.imag) < 1e-12 and -1 <= t.real <= 1]
        assert max(POLY(t, c) for t in (*at, -1.0, 1.0)) <= top


@pytest.mark.parametrize("weight", [0.0, 1e-150, 5e-324, 1e150])
def test_weights_that_floats_cannot_hold_are_refused(weight):
    schema = Schema(a=Number(0, 1, missing=False), y=Number(0, 1, missing=False))
    with pytest.raises(InvalidInput, match="weights"):
        joint(Design(("a",), "y"), (XX,), (weight,), schema, "replace-one")


def test_terms_that_floats_cannot_square_are_refused():
    schema = Schema(a=Number(0, 1, missing=False), y=Number(0, 1, missing=False))
    with pytest.raises(InvalidInput, match="must reach"):
        joint(Design(("a",), "y"), (Term(1, (0.0, 1e-200)),), (1.0,), schema, "replace-one")
