from __future__ import annotations

import itertools
import math
import pickle
import re

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses import KINDS
from cape.analyses.synthetic import fit as synthetic_fit
from cape.analyses.synthetic.choices import (
    Coarse,
    choose_pairs,
    groups_of,
    many_groups,
    nearest_counts,
    scales_of,
    total_cells,
)
from cape.analyses.synthetic.fit import Network, drawn
from cape.analyses.synthetic.synthetic import SyntheticData
from cape.core.errors import InvalidInput, MissingExtra
from cape.data import Category, Number, Schema
from cape.engine.query import Answer
from cape.noise import SecureStream
from tests.checkout import ROOT
from tests.unit.analyses.slow_sums import exact, release, vectors

SCHEMA = Schema(
    age=Number(18, 90),
    sex=Category(("female", "male"), missing=False),
    pregnant=Category(("no", "yes"), missing=False),
    ward=Category(("A1", "A2", "B1"), missing=False),
    hospital=Category(("A", "B")),
)
ZEROS = [{"sex": "male", "pregnant": "yes"}, {"age": [18, 36], "ward": "B1"}]
WARDS = {"ward": {"hospital": {"A1": "A", "A2": "A", "B1": "B"}}}
ASKED = SyntheticData(list(SCHEMA), bins=8, impossible=ZEROS, determines=WARDS)


def codes(rows, seed=0):
    """Rows as arrays of numbers and codes: what the slow sums take."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, rows)
    age = np.clip(rng.normal(50 + 6 * sex, 14, rows), 18, 90)
    ward = np.where(age > 36, rng.integers(0, 3, rows), rng.integers(0, 2, rows))
    hospital = np.where(rng.random(rows) < 0.05, -1, ward // 2)
    pregnant = ((sex == 0) & (rng.random(rows) < 0.2)).astype(int)
    age[rng.random(rows) < 0.1] = np.nan
    return {"age": age, "sex": sex, "pregnant": pregnant, "ward": ward, "hospital": hospital}


def frame(rows, seed=0):
    """The same as a table of a site."""
    found = codes(rows, seed)
    named = {
        name: [None if code < 0 else SCHEMA.category(name).values[code] for code in found[name]]
        for name in ("sex", "pregnant", "ward", "hospital")
    }
    return pl.DataFrame({"age": pl.Series(found["age"]).fill_nan(None), **named})


def sites(rows=1000, budget=None, seed=1, **options):
    tables = {f"site {i}": frame(rows, 10 * seed + i) for i in range(3)}
    budget = budget or cape.Budget(3.0, 1e-6)
    stream = SecureStream(bytes([seed]) * 32)
    return cape.Consortium(tables, SCHEMA, budget, colluding=1, stream=stream, **options)


def conducted(asked, answers, neighbours="replace-one", schema=SCHEMA):
    """The queries of all stages, after these answers, each a function of a query's array shapes."""
    talk = asked.conduct(schema, neighbours)
    queries = [next(talk)]
    for make in answers:
        query = queries[-1]
        sums = tuple(tuple(make(array.shape) for array in block.arrays(schema)) for block in query.blocks)
        noise = tuple(tuple(3.0 * scale for scale in scales) for scales in query.scales)
        rows = 400 if neighbours == "replace-one" else None
        queries.append(talk.send(Answer(sums, noise, rows, schema)))
    return queries


WILD = {
    "nothing": np.zeros,
    "negative": lambda shape: np.full(shape, -1e6),
    "huge": lambda shape: np.full(shape, 1e15),
    "random": lambda shape: np.random.default_rng(3).normal(50, 100, shape),
}


@pytest.mark.one_in(3, seconds=0.2)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("wild", WILD)
def test_the_sensitivity_of_every_stage_holds_after_any_answer(neighbours, wild):
    queries = conducted(ASKED, [WILD[wild]] * 2, neighbours)
    table = codes(300)
    for query in queries:
        found = vectors(query, SCHEMA, table)
        squares = (found**2).sum(axis=1)
        far = squares.max()
        if neighbours == "replace-one":
            far = (squares[:, None] + squares[None, :] - 2 * found @ found.T).max()
        assert math.sqrt(far) <= query.sensitivity * (1 + 1e-12)
        assert math.sqrt(far) > 0.8 * query.sensitivity
        assert query.l1 is not None
        moved = np.abs(found).sum(axis=1).max() * (2 if neighbours == "replace-one" else 1)
        assert moved <= query.l1 * (1 + 1e-12)


def test_later_stages_ask_for_tables_of_two_columns_of_groups():
    first, second, third = conducted(ASKED, [WILD["random"]] * 2)
    assert [block.ways for query in (first, second, third) for block in query.blocks] == [1, 2, 2]
    assert len(second.blocks[0].tables) == 10
    assert set(third.blocks[0].tables) <= set(second.blocks[0].tables)
    for fine, coarse in zip(third.blocks[0].groups, second.blocks[0].groups, strict=True):
        within = {(a, b) for a, b in zip(fine, coarse, strict=True)}
        assert len(within) == max(fine) + 1, "a fine group lies within one coarse group"


def test_what_is_asked_follows_from_released_numbers_alone():
    again = [conducted(ASKED, [WILD["random"]] * 2) for _ in range(2)]
    assert again[0] == again[1]


def test_dependent_pairs_are_chosen_and_independent_ones_are_not():
    rng = np.random.default_rng(0)
    a, c = rng.integers(0, 4, 20000), rng.integers(0, 4, 20000)
    b = np.where(rng.random(20000) < 0.8, a, rng.integers(0, 4, 20000))
    columns = [a, b, c]
    tables = {}
    for i, j in itertools.combinations(range(3), 2):
        counts = np.histogram2d(columns[i], columns[j], bins=4)[0]
        tables[i, j] = counts + rng.normal(0, 30, (4, 4))
    single = tuple(np.bincount(column).astype(float) for column in columns)
    coarse = Coarse(20000.0, single, tables, dict.fromkeys(tables, 30.0))
    assert choose_pairs(coarse, [4, 4, 4], 20.0, ()) == [(0, 1)]


def test_a_model_stays_small_however_strongly_columns_go_together():
    rng = np.random.default_rng(1)
    same = rng.integers(0, 20, 50000)
    tables = {pair: np.diag(np.bincount(same).astype(float)) for pair in itertools.combinations(range(8), 2)}
    for table in tables.values():
        table += rng.normal(0, 1, table.shape)
    single = tuple(np.bincount(same).astype(float) for _ in range(8))
    coarse = Coarse(50000.0, single, tables, dict.fromkeys(tables, 1.0))
    chosen = choose_pairs(coarse, [20] * 8, 1.0, ())
    assert len(chosen) >= 7
    assert total_cells(chosen, [20] * 8) <= 6000


def test_common_values_stay_alone_and_facts_keep_values_apart():
    shares = np.array([0.02, 0.02, 0.6, 0.02, 0.02, 0.3, 0.02])
    apart = [0, 0, 0, 0, 0, 0, 0]
    assert groups_of(shares, 5, apart, ordered=True) == (0, 0, 1, 2, 2, 3, 4)
    free = groups_of(shares, 3, apart, ordered=False)
    assert free.count(free[2]) == free.count(free[5]) == 1
    kept = groups_of(shares, 2, [0, 0, 0, 1, 1, 2, 2], ordered=True)
    assert kept == (0, 0, 0, 1, 1, 2, 2)
    assert groups_of(shares[:3], 5, apart[:3], ordered=True) == (0, 1, 2)
    mixed = groups_of(shares, 3, [0, 1, 0, 1, 0, 1, 0], ordered=False)
    assert all(mixed[i] != mixed[j] for i in (0, 2, 4, 6) for j in (1, 3, 5))


def test_more_noise_means_fewer_groups():
    many = [many_groups([100, 2, 2, 50], 10000, noise)[0] for noise in (1.0, 10.0, 100.0, 1e6)]
    assert many == sorted(many, reverse=True)
    assert many[0] == 24
    assert many[-1] == 2
    assert many_groups([100, 2], 10000, 10.0)[0] > many_groups([100, 100], 10000, 10.0)[0]


def test_scales_make_the_sum_of_distances_least():
    cells = np.array([2.0, 30.0, 500.0])
    scales = np.array(scales_of([2, 30, 500]))

    def total(scales):
        return (cells * scales).sum() * math.sqrt((scales**-2.0).sum())

    rng = np.random.default_rng(0)
    assert all(total(scales) <= total(scales * rng.uniform(0.7, 1.4, 3)) + 1e-9 for _ in range(200))


def test_counts_are_brought_to_the_nearest_that_are_possible():
    found = nearest_counts(np.array([5.0, -3.0, 9.0, 0.5]), 10.0)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(10)
    assert found.tolist() == pytest.approx([3.0, 0.0, 7.0, 0.0])


def by_hand(rng=None):
    """A network of three columns from potentials that are known, and their joint shares."""
    rng = rng or np.random.default_rng(2)
    sizes = (2, 3, 4)
    potentials = {(0, 1): rng.normal(size=(2, 3)), (1, 2): rng.normal(size=(3, 4)), (0,): rng.normal(size=2)}
    joint = np.exp(potentials[0, 1][:, :, None] + potentials[1, 2][None] + potentials[0,][:, None, None])
    joint[1, 2] = 0.0
    possible = {(0, 1): np.array([[True, True, True], [True, True, False]])}
    return Network.of(sizes, potentials, possible), joint / joint.sum()


def test_a_network_has_the_tables_of_its_potentials_and_its_facts():
    network, joint = by_hand()
    assert network.table((0, 1)) == pytest.approx(joint.sum(axis=2))
    assert network.table((2, 0)) == pytest.approx(joint.sum(axis=1).T)
    assert network.table((1,)) == pytest.approx(joint.sum(axis=(0, 2)))
    assert network.table((0, 1))[1, 2] == 0


def test_drawn_rows_have_the_networks_shares():
    network, joint = by_hand()
    groups = network.draw(200_000, np.random.default_rng(0))
    found = np.zeros((2, 3, 4))
    np.add.at(found, tuple(groups), 1 / 200_000)
    error = np.abs(found - joint).max()
    assert error < 0.0015
    assert found[1, 2].sum() == 0


def test_even_rows_meet_shares_to_within_a_row():
    shares = np.array([[0.25, 0.75], [0.5, 0.5]])
    given = np.repeat([0, 1], [400, 100])
    found = drawn(shares, given, np.random.default_rng(0))
    assert abs(found[given == 0].sum() - 300) <= 1
    assert abs(found[given == 1].sum() - 50) <= 1


@pytest.fixture(scope="module")
def fitted():
    """A release whose model is given its potentials, as if it had been fitted: mbi is slow to load."""
    found = sites().release(ASKED, 1.0)
    measured = found.model.measured
    potentials = {}
    for each in measured.measurements():
        if len(each.columns) == 2:
            table = np.maximum(each.counts, 1.0)
            potentials[each.columns] = np.log(table / table.sum())
    vars(found.model)["potentials"] = potentials
    return found


def test_rows_respect_schema_and_facts(fitted):
    rows = fitted.model.sample(3000, seed=4)
    assert rows.columns == list(SCHEMA)
    assert rows.equals(fitted.model.sample(3000, seed=4))
    assert not rows.equals(fitted.model.sample(3000, seed=5))
    assert rows["age"].drop_nulls().is_between(18, 90).all()
    assert rows["age"].null_count() > 0
    assert set(rows["sex"]) == {"female", "male"}
    assert rows.filter((pl.col("sex") == "male") & (pl.col("pregnant") == "yes")).is_empty()
    assert rows.filter((pl.col("age") < 36) & (pl.col("ward") == "B1")).is_empty()
    known = rows.drop_nulls("hospital")
    assert (known["hospital"] == known["ward"].str.slice(0, 1)).all()
    assert len(fitted.model.sample()) == 3000, "as many as there are"


def test_a_table_of_the_model_is_that_of_its_rows(fitted):
    table = fitted.model.table("sex", "ward")
    assert table.sum() == pytest.approx(3000)
    rows = fitted.model.sample(60_000, seed=1)
    share = rows.filter((pl.col("sex") == "male") & (pl.col("ward") == "A1")).height / 60_000
    assert share == pytest.approx(table[1, 0] / 3000, abs=0.01)
    with pytest.raises(InvalidInput, match="did you mean 'ward'"):
        fitted.model.table("wards")


def test_an_evaluation_says_which_tables_are_trustworthy(fitted):
    found = fitted.model.evaluate(within=0.2)
    assert found.height == 5 + 10
    assert found["noise"].is_between(0, 1).all()
    assert found.filter(pl.col("misfit").is_null()).height == 5
    strict = fitted.model.evaluate(within=1e-9)
    assert not strict["trustworthy"].any()
    assert found["trustworthy"].sum() > 0


def test_a_release_shows_its_associations_and_serialises(fitted):
    said = str(fitted)
    assert "strongest associations" in said
    assert "not exact" in said
    strongest = fitted.model.associations[0]
    assert strongest.pair in {(1, 2), (3, 4)}
    (figure,) = fitted.figures()
    assert len(figure.panels[0].rows) == 5
    told = fitted.to_dict()["model"]
    assert len(told["pairs"]) == 10 + len(fitted.model.measured.chosen.tables)
    assert set(told["columns"]) == set(SCHEMA)
    copied = pickle.loads(pickle.dumps(fitted.model))
    assert copied.sample(10, seed=1).equals(fitted.model.sample(10, seed=1))


def test_without_the_extra_nothing_is_spent(monkeypatch):
    monkeypatch.setattr(synthetic_fit, "find_spec", lambda name: None)
    consortium = sites()
    with pytest.raises(MissingExtra, match=r"cape-dp\[synthetic\]"):
        consortium.release(ASKED, 0.5)
    assert consortium.budget.spent == 0
    assert ASKED.conduct(SCHEMA, "replace-one") is not None, "a site fits no model, and needs no extra"


def test_a_study_file_can_say_every_fact():
    from cape.analyses.registry import build

    assert build(ASKED.to_dict()) == ASKED
    cut = SyntheticData(["age", "sex"], 50, edges={"age": [18, 40, 90]})
    assert build(cut.to_dict()) == cut
    some = SyntheticData(["age", "sex"], bins={"age": 5})
    assert build(some.to_dict()) == some


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: SyntheticData(["age"]), "at least 2 columns"),
        (lambda: SyntheticData(["age", "age"]), "named twice"),
        (lambda: SyntheticData(["age", "sex"], 0), "rows must be"),
        (lambda: SyntheticData(["age", "sex"], impossible={"sex": "male"}), "a list of cells of two columns"),
        (
            lambda: SyntheticData(["age", "sex"], impossible=[{"sex": "male"}]),
            "a list of cells of two columns",
        ),
        (lambda: SyntheticData(["age", "sex"], impossible=[{"sex": "m", "ward": "A1"}]), "names 'ward'"),
        (lambda: SyntheticData(["age", "sex"], impossible=[{"age": [1], "sex": "m"}]), "two bounds"),
        (lambda: SyntheticData(["age", "sex"], determines={"sex": "ward"}), "say it by column"),
        (lambda: SyntheticData(["age", "sex"], determines={"sex": {"sex": {}}}), "determine itself"),
        (lambda: SyntheticData([f"c{i}" for i in range(101)]), "at most 100 columns"),
    ],
)
def test_what_is_wrong_whatever_the_schema_is_refused_at_once(wrong, said):
    with pytest.raises(InvalidInput, match=said):
        wrong()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (SyntheticData(["sex", "age"], impossible=[{"sex": "man", "age": [18, 90]}]), "no category 'man'"),
        (SyntheticData(["sex", "age"], impossible=[{"sex": "male", "age": [50, 51]}]), "no bin of 'age'"),
        (SyntheticData(["sex", "age"], impossible=[{"sex": "male", "age": "old"}]), "two bounds"),
        (SyntheticData(["sex", "age"], impossible=[{"sex": "male", "age": [18, 90]}] * 2), None),
        (SyntheticData(["ward", "sex"], determines={"ward": {"sex": {"A1": "male"}}}), "for 'A2', too"),
        (
            SyntheticData(
                ["sex", "pregnant"],
                impossible=[{"sex": "male", "pregnant": "yes"}, {"sex": "male", "pregnant": "no"}],
            ),
            "leave a value",
        ),
        (SyntheticData(["sex", "agee"]), "did you mean 'age'"),
        (SyntheticData(["sex", "age"], bins=2000), "more than 1,024"),
        (SyntheticData(["sex", "age"], edges={"age": [0, 40, 90]}), "within its bounds"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused_before_anything_is_asked(asked, said):
    if said is None:
        asked.query(SCHEMA, "replace-one")
        return
    with pytest.raises(InvalidInput, match=said):
        asked.query(SCHEMA, "replace-one")


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_the_counts_of_each_column_are_released(neighbours):
    data = codes(3000)
    found = release(ASKED, SCHEMA, data, np.random.default_rng(0), neighbours=neighbours, mu=0)
    assert found["sex=male"].value == (data["sex"] == 1).sum()
    assert found["age missing"].value == np.isnan(data["age"]).sum()
    noisy = release(ASKED, SCHEMA, data, np.random.default_rng(0), neighbours=neighbours)
    assert noisy["sex=male"].privacy > 1


def test_persons_with_several_rows_and_conditions_are_counted_once_each():
    people = pl.concat([frame(200), frame(200)]).with_columns(
        patient=pl.Series([f"p{i % 200}" for i in range(400)])
    )
    asked = SyntheticData(["sex", "ward"], where="age >= 40")
    consortium = cape.Consortium(
        {"a": people, "b": people.clone(), "c": people.clone()},
        SCHEMA,
        cape.Budget(1000.0, 1e-6),
        colluding=0,
        person={"id": "patient", "rows": 2},
        stream=SecureStream(b"1" * 32),
    )
    found = consortium.release(asked, 1.0)
    wanted = 3 * people.filter(pl.col("age") >= 40).height
    assert found.rows is None
    assert found.model.measured.rows == pytest.approx(wanted, rel=0.05)


@pytest.mark.slow(1)
def test_the_plan_says_what_each_stage_measures():
    plan = sites().plan(ASKED, 0.5)
    said = str(plan)
    assert "all pairs, coarsely" in said
    assert "pairs that matter" in said
    data = codes(3)
    assert exact(ASKED.query(SCHEMA, "replace-one"), SCHEMA, data)


@pytest.mark.slow(20)
def test_a_fit_without_noise_has_the_tables_of_the_rows():
    tables = {f"site {i}": frame(20_000, i) for i in range(3)}
    consortium = cape.Consortium(tables, SCHEMA, cape.Budget(1.0, 1e-6), colluding=1)
    with pytest.warns(cape.PrivacyLeakWarning):
        found = consortium.release(ASKED, 1.0, scheme="none")
    rows = pl.concat(tables.values())
    for one, other in (("sex", "pregnant"), ("ward", "hospital"), ("sex", "ward")):
        table = found.model.table(one, other)
        for i, first in enumerate(SCHEMA.category(one).values):
            for j, second in enumerate(SCHEMA.category(other).values):
                wanted = rows.filter((pl.col(one) == first) & (pl.col(other) == second)).height
                assert table[i, j] == pytest.approx(wanted, abs=600), (one, first, other, second)
    drawn_rows = found.model.sample()
    assert drawn_rows["age"].mean() == pytest.approx(rows["age"].mean(), abs=0.5)
    assert drawn_rows.filter((pl.col("sex") == "male") & (pl.col("pregnant") == "yes")).is_empty()
    assert found.model.evaluate()["trustworthy"].all()


@pytest.mark.slow(20)
def test_intervals_count_people_noise_and_synthesis():
    found = sites(2000, cape.Budget(1.0, 1e-6)).release(SyntheticData(["age", "sex", "ward"], bins=8), 1.0)

    def share(rows):
        return (rows["sex"] == "male").mean()

    one = cape.synthetic.combine(share, found, m=8, seed=1)
    low, high = one.interval()
    assert low < 0.5 < high
    sampling = math.sqrt(0.25 / 6000)
    noise = found.model.measured.singles.noise[1,] / 6000
    assert 0.3 * math.hypot(sampling, noise) < one.standard_error < 3 * math.hypot(sampling, noise)
    assert one == cape.synthetic.combine(share, found, m=8, seed=1)
    both = cape.synthetic.combine(lambda rows: {"male": share(rows), "age": rows["age"].mean()}, found, m=5)
    assert set(both) == {"male", "age"}
    assert both["age"].interval(0.5)[0] > both["age"].interval(0.99)[0]


def test_combine_refuses_what_it_cannot_repeat(fitted):
    with pytest.raises(InvalidInput, match="release must be one of SyntheticData"):
        cape.synthetic.combine(len, "release")
    with pytest.raises(InvalidInput, match="m must be"):
        cape.synthetic.combine(len, fitted, m=2)
    with pytest.raises(InvalidInput, match="f must be a function"):
        cape.synthetic.combine("mean", fitted)
    with pytest.raises(InvalidInput, match="f's value"):
        cape.synthetic.combine(lambda rows: "many", fitted, m=5, rows=10)
    names = itertools.count()
    with pytest.raises(InvalidInput, match="same names"):
        cape.synthetic.combine(lambda rows: {str(next(names)): 1.0}, fitted, m=5, rows=10)


def test_the_page_of_analyses_says_of_every_kind_whether_to_release_it_directly():
    page = (ROOT / "docs" / "analyses.md").read_text()
    section = page[page.index("## Direct release, or synthetic rows?") :]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    told = {kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row)}
    assert {made.kind for made in KINDS.values() if made.__module__.startswith("cape.")} <= told
