"""Products of what a person's scores add up to, against Python's integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cape.blocks.parts import Pass
from cape.blocks.person_sums import PersonProducts
from cape.core.errors import InvalidInput
from cape.data import Schema

RUN = Pass("here", Schema(x=(0, 1)))
ONE = 1 << 20


def scores(rng, rows, width):
    """Integers of length at most 2^20, some of them as long as that."""
    found = rng.normal(size=(rows, width))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    found *= np.where(rng.random(rows) < 0.5, 1.0, rng.random(rows))[:, None]
    return np.trunc(found * (ONE - 1)).astype(np.int64)


@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_the_sum_is_that_over_persons_in_any_parts_and_order(rows):
    rng = np.random.default_rng(rows)
    given, whose = scores(rng, 200, 3), rng.permutation(200) // min(rows, 5)
    expected = np.zeros((3, 3))
    for person in range(whose.max() + 1):
        mine = given[whose == person].sum(axis=0)
        t = [float(Fraction(int(each), rows * ONE)) for each in mine]
        expected += np.outer(t, t)
    found = []
    for order in (np.arange(200), rng.permutation(200)):
        total = PersonProducts(3, rows, RUN)
        for part in np.array_split(order, 7):
            total.add(given[part], whose[part])
        found.append(total.result())
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0] * 2.0**-40, expected, atol=200 * 4 * 2.0**-20)


@pytest.mark.parametrize("rows", [2, 7, 1000])
def test_a_person_adds_no_vector_that_is_longer_than_one(rows):
    rng = np.random.default_rng(rows)
    for _ in range(20):
        total = PersonProducts(4, rows, RUN)
        one = scores(rng, 1, 4)
        total.add(np.repeat(one, rows, axis=0), np.zeros(rows, np.int64))
        assert int(np.trace(total.result())) <= ONE**2


def test_whose_rows_are_must_be_known():
    with pytest.raises(InvalidInput, match="persons of several rows"):
        PersonProducts(2, 2, RUN).add(np.zeros((1, 2), np.int64), None)


def test_nothing_is_refused_by_how_many_persons_there_are():
    """Their number is private where rows of some do not count: one person would decide on an answer."""
    width = 600
    one = np.zeros((1, width), np.int64)
    PersonProducts(width, 2, RUN).add(one, np.array([(1 << 26) // width]))  # which raised an error once
