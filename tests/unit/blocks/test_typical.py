"""Typical rows have the moments that people state, and blocks the sums of such rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cape.blocks import Axis, Counts, Design, Gram, Moments, Tensors, Term
from cape.blocks.typical import Entries, Shape, plausible, rows, steepest, targets, together, vectors
from cape.data import Category, Number, Schema
from cape.data.expected import Expected

SCHEMA = Schema(
    {
        "visits": Number(0, 40, expected={"mean": 0.4, "sd": 1.8}),
        "age": Number(18, 90, expected={"mean": 61, "sd": 12}),
        "score": Number(40, 160),
        "ill": Category(("no", "yes"), expected={"share": 0.1}),
        "stage": Category((1, 2, 3), expected={"1": 0.5, "2": 0.2, "3": 0.3}),
    }
)


def _cells(name: str, many: int = 50_000) -> np.ndarray:
    """Cells at evenly spread ranks of the stated beta distribution, as t."""
    return Shape(SCHEMA.number(name)).at((np.arange(many) + 0.5) / many)


@pytest.mark.parametrize("name", ["visits", "age", "score"])
def test_a_shape_has_the_stated_mean_and_sd_and_the_moments_of_its_cells(name: str) -> None:
    shape, cells = Shape(SCHEMA.number(name)), _cells(name)
    column = shape.column
    assert column.middle + column.half * shape.mean == pytest.approx(shape.expected.mean)
    assert column.half * np.sqrt(shape.variance) == pytest.approx(shape.expected.sd)
    for power in range(5):
        assert shape.power(power) == pytest.approx(np.mean(cells**power), rel=2e-3, abs=1e-3)


def test_where_nothing_is_stated_the_shape_is_a_sixth_of_the_width_around_the_middle() -> None:
    shape = Shape(SCHEMA.number("score"))
    assert (shape.expected.mean, shape.expected.sd) == (100, 20)
    assert shape.power(4) / shape.power(2) ** 2 == pytest.approx(stats.beta(4, 4).stats("k") + 3)


def test_the_widest_bounds_that_a_schema_may_have_have_a_shape() -> None:
    widest = Number(-1.7e308, 1.7e308)  # their distance is more than a float can be
    assert 0 < Shape(widest).expected.sd < 1e308
    assert np.isfinite(Shape(widest).at(np.linspace(0, 1, 9))).all()


@pytest.mark.parametrize("form", ["smooth", "crowded", "tailed"])
@pytest.mark.parametrize("mean", [0.1, 0.9])
def test_every_form_keeps_mean_and_sd(form: str, mean: float) -> None:
    column = Number(0, 1, expected=Expected(mean, 0.08, form))
    edges = np.linspace(0, 1, 100_001)
    parts = np.diff(np.concatenate([[0.0], Shape(column).below(edges[1:-1]), [1.0]]))
    assert (parts > -1e-12).all()
    middles = (edges[1:] + edges[:-1]) / 2
    found = parts @ middles
    assert found == pytest.approx(mean, rel=0.01)
    assert np.sqrt(parts @ (middles - found) ** 2) == pytest.approx(0.08, rel=0.02)


@pytest.mark.parametrize("form", ["smooth", "crowded", "tailed", "few"])
@pytest.mark.parametrize("mean", [0.1, 0.9])
def test_cells_of_every_form_lie_as_it_says(form: str, mean: float) -> None:
    shape = Shape(Number(0, 1, expected=Expected(mean, 0.08, form)))
    cells = (1 + shape.at((np.arange(5000) + 0.5) / 5000)) / 2
    assert cells.mean() == pytest.approx(mean, rel=0.02)
    assert cells.std() == pytest.approx(0.08, rel=0.06)
    for edge in (0.03, 0.17, 0.85, 0.96):
        assert np.mean(cells < edge) == pytest.approx(float(shape.below(edge)), abs=2e-3)


def test_crowded_cells_lie_at_the_nearer_bound_and_few_values_far_apart() -> None:
    low, high = (Number(0, 10, expected=Expected(mean, 1.2, "crowded")) for mean in (0.6, 9.4))
    assert Shape(low).below(1e-9) > 0.7
    assert Shape(high).below(10 - 1e-9) < 0.3
    few = Shape(Number(0, 10, expected=Expected(5, 1, "few"))).below(np.arange(4.05, 4.95, 0.1))
    assert np.ptp(few) == 0


def test_blocks_add_up_typical_rows() -> None:
    many = 1 << 15
    design = Design(("visits", "age", "score", "ill", "stage"), cube=True)
    x = rows(design, SCHEMA, many)
    gram = Gram(design.features)
    count, first, square, cross = gram.typical(SCHEMA, many)
    assert count == [many]
    assert first / many == pytest.approx(x.mean(axis=0), abs=3e-3)
    assert square / many == pytest.approx((x**2).mean(axis=0), abs=3e-3)
    assert cross / many == pytest.approx((x.T @ x)[np.triu_indices(6, 1)] / many, abs=5e-3)
    assert cross[-1] == 0  # nobody is in two stages
    means, covariance = vectors(design, SCHEMA)
    assert means == pytest.approx(first / many)
    assert covariance == pytest.approx(np.cov(x.T), abs=5e-3)


def test_typical_rows_go_together_as_far_as_their_columns_do() -> None:
    schema = Schema({name: Number(0, 1) for name in ("a", "b", "c")})
    for each in (schema, *together(schema, ("a", "b", "c"))):
        x = rows(Design(("a", "b", "c"), cube=True), each, 4096)
        assert np.corrcoef(x.T) == pytest.approx(_correlations(each, tuple(each)), abs=0.03)
    assert rows(Design(("a", "b"), intercept=0.5), schema, 8)[:, 0] == pytest.approx(0.5 / np.hypot(1, 0.5))


def test_products_of_four_entries_are_those_of_independent_columns() -> None:
    names = ("visits", "age", "stage")
    x = rows(Design(names, cube=True), SCHEMA, 1 << 15)
    found = Entries([SCHEMA[name] for name in names], most=4)
    places = np.array([(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 1, 2), (0, 0, 2, 2), (1, 1, 1, 3), (0, 1, 2, 3)])
    real = np.prod(x[:, places], axis=2).mean(axis=0)
    assert found.products(places) == pytest.approx(real, abs=4e-3)


def test_groups_have_the_stated_shares() -> None:
    count, first, second = Moments(("age",), by="ill").typical(SCHEMA, 1000)
    assert count[:, 0] == pytest.approx([900, 100])
    assert first[1, 0] / 100 == pytest.approx(Shape(SCHEMA.number("age")).mean)
    (cells,) = Counts((Axis("stage"), Axis("visits", (0, 1, 2, 40)))).typical(SCHEMA, 1000)
    assert cells.sum(axis=1) == pytest.approx([500, 200, 300])
    assert cells[0, 0] / 500 > 0.8
    assert second.shape == (2, 1)


def test_a_target_of_which_something_is_stated_is_uncorrelated_and_else_half_explained() -> None:
    term = Term(1, (0.0, 1.0))
    schema = Schema(x=(0, 1), y=(0, 1))
    (_, half) = Tensors(Design(("x",), "y"), (term,)).typical(schema, 1)
    assert half[0] / Shape(schema.number("x")).variance == pytest.approx(np.sqrt(0.5))
    stated = Schema(x=(0, 1), y=Number(0, 1, expected={"mean": 0.2, "sd": 0.1}))
    (_, none) = Tensors(Design(("x",), "y"), (term,)).typical(stated, 1)
    assert none[0] == pytest.approx(0)


def test_targets_follow_features_and_keep_their_shares() -> None:
    design, shares = Design(("visits", "age", "ill"), "stage", labels=True), (0.5, 0.2, 0.3)
    found = targets(design, SCHEMA, 4096, shares)
    assert found.sum(axis=1) == pytest.approx(1)
    assert found.mean(axis=0) == pytest.approx(shares, abs=1e-3)
    x = rows(design, SCHEMA, 4096)
    rising = ((x - x.mean(axis=0)) / x.std(axis=0)).sum(axis=1)
    assert np.corrcoef(rising, found[:, 2])[0, 1] > 0.7
    assert np.corrcoef(rising, found[:, 0])[0, 1] < -0.7


def test_the_steepest_slope_is_as_if_one_column_explained_the_target_alone() -> None:
    found = steepest(SCHEMA, "score", ("age", "ill"))
    assert found == pytest.approx({"age": 20 / 12, "ill=yes": 20 / 0.3})


def test_plausible_shapes_change_what_is_not_stated_and_only_the_form_of_what_is() -> None:
    for schema in plausible(SCHEMA, tuple(SCHEMA)):
        assert schema.number("age").expected.mean == 61
        assert schema.category("ill").shares == (0.9, 0.1)
        assert schema.number("score").expected is not None
    known = plausible(SCHEMA, ("age", "visits"))
    assert {schema.number("age").expected.form for schema in known} == {"few", "tailed", "crowded"}
    assert len(known) == 3


def _correlations(schema: Schema, names: tuple[str, ...]) -> np.ndarray:
    covariance = Entries([schema[name] for name in names]).covariance
    sds = np.sqrt(np.diag(covariance))
    return covariance / np.outer(sds, sds)


def test_columns_that_go_together_are_correlated_and_keep_all_else() -> None:
    names = ("age", "score", "ill")
    for schema, wanted in zip(together(SCHEMA, names), (0.3, -0.3, 0.5, -0.5), strict=True):
        found = _correlations(schema, names)
        assert found[0, 1] == pytest.approx(wanted)
        assert found[2, :2] == pytest.approx(0)
        for name in names[:2]:
            assert Shape(schema.number(name)).power(2) == Shape(SCHEMA.number(name)).power(2)
        square, cross = Gram(names).typical(schema, 100)[2:]
        (_, of_y, second) = Tensors(Design(("age",), "score"), (Term(1, (0.0, 1.0)), Term(2))).typical(
            schema, 100
        )
        assert of_y == pytest.approx(cross[:1])
        assert second == pytest.approx(square[:1])
    assert together(SCHEMA, ("age", "ill")) == []


def test_no_columns_go_together_further_than_bounds_allow_and_their_matrix_is_positive() -> None:
    counts = {str(i): Number(0, 40, expected={"mean": 0.2, "sd": 1.0}) for i in range(3)}
    schema = Schema({**counts, "age": SCHEMA["age"], "score": SCHEMA["score"]})
    for each in together(schema, tuple(schema)):
        found = _correlations(each, tuple(schema))
        assert np.linalg.eigvalsh(found)[0] >= 0.5 - 1e-9
        assert found.min() >= -0.5 - 1e-9
        assert found[0, 1] >= -(0.2**2)  # or the mean of a product of visits would be below 0
        assert abs(found[3, 4]) >= 0.15
