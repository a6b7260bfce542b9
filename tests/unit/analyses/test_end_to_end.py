"""Every analysis through real tables and a consortium: the slow sums to the last bit, and plans for all."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

from cape.analyses import Count, Mean, MixedModel, Sum, Tables
from cape.blocks.block import T_BITS
from cape.blocks.table import Table
from cape.core.errors import PrivacyLeakWarning
from cape.data import Number
from cape.engine.consortium import Consortium
from cape.privacy import Budget
from tests.unit.analyses.slow_sums import exact, release
from tests.unit.analyses.test_analyses import EACH, RELATION, SCHEMA, table

ROWS = table(1200)
ROUNDED_BY_SITES = 0.5  # units: a site rounds residuals once, after it has added its rows up


def frame(rows):
    """Codes back to categories, NaN to missing: what a hospital has."""
    columns = {}
    for name, cells in rows.items():
        column = SCHEMA[name]
        if isinstance(column, Number):
            columns[name] = pl.Series(cells).fill_nan(None)
        else:
            columns[name] = [None if code < 0 else column.values[code] for code in cells.tolist()]
    return pl.DataFrame(columns)


@pytest.fixture(scope="module")
def sites():
    whole = frame(ROWS)
    return {"north": whole[:300], "south": whole[300:1000], "west": whole[1000:]}


def consortium(sites, neighbours, scheme):
    budget = Budget(epsilon=8.0, delta=1e-6)
    return Consortium(sites, SCHEMA, budget=budget, colluding=0, neighbours=neighbours, scheme=scheme)


@EACH
@RELATION
def test_real_tables_give_what_the_meaning_of_the_sums_says(sites, analysis, neighbours):
    query = analysis.query(SCHEMA, neighbours)
    known = [array for arrays in exact(query, SCHEMA, ROWS) for array in arrays]
    found = [
        [array for arrays in Table(name, rows, SCHEMA).sums(query.blocks) for array in arrays]
        for name, rows in sites.items()
    ]
    for array, ours, *theirs in zip(query.arrays(SCHEMA), known, *found, strict=True):
        assert ours.shape == array.shape
        rounded = ROUNDED_BY_SITES * len(sites) if array.name == "residual" else 0
        if isinstance(analysis, MixedModel) and array.bits:  # a row's entries, each to the nearest of 2^-20
            rounded = len(ROWS["age"]) * 2 ** (array.bits - T_BITS)
        np.testing.assert_allclose(sum(theirs), ours * 2.0**array.bits, rtol=0, atol=rounded)


@pytest.mark.one_in(3, seconds=0.1)
@EACH
def test_a_consortium_without_noise_gives_the_plain_answer(sites, analysis):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        found = consortium(sites, "replace-one", "none").release(analysis, share=1.0).estimates
    known = release(analysis, SCHEMA, ROWS, np.random.default_rng(0), mu=0)
    assert [e.label for e in found] == list(known)
    rounded = 1e-5 if isinstance(analysis, Tables) else 0.0
    values = [e.value for e in known.values()]
    close = 3e-4 if isinstance(analysis, MixedModel) else 1e-9  # its scores are rounded to 2^-20
    assert [e.value for e in found] == pytest.approx(values, rel=close, abs=rounded or 1e-12)


@pytest.mark.one_in(8, seconds=0.15)
@EACH
@RELATION
def test_every_analysis_has_a_plan(sites, analysis, neighbours):
    plan = consortium(sites, neighbours, "cape").plan(analysis, share=0.5)
    assert all(noise["cape"] <= noise["conventional"] * (1 + 1e-9) for noise in plan.noise.values())


@RELATION
def test_a_private_release_of_a_count_a_mean_and_a_function(sites, neighbours):
    people = consortium(sites, neighbours, "cape")
    count = people.release(Count(sex="female"), share=0.3)
    assert count.value == pytest.approx((ROWS["sex"] == 0).sum(), abs=6 * count.standard_error)
    mean = people.release(Mean("age"), share=0.3)
    assert mean.value == pytest.approx(np.nanmean(ROWS["age"]), abs=6 * mean.standard_error)
    total = people.release(Sum.of(lambda batch: batch["bmi"], columns=["bmi"], bound=60), share=0.3)
    assert total.value == pytest.approx(ROWS["bmi"].sum(), abs=6 * total.standard_error)
