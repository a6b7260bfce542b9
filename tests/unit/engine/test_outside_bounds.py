"""Cells outside bounds are counted beside the first sums: what they cost, and what is said of them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import cape
from cape.blocks import OutsideBounds, Table
from cape.data import Number, Person, Schema
from cape.engine.outside_bounds import MOST, OutsideShare, beside, counted, sentences
from cape.engine.plan import make_plan
from cape.engine.query import Query
from cape.engine.schemes import SCHEMES, Parties, make_scheme
from cape.engine.session import AnalysisSession
from cape.engine.stages import Setting, Stages
from cape.noise import SecureStream
from cape.privacy import Budget
from cape.stats.law import GAUSSIAN, Law
from tests.unit.engine.questions import Bins, Rounds

FULL = {"age": Number(18, 90, missing=False), "chol": Number(100, 600, missing=False)}
SCHEMA = Schema({**FULL, "sex": ["female", "male"]})
BUDGET = Budget(1.0, 1e-6)
MEAN = cape.Mean("age", "chol")
FIVE = Parties(5, 1, 5)


def setting_of(schema=SCHEMA, neighbours="replace-one", noise="gaussian", budget=BUDGET):
    return Setting(schema, budget, FIVE, neighbours, noise)


def first(analysis=MEAN, setting=None, share=0.5):
    setting = setting or setting_of()
    stages = Stages.of(analysis, setting, make_scheme("cape", setting.noise), share)
    return AnalysisSession(analysis, stages).pending(), stages


def added(query, rows, schema):
    """Return what rows add, each array divided by its scale."""
    sums = Table("a", rows, schema).sums(query.blocks)
    arrays = [array for block in query.blocks for array in block.arrays(schema)]
    parts = [part for each in sums for part in each]
    return np.concatenate(
        [
            np.ravel(part) * 2.0**-array.bits / scale
            for part, array, scale in zip(parts, arrays, query.flat_scales, strict=True)
        ]
    )


def row(age, chol, sex="female", **more):
    return pl.DataFrame({"age": [age], "chol": [chol], "sex": [sex], **more})


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_sensitivity_is_attained_by_a_row_outside_all_bounds(neighbours, kind):
    query, _ = first(cape.Mean("age", "chol"), setting_of(neighbours=neighbours, noise=kind))
    norm, claimed = (1, query.l1) if kind == "laplace" else (2, query.sensitivity)
    low, high = added(query, row(0.0, 0.0), SCHEMA), added(query, row(1e9, 1e9), SCHEMA)
    moved = np.linalg.norm(high - low if neighbours == "replace-one" else high, norm)
    assert moved == pytest.approx(claimed, rel=1e-5)
    low, high = added(query, row(18.0, 100.0), SCHEMA), added(query, row(90.0, 600.0), SCHEMA)
    inside = np.linalg.norm(high - low if neighbours == "replace-one" else high, norm)
    assert inside <= claimed * (1 + 1e-12)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_a_person_with_all_rows_outside_moves_the_sums_by_what_is_claimed(neighbours):
    schema = SCHEMA.of_persons(Person("id", rows=3))
    query, stages = first(setting=setting_of(schema, neighbours))
    whole = stages.setting.of_person(query).sensitivity
    sums = [
        added(query, pl.concat([row(age, chol, id=1)] * 4), schema) for age, chol in ((0.0, 0.0), (1e9, 1e9))
    ]
    moved = sums[1] - sums[0] if neighbours == "replace-one" else sums[1]
    assert np.linalg.norm(moved) == pytest.approx(whole, rel=1e-5) == 3 * query.sensitivity


def test_where_sites_clip_by_person_the_counts_are_still_those_of_all_rows():
    schema = SCHEMA.of_persons(Person("id", rows=4))
    setting = setting_of(schema)
    own = Query(Bins("age", (18, 90)).query(schema, "replace-one").blocks, ((1.0,),), 8.0, of_person=2.0)
    query = beside(own, setting, 1.0, laplace=False)
    scale = query.scales[-1][0]
    assert query.of_person == pytest.approx(math.hypot(2.0, 4 * math.sqrt(2) / scale), rel=1e-12)
    assert query.sensitivity == pytest.approx(math.hypot(8.0, math.sqrt(2) / scale), rel=1e-12)
    assert 1 - (2.0 / query.of_person) ** 2 == pytest.approx(0.005, rel=1e-9)


@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian", "conventional", "pooled"])
@pytest.mark.parametrize("columns", [1, 2, 10])
def test_the_counts_take_at_most_one_percent_of_a_release_and_its_price_stays(columns, scheme):
    names = [f"x{i}" for i in range(columns)]
    schema = Schema(dict.fromkeys(names, (0, 1)))
    analysis, setting = cape.Mean(*names), setting_of(schema)
    stages = Stages.of(analysis, setting, SCHEMES[scheme](), 0.5)
    session = AnalysisSession(analysis, stages)
    calibration, local_std = session.calibrate()
    assert stages.scheme.cost_mu(local_std, FIVE) == pytest.approx(BUDGET.cost(0.5).mu, rel=1e-9)
    assert session.price(1) == Fraction("0.5")
    without, _ = stages.calibrate(0, analysis.query(schema, "replace-one"))
    part = 1 - (without.local_noise / calibration.local_noise) ** 2
    assert part == pytest.approx(min(0.0025 * (columns + 1), MOST), rel=5e-3)


def test_under_laplace_noise_they_take_one_percent_of_epsilon():
    query, stages = first(setting=setting_of(noise="laplace"))
    own = stages.setting.asked(MEAN).query(SCHEMA, "replace-one")
    assert own.l1 / query.l1 == pytest.approx(1 - MOST, rel=1e-12)
    assert 4 / query.scales[-1][0] == pytest.approx(MOST * query.l1, rel=1e-12)


def test_a_short_first_stage_gives_up_a_twentieth_of_itself_at_most():
    query, _ = first(Rounds("age", (18.0, 50.0, 90.0), (1, 16)))
    assert 1 - 2 / query.sensitivity**2 == pytest.approx(0.05, rel=1e-12)
    query, _ = first(Rounds("age", (18.0, 50.0, 90.0), (1, 1)))
    assert 1 - 2 / query.sensitivity**2 == pytest.approx(0.01, rel=1e-12), "half a percent of the release"


@pytest.mark.filterwarnings("ignore")
def test_later_stages_and_samples_count_nothing():
    analysis = Rounds("age", (18.0, 50.0, 90.0), (1, 1))
    consortium = made(cells={"age": [200.0] * 50})
    release = consortium.release(analysis, 0.5)
    assert [[len(block) for block in answer.sums] for answer in analysis.answers] == [[1], [1]]
    assert len(release.outside) == 1
    sampled = Rounds("age", (18.0, 50.0, 90.0), (1, 1), sampling=0.5)
    assert not isinstance(first(sampled)[0].blocks[-1], OutsideBounds)
    assert made(cells={"age": [200.0] * 50}).release(sampled, 0.5).outside is None


@pytest.mark.filterwarnings("ignore")
def test_what_reads_no_numbers_is_asked_as_it_was():
    query, _ = first(cape.Count(sex="male"))
    assert query == cape.Count(sex="male").query(SCHEMA, "replace-one")
    assert made().release(cape.Count(sex="male"), 0.5).outside is None
    assert made().release(cape.Count(), 0.5).outside is None


def test_columns_of_conditions_and_of_derived_columns_are_counted_unless_they_cannot_lie_outside():
    schema = Schema(
        {
            **FULL,
            "days": (0, 100),
            "old": {"sql": "age >= 65"},
            "ratio": {"sql": "chol / age", "bounds": [1, 20]},
            "twice": {"sql": "2 * age"},
            "sex": ["female", "male"],
        }
    )

    def names(analysis, where=None):
        kept = schema if where is None else schema.only(where)
        return set(counted(analysis.query(kept, "replace-one"), kept))

    assert names(cape.Mean("ratio")) == {"ratio", "chol", "age"}
    assert names(cape.Mean("twice")) == {"age"}, "its bounds follow from those of age"
    assert names(cape.Count(old="yes")) == {"age"}
    assert names(cape.Count(sex="male"), "days > 30") == {"days"}


def made(cells=None, rows=50, scheme="none", schema=SCHEMA, **options):
    given = {"age": [50.0] * rows, "chol": [200.0] * rows, "sex": ["female"] * rows} | (cells or {})
    return cape.Consortium(
        {name: pl.DataFrame(given, strict=False) for name in "abcde"},
        schema,
        options.pop("budget", BUDGET),
        scheme=scheme,
        stream=SecureStream(b"outside bounds, for a test only!"),
        **options,
    )


@pytest.mark.filterwarnings("ignore")
def test_a_result_says_exactly_what_lies_outside_where_there_is_no_noise():
    release = made({"age": [600.0] * 20 + [10.0] + [50.0] * 29}).release(cape.Mean("age", "chol"), 0.5)
    assert [each.column for each in release.outside] == ["age", "chol"]
    assert release.notes()[:2] == [
        "age lies below 18 and counts as 18 in 2.0% of rows: are some in another unit, does 0 or a "
        "code such as -9 stand for missing ones, or are the bounds too narrow?",
        "age lies above 90 and counts as 90 in 40% of rows: are some in months or days, or are the bounds "
        "too narrow?",
    ]
    assert release.notes()[0] in str(release).replace("\n", " ").replace("  ", " ")
    found = release.to_dict()["outside"][0]
    assert (found["column"], found["bounds"], found["below"], found["above"]) == (
        "age",
        [18.0, 90.0],
        0.02,
        0.4,
    )
    assert (found["of"], found["among"], found["noise"]) == ("rows", 250.0, 0.0)
    assert release.notes() == release.to_dict()["notes"]
    quiet = made({"age": [600.0] + [50.0] * 199, "chol": [200.0] * 200, "sex": ["male"] * 200})
    assert not quiet.release(cape.Mean("age"), 0.5).notes(), "half a percent is nothing to say"


@pytest.mark.filterwarnings("ignore")
def test_where_sizes_are_private_shares_are_of_noisy_numbers_of_cells():
    rows = {"age": [600.0] * 600 + [50.0] * 400 + [None] * 1000, "chol": [1.0] * 2000, "sex": ["male"] * 2000}
    schema = Schema(age=(18, 90), chol=(100, 600), sex=["female", "male"])
    release = made(rows, scheme="cape", schema=schema, neighbours="add-remove").release(cape.Mean("age"), 1.0)
    (age,) = release.outside
    assert age.share(age.above) == pytest.approx(0.6, abs=0.2)
    low, high = age.interval(age.above)
    assert low < 0.6 < high
    assert "age lies above 90 and counts as 90 in about" in release.notes()[0]
    assert "of its cells (95% interval" in release.notes()[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_noise_in_the_counts_is_what_the_release_says(noise):
    """120 counts: half the noise, or twice as much, is rejected."""
    consortium = made({"age": [600.0] * 50}, scheme="conventional", noise=noise, budget=Budget(50.0, 1e-6))
    errors = []
    for _ in range(30):
        age, chol = consortium.release(MEAN, 1 / 32).outside
        errors += [age.above - 250, age.below, chol.above, chol.below]
    assert 0.7 < np.std(errors) / age.noise < 1.4


@pytest.mark.filterwarnings("ignore")
def test_a_site_that_is_lost_takes_noise_away_from_counts_too():
    whole = made({"age": [600.0] * 50}, scheme="conventional").release(MEAN, 0.5).outside[0]
    lost = made({"age": [600.0] * 50}, scheme="conventional", min_sites=4)
    (age, _) = lost.release(MEAN, 0.5, drop={"e": "message"}).outside
    assert age.among == 200
    assert age.noise < whole.noise


def test_a_plan_counts_the_noise_that_counts_of_cells_outside_cost():
    plan = make_plan(MEAN, setting_of(), make_scheme("cape"), 0.5, dict.fromkeys("abcde", 1000))
    release = made(rows=1000, scheme="cape").release(MEAN, 0.5)
    assert release.estimates[0].privacy == pytest.approx(plan.noise["age"]["cape"], rel=1e-3)
    stages = first()[1]
    bare = stages.calibrate(0, MEAN.query(SCHEMA, "replace-one"))[0].local_noise
    counting = stages.calibrate(0, stages.first(MEAN.query(SCHEMA, "replace-one")))[0].local_noise
    assert counting / bare == pytest.approx(1 / math.sqrt(1 - 0.0075), rel=1e-4)


def share_of(above, noise=0.0, *, among=1000.0, exact=True, law=GAUSSIAN, columns=1, name="age", **ends):
    low, high = ends.get("low", 18.0), ends.get("high", 90.0)
    return OutsideShare(name, low, high, False, among, exact, 0.0, above, noise, law, columns)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("law", [GAUSSIAN, Law(1.0)])
@pytest.mark.parametrize("columns", [1, 20])
def test_a_result_rarely_says_so_of_one_percent_outside_and_always_of_many(columns, law, exact):
    """Of all columns of a release together, in at most 1% of the releases; here on the very edge."""
    rng, runs, noise = np.random.default_rng(5), 1000, 30.0
    draw = rng.laplace if not law.gaussian else rng.normal
    size = noise / (math.sqrt(2) if not law.gaussian else 1)
    wrong = sure = 0
    for _ in range(runs // columns):
        above, rest = draw(0, size, (2, columns))
        for one, other in zip(above.tolist(), rest.tolist(), strict=True):
            among = 1000.0 if exact else 1000.0 + one + other
            wrong += share_of(10 + one, noise, among=among, exact=exact, law=law, columns=columns).is_large(
                10 + one
            )
            sure += share_of(500 + one, noise, among=among, exact=exact, law=law, columns=columns).is_large(
                500 + one
            )
    assert wrong / (runs // columns) <= 0.01 + 3 * math.sqrt(0.01 / (runs // columns))
    assert sure == runs // columns * columns


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("true", [0.02, 0.4])
def test_intervals_of_shares_cover(true, exact):
    rng, noise, covered = np.random.default_rng(6), 40.0, 0
    for _ in range(2000):
        below, within, above = rng.normal([0, 2000 * (1 - true), 2000 * true], noise)
        among = 2000.0 if exact else below + within + above
        low, high = share_of(above, noise, among=among, exact=exact).interval(above)
        covered += low <= true <= high
    assert 0.93 < covered / 2000 < 0.97


def test_what_noise_hides_is_no_share():
    few = share_of(30.0, 40.0, among=100.0, exact=False)
    assert few.share(30.0) is None
    assert few.interval(30.0) is None
    assert not few.is_large(30.0)
    assert few.to_dict()["above"] is None
    assert not sentences([few], SCHEMA)
    assert share_of(0.0, 0.0, among=0.0).share(0.0) is None, "of no rows"


@pytest.mark.parametrize(
    ("name", "ends", "share", "asked"),
    [
        ("age", (0, 120), 0.9, "are some in months or days, or are the bounds too narrow?"),
        ("height", (1.0, 2.2), 0.3, "are some in cm or in or mm, or are the bounds too narrow?"),
        ("x", (0, 50), 0.9, "are some in another unit, or are the bounds too narrow?"),
        (
            "x",
            (0, 50),
            0.1,
            "are some in another unit, does a code such as 999 stand for missing ones, or are the bounds too "
            "narrow?",
        ),
        ("x", (0, 1e6), 0.1, "are some in another unit, or are the bounds too narrow?"),
    ],
)
def test_a_reason_is_asked_where_bounds_allow_it(name, ends, share, asked):
    schema = Schema({name: ends})
    (said,) = sentences([share_of(1000 * share, name=name, low=ends[0], high=ends[1])], schema)
    assert said.endswith(f"of rows: {asked}")


@pytest.mark.parametrize(
    ("name", "ends", "share", "asked"),
    [
        (
            "chol",
            (100, 600),
            0.2,
            "are some in mmol/l, does 0 stand for missing ones, or are the bounds too narrow?",
        ),
        (
            "chol",
            (100, 600),
            0.9,
            "are some in mmol/l, does 0 stand for missing ones, or are the bounds too narrow?",
        ),
        (
            "x",
            (20, 80),
            0.9,
            "are some in another unit, does 0 stand for missing ones, or are the bounds too narrow?",
        ),
        ("visits", (1, 40), 0.9, "are some in another unit, or are the bounds too narrow?"),
        ("change", (-5, 5), 0.9, "are some in another unit, or are the bounds too narrow?"),
    ],
)
def test_below_bounds_that_begin_well_above_it_0_may_be_a_code(name, ends, share, asked):
    schema = Schema({name: ends})
    found = replace(share_of(0.0, name=name, low=ends[0], high=ends[1]), below=1000 * share)
    (said,) = sentences([found], schema)
    assert said.endswith(f"of rows: {asked}")


def test_days_and_derived_columns_have_reasons_of_their_own():
    schema = Schema(
        {
            "seen": Number("2020-01-01", "2020-12-31"),
            "bmi": (10, 60),
            "half": {"sql": "bmi / 2", "bounds": [6, 9]},
        }
    )
    seen = schema["seen"]
    found = OutsideShare("seen", seen.low, seen.high, True, 100.0, True, 20.0, 0.0, 0.0, GAUSSIAN, 2)
    assert sentences([found], schema) == [
        "seen lies below 2020-01-01 and counts as 2020-01-01 in 20% of rows: does a day far away stand for "
        "missing ones, or are the bounds too narrow?"
    ]
    assert found.to_dict()["bounds"] == ["2020-01-01", "2020-12-31"]
    assert sentences([share_of(100.0, name="half")], schema)[0].endswith("are the bounds too narrow?")
