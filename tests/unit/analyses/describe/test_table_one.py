"""A Table One adds up, says what is missing, and compares groups as scipy does without noise."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2_contingency, f_oneway, ttest_ind

import cape
from cape.analyses import TableOne
from cape.analyses.describe.table_one_model import TableOneModel
from cape.data import Category, Number, Schema
from cape.stats.balance import of_categories
from cape.stats.estimates import Estimate
from tests.unit.analyses.slow_sums import exact, noisy, scaled

SCHEMA = Schema(
    age=(18, 90),
    bmi=Number(10, 60, missing=False),
    sex=Category(("F", "M"), missing=False),
    smoker=["no", "yes", "once"],
    stage=Category((1, 2, 3), missing=False),
    ill=["no", "yes"],
)
COLUMNS = ("age", "bmi", "sex", "smoker")
pytestmark = pytest.mark.filterwarnings("ignore::cape.core.errors.TooNoisyWarning")


def people(rows, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    ill, stage = rng.integers(-1, 2, rows), rng.integers(0, 3, rows)
    age = rng.normal(50 + shift * (stage == 2), 9, rows)
    age[rng.random(rows) < 0.1] = np.nan
    smoker = rng.choice([0, 1, 2, -1], rows, p=[0.6, 0.25, 0.05, 0.1])
    bmi = np.clip(rng.lognormal(3.2, 0.2, rows), 10, 60)
    sex = rng.integers(0, 2, rows)
    return {"age": age, "bmi": bmi, "sex": sex, "smoker": smoker, "stage": stage, "ill": ill}


def made(asked, table, *, mu=0.0, seed=0, neighbours="replace-one", schema=SCHEMA):
    query, rng = asked.query(schema, neighbours), np.random.default_rng(seed)
    rows = len(next(iter(table.values())))
    result = asked.finish(
        noisy(query, schema, exact(query, schema, table), rows, rng, neighbours=neighbours, mu=mu)
    )
    return {estimate.label: estimate for estimate in result.estimates}, result.model


def check_sums(found, by, values, columns=COLUMNS):
    """Categories and missing cells add up to each group, and groups to everyone."""
    ends = [""] if by is None else [" | overall", *(f" | {by}={value}" for value in values)]

    def value(stem, end):
        got = found[f"{stem} n{end}" if stem else f"n{end}"].value
        assert got == int(got) >= 0
        return got

    stems = [""]
    for name in columns:
        cells = (
            [] if isinstance(SCHEMA[name], Number) else [f"{name}={v}" for v in SCHEMA.category(name).values]
        )
        missing = [f"{name} missing"] if SCHEMA[name].missing else []
        stems += cells + missing
        for end in ends if cells else ():
            assert sum(value(stem, end) for stem in cells + missing) == value("", end)
    if by is not None:
        for stem in stems:
            assert value(stem, ends[0]) == sum(value(stem, end) for end in ends[1:])
    return value("", ends[0])


@pytest.mark.parametrize("by", [None, "stage", "ill"])
@pytest.mark.parametrize("mu", [0.0, 0.05, 0.5, 5.0])
def test_numbers_add_up_however_noisy_they_are(by, mu):
    values = () if by is None else SCHEMA.category(by).values
    for seed in range(6):
        table = people(250, seed)
        found, _ = made(TableOne(*COLUMNS, by=by, bins=4), table, mu=mu, seed=seed)
        total = check_sums(found, by, values)
        if by == "ill":
            assert total + found["ill missing n"].value == 250
        else:  # nobody misses a group
            assert total == 250
        found, _ = made(TableOne(*COLUMNS, by=by, bins=4), table, mu=mu, seed=seed, neighbours="add-remove")
        check_sums(found, by, values)


def test_without_noise_every_count_is_the_true_one():
    table = people(2000)
    found, _ = made(TableOne(*COLUMNS, by="stage"), table)
    for code in range(3):
        here, end = table["stage"] == code, f" | stage={code + 1}"
        assert found[f"n{end}"].value == here.sum()
        assert found[f"age missing n{end}"].value == np.isnan(table["age"][here]).sum()
        assert found[f"smoker missing n{end}"].value == (table["smoker"][here] == -1).sum()
        assert found[f"smoker=once n{end}"].value == (table["smoker"][here] == 2).sum()
        known = (table["smoker"][here] >= 0).sum()
        assert found[f"smoker=no %{end}"].value == pytest.approx(
            100 * (table["smoker"][here] == 0).sum() / known
        )
    assert found["age missing n | overall"].value == np.isnan(table["age"]).sum()


@pytest.mark.parametrize("by", ["ill", "stage"])
def test_without_noise_groups_are_compared_as_scipy_does(by):
    table = people(1500, shift=3.0)
    _, model = made(TableOne(*COLUMNS, by=by), table)
    balance = {each.column: each for each in model.balances}
    groups = [table[by] == code for code in range(len(SCHEMA.category(by).values))]
    for name in ("age", "bmi"):
        cells = scaled(table[name], SCHEMA.number(name))
        each = [cells[here & ~np.isnan(cells)] for here in groups]
        known = ttest_ind(*each, equal_var=False) if len(each) == 2 else f_oneway(*each, equal_var=False)
        assert balance[name].p_value == pytest.approx(known.pvalue, abs=1e-6)
        assert balance[name].test == ("Welch's t-test" if len(each) == 2 else "Welch's F-test")
        apart = [
            abs(one.mean() - other.mean()) / math.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2)
            for i, one in enumerate(each)
            for other in each[:i]
        ]
        assert balance[name].smd == pytest.approx(max(apart), abs=1e-6)
    for name in ("sex", "smoker"):
        counts = np.array(
            [
                [(here & (table[name] == code)).sum() for code in range(len(SCHEMA.category(name).values))]
                for here in groups
            ]
        )
        known = chi2_contingency(counts, correction=False)
        assert balance[name].p_value == pytest.approx(known.pvalue, abs=1e-6)


def test_a_standardised_difference_of_two_categories_is_that_of_a_number():
    found = of_categories("x", np.array([[60.0, 40.0], [150.0, 50.0]]), 0.0)
    wanted = (0.4 - 0.25) / math.sqrt((0.4 * 0.6 + 0.25 * 0.75) / 2)
    assert found.smd == pytest.approx(wanted, abs=1e-9)
    assert found.interval[0] < found.smd < found.interval[1]
    rng = np.random.default_rng(2)
    one, other = rng.binomial(10_000, 0.8, 3000), rng.binomial(5_000, 0.1, 3000)
    drawn = [
        of_categories("x", np.array([[1e4 - a, a], [5e3 - b, b]]), 0.0)
        for a, b in zip(one, other, strict=True)
    ]
    errors = [each.error for each in drawn]
    assert np.mean(errors) == pytest.approx(np.std([each.smd for each in drawn]), rel=0.05)


SHARES = {
    "alike": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "apart": ([0.7, 0.2, 0.1], [0.2, 0.3, 0.5]),
    "rare": ([0.9, 0.08, 0.02], [0.8, 0.1, 0.1]),
}


@pytest.mark.slow(3)
@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize(("rows", "noise"), [(150, 4.0), (800, 8.0), (5000, 8.0)])
def test_intervals_of_differences_between_categories_cover(shares, rows, noise):
    rng, hits, runs = np.random.default_rng(rows), 0, 500
    true = of_categories("x", 1e12 * np.array(SHARES[shares]), 0.0).smd
    for _ in range(runs):
        table = np.array([rng.multinomial(rows, each) for each in SHARES[shares]], float)
        found = of_categories("x", table + rng.normal(0, noise, (2, 3)), noise)
        hits += found.smd is None or found.interval[0] <= true <= found.interval[1]
    assert hits / runs > 0.92


def test_noise_does_not_add_to_a_standardised_difference_of_categories():
    rng = np.random.default_rng(1)
    table = np.array([[400.0, 300.0, 300.0], [500.0, 300.0, 200.0]])
    true = of_categories("x", table, 0.0).smd
    found = [of_categories("x", table + rng.normal(0, 25, (2, 3)), 25.0).smd for _ in range(500)]
    plain = [of_categories("x", table + rng.normal(0, 25, (2, 3)), 0.0).smd for _ in range(500)]
    squares = np.mean(np.square(found)), np.mean(np.square(plain))
    assert squares[0] == pytest.approx(true**2, rel=0.08)
    assert squares[1] > 1.1 * true**2


@pytest.mark.slow(3)
@pytest.mark.parametrize("by", ["stage", "ill"])
def test_every_p_keeps_its_level_under_the_null(by):
    asked, hits, runs = TableOne("age", "smoker", by=by, bins=16), np.zeros(2), 400
    for seed in range(runs):
        _, model = made(asked, people(1500, seed), mu=1.0, seed=seed)
        hits += [each.p_value is not None and each.p_value < 0.05 for each in model.balances]
    assert (hits / runs < 0.088).all()
    assert (hits / runs > 0.02).all()


def test_a_group_of_nobody_has_no_test_and_no_nan():
    table = people(900) | {"stage": np.zeros(900, int)}
    for mu in (0.0, 1.0):
        found, model = made(TableOne(*COLUMNS, by="stage", bins=4), table, mu=mu)
        for estimate in found.values():
            assert not any(math.isnan(x) for x in (estimate.value, estimate.privacy, *estimate.interval()))
        assert all(each.p_value is None or 0 <= each.p_value <= 1 for each in model.balances)
        check_sums(found, "stage", (1, 2, 3))
    assert "too much noise, or nothing varies" in " ".join(model.notes())


def test_the_table_shows_what_is_missing_and_how_groups_differ():
    frame = pl.DataFrame(
        {
            "age": [None if i % 9 == 0 else 40.0 + i % 30 for i in range(1200)],
            "sex": ["F", "M", "M"] * 400,
            "ill": (["no"] * 5 + ["yes"]) * 200,
        }
    )
    schema = cape.Schema(
        age=(18, 90), sex=Category(("F", "M"), missing=False), ill=Category(("no", "yes"), missing=False)
    )
    consortium = cape.Consortium(dict.fromkeys("abc", frame), schema, cape.Budget(5.0, 1e-6), colluding=0)
    release = consortium.release(TableOne("age", "sex", by="ill"), share=0.5)
    (table, _) = release.tables()
    assert table.columns[0] == ""
    assert table.columns[1] == "overall (n = 3,600)"
    assert table.columns[-2:] == ("P", "SMD")
    rows = {row[0]: row for row in table.rows if len(row) > 1}
    assert set(rows) == {"n (95% interval)", "mean (SD)", "median [IQR]", "missing", "F", "M"}
    assert rows["n (95% interval)"][1] == "3,600", "public: it has no noise"
    for size, count in zip(rows["n (95% interval)"][2:4], (3000, 600), strict=True):
        value, low, high = (int(each.replace(",", "")) for each in re.findall(r"[\d,]+", size))
        assert low < value < high
        assert low - 20 < count < high + 20
    counts = [[int(rows[name][i].split(" ")[0].replace(",", "")) for name in ("F", "M")] for i in (1, 2, 3)]
    heads = [int(head.rpartition("= ")[2].rstrip(")").replace(",", "")) for head in table.columns[1:4]]
    assert [sum(each) for each in counts] == heads
    assert heads[0] == heads[1] + heads[2] == 3600
    assert "P: Welch's t-test for numbers and chi-square test for categories" in release.notes()[0]
    plain = json.loads(json.dumps(release.to_dict()))
    assert set(plain["model"]["balance"]) == {"age", "sex"}
    total = {each["label"]: each["value"] for each in plain["estimates"]}
    assert json.loads(release.to_json())["estimates"][0]["label"] == "n | overall"
    assert total["sex=F n | overall"] + total["sex=M n | overall"] == 3600
    alone = consortium.release(TableOne("age", "sex", where="age > 50"), share=0.5)
    (table, _) = alone.tables()
    assert "missing" not in [row[0] for row in table.rows][5:]  # sex is never missing, whatever rows count
    assert alone.notes() == ["Counts of rows have privacy noise."]


def test_what_noise_hides_is_no_number():
    table = people(300)
    _, model = made(TableOne(*COLUMNS, by="stage"), table, mu=0.002)
    shown = model.layout()
    assert all(head.endswith("(n = -)") for head in shown.columns[2:5])
    cells = {cell for row in shown.rows if len(row) > 1 for cell in row[1:]}
    assert cells <= {"-", ""}
    assert model.findings() == []
    assert (
        "noise hides"
        in TableOneModel(
            COLUMNS, "ill", SCHEMA, (Estimate("ill missing n", 0.0, 0.0, 900.0, (0.0, 300.0)),), ()
        ).notes()[0]
    )


def test_an_sd_of_0_is_0_and_a_column_without_cells_has_no_mean():
    table = people(300)
    table["bmi"][:] = 20.0
    table["age"][:] = np.nan
    _, model = made(TableOne("age", "bmi"), table)
    rows = [row[1:] for row in model.layout().rows if row[0] == "mean (SD)"]
    assert rows == [("-",), ("20.00 (0)",)]
