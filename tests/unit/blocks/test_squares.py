from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Design, Form, Squares, Table
from cape.core.errors import InvalidInput
from tests.slices import examples
from tests.unit.blocks import reference
from tests.unit.blocks.vectors import (
    DESIGNS,
    SCHEMA,
    any_rows,
    assert_that_order_and_parts_do_not_matter,
    frame,
    large,
)

WITHOUT_TARGET = [Design(("x", "z")), Design(("x", "z", "g"), cube=True), Design(("z", "g", "x"), norm=0.75)]


def block_of(design: Design, seed: int, bound: float = 2.0) -> Squares:
    random, width = np.random.default_rng(seed), design.width(SCHEMA)
    forms = [
        Form(tuple((i, j, float(random.normal())) for i in range(width) for j in range(i, width)), bound),
        Form(((0, width - 1, 1.0),), bound),
    ]
    return Squares(design, tuple(random.uniform(-1, 1, width).tolist()), tuple(forms))


@pytest.mark.parametrize("design", WITHOUT_TARGET, ids=str)
@given(rows=any_rows, seed=st.integers(0, 2**32), bound=st.sampled_from([1e-90, 0.1, 3.0, 1e90]))
@examples(60)
def test_sums_are_those_of_single_rows_in_python(design, rows, seed, bound):
    block = block_of(design, seed, bound)
    found = Table("a", frame(rows), SCHEMA).sums([block])
    assert reference.same(found, [reference.squares(rows, block, SCHEMA)])


def test_a_form_within_its_bound_is_squared_as_it_is():
    rows, design = large(500), WITHOUT_TARGET[1]
    x, _ = Table("a", rows, SCHEMA).vectors(design)
    x = x / 2**20
    centre = x.mean(axis=0)
    block = Squares(design, tuple(centre.tolist()), (Form(((0, 1, 1.0), (1, 1, -0.5)), 8.0),))
    c = x - centre
    wanted = np.sum((c[:, 0] * c[:, 1] - c[:, 1] ** 2 / 2) ** 2)
    (found,) = Table("a", rows, SCHEMA).sums([block])[0]
    assert 64 * float(found[0]) / 2**40 == pytest.approx(wanted, rel=1e-4)


def test_order_and_batches_do_not_matter(monkeypatch):
    assert_that_order_and_parts_do_not_matter([block_of(design, 3) for design in WITHOUT_TARGET], monkeypatch)


@pytest.mark.parametrize(
    "block",
    [
        Squares(DESIGNS[1], (0.0,), (Form(((0, 0, 1.0),), 1.0),)),
        Squares(DESIGNS[0], (0.0,), (Form(((0, 0, 1.0),), 1.0),)),
        Squares(DESIGNS[0], (0.0, 0.0), ()),
        Squares(DESIGNS[0], (0.0, 1.5), (Form(((0, 0, 1.0),), 1.0),)),
        Squares(DESIGNS[0], (0.0, 0.0), (Form(((0, 2, 1.0),), 1.0),)),
        Squares(DESIGNS[0], (0.0, 0.0), (Form(((0, 0, 1.0),), 0.0),)),
        Squares(DESIGNS[0], (0.0, 0.0), (Form(((0, 0, math.inf),), 1.0),)),
        Squares(DESIGNS[0], (0.0, 0.0), (Form((), 1.0),)),
    ],
)
def test_what_does_not_fit_is_refused(block):
    with pytest.raises(InvalidInput):
        block.arrays(SCHEMA)
