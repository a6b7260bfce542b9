from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.blocks import Design, Moments, Table, Tensors, Term, batches
from cape.blocks.parts import Pass
from cape.blocks.tensors import entries, multiplicities
from cape.core.errors import InvalidInput
from cape.data import Schema
from tests.slices import examples
from tests.unit.blocks import reference
from tests.unit.blocks.vectors import DESIGNS, SCHEMA, any_rows, frame, large

EXACT = (Term(0), Term(0, (0, 1)), Term(0, (0, 0, 1)), Term(1), Term(1, (0, 1)), Term(2))
ROUNDED = (
    Term(3),
    Term(4),
    Term(2, (0.0, 1.0)),
    Term(1, (0.5, -0.25, 0.25)),
    Term(0, (0, 0, 0, 1)),
    Term(2, (-0.7,)),
    Term(4, (0, 0, -1.0)),
    Term(3, (1, 0, -32, 0, 160, 0, -256, 0, 128)),  # Chebyshev's: within 1, and large coefficients
    Term(1, (1.0, 0.0)),
)


def terms(design: Design) -> tuple[Term, ...]:
    return tuple(t for t in EXACT + ROUNDED if design.target is not None or not any(t.target[1:]))


def row_entries(x: list[int], y: int | None, term: Term, index: tuple[int, ...]) -> int:
    """One row's entry of a term: in integers if it is exact, else in Python's floats, one after the other."""
    if term.exact:
        return math.prod(x[i] for i in index) * (y or 0) ** (len(term.target) - 1)
    value = float(term.target[-1])
    for coefficient in reversed(term.target[:-1]):
        value = value * ((y or 0) / 2**20) + coefficient
    value = min(max(value, -1.0), 1.0) * ((1 - 2.0**-50) * 2**20)
    for i in index:
        value *= x[i] / 2**20
    return math.trunc(value)


def slow(rows: list[dict[str, Any]], block: Tensors) -> tuple[np.ndarray, ...]:
    found = reference.vectors(rows, block.design, SCHEMA)
    width = block.design.width(SCHEMA)
    out = [np.array([len(found)], object)]
    for term in block.terms:
        for multiplicity in term.multiplicities(width):
            out.append(
                np.array(
                    [
                        sum(row_entries(x, y, term, index) for x, y in found)
                        for index in entries(term.degree, multiplicity, width)
                    ],
                    object,
                )
            )
    return tuple(out)


@pytest.mark.parametrize("design", DESIGNS, ids=str)
@given(rows=any_rows)
@examples(25)
def test_sums_are_those_of_single_rows_in_python(design: Design, rows: list[dict[str, Any]]) -> None:
    block = Tensors(design, terms(design))
    found = Table("a", frame(rows), SCHEMA).sums([block])
    assert reference.same(found, [slow(rows, block)])
    assert [array.shape for array in found[0]] == [array.shape for array in block.arrays(SCHEMA)]
    assert all(array.dtype == np.int64 for array in found[0])


@pytest.mark.parametrize("chosen", [c for n in (1, 2, 3) for c in itertools.combinations(EXACT, n)], ids=str)
def test_any_choice_of_exact_terms_gives_the_same(chosen: tuple[Term, ...]) -> None:
    rows = large(50)
    design = DESIGNS[2]
    found = Table("a", rows, SCHEMA).sums([Tensors(design, chosen)])
    assert reference.same(found, [slow(rows.to_dicts(), Tensors(design, chosen))])


@pytest.mark.parametrize("degree", range(5))
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7])
def test_multiplicities_are_those_of_the_entries_in_their_order(degree: int, width: int) -> None:
    found = multiplicities(degree, width)
    everything = list(itertools.combinations_with_replacement(range(width), degree))
    assert len(found) == len(everything)
    for multiplicity in Term(degree).multiplicities(width):
        of_it = [index for index, m in zip(everything, found, strict=True) if m == multiplicity]
        assert of_it == entries(degree, multiplicity, width)
    assert sum(found) == width**degree
    assert set(found.tolist()) == set(Term(degree).multiplicities(width))


@pytest.mark.slow(3)
def test_order_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = large(20_000)
    blocks = [Tensors(design, terms(design)) for design in DESIGNS]
    wanted = Table("a", rows, SCHEMA).sums(blocks)
    shuffled = rows.sample(fraction=1.0, shuffle=True, seed=2)
    assert reference.same(Table("a", shuffled, SCHEMA).sums(blocks), wanted)
    monkeypatch.setattr(batches, "PART_ROWS", 997)
    monkeypatch.setattr(batches, "_BATCH_CELLS", 1)
    assert reference.same(Table("a", rows, SCHEMA).sums(blocks), wanted)
    few, wanted = rows[:200], Table("a", rows[:200], SCHEMA).sums(blocks)
    monkeypatch.setattr(batches, "PART_ROWS", 1)
    assert reference.same(Table("a", few, SCHEMA).sums(blocks), wanted)


def test_a_block_among_others_gives_the_same() -> None:
    rows = large(300)
    blocks = [
        Tensors(DESIGNS[2], EXACT),
        Moments(("x",)),
        Tensors(DESIGNS[2], ROUNDED),
        Tensors(DESIGNS[3], EXACT),
    ]
    alone = [Table("a", rows, SCHEMA).sums([block])[0] for block in blocks]
    assert reference.same(Table("a", rows, SCHEMA).sums(blocks), alone)


def test_the_largest_sums_are_exact() -> None:
    # 8192 squares of 2^20 are 2^53, the last integer that float64 has all integers below
    rows = 2 * 8192 + 5
    schema = Schema(x=(-1, 1), y=(-1, 1))
    odd = (2**20 - 1) / 2**20
    x = np.where(np.arange(rows) % 3 == 0, 1.0, -odd)
    table = pl.DataFrame({"x": x, "y": np.ones(rows)})
    found = Table("a", table, schema).sums([Tensors(Design(("x",), "y"), EXACT)])[0]
    whole = [2**20 if value == 1 else -(2**20 - 1) for value in x]
    wanted = [
        *(rows, rows, rows * 2**20, rows * 2**40),
        *(sum(whole), sum(whole) * 2**20, sum(k * k for k in whole)),
    ]
    assert [int(array[0]) for array in found] == wanted
    alone = Table("a", table, schema).sums(
        [Tensors(Design(("x",), "y"), (Term(1, (0, 1)), Term(0, (0, 0, 1))))]
    )[0]
    assert [int(array[0]) for array in alone] == [rows, sum(whole) * 2**20, rows * 2**40]


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=4).filter(any),
    st.floats(-1, 1) | st.sampled_from([-1.0, 1.0]),
    st.sampled_from([1.0, 0.2, 1e-3]),
)
def test_one_row_moves_a_term_by_at_most_one(t: list[float], y: float, norm: float) -> None:
    names = tuple(f"x{i}" for i in range(len(t)))
    schema = Schema({**dict.fromkeys(names, (-1, 1)), "y": (-1, 1)})
    table = pl.DataFrame([[*t, y]], schema=[*names, "y"], orient="row")
    design = Design(names, "y", norm=norm)
    site = Table("a", table, schema)
    for term in EXACT + ROUNDED:
        arrays = site.sums([Tensors(design, (term,))])[0][1:]
        squares = sum(
            multiplicity * int(value) ** 2
            for multiplicity, array in zip(term.multiplicities(len(t)), arrays, strict=True)
            for value in array
        )
        ((x,), (target,)) = site.vectors(design)  # type: ignore[misc]
        length = Fraction(sum(int(k) ** 2 for k in x), 2**40) ** term.degree
        value = sum(Fraction(c) * Fraction(int(target), 2**20) ** k for k, c in enumerate(term.target))
        assert squares <= 4 ** Tensors.bits(term) * length
        assert squares <= 4 ** Tensors.bits(term) * length * value**2 * (1 + Fraction(1, 2**40))


def test_a_coefficient_beyond_one_is_held_within_it() -> None:
    schema = Schema(x=(-1, 1), y=(-1, 1))
    table = pl.DataFrame({"x": [1.0, -1.0], "y": [1.0, -1.0]})
    block = Tensors(Design(("x",), "y"), (Term(1, (3.0, 4.0)), Term(0, (256.0,))))
    _, first, second = Table("a", table, schema).sums([block])[0]
    assert first.tolist() == [2 * (2**20 - 1)]
    assert second.tolist() == [2 * (2**20 - 1)]


def test_no_complete_row_and_no_term() -> None:
    table = frame([{"x": None, "z": 1.0, "g": "red", "i": 0, "y": 1.0, "b": "no"}])
    for design in DESIGNS[2], DESIGNS[4]:
        for chosen in (EXACT + ROUNDED, ()):
            for array in Table("a", table, SCHEMA).sums([Tensors(design, chosen)])[0]:
                assert not array.any()
    empty = Table("a", frame([]), SCHEMA).sums([Tensors(DESIGNS[2], EXACT)])[0]
    assert [array.tolist() for array in empty[:2]] == [[0], [0]]


@pytest.mark.parametrize("chosen", [(Term(2),), (Term(1, (0, 1)),), (Term(0, (0, 0, 1)),)])
def test_a_total_beyond_64_bits_is_exact(chosen: tuple[Term, ...], monkeypatch: Any) -> None:
    sums = Tensors(DESIGNS[2], chosen).summer(Pass("a", SCHEMA))
    for total in (sums._products, *sums._sums.values()):
        total.add(np.int64(-(2**63)))
        total.add(np.int64(-(2**63)))
    site = Table("a", large(10), SCHEMA)
    monkeypatch.setattr(Tensors, "summer", lambda *_: sums)
    (found,) = site.sums([Tensors(DESIGNS[2], chosen)])
    assert any(part.dtype == object and min(part.flat) < -(2**63) for part in found)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Term(5), "degree"),
        (lambda: Term(1, ()), "coefficients"),
        (lambda: Term(1, (0.0,) * 10), "coefficients"),
        (lambda: Term(1, (float("nan"),)), "target"),
        (lambda: Term(1, (1e9,)), "target"),
        (lambda: Tensors(Design(("x",)), (Term(1, (0, 1)),)).arrays(SCHEMA), "needs a design with a target"),
        (lambda: Tensors(Design(("g",), "x"), (Term(5),)), "degree"),
    ],
)
def test_terms_that_cannot_be_right(make: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        make()


def test_degree_four_is_for_few_features() -> None:
    names = tuple(f"x{i}" for i in range(300))
    schema = Schema(dict.fromkeys(names, (0, 1)))
    with pytest.raises(InvalidInput, match="degree 4 is for few features, not 300"):
        Tensors(Design(names), (Term(4),)).arrays(schema)


def test_vectors_of_rows_in_a_database_are_made_at_the_site() -> None:
    queried, block = Table("a", duckdb.sql("SELECT 0.5 AS x"), SCHEMA), Tensors(Design(("x",)), (Term(1),))
    (wanted,) = Table("a", pl.DataFrame({"x": [0.5]}), SCHEMA).sums([block])
    for _ in range(3):
        (found,) = queried.sums([block])
        assert [part.tolist() for part in found] == [part.tolist() for part in wanted]
