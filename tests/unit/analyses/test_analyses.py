"""What each analysis asks, answers and refuses."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import re
import warnings

import numpy as np
import pytest
from scipy.stats import beta

from cape.analyses import (
    ECDF,
    KINDS,
    Association,
    ContingencyTable,
    Correlation,
    CorrelationTest,
    Count,
    Covariance,
    Difference,
    Evaluate,
    Heterogeneity,
    Histogram,
    KaplanMeier,
    LinearRegression,
    LogRank,
    Mean,
    MixedModel,
    Proportion,
    Quantiles,
    RankTest,
    StandardDeviation,
    Sum,
    SyntheticData,
    TableOne,
    Tables,
    Variance,
    build,
)
from cape.analyses.describe.table_one_model import TableOneModel
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.engine.arguments import digits_apart, written
from cape.engine.calibration import calibrate
from tests.unit.analyses.slow_sums import exact, noisy, release

SCHEMA = Schema(
    age=(18, 90),
    chol=(100, 600),
    bmi=Number(10, 60, missing=False),
    sex=["female", "male"],
    stage=Category((1, 2, 3), missing=False),
    disease=["no", "yes"],
    ward=["first"],
)
RELATION = pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
RISKS = {
    "target": "disease",
    "link": "logit",
    "intercept": -3.0,
    "coefficients": {"age": 0.05, "sex=male": 0.2},
}
NUMBERS = {"target": "chol", "link": "identity", "intercept": 140.0, "coefficients": {"age": 2.0}}
EVERY = [
    Evaluate(RISKS),
    Evaluate(RISKS, edges=[0.3, 0.5], threshold=0.4),
    Evaluate(NUMBERS),
    Count("age", "bmi", "sex"),
    Count(sex="female"),
    Mean("age", "bmi"),
    Sum("age", "bmi"),
    Variance("age", "bmi"),
    StandardDeviation("age"),
    Covariance("age", "bmi"),
    Correlation("age", "chol", "bmi"),
    Histogram("age", edges=[18, 40, 90]),
    Histogram("bmi", bins=3),
    Histogram("stage"),
    ContingencyTable("sex", "disease"),
    Tables(["age", "sex", "stage"], bins=3),
    Tables(["bmi", "sex", "stage", "disease"], ways=3, workload={"sex": 4.0}, edges={"bmi": [10, 20, 60]}),
    Tables(["sex", "stage", "disease"], workload=[["sex", "stage"], {"columns": ["disease"], "weight": 3}]),
    Difference("age", "bmi", by="sex"),
    Heterogeneity(Mean("age", "bmi"), by="stage"),
    Heterogeneity(Proportion("sex"), by="stage"),
    Heterogeneity(Difference("age", by="sex"), by="stage"),
    Heterogeneity(Association("sex", "disease"), by="stage"),
    Heterogeneity(LinearRegression("bmi", ["age"]), by="stage"),
    MixedModel("chol", ["age", "sex"], by="stage"),
    MixedModel("chol", ["age"], random=["intercept", "age"], by="stage"),
    Difference("age", by="stage"),
    RankTest("age", by="sex"),
    RankTest("bmi", by="stage", edges=[10, 20, 25, 30, 60]),
    KaplanMeier("age", "disease", by="sex", bins=8),
    KaplanMeier("age", "stage", edges=[30, 50, 70], quantiles=(0.25, 0.5), horizon=60, at_edges=True),
    LogRank("age", "disease", by="sex", strata=["stage"], bins=6),
    LogRank("age", "disease", by="stage", weighting="fleming-harrington", p=1),
    Proportion("sex", "stage"),
    Proportion("sex", by="disease"),
    Association("sex", "disease"),
    Association("stage", "sex", trend=True),
    ECDF("age", bins=16),
    Quantiles("age", "bmi", probs=[0.1, 0.5], bins=64),
    TableOne("age", "bmi", "sex"),
    TableOne("age", "sex", "stage", by="disease"),
    SyntheticData(["age", "sex", "stage"], bins=4),
    SyntheticData(["sex", "disease"], impossible=[{"sex": "male", "disease": "yes"}], rows=50),
    CorrelationTest("age", "chol"),
    CorrelationTest("age", "bmi", method="spearman"),
    Count(by="sex"),
    Mean("age", "bmi", by="stage"),
    Sum("age", by="sex"),
    Variance("age", by="disease"),
    StandardDeviation("bmi", by="stage"),
    Covariance("age", "bmi", by="sex"),
    Correlation("age", "chol", by="disease"),
    Histogram("bmi", bins=3, by="stage"),
    Histogram("stage", by="sex"),
    ECDF("age", bins=4, by="sex"),
    Quantiles("age", "bmi", probs=[0.5], bins=16, by="stage"),
]
EACH = pytest.mark.parametrize(
    "analysis", EVERY, ids=lambda analysis: re.sub(r" at 0x\w+", "", repr(analysis))
)


def table(rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    disease = (rng.random(rows) < 0.4).astype(int)
    age = rng.normal(52 + 5 * disease, 9)
    age[rng.random(rows) < 0.1] = np.nan
    sex = rng.integers(0, 2, rows)
    sex[rng.random(rows) < 0.05] = -1
    chol = 240 + 2 * (np.nan_to_num(age, nan=50) - 50) + rng.normal(0, 30, rows)
    bmi = rng.lognormal(3.2, 0.2, rows)
    stage = rng.integers(0, 3, rows)
    return {"age": age, "chol": chol, "bmi": bmi, "sex": sex, "stage": stage, "disease": disease}


def without_noise(analysis, neighbours="replace-one", rows=None):
    return release(analysis, SCHEMA, rows or table(), np.random.default_rng(0), neighbours=neighbours, mu=0)


@RELATION
def test_without_noise_every_answer_is_the_plain_statistic(neighbours):
    data = table()
    age = np.clip(data["age"][~np.isnan(data["age"])], 18, 90)
    bmi = np.clip(data["bmi"], 10, 60)

    def value(analysis, label):
        return without_noise(analysis, neighbours)[label].value

    close = {"rel": 1e-5}
    assert value(Count(), "rows") == 3000
    assert value(Count("age"), "age not missing") == len(age)
    assert value(Count(sex="male"), "sex=male") == (data["sex"] == 1).sum()
    both = (data["sex"] == 0) & (data["stage"] == 2) & ~np.isnan(data["age"])
    assert (
        value(Count("age", where={"sex": "female"}, stage=3), "age not missing, sex=female, stage=3")
        == both.sum()
    )
    assert value(Mean("age", "bmi"), "age") == pytest.approx(age.mean(), **close)
    assert value(Mean("age", "bmi"), "bmi") == pytest.approx(bmi.mean(), **close)
    assert value(Sum("age"), "age") == pytest.approx(age.sum(), **close)
    assert value(Sum("bmi"), "bmi") == pytest.approx(bmi.sum(), **close)
    assert value(Variance("age"), "age") == pytest.approx(age.var(ddof=1), **close)
    assert value(StandardDeviation("bmi"), "bmi") == pytest.approx(bmi.std(ddof=1), **close)
    whole = ~np.isnan(data["age"])
    matrix = np.cov(np.clip(data["age"][whole], 18, 90), np.clip(data["chol"][whole], 100, 600))
    assert value(Covariance("age", "chol"), "age, chol covariance") == pytest.approx(matrix[0, 1], **close)
    assert value(Covariance("age", "chol"), "chol variance") == pytest.approx(matrix[1, 1], **close)
    known = matrix[0, 1] / math.sqrt(matrix[0, 0] * matrix[1, 1])
    assert value(Correlation("age", "chol"), "age, chol correlation") == pytest.approx(known, **close)
    assert value(Histogram("age", edges=[18, 50, 90]), "age in [18, 50)") == (age < 50).sum()
    assert value(Histogram("stage"), "stage=2") == (data["stage"] == 1).sum()
    cell = (data["sex"] == 0) & (data["disease"] == 1)
    assert value(ContingencyTable("sex", "disease"), "sex=female, disease=yes") == cell.sum()
    assert value(ECDF("age", bins=4), "age < 54") == pytest.approx((age < 54).mean())
    assert value(Quantiles("age"), "age quantile 0.5") == pytest.approx(np.median(age), abs=0.3)
    one = TableOne("age", "sex", by="disease")
    ill = data["disease"] == 1
    assert value(one, "n | disease=yes") == ill.sum()
    assert value(one, "age mean | disease=yes") == pytest.approx(
        np.nanmean(np.clip(data["age"], 18, 90)[ill]), **close
    )
    assert value(one, "age SD | overall") == pytest.approx(age.std(ddof=1), **close)
    share = (data["sex"][ill] == 0).sum() / (data["sex"][ill] >= 0).sum()
    assert value(one, "sex=female % | disease=yes") == pytest.approx(100 * share)
    assert value(TableOne("age"), "n") == 3000


@pytest.mark.one_in(2, seconds=0.05)
@EACH
@RELATION
def test_every_analysis_can_be_planned_calibrated_and_answered(analysis, neighbours):
    query = analysis.query(SCHEMA, neighbours)
    calibration = calibrate(query, SCHEMA, 2.0)
    assert calibration.size == sum(array.size for array in query.arrays(SCHEMA))
    noise = [[5.0 * query.sensitivity * scale for scale in scales] for scales in query.scales]
    expected = analysis.expected(SCHEMA, noise, 100_000, neighbours)
    estimates = release(analysis, SCHEMA, table(30000), np.random.default_rng(1), neighbours=neighbours)
    assert list(expected) == list(estimates)
    assert all(math.isfinite(value) and value >= 0 for value in expected.values())
    for estimate in estimates.values():
        low, high = estimate.interval()
        assert estimate.within[0] <= low <= estimate.value <= high <= estimate.within[1]
        wide = estimate.interval(0.999)
        assert wide[0] <= low <= high <= wide[1]
        assert math.isfinite(estimate.standard_error)
    assert pickle.loads(pickle.dumps(list(estimates.values())))[0].interval()
    assert analysis.describe()
    assert hash(analysis) == hash(pickle.loads(pickle.dumps(analysis)))


@EACH
def test_a_study_file_can_say_every_analysis(analysis):
    said = json.loads(json.dumps(analysis.to_dict()))
    assert build(said) == analysis


@pytest.mark.one_in(4, seconds=0.3)
@pytest.mark.parametrize(
    "analysis", [Mean("age"), Variance("bmi"), Sum("bmi"), Quantiles("bmi", probs=[0.3])], ids=repr
)
@RELATION
def test_a_plan_expects_what_rows_of_that_shape_then_show(analysis, neighbours):
    """The scatter of 600 releases of the same rows: known to 3%."""
    rng = np.random.default_rng(2)
    ranks = (np.arange(10000) + 0.5) / 10000
    t = 2 * beta(4, 4).ppf(ranks) - 1  # with an SD of a sixth of the width
    rows = {name: SCHEMA[name].middle + SCHEMA[name].half * t for name in ("age", "bmi")}
    query = analysis.query(SCHEMA, neighbours)
    sums = exact(query, SCHEMA, rows)
    answers = [noisy(query, SCHEMA, sums, 10000, rng, neighbours=neighbours) for _ in range(600)]
    values = [analysis.finish(answer)[0].value for answer in answers]
    (planned,) = analysis.expected(SCHEMA, answers[0].noise, 10000, neighbours).values()
    assert np.std(values) == pytest.approx(planned, rel=0.12 if analysis.kind != "quantiles" else 0.3)


@pytest.mark.one_in(2, seconds=0.01)
@EACH
@RELATION
def test_noise_that_drowns_everything_gives_bounds_and_a_warning_never_a_nan(analysis, neighbours):
    few = {name: cells[:3] for name, cells in table().items()}
    for seed in range(20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            rng = np.random.default_rng(seed)
            estimates = release(analysis, SCHEMA, few, rng, neighbours=neighbours, mu=0.05)
        for estimate in estimates.values():
            assert all(map(math.isfinite, (estimate.value, estimate.sampling, estimate.privacy)))
            low, high = estimate.interval()
            assert low <= estimate.value <= high


def test_an_answer_that_says_nothing_is_warned_of():
    few = {"age": np.array([50.0, 60.0])}
    with pytest.warns(TooNoisyWarning, match="'age'.*larger share"):
        found = release(Mean("age"), SCHEMA, few, np.random.default_rng(3), mu=0.05)
    assert found["age"].interval() == (18, 90)
    with pytest.warns(TooNoisyWarning, match="'age quantile 0.25' and 2 more"):
        release(Quantiles("age"), SCHEMA, few, np.random.default_rng(3), mu=0.05)
    with pytest.warns(TooNoisyWarning, match="'age variance' and 2 more"):
        release(Covariance("age", "chol"), SCHEMA, table(3), np.random.default_rng(3), mu=0.01)
    with pytest.warns(TooNoisyWarning, match="correlation"):
        release(Correlation("age", "bmi"), SCHEMA, table(50), np.random.default_rng(3), mu=0.05)


def test_at_a_level_that_noise_cannot_carry_the_interval_is_the_bounds():
    found = release(Mean("age"), SCHEMA, table(60), np.random.default_rng(3), mu=0.2)["age"]
    low, high = found.interval(0.9)
    assert 18 < low < high < 90
    assert found.interval(1 - 1e-12) == (18, 90)


def test_public_counts_cost_nothing_and_private_ones_are_asked_for():
    assert Count().query(SCHEMA, "replace-one").blocks == ()
    assert Count("bmi").query(SCHEMA, "replace-one").sensitivity == 0
    assert Count().query(SCHEMA, "add-remove").sensitivity == 1
    assert len(Count("bmi", "age").query(SCHEMA, "replace-one").blocks) == 1
    assert without_noise(Count("bmi"))["bmi not missing"].standard_error == 0


def test_columns_that_are_never_missing_are_divided_by_public_rows():
    """Then the noise in the count plays no part, however the mean lies."""
    rng, query = np.random.default_rng(4), Mean("bmi").query(SCHEMA, "replace-one")
    data = {"bmi": np.full(1000, 60.0)}
    answer = noisy(query, SCHEMA, exact(query, SCHEMA, data), 1000, rng)
    (estimate,) = Mean("bmi").finish(answer)
    assert estimate.privacy == pytest.approx(25 * answer.noise[0][1] / 1000)


def test_counts_of_columns_that_are_never_missing_add_up_to_the_public_rows():
    rng, labels = np.random.default_rng(5), ["stage=1", "stage=2", "stage=3"]
    found = [release(Histogram("stage"), SCHEMA, table(), rng) for _ in range(400)]
    assert all(sum(e.value for e in f.values()) == pytest.approx(3000) for f in found)
    spread = np.std([[f[label].value for label in labels] for f in found], axis=0)
    assert spread == pytest.approx([found[0]["stage=1"].privacy] * 3, rel=0.12)


def test_a_covariance_matrix_is_positive_semidefinite_under_any_noise():
    names, clipped = ["age", "chol", "bmi"], 0
    half = [SCHEMA[name].half for name in names]
    for seed in range(40):
        found = release(Covariance(*names), SCHEMA, table(700), np.random.default_rng(seed), mu=0.3)
        matrix = np.diag([found[f"{name} variance"].value for name in names])
        for i, j in itertools.combinations(range(3), 2):
            matrix[i, j] = matrix[j, i] = found[f"{names[i]}, {names[j]} covariance"].value
        values = np.linalg.eigvalsh(matrix / np.outer(half, half))
        assert values.min() > -1e-9
        clipped += values.min() < 1e-9
        assert all(e.interval()[0] <= e.value <= e.interval()[1] for e in found.values())
    assert clipped > 0  # else nothing was shown


def test_any_function_of_a_row_can_be_summed_within_a_bound():
    def products(batch):
        return np.nan_to_num(np.stack([batch["age"], batch["bmi"]], axis=1)[:, :, None] * np.ones((1, 1, 3)))

    asked = Sum.of(products, columns=["age", "bmi"], bound=1e4, shape=(2, 3), name="by hand")
    data = table()
    found = without_noise(asked)
    assert found["by hand[1, 2]"].value == pytest.approx(data["bmi"].sum(), rel=1e-3)
    assert found["by hand[0, 0]"].value == pytest.approx(np.nansum(data["age"]), rel=1e-3)
    assert (
        asked.describe()
        == "by hand: the sum of a function of age and bmi, each row clipped to a norm of 10000"
    )
    assert asked.expected(SCHEMA, [[2.0]], 100)["by hand[0, 1]"] == 2e4
    scalar = Sum.of(lambda batch: np.minimum(batch["bmi"], 30), columns="bmi", bound=30)
    noise = release(scalar, SCHEMA, data, np.random.default_rng(1), mu=1.0)["sum"]
    assert noise.privacy == pytest.approx(30 * 2 * math.sqrt(5 / 4))
    assert scalar.to_dict() == {
        "kind": "custom-sum", "name": "sum", "columns": ["bmi"], "bound": 30.0, "shape": [],
        "function": scalar.function.__qualname__,
    }  # fmt: skip


def laid_out(asked, found):
    return TableOneModel(asked.columns, asked.by, SCHEMA, tuple(found.values()), ()).layout()


def test_table_one_is_laid_out_as_in_a_paper():
    asked = TableOne("age", "sex", by="disease")
    found = laid_out(asked, without_noise(asked))
    assert found.columns[0] == ""
    assert [name.split(" (")[0] for name in found.columns[1:]] == ["overall", "disease=no", "disease=yes"]
    assert [row[0] for row in found.rows] == [
        "age",
        "mean (SD)",
        "median [IQR]",
        "missing",
        "sex, n (%)",
        "female",
        "male",
        "missing",
    ]
    assert [len(row) for row in found.rows] == [1, 4, 4, 4, 1, 4, 4, 4]
    assert found.rows[5][1].endswith("%)")
    alone = laid_out(TableOne("age"), without_noise(TableOne("age")))
    assert alone.columns == ("", "overall (n = 3,000)")
    assert alone.rows[1][1].startswith("54.") or alone.rows[1][1].startswith("53.")


def test_sizes_of_groups_add_up_to_what_is_public():
    errors = []
    for seed in range(200):
        data = table(seed=7)
        found = release(TableOne("sex", by="stage"), SCHEMA, data, np.random.default_rng(seed))
        sizes = [found[f"n | stage={value}"] for value in (1, 2, 3)]
        assert found["n | overall"].value == 3000
        assert found["n | overall"].standard_error == 0
        assert sum(size.value for size in sizes) == pytest.approx(3000)
        errors += [
            (size.value - np.sum(data["stage"] == code)) / size.privacy for code, size in enumerate(sizes)
        ]
    assert np.std(errors) == pytest.approx(1, abs=0.15)  # 4 standard errors of 400 free numbers
    private = release(TableOne("sex", by="disease"), SCHEMA, table(), np.random.default_rng(1))
    assert private["n | overall"].privacy > 0  # who has no known group is nobody's business


def test_a_standard_deviation_lost_in_noise_is_shown_by_its_upper_limit():
    asked = TableOne("age")
    rng = np.random.default_rng(1)
    data = {"age": np.full(400, 54.0)}
    found = laid_out(asked, release(asked, SCHEMA, data, rng))
    assert "(< " in found.rows[1][1]


@RELATION
def test_the_noise_of_a_sum_is_that_of_its_largest_value_or_near_it(neighbours):
    """At most sqrt(4/3) times what noise on the sum itself would be, and that only under replace-one."""
    for low, high in [(0, 10), (-5, 5), (100, 102), (-3, 1), (18, 90), (0.9, 1)]:
        schema = Schema(x=(low, high))
        query = Sum("x").query(schema, neighbours)
        noise = [[query.sensitivity * scale for scale in query.scales[0]]]
        (found,) = Sum("x").expected(schema, noise, 1000, neighbours).values()
        direct = max(abs(low), abs(high))
        if neighbours == "replace-one":
            direct = max(high, 0) - min(low, 0)
        assert 0.999 * direct <= found <= direct * (1.001 if neighbours == "add-remove" else 1.156)


def test_labels_stay_apart_when_edges_are_close():
    def texts(*numbers: float) -> list[str]:
        return [written(number, digits_apart(numbers)) for number in numbers]

    assert texts(1000000.25, 1000000.5) == ["1000000.2", "1000000.5"]
    assert texts(18, 90) == ["18", "90"]
    assert texts(1.0, 1.0 + 2**-52) == ["1.0", "1.0000000000000002"]
    labels = list(without_noise(ECDF("age", bins=256)))
    assert len(set(labels)) == 255


WRONG = [
    (lambda: Mean(), "at least one column"),
    (lambda: Mean("age", "age"), "'age' is named twice"),
    (lambda: Mean(["age"]), "columns must be names"),
    (lambda: Covariance("age"), "at least 2 columns"),
    (lambda: ContingencyTable("sex"), "at least 2 columns"),
    (lambda: Difference("age", by="age"), "'age' is named twice"),
    (lambda: Difference(by="age"), "at least one column"),
    (lambda: Proportion(), "at least one column"),
    (lambda: Proportion("sex", by="sex"), "'sex' is named twice"),
    (lambda: Association("sex"), "at least 2 columns"),
    (lambda: Association("sex", "stage", "disease"), "two columns, not of 3"),
    (lambda: Association("sex", "stage", trend=1), "trend must be True or False"),
    (lambda: Quantiles("age", probs=(0.5, 1.0)), "probs must lie strictly between 0 and 1"),
    (lambda: Quantiles("age", probs=0.0), "probs must lie"),
    (lambda: Quantiles("age", probs=()), "at least one"),
    (lambda: Quantiles("age", probs=(0.5, 0.5)), "different"),
    (lambda: Quantiles("age", bins=100), "power of 4"),
    (lambda: Histogram("age", edges=[18, 18, 90]), "edges of 'age' must be"),
    (lambda: Histogram("age", edges=[18]), "two or more numbers that rise"),
    (lambda: Histogram("age", edges=18), "edges must be numbers that rise"),
    (lambda: Histogram("age", bins=0), "bins must be an integer at least 1"),
    (lambda: Histogram("age", bins=3, edges=[1, 2]), "not both"),
    (lambda: TableOne("age", by="age"), "'age' is named twice"),
    (lambda: Count(where={"sex": "male"}, sex="female"), "one category, not two"),
    (lambda: Sum.of(3, columns=["age"], bound=1), "function must"),
    (lambda: Sum.of(len, columns=["age"], bound=0), "bound must be"),
    (lambda: Sum.of(len, columns=["age"], bound=1, shape=(2, 0)), "at least one number"),
    (lambda: Sum.of(len, columns=[], bound=1), "at least one column"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_what_is_wrong_whatever_the_schema_is_refused_at_once(wrong, said):
    with pytest.raises(InvalidInput, match=said):
        wrong()


UNFIT = [
    (Mean("aeg"), "did you mean 'age'"),
    (Mean("sex"), "numeric bounds"),
    (Variance("age", "sex"), "numeric bounds"),
    (Sum("sex"), "numeric bounds"),
    (Covariance("age", "stage"), "numeric bounds"),
    (Quantiles("sex"), "numeric bounds"),
    (Histogram("age"), "give edges or bins"),
    (Histogram("sex", bins=3), "leave out edges and bins"),
    (ContingencyTable("sex", "age"), "must have categories"),
    (Difference("sex", by="disease"), "numeric bounds"),
    (Difference("age", by="chol"), "must have categories"),
    (Difference("age", by="ward"), "one category in the schema"),
    (Proportion("age"), "must have categories"),
    (Proportion("sex", by="age"), "must have categories"),
    (Association("sex", "age"), "must have categories"),
    (Association("sex", "ward"), "one category in the schema"),
    (TableOne("age", by="chol"), "must have categories"),
    (TableOne("agee"), "did you mean 'age'"),
    (Count("agee"), "did you mean 'age'"),
    (Count(sex="femal"), "did you mean 'female'"),
    (Count(age=3), "must have categories"),
    (Sum.of(len, columns=["agee"], bound=1), "did you mean 'age'"),
]


@pytest.mark.parametrize(("analysis", "said"), UNFIT, ids=repr)
@RELATION
def test_what_does_not_fit_the_schema_is_refused_before_anything_is_asked(analysis, said, neighbours):
    with pytest.raises(InvalidInput, match=said):
        analysis.query(SCHEMA, neighbours)


def test_independence_is_asked_of_two_columns_with_clear_counts():
    three = ContingencyTable("sex", "disease", "stage")
    with pytest.raises(InvalidInput, match="two columns, not of 3"):
        three.independence(list(without_noise(three).values()), SCHEMA)
    two = ContingencyTable("sex", "disease")
    few = {name: cells[:5] for name, cells in table().items()}
    found = release(two, SCHEMA, few, np.random.default_rng(0), mu=0.1)
    assert two.independence(list(found.values()), SCHEMA) is None


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ({"columns": ["age"]}, "must have a kind: one of count, sum, mean"),
        ({"kind": "maen"}, "did you mean 'mean'"),
        ({"kind": 3}, "no analysis of kind 3"),
        ({"kind": "mean", "column": ["age"]}, "no key 'column'; did you mean 'columns'"),
        ({"kind": "mean", "columns": 3}, "columns must be a list of names"),
        ({"kind": "mean"}, "at least one column"),
        ({"kind": "histogram", "bins": 3}, "must have the key 'column'"),
        ({"kind": "quantiles", "columns": ["age"], "prob": [0.5]}, "did you mean 'probs'"),
        ({"kind": "count", "sex": "female"}, "no key 'sex'"),
        ({"kind": "x" * 5000}, "no analysis of kind 'xxx"),
        ({"kind": "count", "k" * 5000: 1}, "no key 'kkk"),
        ({"kind": "mean", "columns": {"x" * 5000: 1}}, "columns must be a list of names"),
    ],
)
def test_a_study_file_that_is_wrong_is_told_what_is_right(description, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        build(description)
    assert len(str(caught.value)) < 1000


def test_a_study_file_may_name_one_column_without_a_list():
    assert build({"kind": "mean", "columns": "age"}) == Mean("age")
    assert build({"kind": "count", "where": {"sex": "female"}}) == Count(sex="female")
    assert len(KINDS) >= 12  # and those of layers that another test has imported
