"""Labels of counts: written when they are looked at, in the order of the cells."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from cape.analyses import ContingencyTable, Histogram
from cape.data import Schema
from cape.engine.query import Answer
from cape.stats.estimates import Estimates, Labels

SCHEMA = Schema(age=(0, 100), sex=["f", "m"], stage=["I", "II", "III"])


@pytest.mark.slow(1)
def test_labels_of_a_histogram_are_written_when_they_are_looked_at() -> None:
    question, bins = Histogram("age", bins=1_000_000), 1_000_000
    found = Estimates.of(question.finish(Answer(((np.ones(bins),),), ((1.0,),), None, SCHEMA)))
    assert isinstance(found.labels, Labels)
    assert found[0].label == "age in [0, 0.0001)"
    assert found[-1].label == "age in [99.9999, 100]"
    assert found.labels[10:12] == ["age in [0.001, 0.0011)", "age in [0.0011, 0.0012)"]
    assert pickle.loads(pickle.dumps(found[:2])) == found[:2]


def test_cells_are_labelled_with_the_last_column_running_fastest() -> None:
    answer = Answer(((np.arange(6.0).reshape(2, 3),),), ((1.0,),), None, SCHEMA)
    found = ContingencyTable("sex", "stage").finish(answer)
    assert [e.label for e in found] == [f"sex={s}, stage={t}" for s in "fm" for t in ("I", "II", "III")]
    assert found.values.tolist() == [0, 1, 2, 3, 4, 5]
