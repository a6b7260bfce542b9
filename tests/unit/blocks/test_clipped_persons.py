"""What all rows of a person add up to is clipped like one row: in integers, whatever the rows."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

import cape
from cape.blocks import Custom
from cape.blocks.clip import clip_sums
from cape.blocks.table import Table
from cape.core.errors import InvalidInput
from cape.data import Person, Schema
from cape.engine.schemes import SCHEMES, Parties
from cape.engine.stages import Setting, Stages
from cape.privacy import Budget

ROWS = 4
SCHEMA = Schema(a=(-1, 1), b=(-1, 1), y=["no", "yes"]).of_persons(Person("id", rows=ROWS))


def length(vector):
    """In Python's integers, which do not overflow: the square."""
    return sum(int(each) ** 2 for each in vector)


@pytest.mark.parametrize("bits", [20, 40])
@pytest.mark.parametrize("size", [1, 3, 400])
def test_no_sum_is_longer_than_a_row_and_short_ones_stay(bits, size):
    rng = np.random.default_rng(size)
    rows = rng.normal(size=(200, size))
    rows *= (2.0**bits * rng.choice([1e-6, 0.3, 1.0, 30.0, 999.0], 200) / np.linalg.norm(rows, axis=1))[
        :, None
    ]
    rows[0] = 2.0**bits if size == 1 else 0.0
    sums = np.trunc(rows).astype(np.int64)
    clipped = clip_sums(sums.copy(), bits)
    for before, after in zip(sums, clipped, strict=True):
        assert length(after) <= 1 << 2 * bits
        if length(before) <= (1 << 2 * bits) * (1 - 2 * math.sqrt(size) * 2.0**-19):
            assert (before == after).all()
        else:  # no shorter than it has to be, and in the same direction
            assert length(after) >= (1 << 2 * bits) * (1 - 3 * math.sqrt(size) * 2.0**-19 - 2.0**-10)
            assert (np.abs(after) <= np.abs(before)).all()


def table(rng, mine):
    others = {"id": [f"o{i}" for i in range(9)], "a": rng.uniform(-1, 1, 9), "b": rng.uniform(-1, 1, 9)}
    others["y"] = rng.choice(["no", "yes"], 9)
    me = {"id": ["me"] * mine, "a": rng.choice([-1.0, 1.0], mine), "b": rng.choice([-1.0, 1.0], mine)}
    me["y"] = rng.choice(["no", "yes"], mine)
    whole = pl.concat([pl.DataFrame(others), pl.DataFrame(me, schema=pl.DataFrame(others).schema)])
    return whole.sample(fraction=1.0, shuffle=True, seed=int(rng.integers(1000)))


def blocks():
    network = cape.NeuralNetwork(target="y", features=("a", "b"), hidden=(3,), clip=0.2, epochs=1, rows=9)
    deep = cape.NeuralNetwork(
        target="y", features=("a", "b"), hidden=(3, 2), clip=0.2, epochs=1, rows=9, activation="tanh"
    )
    descent = cape.GradientDescent(
        lambda batch, w: np.column_stack([batch["a"], batch["b"]]) * 9.0 + w,
        columns=["a", "b"],
        start=[0.5, 0.0],
        clip=0.7,
        epochs=1,
        rows=9,
    )
    return {"network": network, "deep": deep, "descent": descent}


@pytest.mark.one_in(12, seconds=0.5)
@pytest.mark.parametrize("name", blocks())
def test_a_person_moves_a_gradient_by_two_clips_at_most_however_many_rows_there_are(name):
    analysis = blocks()[name]
    query = analysis.query(SCHEMA, "replace-one")
    assert query.of_person == 2.0
    (array, *_), rng = query.arrays(SCHEMA), np.random.default_rng(5)
    far, alone = 0.0, 0.0
    for _ in range(30):
        one, two = (table(np.random.default_rng(1), 0).vstack(_mine(rng)) for _ in range(2))
        sums = [Table("t", each, SCHEMA, key=b"k").sums(query.blocks)[0][0] for each in (one, two)]
        moved = math.sqrt(length((sums[1] - sums[0]).reshape(-1))) * 2.0**-array.bits
        far = max(far, moved)
        nobody = Table("t", table(np.random.default_rng(1), 0), SCHEMA, key=b"k").sums(query.blocks)[0][0]
        alone = max(alone, math.sqrt(length((sums[0] - nobody).reshape(-1))) * 2.0**-array.bits)
    assert far <= 2.0
    assert 0.99 < alone <= 1.0, "four rows of a person are as long as one, and not longer"


def _mine(rng):
    count = int(rng.integers(0, 7))
    row = {"a": rng.choice([-1.0, 1.0]), "b": rng.choice([-1.0, 1.0]), "y": rng.choice(["no", "yes"])}
    kinds = {"id": pl.String, "a": pl.Float64, "b": pl.Float64, "y": pl.String}
    return pl.DataFrame([{"id": "me", **row}] * count, schema=kinds)


def test_persons_with_one_row_have_the_sum_of_rows():
    rng = np.random.default_rng(2)
    frame = table(rng, 1)
    plain = Schema(a=(-1, 1), b=(-1, 1), y=["no", "yes"])
    for name, analysis in blocks().items():
        by_row = Table("t", frame, plain).sums(analysis.query(plain, "replace-one").blocks)[0][0]
        by_person = Table("t", frame, SCHEMA).sums(analysis.query(SCHEMA, "replace-one").blocks)[0][0]
        # but for what a clip of whole numbers takes off
        bits = analysis.query(plain, "replace-one").arrays(plain)[0].bits
        np.testing.assert_allclose(by_person * 2.0**-bits, by_row * 2.0**-bits, atol=1e-4, err_msg=name)


def test_the_order_of_rows_and_of_parts_changes_nothing(monkeypatch):
    rng = np.random.default_rng(8)
    frame = table(rng, 4)
    for analysis in blocks().values():
        query = analysis.query(SCHEMA, "replace-one")
        first = Table("t", frame, SCHEMA).sums(query.blocks)[0][0]
        monkeypatch.setattr("cape.blocks.batches.PART_ROWS", 3)
        monkeypatch.setattr("cape.blocks.clipped.persons._MOST_CELLS", 40)
        second = Table("t", frame.reverse(), SCHEMA).sums(query.blocks)[0][0]
        np.testing.assert_array_equal(first, second)
        monkeypatch.undo()


def test_clipping_by_person_takes_no_more_noise_than_one_row():
    noise = {}
    for rows in (1, ROWS):
        schema = SCHEMA.of_persons(Person("id", rows=rows, sites=2))
        setting = Setting(schema, Budget(1.0, 1e-6), Parties(5, 1, 4), "replace-one")
        for name, analysis in blocks().items():
            stages = Stages.of(analysis, setting, SCHEMES["cape"](), 0.5)
            noise[name, rows] = stages.calibrate(0, analysis.query(schema, "replace-one"))[0].local_noise
    for name in blocks():
        assert noise[name, ROWS] == noise[name, 1]


def test_watched_numbers_count_every_row():
    analysis = cape.NeuralNetwork(target="y", features=("a",), epochs=1, rows=9, watch=True)
    query = analysis.query(SCHEMA, "replace-one")
    assert query.of_person == pytest.approx(math.sqrt(4 + ROWS**2 * 2 / 16))


def test_a_sum_by_person_needs_persons():
    plain = Schema(a=(-1, 1), b=(-1, 1))
    block = Custom(lambda batch: batch["a"], ("a",), 1, 1.0, by_person=True)
    with pytest.raises(InvalidInput, match="needs a schema with persons"):
        Table("t", pl.DataFrame({"a": [1.0]}), plain).sums((block,))
