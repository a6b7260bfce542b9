"""Differences of means: Welch's without noise, and honest with it."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy.stats import f_oneway, t, ttest_ind

from cape import privacy
from cape.analyses import Difference, build
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.query import Answer
from cape.stats.moments import Sums
from cape.stats.welch import Group, Pair
from tests.unit.analyses.slow_sums import MU, exact, noisy, scaled

SCHEMA = Schema(
    x=(-4, 4),
    y=Number(0, 10, missing=False),
    ill=["no", "yes"],
    stage=Category(("I", "II", "III"), missing=False),
)
LABEL = "x difference | ill: yes - no"
pytestmark = pytest.mark.filterwarnings("ignore::cape.core.errors.TooNoisyWarning")


def finished(asked, table, *, mu=0.0, rng=None, neighbours="replace-one"):
    query = asked.query(SCHEMA, neighbours)
    rows = len(next(iter(table.values())))
    rng = rng or np.random.default_rng(0)
    sums = exact(query, SCHEMA, table)
    answer = noisy(query, SCHEMA, sums, rows, rng, neighbours=neighbours, mu=mu)
    result = asked.finish(answer)
    return {estimate.label: estimate for estimate in result.estimates}, result.model


def people(rows, rng, shift=0.0):
    ill = (rng.random(rows) < 0.4).astype(int)
    stage = rng.integers(0, 3, rows)
    x = rng.normal(0.3 + shift * ill, 1 + 0.5 * ill)
    return {"x": x, "y": rng.gamma(2.0, 1.5, rows), "ill": ill, "stage": stage}


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_without_noise_two_groups_are_compared_as_scipy_does(neighbours):
    table = people(400, np.random.default_rng(1), 0.4)
    found, model = finished(Difference("x", by="ill"), table, neighbours=neighbours)
    x = scaled(table["x"], SCHEMA.number("x")) * 4  # on the grid, whose steps are larger than 1e-6 of x
    one, other = x[table["ill"] == 1], x[table["ill"] == 0]
    known = ttest_ind(one, other, equal_var=False)
    assert model.p_value("x") == pytest.approx(known.pvalue, abs=1e-6)
    ends = known.confidence_interval(0.9)
    assert found[LABEL].value == pytest.approx(one.mean() - other.mean(), abs=1e-9)
    assert found[LABEL].interval(0.9) == pytest.approx((ends.low, ends.high), abs=1e-6)
    spread = math.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2)
    ratio = found["x SMD | ill: yes - no"].value
    assert ratio == pytest.approx((one.mean() - other.mean()) / spread, abs=1e-6)


@pytest.mark.parametrize("rows", [12, 400])
def test_without_noise_several_groups_are_compared_as_scipy_does(rows):
    rng = np.random.default_rng(2)
    table = people(rows, rng) | {"stage": np.arange(rows) % 3}
    found, model = finished(Difference("x", "y", by="stage"), table)
    for name in ("x", "y"):
        column = SCHEMA.number(name)
        cells = scaled(table[name], column) * column.half
        groups = [cells[table["stage"] == code] for code in range(3)]
        known = f_oneway(*groups, equal_var=False)
        assert model.p_value(name) == pytest.approx(known.pvalue, abs=1e-6)
        (each,) = [each for each in model.comparisons if each.column == name]
        assert each.overall.statistic == pytest.approx(known.statistic, abs=1e-6)
        pairs = [ttest_ind(groups[j], groups[i], equal_var=False).pvalue for i, j in [(0, 1), (0, 2), (1, 2)]]
        assert [test.p_value for test in each.tests] == pytest.approx(pairs, abs=1e-6)
        assert found[f"{name} difference | stage: III - I"].value == pytest.approx(
            groups[2].mean() - groups[0].mean(), abs=1e-9
        )
        assert sorted(each.adjusted)[0] == pytest.approx(min(3 * min(pairs), 1))
        assert max(each.adjusted) >= max(pairs)


def answers(asked, schema, table, runs, rng):
    query = asked.query(schema, "replace-one")
    for _ in range(runs):
        data = table()
        yield asked.finish(noisy(query, schema, exact(query, schema, data), len(data["ill"]), rng))


@pytest.mark.slow(10)
@pytest.mark.parametrize("rows", [200, 1000, 20_000])
@pytest.mark.parametrize("by", ["ill", "stage"])
def test_the_level_is_kept_under_the_null_and_intervals_cover(rows, by):
    """Two thousand runs: 5% is known to 0.5%. The shift is that of cells within the bounds."""
    rng = np.random.default_rng([rows, len(by)])
    rejected, covered = [], []
    shift = 0.5 if by == "ill" else 0.0
    large = people(1_000_000, rng, shift)
    x = np.clip(large["x"], -4, 4)
    true = x[large["ill"] == 1].mean() - x[large["ill"] == 0].mean() if by == "ill" else 0.0
    asked, runs = Difference("x", by=by), 2000 if rows < 20_000 else 500
    for result in answers(asked, SCHEMA, lambda: people(rows, rng, shift), runs, rng):
        rejected.append((result.model.p_value("x") or 1.0) < 0.05)
        low, high = {e.label: e for e in result.estimates}[
            LABEL if by == "ill" else "x difference | stage: III - I"
        ].interval()
        covered.append(low <= true <= high)
    assert np.mean(covered) > 0.935 - (0.015 if rows == 20_000 else 0)
    if by == "stage":
        assert np.mean(rejected) < (0.068 if rows < 20_000 else 0.084)  # 3.5 standard errors


@pytest.mark.slow(3)
def test_standardised_differences_cover():
    rng, hits = np.random.default_rng(5), 0
    asked = Difference("x", by="ill")
    true = 0.5 / math.sqrt((1 + 1.5**2) / 2)
    for result in answers(asked, SCHEMA, lambda: people(3000, rng, 0.5), 600, rng):
        low, high = result.estimates[-1].interval()
        hits += low <= true <= high
    assert 0.92 < hits / 600 <= 0.985


def test_a_group_of_nobody_leaves_its_differences_open_and_the_others_as_they_are():
    rng = np.random.default_rng(3)
    table = people(4000, rng) | {"stage": rng.integers(0, 2, 4000)}
    with pytest.warns(TooNoisyWarning, match="'x mean | stage=III' and 4 more"):
        found, model = finished(Difference("x", by="stage"), table, mu=0.5, rng=rng)
    assert found["x difference | stage: III - I"].interval() == (-8, 8)
    assert found["x SMD | stage: III - I"].interval() == (-math.inf, math.inf)
    low, high = found["x difference | stage: II - I"].interval()
    assert -0.5 < low < high < 0.5
    assert model.p_value("x") is None
    assert "too much noise to test" in model.notes()[1]
    assert model.comparisons[0].adjusted[1] is None
    with pytest.raises(KeyError):
        model.p_value("z")


def test_rows_that_do_not_vary_have_no_test_and_no_nan():
    table = {"x": np.full(50, 2.0), "ill": np.arange(50) % 2}
    found, model = finished(Difference("x", by="ill"), table)
    assert found[LABEL].interval() == (0, 0)
    assert model.p_value("x") is None
    assert found["x SMD | ill: yes - no"].interval() == (-math.inf, math.inf)


def test_columns_that_are_never_missing_share_the_work_of_counting():
    schema = Schema({f"y{i}": Number(0, 10, missing=False) for i in range(4)}, ill=["no", "yes"])
    query = Difference(*(f"y{i}" for i in range(4)), by="ill").query(schema, "replace-one")
    ((count, first, second),) = query.scales
    assert query.sensitivity == pytest.approx(2 * math.sqrt(4))
    assert count / math.sqrt(4) == pytest.approx(math.sqrt(4 / 3) / math.sqrt(2))  # of their average
    assert first == 1
    assert second < 1.3


def test_noise_in_the_variance_costs_degrees_of_freedom():
    clear = Sums(500.0, 20.0, 40.0, 0.0, 0.0, 0.0)
    blurred = Sums(500.0, 20.0, 40.0, 5.0, 5.0, 10.0)
    assert Pair(Group(clear), Group(clear)).freedom == pytest.approx(998)
    assert 8 <= Pair(Group(blurred), Group(blurred)).freedom < 200


def test_a_result_is_the_same_after_pickling():
    rng = np.random.default_rng(4)
    found, _ = finished(Difference("x", by="ill"), people(2000, rng), mu=1.0, rng=rng)
    kept = [found[LABEL], found["x SMD | ill: yes - no"]]
    assert pickle.loads(pickle.dumps(kept)) == kept


@pytest.mark.slow(2)
def test_a_test_that_is_made_of_a_small_group_near_a_bound_rejects_no_more_often():
    """A group of two standard deviations of its noise: too often if only larger ones were tested."""
    rng, asked = np.random.default_rng(6), Difference("x", by="ill")
    query = asked.query(SCHEMA, "replace-one")
    noise = 2 / MU / math.sqrt(0.75) * math.sqrt(5 / 4)
    sizes = np.array([900.0, round(2 * noise)])
    sums = ((sizes[:, None], -0.9 * sizes[:, None], 0.82 * sizes[:, None]),)  # all of t about -0.9
    found = [asked.finish(noisy(query, SCHEMA, sums, None, rng)).model.p_value("x") for _ in range(1500)]
    known = [p for p in found if p is not None]
    assert len(known) > 1000
    assert np.mean(np.array(known) < 0.05) < 0.07


def test_a_difference_that_is_not_known_may_still_be_tested():
    noise = 2 / MU / math.sqrt(0.75)
    large, small = (5000.0, -4000.0, 3500.0), (2 * noise, 1.9 * noise, 2 * noise)
    sums = (tuple(np.array([[one], [other]]) for one, other in zip(large, small, strict=True)),)
    answer = Answer(sums, ((noise, 2 / MU, 4 / MU),), None, SCHEMA)
    result = Difference("x", by="ill").finish(answer)
    assert {e.label: e for e in result.estimates}[LABEL].interval() == (-8, 8)
    assert 0 < result.model.p_value("x") < 0.05


CONTRASTS = {"late": {"I": -0.5, "II": -0.5, "III": 1}, "ends": {"III": 1, "I": -1}}


def test_without_noise_a_contrast_is_welchs():
    table = people(400, np.random.default_rng(7))
    asked = Difference("x", by="stage", contrasts=CONTRASTS)
    found, model = finished(asked, table)
    x = scaled(table["x"], SCHEMA.number("x")) * 4
    groups = [x[table["stage"] == code] for code in range(3)]
    parts = [each.var(ddof=1) / len(each) for each in groups]
    (estimate, test), (ends, of_ends) = model.comparisons[0].contrasts
    value = groups[2].mean() - (groups[0].mean() + groups[1].mean()) / 2
    variance = parts[2] + (parts[0] + parts[1]) / 4
    weights = (1 / 16, 1 / 16, 1.0)
    doubt = sum(w * p**2 / (len(each) - 1) for w, p, each in zip(weights, parts, groups, strict=True))
    freedom = variance**2 / doubt
    assert estimate.label == "x contrast | stage: late"
    assert found[estimate.label].value == pytest.approx(value, abs=1e-6)
    assert test.freedom[1] == pytest.approx(freedom, rel=1e-6)
    assert test.p_value == pytest.approx(2 * t.sf(abs(value) / math.sqrt(variance), freedom), abs=1e-6)
    known = ttest_ind(groups[2], groups[0], equal_var=False)
    assert of_ends.p_value == pytest.approx(known.pvalue, abs=1e-6)
    assert ends.interval() == pytest.approx(
        (known.confidence_interval().low, known.confidence_interval().high), abs=1e-6
    )


def test_contrasts_are_shown_and_part_of_what_is_asked():
    asked = Difference("x", by="stage", contrasts=CONTRASTS)
    assert build(asked.to_dict()) == asked != Difference("x", by="stage")
    rng = np.random.default_rng(8)
    _, model = finished(asked, people(4000, rng), mu=1.0, rng=rng)
    (table,) = model.tables()
    assert [row[0] for row in table.rows if row[0].startswith("contrast")] == [
        "contrast, stage: late",
        "contrast, stage: ends",
    ]
    assert [each["label"] for each in model.to_dict()["columns"]["x"]["contrasts"]] == [
        "x contrast | stage: late",
        "x contrast | stage: ends",
    ]


def test_a_contrast_with_a_group_of_nobody_is_open_and_one_without_it_is_not():
    rng = np.random.default_rng(3)
    table = people(4000, rng) | {"stage": rng.integers(0, 2, 4000)}
    given = {**CONTRASTS, "first": {"II": 1, "I": -1}}
    found, _ = finished(Difference("x", by="stage", contrasts=given), table, mu=0.5, rng=rng)
    assert found["x contrast | stage: late"].interval() == (-8, 8)
    low, high = found["x contrast | stage: first"].interval()
    assert -0.5 < low < high < 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"late": {"I": 1, "II": 1}}, "must add up to 0"),
        ({"late": {"I": 0, "II": 0}}, "must add up to 0, and not all be 0"),
        ({"late": 3}, "a weight for each group"),
        ({"late": {"I": -1, "IV": 1}}, "names no category of 'stage'"),
        ({"": {"I": -1, "II": 1}}, "name must be text"),
        ({"late": {"I": -1e9, "II": 1e9}}, "at most"),
        (["I"], "contrasts must be names"),
    ],
)
def test_contrasts_that_are_none_are_refused(given, said):
    with pytest.raises(InvalidInput, match=said):
        Difference("x", by="stage", contrasts=given).query(SCHEMA, "replace-one")


@pytest.mark.slow(1.5)
@pytest.mark.parametrize("groups", [4, 6])
def test_several_small_groups_are_tested_at_their_level(groups):
    """Noise in the variances outweighs them: degrees of freedom made such a test reject 1% of the time."""
    schema = Schema(x=(-4, 4), ill=Category(tuple(range(groups)), missing=False))
    asked, rng, found = Difference("x", by="ill"), np.random.default_rng(groups), []
    query = asked.query(schema, "replace-one")
    mu = float(privacy.mu(3.0, 1e-6))
    for _ in range(1000):
        data = {"x": rng.normal(0.5, 1, 200), "ill": rng.integers(0, groups, 200)}
        answer = noisy(query, schema, exact(query, schema, data), None, rng, mu=mu)
        found.append(asked.finish(answer).model.p_value("x"))
    rate = np.mean([p is not None and p < 0.05 for p in found])
    assert 0.025 < rate < 0.072


def test_an_empty_group_has_no_value_and_is_said_to_be_empty_perhaps():
    table = people(2000, np.random.default_rng(1))
    table["stage"][table["stage"] == 2] = 1
    with pytest.warns(TooNoisyWarning, match="or nobody is in it: leave an empty group out with where"):
        _, model = finished(Difference("y", by="stage"), table, mu=0.5)
    values = {row[0]: row[1] for row in model.tables()[0].rows if len(row) > 1}
    empty = [name for name, value in values.items() if value == "-"]
    assert len(empty) == 5
    assert all("III" in name for name in empty)
    assert model.notes()[0].startswith("Noise hides whether anybody is in the group stage=III")
    assert model.notes()[0].endswith("Leave it out with where.")


def test_a_narrow_screen_loses_adjusted_p_before_intervals():
    _, model = finished(Difference("y", by="stage"), people(400, np.random.default_rng(1)))
    (shown,) = model.tables()
    assert [shown.columns[place] for place in shown.drop] == ["P (Holm)", "95% interval"]


def test_a_plan_of_a_standardised_difference_is_that_of_a_common_one_and_says_what_others_are():
    schema = Schema(x=Number(0, 100, missing=False), ill=["no", "yes"])
    asked, noise = Difference("x", by="ill"), ((10.0, 10.0, 20.0),)
    (table,) = asked.outlook(schema, noise, 2000, "replace-one")
    assert table.columns == ("noise of", "SMD 0", "SMD 0.2", "SMD 0.5", "SMD 0.8")
    by_size = [float(cell) for cell in table.rows[0][1:]]
    assert by_size == sorted(by_size)
    assert by_size[1] < asked.expected(schema, noise, 2000)["x SMD | ill: yes - no"] < by_size[2]
