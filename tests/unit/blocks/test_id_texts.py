"""The texts of ids: byte for byte what one id at a time gives, whatever stands in the other rows.

Ids are hashed: another text for the same id would be another person, who is held out or not, and chosen
otherwise, than before.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cape.blocks import persons
from cape.blocks.persons import as_texts
from cape.data.cells import is_missing
from cape.data.dates import days_of
from cape.data.readers import FrameReader, from_values
from tests.slices import examples

ODD = [1.5, -0.0, 0.0, 2.0**53 - 1, 2.0**53, 2.0**53 + 2, 2.0**62, 2.0**62 - 512, -(2.0**62), 2.0**63]
ODD += [-(2.0**63), 2.0**64, 1e16, 1e22, 1e300, 1e-5, 1e-4, 1e-7, 0.1, 5e-324, 2.0**-44, math.inf, -math.inf]
ODD += [math.nan, None]
NARROW = [1.5, -0.0, 16777216.0, 0.1, 2.0**62, 2.0**63, 2.0**100, 1e-40, math.inf, math.nan, None]
INTEGERS = {
    pl.Int8: (-(2**7), 2**7 - 1),
    pl.Int16: (-(2**15), 2**15 - 1),
    pl.Int32: (-(2**31), 2**31 - 1),
    pl.Int64: (-(2**63), 2**63 - 1),
    pl.Int128: (-(2**127), 2**127 - 1),
    pl.UInt8: (0, 2**8 - 1),
    pl.UInt16: (0, 2**16 - 1),
    pl.UInt32: (0, 2**32 - 1),
    pl.UInt64: (0, 2**64 - 1),
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(
    ["", "7", "007", "7 ", "A\ufffd", "\ufffd", "1.0", "nan", "None", "ß", "\0"]
)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
OBJECTS = st.one_of(
    st.none(),
    st.integers(),
    st.floats(),
    st.sampled_from(ODD),
    st.booleans(),
    TEXTS,
    st.sampled_from(["\ud800", "a\udfffb"]),
    st.binary(max_size=3),
    st.decimals(),
    st.sampled_from([Decimal("7.50"), Decimal("sNaN"), Decimal("1E+1000"), Decimal("-0")]),
    st.dates(),
    MOMENTS,
    st.sampled_from([pd.NA, pd.NaT, pd.Timestamp("2020-01-31"), np.float32(0.1), np.float64(7), np.int8(7)]),
    st.sampled_from([np.datetime64("NaT"), np.datetime64("2020-01-31"), np.bool_(True)]),
)

CELLS = st.one_of(  # what drivers of databases give
    st.integers(),
    st.sampled_from([2**53 + 1, 2**63 + 5, -(2**63)]),
    st.floats(),
    st.booleans(),
    TEXTS,
    st.binary(max_size=3),
    st.decimals(),
    st.sampled_from([Decimal("1E+37"), Decimal("0.001")]),
    st.dates(date(100, 1, 1), date(9900, 1, 1)),
    st.datetimes(
        datetime(100, 1, 1),
        datetime(9900, 1, 1),
        timezones=st.sampled_from([None, UTC]),
    ),
    st.timedeltas(timedelta(-1000), timedelta(1000)),
    st.times(),
)


def lists(values):
    return st.lists(st.none() | values, max_size=6)


COLUMNS = {
    "float64": lists(st.floats() | st.integers(-(2**64), 2**64).map(float) | st.sampled_from(ODD)).map(
        lambda ids: pl.Series(ids, dtype=pl.Float64)
    ),
    "float32": lists(st.floats(width=32) | st.sampled_from(NARROW)).map(
        lambda ids: pl.Series(ids, dtype=pl.Float32)
    ),
    **{
        kind.__name__.lower(): lists(st.integers(*ends) | st.sampled_from(ends)).map(
            lambda ids, kind=kind: pl.Series(ids, dtype=kind)
        )
        for kind, ends in INTEGERS.items()
    },
    "boolean": lists(st.booleans()).map(lambda ids: pl.Series(ids, dtype=pl.Boolean)),
    "decimal": lists(st.decimals(-(10**20), 10**20, places=6, allow_nan=False)).map(
        lambda ids: pl.Series(ids, dtype=pl.Decimal(38, 6))
    ),
    "string": lists(TEXTS).map(lambda ids: pl.Series(ids, dtype=pl.String)),
    "categorical": lists(TEXTS).map(lambda ids: pl.Series(ids, dtype=pl.Categorical)),
    "enum": lists(st.sampled_from(["a", "", "\ufffd"])).map(
        lambda ids: pl.Series(ids, dtype=pl.Enum(["a", "", "\ufffd"]))
    ),
    "binary": lists(st.binary(max_size=3)).map(lambda ids: pl.Series(ids, dtype=pl.Binary)),
    "null": lists(st.none()).map(lambda ids: pl.Series(ids, dtype=pl.Null)),
    "date": lists(st.integers(-(2**31), 2**31 - 1)).map(
        lambda ids: pl.Series(ids, dtype=pl.Int32).cast(pl.Date)
    ),
    **{
        f"datetime {unit} {zone}": lists(
            st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**13), 10**13)
        ).map(lambda ids, unit=unit, zone=zone: pl.Series(ids, dtype=pl.Int64).cast(pl.Datetime(unit, zone)))
        for unit in ("ms", "us", "ns")
        for zone in (None, "Europe/Berlin")
    },
    "duration": lists(st.timedeltas(timedelta(-(10**6)), timedelta(10**6))).map(
        lambda ids: pl.Series(ids, dtype=pl.Duration)
    ),
    "time": lists(st.times()).map(lambda ids: pl.Series(ids, dtype=pl.Time)),
    "object": lists(OBJECTS).map(lambda ids: pl.Series(ids, dtype=pl.Object)),
    "values of a driver": lists(OBJECTS).map(lambda ids: from_values("id", ids)),
}


def slow_texts(ids):
    """What `as_texts` was when one odd id among floats had every id looked at by itself."""
    kind = ids.dtype
    ids = ids.alias("id")
    if kind.is_float():
        whole = ids.cast(pl.Int64, strict=False)
        same = (whole.cast(kind) == ids).fill_null(False) & (ids.abs() < 2.0**62)
        texts = whole.cast(pl.String)
        if not (same | ids.is_null()).all():
            texts = texts.zip_with(same, one_by_one(ids))
    elif kind == pl.String or kind.is_integer() or kind in (pl.Categorical, pl.Enum):
        texts = ids.cast(pl.String)
    elif kind.is_temporal():
        whole = ids.to_physical().cast(pl.Int64)
        known = days_of(ids).is_between(-700_000, 2_900_000).fill_null(True)
        held = ids.to_frame().select(pl.when(known).then(pl.first())).to_series()
        texts = one_by_one(held).zip_with(known, whole.cast(pl.String))
    else:
        texts = one_by_one(ids)
    none = (texts.fill_null("") == "") | texts.str.contains("\ufffd", literal=True).fill_null(False)
    return texts.zip_with(~none, pl.Series("id", [None], dtype=pl.String))


def one_by_one(ids):
    texts = [None if is_missing(each) else text(each) for each in ids]
    return pl.Series("id", texts, dtype=pl.String)


def text(value):
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 1000:
        value = format(value, "f")
        value = value.rstrip("0").rstrip(".") if "." in value else value
    return str(value).encode(errors="backslashreplace").decode()


@pytest.mark.parametrize("kind", COLUMNS)
@examples(200)
@given(data=st.data())
def test_texts_are_what_one_id_at_a_time_gives(kind, data):
    ids = data.draw(COLUMNS[kind])
    found = as_texts(ids)
    assert found.dtype == pl.String
    assert found.name == "id"
    assert found.to_list() == slow_texts(ids).to_list()
    assert found.to_list() == [slow_texts(ids[place : place + 1])[0] for place in range(len(ids))]


@examples(300)
@given(ids=lists(CELLS))
@example(ids=[2**53 + 1, 1.5])
@example(ids=[1.5, 2**53 + 1])
@example(ids=[7, True])
@example(ids=[Decimal("1E+37"), Decimal("0.001")])
@example(ids=[datetime(2020, 1, 31), datetime(2020, 1, 31, tzinfo=UTC)])
def test_an_id_is_the_same_among_all_others(ids):
    """Two ids beyond 2^53 were one person where somebody else's was a fraction."""
    assert as_texts(from_values("id", ids)).to_list() == [
        as_texts(from_values("id", [each]))[0] for each in ids
    ]


@examples(200)
@given(ids=lists(OBJECTS))
def test_ids_of_a_pandas_frame_have_the_same_texts(ids):
    import narwhals as nw

    frame = pd.DataFrame({"id": pd.Series(ids, dtype=object)})
    for batch in FrameReader(nw.from_native(frame)).batches(["id"], 4):
        assert as_texts(batch["id"]).to_list() == slow_texts(batch["id"]).to_list()


@pytest.mark.parametrize(("kind", "odd"), [(pl.Float64, ODD), (pl.Float32, NARROW)])
def test_every_odd_float_has_its_text_among_others_of_all_kinds(kind, odd):
    ids = pl.Series([*odd, *range(5), *odd], dtype=kind)
    assert as_texts(ids).to_list() == slow_texts(ids).to_list()


def test_only_an_odd_float_is_looked_at_by_itself(monkeypatch):
    """One such id had all of a batch looked at one by one: a pass over everybody took longer, which shows."""
    seen = []
    monkeypatch.setattr(persons, "_text", lambda value: seen.append(value) or str(value))
    monkeypatch.setattr(persons, "_one_by_one", lambda ids: pytest.fail("looked at every id"))
    as_texts(pl.Series([1.0, 1.5, None, math.nan, 2.0**62, -0.0, 7.0]))
    assert seen == [1.5, 2.0**62]
    seen.clear()
    as_texts(pl.Series([1.0, None, math.nan, 2.0**61]))
    assert seen == []
