"""Which rows of a person count: at most so many, by that person's rows alone, in any parts."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter, defaultdict
from datetime import datetime
from decimal import Decimal

import duckdb
import numpy as np
import polars as pl
import pytest

from cape.blocks import Moments
from cape.blocks.persons import Choice, Digest, as_texts, count_persons
from cape.blocks.table import Table
from cape.data import Database, Person, Schema
from cape.data.databases.dialects import DIALECTS
from cape.data.readers import from_values

KEY = b"a secret of this site's own....."
COLUMNS = {"x": (0, 10), "at": (0, 100), "n": (0, 50), "some": (0, 50), "least": (0, 10), "most": (0, 10)}
COLUMNS |= {"total": (0, 500), "mean": (0, 10)}
INNER = ("row", "order", "tie", "rows", "place", "before", "n x", "x y", "cell x", "made x", "id")
ROW = {"n": "count(*)", "some": "count(x)", "least": "min(x)", "most": "max(x)", "total": "sum(x)"}
ROW |= {"mean": "avg(x)"}


def choose(person, ids, cells=None, matches=None, parts=7, key=KEY, at_once=None, monkeypatch=None):
    choice = Choice(Schema(COLUMNS).of_persons(person), key)
    for start in range(0, len(ids), parts):
        part = slice(start, start + parts)
        choice.add(
            as_texts(pl.Series(ids[part])),
            {name: column[part] for name, column in (cells or {}).items()},
            None if matches is None else matches[part],
        )
    return choice.result()


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 40, 300)
    x = rng.uniform(-1, 11, 300)
    x[rng.random(300) < 0.2] = np.nan
    at = rng.integers(0, 30, 300).astype(float)  # with ties
    at[rng.random(300) < 0.1] = np.nan
    return ids, {"x": x, "at": at}


@pytest.fixture(params=[1, 25, 1 << 20])
def often(request, monkeypatch):
    """Rows are grouped after every part, sometimes, or once."""
    monkeypatch.setattr("cape.blocks.persons._AT_ONCE", request.param)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("parts", [19, 300])
def test_at_most_so_many_rows_of_each_person_count_and_no_fewer(table, parts):
    ids, cells = table
    for rows in (1, 3):
        chosen = choose(Person("id", rows=rows), ids, cells, parts=parts).flags(0, 300)
        counts, held = Counter(ids[chosen].tolist()), Counter(ids.tolist())
        assert counts == {each: min(rows, many) for each, many in held.items()}


@pytest.mark.usefixtures("often")
def test_parts_make_no_difference(table):
    ids, cells = table
    for person in (Person("id", rows=3), Person("id", rows=2, take="earliest", by="at")):
        found = [choose(person, ids, cells, parts=parts).flags(0, 300) for parts in (3, 64, 300)]
        assert (found[0] == found[1]).all()
        assert (found[0] == found[2]).all()


def test_the_latest_rows_are_taken_and_those_without_a_date_last(table):
    ids, cells = table
    for take, sign in (("latest", -1), ("earliest", 1)):
        chosen = choose(Person("id", rows=2, take=take, by="at"), ids, cells).flags(0, 300)
        ranked = np.where(np.isnan(cells["at"]), math.inf, sign * cells["at"])
        for each in set(ids.tolist()):
            mine = ids == each
            taken, left = ranked[mine & chosen], ranked[mine & ~chosen]
            assert not len(left) or taken.max() <= left.min()


def test_the_choice_looks_at_that_persons_rows_alone(table):
    ids, cells = table
    for person in (Person("id", rows=2), Person("id", rows=2, take="latest", by="at")):
        before = choose(person, ids, cells).flags(0, 300)
        # one person gets other rows, more of them, in front of everybody else's
        mine = ids == 7
        other = np.concatenate([np.full(25, 7), ids[~mine]])
        moved = {name: np.concatenate([np.zeros(25), column[~mine]]) for name, column in cells.items()}
        after = choose(person, other, moved, parts=11).flags(0, len(other))
        assert (after[25:] == before[~mine]).all()
        assert after[:25].sum() == 2


def test_only_rows_that_match_are_chosen_among(table):
    ids, cells = table
    matches = np.asarray(cells["at"] > 15)
    chosen = choose(Person("id", rows=2), ids, cells, matches).flags(0, 300)
    assert not (chosen & ~matches).any()
    held = Counter(ids[matches].tolist())
    assert Counter(ids[chosen].tolist()) == {each: min(2, many) for each, many in held.items()}


def test_rows_without_an_id_count_for_nobody():
    ids = pl.Series(["a", None, "a", "b", None, ""])
    choice = Choice(Schema(COLUMNS).of_persons(Person("id", rows=9)), KEY)
    choice.add(as_texts(ids), {})
    assert choice.result().flags(0, 6).tolist() == [True, False, True, True, False, False]


def test_every_row_counts_as_often_and_another_key_chooses_others():
    people = 4000
    ids = np.repeat(np.arange(people), 8)
    chosen = [
        choose(Person("id", rows=2), ids, parts=8 * people, key=key).flags(0, len(ids)) for key in (KEY, b"")
    ]
    assert (chosen[0] != chosen[1]).any()
    counts = chosen[0].reshape(people, 8).sum(axis=0)
    assert counts.sum() == 2 * people
    # the chance of each row is 1/4: 6 standard deviations
    assert np.abs(counts - people / 4).max() < 6 * math.sqrt(people * 3 / 16)


@pytest.mark.one_in(3, seconds=0.2)
@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("parts", [17, 64, 300])
def test_one_row_is_made_of_all_of_a_persons(table, parts):
    ids, cells = table
    chosen = choose(Person("id", row={"take": "latest", "by": "at", **ROW}), ids, cells, parts=parts)
    flags = chosen.flags(0, 300)
    mine = defaultdict(list)
    for each, value in zip(ids.tolist(), cells["x"].tolist(), strict=True):
        mine[each].append(value)
    found = {name: np.concatenate([chosen.cells(0, 90)[name], chosen.cells(90, 210)[name]]) for name in ROW}
    for place, each in enumerate(ids[flags].tolist()):
        held = [min(max(value, 0.0), 10.0) for value in mine[each] if not math.isnan(value)]
        assert found["n"][place] == len(mine[each])
        assert found["some"][place] == len(held)
        assert found["least"][place] == (min(held) if held else pytest.approx(math.nan, nan_ok=True))
        assert found["most"][place] == (max(held) if held else pytest.approx(math.nan, nan_ok=True))
        assert found["total"][place] == pytest.approx(math.fsum(held) if held else math.nan, nan_ok=True)
        average = math.fsum(held) / len(held) if held else math.nan
        assert found["mean"][place] == pytest.approx(average, nan_ok=True)
    whole = choose(Person("id", row={"take": "latest", "by": "at", **ROW}), ids, cells, parts=300)
    for name in ROW:  # to the bit, in whichever parts
        np.testing.assert_array_equal(found[name], whole.columns[name])


def test_ids_are_compared_as_they_stand():
    assert as_texts(pl.Series([1.0, 2.5, None, math.nan])).to_list() == ["1", "2.5", None, None]
    assert as_texts(pl.Series([1, 2])).to_list() == ["1", "2"]
    assert as_texts(pl.Series(["a", "", "A", "007"])).to_list() == ["a", None, "A", "007"]
    assert as_texts(pl.Series([1, "x", 2.0, None], dtype=pl.Object)).to_list() == ["1", "x", "2", None]
    assert as_texts(pl.Series([2**63 + 5], dtype=pl.UInt64)).to_list() == [str(2**63 + 5)]


def test_rows_in_another_order_have_another_digest():
    def digest(*parts):
        found = Digest(KEY)
        for part in parts:
            found.add(as_texts(pl.Series(part)))
        return found

    assert digest(["a", "b"], ["c"]) == digest(["a"], ["b", "c"])
    assert digest(["a", "b"]) != digest(["b", "a"])
    assert digest(["a", "b"]) != digest(["a", "b", None])
    assert digest(["a", "b"]) != digest(["a", "c"])


@pytest.mark.usefixtures("often")
def test_persons_are_counted_once(table):
    ids, _ = table
    parts = [as_texts(pl.Series(ids[start : start + 50])) for start in range(0, 300, 50)]
    assert count_persons(parts) == len(set(ids.tolist()))
    assert count_persons([]) == 0


def test_a_file_a_frame_and_databases_choose_the_same_rows(table, tmp_path):
    ids, cells = table
    frame = pl.DataFrame({"id": [f"p{each}" for each in ids], **cells}).fill_nan(None)
    frame.write_csv(tmp_path / "rows.csv")
    lite, duck = sqlite3.connect(":memory:"), duckdb.connect()
    lite.execute("CREATE TABLE rows (id TEXT, x REAL, at REAL)")
    lite.executemany("INSERT INTO rows VALUES (?, ?, ?)", frame.rows())
    duck.execute("CREATE TABLE rows AS SELECT * FROM frame")
    sources = [frame, frame.lazy(), frame.to_pandas(), tmp_path / "rows.csv"]
    sources += [Database("SELECT * FROM rows", each) for each in (lite, duck)]
    person = Person("id", rows=2, take="latest", by="at")
    for schema in (
        Schema(x=(0, 10), at=(0, 100)).of_persons(person).only("x > 3"),
        Schema(x=(0, 10), at=(0, 100), n=(0, 50)).of_persons(Person("id", row={"n": "count(x)"})),
    ):
        wanted = [Moments(tuple(name for name in schema))]
        found = [Table("a", each, schema, key=KEY).sums(wanted)[0] for each in sources]
        for other in found[1:]:
            for one, two in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(one, two)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("name", INNER)
def test_whatever_an_aggregate_is_called_it_is_that_persons_alone(name):
    """Whoever asks chooses the name: "row" was the row's number, which moves with others' rows."""
    schema = Schema({"x": (0, 10), name: (0, 50), "n": (0, 50)})
    person = Person("whose", row={"n": "count(*)", name: "count(*)"})
    for first in (1, 5):
        ids = pl.Series(["me"] * first + [f"other {i}" for i in range(6)])
        choice = Choice(schema.of_persons(person), KEY)
        for start in range(0, len(ids), 4):
            choice.add(ids[start : start + 4], {})
        chosen = choice.result()
        assert sorted(chosen.columns[name]) == sorted(chosen.columns["n"]) == [1.0] * 6 + [float(first)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (7.0, "7"),
        (-0.0, "0"),
        (1e20, "100000000000000000000"),
        (1e-7, "1e-07"),
        (Decimal("7"), "7"),
        (Decimal("7.50"), "7.5"),
        (Decimal("100000000000000001"), "100000000000000001"),
        (Decimal("1E+37"), "1" + "0" * 37),  # a null beside 0.123, if both were made decimals of one column
        (Decimal("1E+1000"), "1E+1000"),
        (True, "True"),
        (datetime(2020, 1, 31), "2020-01-31 00:00:00"),
        (b"\xff", "b'\\xff'"),
        ("7 ", "7 "),
        ("", None),
        (math.nan, None),
        ("M\ufffdller", None),  # two persons may differ in the sign that could not be decoded
    ],
)
def test_what_an_id_is_depends_on_that_id_alone(value, text):
    """Others' ids give a batch its type, and a batch is not the same in every pass."""
    for others in ([], [None], [value], ["x"], [Decimal("0.123")], [1.5], [b"y"], ["\ud800"]):
        assert as_texts(from_values("id", [value, *others]))[0] == text, others


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_a_database_tells_decimal_ids_apart(dialect):
    """As doubles, 100000000000000001 and 100000000000000002 are one person."""
    for kind, double in (("decimal", False), ("text", False), ("integer", False)):
        found = dialect.told(dialect.name_of("id"), kind).sql(dialect=dialect.name).upper()
        assert ("DOUBLE" in found) == double
    assert "CAST" in dialect.told(dialect.name_of("id"), "decimal").sql(dialect=dialect.name).upper()


@pytest.mark.parametrize(
    "kind", [pl.Date, pl.Datetime("ms"), pl.Datetime("us", "Europe/Berlin"), pl.Duration]
)
def test_no_id_is_too_far_away(kind):
    """polars panics at such a date, which would end a site's process."""
    last = 2**31 - 1 if kind == pl.Date else 2**63 - 1
    ids = pl.Series([0, last, -last, None]).cast(pl.Int32 if kind == pl.Date else pl.Int64).cast(kind)
    assert as_texts(ids).n_unique() == 4
