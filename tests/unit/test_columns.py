"""The columns that intervals and plans are measured on are as ugly as their page says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks import columns

_ROW = re.compile(r"\| (\w+) \| \d+ to \d+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|")
STATED = {name: tuple(map(float, rest)) for name, *rest in _ROW.findall(columns.__doc__ or "")}


@pytest.mark.parametrize("name", columns.NUMBERS)
def test_a_column_has_the_moments_that_its_page_states(name: str) -> None:
    cells = columns.population()[name]
    z = (cells - cells.mean()) / cells.std()
    mean, sd, kurtosis = STATED[name]
    assert cells.mean() == pytest.approx(mean, rel=0.02)
    assert cells.std() == pytest.approx(sd, rel=0.03)
    assert (z**4).mean() == pytest.approx(kurtosis, rel=0.05)
    column = columns.SCHEMA.number(name)
    assert column.low <= cells.min()
    assert cells.max() <= column.high


def test_visits_are_mostly_zero_and_two_of_them_correlated() -> None:
    cells = columns.population()
    assert all((cells[name] == 0).mean() > 0.6 for name in columns.VISITS)
    assert np.corrcoef(cells["inpatient"], cells["emergency"])[0, 1] == pytest.approx(0.27, abs=0.01)


def test_samples_repeat_with_their_seed() -> None:
    one, two = (columns.sample(50, np.random.default_rng(3)) for _ in range(2))
    assert all((one[name] == two[name]).all() and len(one[name]) == 50 for name in columns.SCHEMA)
