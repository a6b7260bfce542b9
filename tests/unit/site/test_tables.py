"""What a site says to tables of several columns, and to synthetic data."""

from __future__ import annotations

import numpy as np
import pytest

from cape.engine.session import StageResult
from cape.site import Code, Grant, Refusal, read
from tests.world import THREE, World, document

SYNTHETIC = {"kind": "synthetic-data", "columns": ["age", "sex", "ill"], "bins": 4, "share": 1.0}
FACTS = SYNTHETIC | {
    "impossible": [{"age": [18, 36], "ill": "yes"}],
    "determines": {"sex": {"ill": {"female": "no", "male": "yes"}}},
}


@pytest.fixture
def tables(world: World) -> World:
    """Sites that answer tables."""
    world.edit('"count"', '"count", "contingency-table", "synthetic-data"', *THREE)
    return world


def asked(analysis):
    return document(analyses=[analysis])


def test_a_site_may_forbid_synthetic_data(tables: World):
    assert isinstance(tables.decide(tables.request(asked(SYNTHETIC))), Grant)
    tables.edit("[allow]", "[allow]\nsynthetic = false")
    found = tables.decide(tables.request(asked(SYNTHETIC)))
    assert isinstance(found, Refusal)
    assert found.code is Code.TABLES
    assert "synthetic = true under [allow]" in found.sentence
    tables.granted(tables.request())  # anything else is answered


def test_a_site_may_cap_the_columns_of_a_table(tables: World):
    two = {"kind": "contingency-table", "columns": ["sex", "ill"], "share": 0.1}
    three = two | {"columns": ["sex", "ill"], "share": 0.1, "where": "age > 20"}
    grouped = {"kind": "histogram", "column": "ill", "by": "sex", "share": 0.1}
    tables.edit("[allow]", "[allow]\nways = 2")
    for analysis in (two, three, grouped, SYNTHETIC):
        tables.granted(tables.request(asked(analysis | {"share": 0.1})))
    tables.edit("ways = 2", "ways = 1")
    for analysis in (two, grouped):
        found = tables.decide(tables.request(asked(analysis)))
        assert isinstance(found, Refusal)
        assert found.code is Code.TABLES
        assert "at most 1 columns, not of 2" in found.sentence
    tables.granted(tables.request(asked({"kind": "histogram", "column": "ill", "share": 0.1})))


@pytest.mark.parametrize("ways", ["0", '"two"'])
def test_a_cap_must_be_a_number_of_columns(tables: World, ways: str):
    tables.edit("[allow]", f"[allow]\nways = {ways}")
    assert tables.code(tables.request()) == "site"


@pytest.mark.quick_cases("with facts", seconds=0.5)
@pytest.mark.parametrize("analysis", [SYNTHETIC, FACTS], ids=["plain", "with facts"])
def test_every_site_asks_itself_the_same_next_tables(tables: World, analysis):
    study = asked(analysis)
    talk, run = read(study, 1).session(), bytes(range(16))
    history: list[StageResult] = []
    while not talk.done:
        total = 0
        for name in THREE:
            grant = tables.granted(tables.request(study, run=run, talk=talk, earlier=tuple(history)), name)
            vector = tables.sites[name].answer(grant)
            assert isinstance(vector, np.ndarray)
            total = total + vector
        history.append(StageResult.of(total, 3, 1200))
        talk.tell(history[-1])
    assert len(history) == 3


def test_made_up_earlier_answers_are_refused_or_priced_as_any_others(tables: World):
    study = asked(SYNTHETIC)
    for value in (-(2**63), -1, 0, 2**40, 2**63 - 1):
        talk = read(study, 1).session()
        wild = StageResult.of(np.full(talk.calibrate()[0].size, value), 3, 1200)
        talk.tell(wild)
        found = tables.decide(tables.request(study, talk=talk, earlier=(wild,)))
        assert isinstance(found, Grant) or found.code in {Code.NOISE, Code.REQUEST, Code.BUDGET}
