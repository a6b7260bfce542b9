"""Every descriptive analysis by group: what it is of each group's own rows, from one release."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses import (
    ECDF,
    KINDS,
    Correlation,
    Count,
    Covariance,
    Histogram,
    Mean,
    Quantiles,
    StandardDeviation,
    Sum,
    Variance,
    build,
)
from cape.analyses.by_group import ByGroup
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.query import Answer
from tests.unit.analyses.slow_sums import exact, noisy, release, scaled

SCHEMA = Schema(
    age=(18, 90),
    chol=(100, 600),
    bmi=Number(10, 60, missing=False),
    sex=["female", "male"],
    stage=Category((1, 2, 3), missing=False),
    disease=["no", "yes"],
)
EACH = [
    Count("age", "bmi"),
    Count(sex="male"),
    Sum("age", "bmi"),
    Mean("age", "bmi"),
    Variance("age", "bmi"),
    StandardDeviation("age"),
    Covariance("age", "chol"),
    Correlation("age", "chol", "bmi"),
    Histogram("age", edges=[18, 40, 90]),
    Histogram("sex"),
    ECDF("age", bins=16),
    Quantiles("age", "bmi", bins=64),
    Quantiles("age", probs=[0.3]),
]
MADE = pytest.mark.parametrize("asked", EACH, ids=repr)


def by(asked, column):
    return build({**asked.to_dict(), "by": column})


def table(rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, rows)
    stage = rng.integers(0, 3, rows)
    disease = rng.integers(-1, 2, rows)
    age = rng.normal(50 + 4 * stage, 9, rows)
    age[rng.random(rows) < 0.1] = np.nan
    chol = 240 + 2 * (np.nan_to_num(age, nan=50) - 50) + rng.normal(0, 30, rows)
    bmi = np.clip(rng.lognormal(3.2, 0.2, rows), 10, 60)
    return {"age": age, "chol": chol, "bmi": bmi, "sex": sex, "stage": stage, "disease": disease}


def without_noise(asked, data):
    return release(asked, SCHEMA, data, np.random.default_rng(0), mu=0)


@pytest.mark.one_in(4, seconds=0.1)
@MADE
@pytest.mark.parametrize("column", ["stage", "disease"])
def test_without_noise_it_is_the_analysis_of_each_group(asked, column):
    data = table()
    found = without_noise(by(asked, column), data)
    for code, value in enumerate(SCHEMA.category(column).values):
        own = {name: cells[data[column] == code] for name, cells in data.items()}
        alone = release(asked, SCHEMA, own, np.random.default_rng(0), neighbours="add-remove", mu=0)
        for label, estimate in alone.items():
            one = found.pop(f"{label} | {column}={value}")
            assert one.value == pytest.approx(estimate.value, rel=1e-9, abs=1e-9)
            assert one.interval() == pytest.approx(estimate.interval(), rel=1e-6, abs=1e-6)
    assert not found


def test_numbers_are_those_of_numpy():
    data = table()
    here = (data["stage"] == 1) & ~np.isnan(data["age"])
    age, chol = (
        scaled(data[name][here], SCHEMA.number(name)) * SCHEMA.number(name).half + SCHEMA.number(name).middle
        for name in ("age", "chol")
    )

    def value(asked, label):
        return without_noise(by(asked, "stage"), data)[f"{label} | stage=2"].value

    assert value(Mean("age"), "age") == pytest.approx(age.mean(), rel=1e-6)
    assert value(StandardDeviation("age"), "age") == pytest.approx(age.std(ddof=1), rel=1e-6)
    assert value(Sum("age"), "age") == pytest.approx(age.sum(), rel=1e-6)
    assert value(Count("age"), "age not missing") == len(age)
    known = np.corrcoef(age, chol)[0, 1]
    assert value(Correlation("age", "chol"), "age, chol correlation") == pytest.approx(known, rel=1e-6)
    matrix = np.cov(age, chol)
    assert value(Covariance("age", "chol"), "age, chol covariance") == pytest.approx(matrix[0, 1], rel=1e-6)
    assert value(ECDF("age", bins=4), "age < 54") == pytest.approx((age < 54).mean(), rel=1e-6)


def test_every_descriptive_kind_takes_by():
    mine = {asked.kind for asked in EACH}
    assert {kind for kind, made in KINDS.items() if issubclass(made, ByGroup)} == mine


@MADE
def test_groups_are_part_of_what_is_asked(asked):
    grouped = by(asked, "stage")
    assert grouped == by(asked, "stage") != asked
    assert by(asked, "disease") != grouped
    assert hash(grouped) == hash(by(asked, "stage"))
    assert build(json.loads(json.dumps(grouped.to_dict()))) == grouped == pickle.loads(pickle.dumps(grouped))
    assert grouped.sentence == f"{asked.sentence}, by stage"
    assert {"stage", *asked.query(SCHEMA, "add-remove").blocks[0].reads} <= {
        name for block in grouped.query(SCHEMA, "replace-one").blocks for name in block.reads
    }


@MADE
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_sensitivity_does_not_grow_with_the_number_of_groups(asked, neighbours):
    def moved(groups):
        schema = SCHEMA.changed({"stage": Category(tuple(range(groups)), missing=False)})
        return by(asked, "stage").query(schema, neighbours).sensitivity

    assert moved(2) == moved(50)


@MADE
def test_a_group_of_nobody_is_as_wide_as_possible_and_nothing_is_nan(asked):
    data = table() | {"stage": np.zeros(3000, int)}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = release(by(asked, "stage"), SCHEMA, data, np.random.default_rng(3))
    assert len([each for each in heard if each.category is TooNoisyWarning]) <= 1
    for label, estimate in found.items():
        numbers = [estimate.value, estimate.sampling, estimate.privacy, *estimate.interval()]
        assert not any(math.isnan(number) for number in numbers), label
    if asked.kind == "mean":
        assert found["age | stage=3"].interval() == (18, 90)
        assert len([each for each in heard if each.category is TooNoisyWarning]) == 1


def test_counts_of_groups_add_up_to_the_public_number_of_rows():
    data, rng = table(), np.random.default_rng(1)
    for asked in (
        Count(by="stage"),
        Histogram("bmi", edges=[10, 23, 27, 60], by="stage"),
        Histogram("stage", by="sex"),
    ):
        found = release(asked, SCHEMA, data, rng)
        total = sum(estimate.value for estimate in found.values())
        if asked.by == "sex":  # which may be missing
            assert abs(total - 3000) > 1e-3
        else:
            assert total == pytest.approx(3000)


@pytest.mark.slow(1.5)
def test_bringing_counts_to_a_public_total_takes_noise_off_and_says_so():
    rng, asked = np.random.default_rng(2), Count(by="stage")
    query = asked.query(SCHEMA, "replace-one")
    sums = ((np.array(500.0), np.array(300.0), np.array(200.0)),)
    found = []
    for _ in range(4000):
        noisy = (tuple(array + rng.normal(0, 10) for array in sums[0]),)
        found.append(asked.finish(Answer(noisy, ((10.0,) * 3,), 1000, SCHEMA)))
    assert len(query.scales[0]) == 3
    spread = np.std([each[0].value for each in found])
    assert found[0][0].privacy == pytest.approx(10 * math.sqrt(2 / 3))
    assert spread == pytest.approx(10 * math.sqrt(2 / 3), rel=0.05)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Mean("age", by="age"), "columns must be different; 'age' is named twice"),
        (lambda: Mean("age", by=3), "columns must be names"),
        (lambda: Histogram("sex", by="sex"), "columns must be different"),
        (lambda: Count(sex="male", by="sex"), "columns must be different"),
        (lambda: Mean("age", by="bmi").query(SCHEMA, "replace-one"), "'bmi' must have categories"),
        (lambda: Mean("age", by="ward").query(SCHEMA, "replace-one"), "no column 'ward'"),
    ],
)
def test_a_wrong_group_is_refused_before_anything_is_asked(make, said):
    with pytest.raises(InvalidInput, match=said):
        make()


@pytest.mark.slow(0.7)
@pytest.mark.parametrize(
    "asked", [Mean("age"), StandardDeviation("age"), Quantiles("age", bins=64)], ids=repr
)
@pytest.mark.parametrize("rows", [400, 4000])
def test_intervals_of_groups_cover(asked, rows):
    rng, hits, many = np.random.default_rng(rows), 0, 0
    grouped = by(asked, "stage")
    large = table(400_000, 9)
    truth = {label: each.value for label, each in without_noise(grouped, large).items()}
    for run in range(150):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            found = release(grouped, SCHEMA, table(rows, run), rng)
        for label, estimate in found.items():
            low, high = estimate.interval()
            hits, many = hits + (low <= truth[label] <= high), many + 1
    assert hits / many > 0.925


class TestByConsortium:
    def sites(self):
        rng = np.random.default_rng(5)
        return {
            name: pl.DataFrame({"x": rng.normal(at, 1, 800), "sex": ["f", "m", "f", None] * 200})
            for name, at in (("a", 1.0), ("b", 2.0), ("c", 3.0))
        }

    def consortium(self):
        schema = cape.Schema(
            x=cape.Number(-5, 9, label="Length", unit="cm"), sex=cape.Category(("f", "m"), label="Sex")
        )
        return cape.Consortium(self.sites(), schema, cape.Budget(8.0, 1e-6), colluding=0)

    def test_sites_are_groups(self):
        found = self.consortium().release(cape.Mean("x", by="site"), share=0.5)
        assert list(found.value) == ["x | site=a", "x | site=b", "x | site=c"]
        assert [round(value) for value in found.value.values()] == [1, 2, 3]

    def test_tables_and_figures_name_groups_as_people_do(self):
        consortium = self.consortium()
        found = consortium.release(cape.Mean("x", by="sex", where="x > 0"), share=0.2)
        assert "Length (cm) | Sex: f" in str(found)
        ((panel,),) = [figure.panels for figure in found.figures()]
        assert (panel.title, [mark.label for mark in panel.marks]) == ("Length (cm)", ["Sex: f", "Sex: m"])
        bars = consortium.release(cape.Histogram("x", bins=3, by="sex"), share=0.2).figures()[0].panels
        assert [panel.axis for panel in bars] == ["Length (cm) | Sex: f", "Length (cm) | Sex: m"]
        curves = consortium.release(cape.ECDF("x", bins=4, by="sex"), share=0.2).figures()[0].panels
        assert len(curves) == 2
        plan = str(consortium.plan(cape.Variance("x", by="sex"), share=0.2))
        assert "Sex: m" in plan or "x | sex=m" in plan


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    "asked", [Variance("age", "bmi"), Covariance("age", "bmi")], ids=lambda asked: asked.kind
)
def test_one_row_moves_the_later_stage_of_all_groups_as_far_as_is_claimed(asked, neighbours):
    rng, data = np.random.default_rng(4), table(3000)
    data["stage"][data["stage"] == 2] = 1  # of the third group nothing can be asked then
    talk = by(asked, "stage").conduct(SCHEMA, neighbours)
    query = next(talk)
    query = talk.send(noisy(query, SCHEMA, exact(query, SCHEMA, data), 3000, rng, neighbours=neighbours))
    assert [block.blocks[2] for block in query.blocks] == [None] * len(query.blocks)
    rows = []
    for age, bmi, stage in itertools.product([18.0, 54.0, 90.0, np.nan], [10.0, 30.0, 60.0], range(3)):
        one = {"age": np.array([age]), "bmi": np.array([bmi]), "stage": np.array([stage])}
        sums = [array.ravel() for arrays in exact(query, SCHEMA, one) for array in arrays]
        rows.append(np.concatenate([a / s for a, s in zip(sums, query.flat_scales, strict=True)]))
    other = [np.zeros_like(rows[0])] if neighbours == "add-remove" else rows
    furthest = max(float(np.linalg.norm(a - b)) for a in rows for b in other)
    assert 0.4 * query.sensitivity < furthest <= query.sensitivity * (1 + 1e-12)
