"""What a person with several rows, at several sites, costs: noise, price and words count it exactly."""

from __future__ import annotations

import math
import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses.registry import KINDS, build
from cape.blocks import Moments
from cape.blocks.table import Table
from cape.core.errors import DataError, InvalidInput, PrivacyLeakWarning
from cape.data import Person, Schema
from cape.data.readers import FrameReader
from cape.engine.calibration import RESOLUTION
from cape.engine.schemes import SCHEMES, Parties
from cape.engine.stages import Setting, Stages
from cape.noise import SecureStream
from cape.privacy import Budget

SCHEMA = Schema(age=(18, 90), chol=(100, 600), sex=["female", "male"])
BUDGET = Budget(1.0, 1e-6)
FIVE = Parties(5, 1, 4)
MEAN = cape.Mean("age", "chol")
# how many times as much noise a site needs for a person at 2 sites as for one at 1, squared
AT_TWO = {
    "cape": 4.0,
    "cape-gaussian": (2 / 6 + (4 / 3) * (1 - 1 / 6)) / (1 / 6 + (1 / 3) * (1 - 1 / 6)),
    "conventional": 4.0,  # two other sites may gain the person
    "local": 1.0,
    "pooled": 4.0,
}


def calibrated(person, scheme="cape", analysis=MEAN, parties=FIVE, neighbours="replace-one"):
    setting = Setting(SCHEMA.of_persons(person), BUDGET, parties, neighbours)
    stages = Stages.of(analysis, setting, SCHEMES[scheme](), 0.5)
    query = analysis.query(stages.setting.schema, neighbours)
    return query, *stages.calibrate(0, query)


@pytest.mark.parametrize("scheme", AT_TWO)
@pytest.mark.parametrize("rows", [2, 4])
def test_noise_grows_exactly_with_the_rows_of_a_person(scheme, rows):
    one, four = (calibrated(Person("id", rows=k, sites=2), scheme)[1] for k in (1, rows))
    assert four.local_noise == rows * one.local_noise


@pytest.mark.parametrize("scheme", AT_TWO)
def test_noise_grows_with_the_sites_of_a_person_as_the_scheme_lets_them_add_up(scheme):
    mu = BUDGET.cost(0.5).mu
    kind = SCHEMES[scheme]()
    stds = [kind.local_std(mu, Parties(5, 1, 4, sites)) for sites in (1, 2)]
    assert (stds[1] / stds[0]) ** 2 == pytest.approx(AT_TWO[scheme], rel=1e-12)
    assert kind.cost_mu(stds[1], Parties(5, 1, 4, 2)) == pytest.approx(mu, rel=1e-12)
    if scheme != "local":
        assert kind.cost_mu(stds[0], Parties(5, 1, 4, 2)) > 1.3 * mu  # a wrong factor is noticed


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("rows", [1, 4])
def test_no_person_moves_the_rounded_sums_further_than_was_paid_for(rows, sites):
    """Rounding happens at each site: q times as much of it as of the rest is counted."""
    query, calibration, local_std = calibrated(Person("id", rows=rows, sites=sites))
    entries = calibration.size
    moved = (
        rows * query.sensitivity / calibration.local_noise + math.sqrt(entries) * (1 + 2.0**-9) / RESOLUTION
    )
    assert moved * local_std == pytest.approx(1.0, rel=1e-12)
    kind = SCHEMES["cape"]()
    assert kind.cost_mu(1 / moved, Parties(5, 1, 4, sites)) == pytest.approx(BUDGET.cost(0.5).mu, rel=1e-9)


def test_a_person_is_at_no_more_sites_than_there_are():
    with pytest.raises(InvalidInput, match="a person may appear at 6 sites, but there are only 5"):
        calibrated(Person("id", sites=6))


def test_samples_of_rows_need_one_row_a_person():
    network = cape.NeuralNetwork(target="sex", features=("age",), epochs=1, sampling=0.5)
    for person in (Person("id", rows=2), Person("id", sites=2)):
        with pytest.raises(InvalidInput, match="needs one row per person, at one site"):
            calibrated(person, analysis=network)


def test_the_statement_names_the_person_and_the_numbers():
    setting = Setting(SCHEMA.of_persons(Person("id", rows=4, sites=2)), BUDGET, FIVE, "replace-one")
    said = setting.guarantee(SCHEMES["cape"](), 0.5)
    assert "all of one person's rows at 2 sites are replaced" in said.statement
    assert "at most 4 count at a site" in said.statement
    assert "each person is at 2 sites or fewer, under one id" in said.statement
    assert "sizes of sites public" not in said.statement
    assert said.to_dict()["person"] == {"id": "id", "rows": 4, "sites": 2, "take": "random"}
    assert said.mu == pytest.approx(BUDGET.cost(0.5).mu)


ROWS = 4
CELLS = {
    "age": [18.0, 90.0, 54.0, None],
    "chol": [100.0, 600.0, 350.0, None],
    "sex": ["female", "male", None],
    "disease": ["no", "yes", None],
}
OPEN = Schema(age=(18, 90), chol=(100, 600), sex=["female", "male"], disease=["no", "yes"]).of_persons(
    Person("id", rows=ROWS)
)


def frame(person, rng):
    """Three others with a row each, and one person's rows, none to six of them: some have to be left out."""
    rest = [(f"other {i}", 40.0 + i, 200.0, "male", "no") for i in range(3)]
    mine = [("me", *(rng.choice(np.array(cells, object)) for cells in CELLS.values())) for _ in range(person)]
    kinds = {"id": pl.String, "age": pl.Float64, "chol": pl.Float64, "sex": pl.String, "disease": pl.String}
    return pl.DataFrame([*rest, *mine], schema=kinds, orient="row")


def moved(query, one, two):
    """How far two tables' sums are apart, each array divided by its scale and unit."""
    sums = [
        [part for parts in Table("a", each, OPEN, key=b"k").sums(query.blocks) for part in parts]
        for each in (one, two)
    ]
    total = 0.0
    for first, second, array, scale in zip(*sums, query.arrays(OPEN), query.flat_scales, strict=True):
        away = (second - first).astype(float) * 2.0**-array.bits / scale
        total += float((away * away).sum())
    return math.sqrt(total)


@pytest.mark.one_in(4, seconds=0.2)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_person_moves_the_sums_of_any_analysis_by_more_than_rows_times_what_a_row_does(kind):
    extra = {"rows": 10} if kind in ("neural-network",) else {}
    analysis = build({"kind": kind, **KINDS[kind].example, **extra})
    query = analysis.query(OPEN, "replace-one")
    rng = np.random.default_rng(len(kind))
    assert query.blocks
    for _ in range(12):
        one, two = (frame(int(rng.integers(0, 7)), rng) for _ in range(2))
        assert moved(query, one, two) <= ROWS * query.sensitivity * (1 + 1e-9)


def test_a_person_with_opposite_rows_moves_a_mean_by_all_that_is_counted():
    """A factor of 3 instead of 4 would be noticed, and so would a choice of 5 rows."""
    query = cape.Mean("age").query(OPEN, "replace-one")
    rest = [("other", 40.0, 200.0, "male", "no")]
    kinds = ["id", *CELLS]
    one, two = (
        pl.DataFrame([*rest, *[("me", age, 200.0, "male", "no")] * 6], schema=kinds, orient="row")
        for age in (18.0, 90.0)
    )
    assert moved(query, one, two) == pytest.approx(ROWS * query.sensitivity, rel=1e-5)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")  # nearly always: noise decides
def test_numbers_of_rows_are_private_and_asked_for():
    rng = np.random.default_rng(4)
    tables = {name: frame(6, rng) for name in "abc"}
    kept = cape.Consortium(tables, SCHEMA, BUDGET, person=Person("id", rows=4), colluding=1)
    assert kept.release(cape.Count(), 0.1).rows is None
    assert kept.plan(cape.Count(), 0.1).noise["rows"]["cape"] > 0
    assert kept.release(cape.TableOne("age"), 0.1).rows is None
    public = cape.Consortium(tables, SCHEMA, BUDGET, person={"id": "id"}, colluding=1)
    counted = public.release(cape.Count(), 0.1)
    assert (counted.rows, counted.value, counted.share) == (12, 12.0, 0.0)


def test_the_same_stream_chooses_the_same_rows():
    rng = np.random.default_rng(9)
    tables = {name: frame(6, rng) for name in "abc"}

    def answer(key):
        stream = SecureStream(key.ljust(32, b"."))
        person = Person("id", rows=1)
        consortium = cape.Consortium(tables, SCHEMA, BUDGET, person=person, colluding=1, stream=stream)
        return consortium.release(cape.Mean("age"), 0.5, scheme="none").value

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # scheme "none" adds no noise
        answers = {key: answer(key) for key in (b"a", b"b", b"c", b"d")}
        assert answers == {key: answer(key) for key in answers}
    assert len(set(answers.values())) > 1


def test_rows_that_came_in_another_order_have_no_sum():
    class Shuffled(FrameReader):
        turned = False

        def batches(self, columns, rows):
            Shuffled.turned = not Shuffled.turned
            frame = self._frame.select(*columns)
            yield (frame[::-1] if Shuffled.turned else frame).to_native()

    table = Table("a", frame(6, np.random.default_rng(2)), OPEN)
    table._engine._reader = Shuffled(table._opened._frame)
    with pytest.raises(DataError, match="in another order, or changed"):
        table.sums(cape.Mean("age").query(OPEN, "replace-one").blocks)


def test_a_file_that_was_changed_is_chosen_from_again(tmp_path):
    path = tmp_path / "a.csv"
    table = Table(
        "a",
        path.write_text("id,age\np,20\np,30\n") and path,
        Schema(age=(18, 90)).of_persons(Person("id", rows=1)),
    )
    query = cape.Count("age").query(OPEN, "replace-one")

    def count():
        ((found,),) = table.sums(query.blocks)
        return int(found[0] if found.ndim else found)

    assert (count(), table.rows()) == (1, 1)
    path.write_text("id,age\nq,20\np,20\np,30\nr,40\n")
    assert (count(), table.rows()) == (3, 3)


def test_the_id_is_in_no_error_and_no_message():
    table = pl.DataFrame({"id": ["secret-id", "secret-id"], "age": ["x", "y"]})
    with pytest.raises(DataError) as caught:
        Table("a", table, SCHEMA.of_persons(Person("id", rows=2))).sums(
            cape.Mean("age").query(SCHEMA, "replace-one").blocks
        )
    assert "secret-id" not in str(caught.value)


def test_rows_are_chosen_among_those_that_match():
    """The order of `where` and of the choice: first which rows match, then at most so many of each person."""
    made = {"id": ["p"] * 6, "age": [20.0, 80.0, 81.0, 30.0, 82.0, None], "chol": [100.0] * 6}
    table = pl.DataFrame(made | {"sex": ["male"] * 6})
    person = Person("id", rows=2)
    for where, expected in (("age >= 65", 2), ("age < 25", 1), ("age > 85", 0), ("age is null", 1)):
        schema = SCHEMA.of_persons(person).only(where)
        query = cape.Count().query(schema, "replace-one")
        ((count,),) = Table("a", table, SCHEMA).of(schema).sums(query.blocks)
        assert int(count) == expected
    first = SCHEMA.of_persons(Person("id", row={"take": "latest", "by": "age"})).only("age < 81")
    ((count,),) = Table("a", table, SCHEMA).of(first).sums(cape.Count().query(first, "replace-one").blocks)
    assert int(count) == 0, "the row of a person is made before where is looked at: it is the one of age 82"


def test_a_site_makes_one_row_of_all_of_a_persons():
    schema = Schema(age=(18, 90), n=(0, 40), oldest=(18, 90)).of_persons(
        Person("id", row={"take": "earliest", "by": "age", "n": "count(*)", "oldest": "max(age)"})
    )
    table = pl.DataFrame({"id": [1, 2, 1, 1, None], "age": [30.0, 50.0, 40.0, 200.0, 60.0]})
    ((counts, sums, _),) = Table("a", table, schema).sums((Moments(("age", "n", "oldest")),))
    assert counts.tolist() == [2, 2, 2]
    found = [
        float(s) * 2.0**-20 * schema.number(name).half + 2 * schema.number(name).middle
        for s, name in zip(sums, schema, strict=True)
    ]
    assert found == pytest.approx([30 + 50, 3 + 1, 90 + 50], abs=1e-3)
