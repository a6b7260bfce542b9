"""Correlations of columns that are cut about their expected means: those of the cut columns, less noisy."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest

from benchmarks.columns import SCHEMA, population, sample
from cape import Budget, Consortium, Correlation
from cape.analyses.registry import build
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.noise import SecureStream

NAMES = ("inpatient", "emergency")
STATED = Schema(
    {
        name: dataclasses.replace(
            SCHEMA[name],
            expected={"mean": float(population()[name].mean()), "sd": float(population()[name].std())},
        )
        for name in NAMES
    }
)


def released(analysis, schema=STATED, rows=20_000, **options):
    cells = sample(rows, np.random.default_rng(1))
    table = pl.DataFrame({name: cells[name] for name in NAMES})
    options.setdefault("scheme", "pooled")
    tables = {"a": table[: rows // 2], "b": table[rows // 2 :]}
    together = Consortium(
        tables, schema, Budget(1.0, 1e-6), colluding=0, stream=SecureStream(b"\1" * 32), **options
    )
    return together.release(analysis, 1.0).estimates[0], cells


def test_cut_columns_have_several_times_less_noise():
    cut, cells = released(Correlation(*NAMES, cut=3), rows=100_000)
    whole, _ = released(Correlation(*NAMES), rows=100_000)
    assert cut.privacy < whole.privacy / 4
    ends = {
        name: np.clip(cells[name], 0, known.mean + 3 * known.sd)
        for name in NAMES
        for known in [STATED.number(name).expected]
    }
    truth = np.corrcoef(*ends.values())[0, 1]
    assert abs(cut.value - truth) < 4 * cut.privacy
    low, high = cut.interval(0.95)
    assert high - low < 0.2


def test_without_noise_it_is_the_correlation_of_the_cut_columns():
    with pytest.warns(UserWarning, match="not private"):
        found, cells = released(Correlation(*NAMES, cut=2), scheme="none")
    known = [STATED.number(name).expected for name in NAMES]
    cut = [np.clip(cells[n], 0, k.mean + 2 * k.sd) for n, k in zip(NAMES, known, strict=True)]
    assert found.value == pytest.approx(np.corrcoef(*cut)[0, 1], abs=1e-4)


def test_a_plan_proposes_to_cut_where_the_whole_correlation_has_no_answer():
    consortium = Consortium(
        dict.fromkeys("ab", pl.DataFrame({name: [0.0] for name in NAMES})),
        STATED,
        Budget(1.0, 1e-6),
        colluding=0,
        sizes={"a": 500, "b": 612},
    )
    said = " ".join(str(consortium.plan(Correlation(*NAMES), 1.0)).split())
    assert "No answer at this budget and size" in said
    assert "a smaller question: correlation of inpatient and emergency, cut 3 expected SDs" in said
    assert "No answer" not in str(consortium.plan(Correlation(*NAMES, cut=3), 1.0))


def test_what_a_cut_needs():
    with pytest.raises(InvalidInput, match="what is expected of 'inpatient': write expected"):
        released(Correlation(*NAMES, cut=3), schema=Schema({name: SCHEMA[name] for name in NAMES}))
    with pytest.raises(InvalidInput, match="cut must be"):
        Correlation(*NAMES, cut=0.5)


def test_a_study_file_can_say_it():
    described = {"kind": "correlation", "columns": list(NAMES), "cut": 3}
    assert build(described) == Correlation(*NAMES, cut=3)
    assert Correlation(*NAMES, cut=3).to_dict() == described | {"columns": NAMES, "cut": 3.0}
    assert "cut" not in Correlation(*NAMES).to_dict()
