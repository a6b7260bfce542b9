"""An analysis and a block that are written in this file go through all of cape; nothing else knows of them.

The recipe stands in CONTRIBUTING.md: this is what it promises.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

from cape import Budget, Consortium, Schema
from cape.analyses import KINDS, build
from cape.audit.game import Game, play
from cape.audit.rounding import order_matters
from cape.audit.search import find
from cape.audit.world import analysis_of, random_rows, stream_of
from cape.blocks.block import T_BITS, Array, Block, Sums
from cape.blocks.parts import Part
from cape.engine.query import Analysis, Answer, Neighbours, Query
from cape.engine.result import Release
from cape.noise import SecureStream
from cape.show import Figure
from cape.site import Grant, Refusal
from cape.stats.estimates import Estimate
from tests.world import World, document


@dataclass(frozen=True)
class AbsoluteDeviations(Block):
    """How many cells of a column are not missing, and the sum of |t|."""

    column: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        schema.number(self.column)
        return Array("count", (1,), 0), Array("deviations", (1,), T_BITS)

    def added(self, part: Part) -> Sums:
        steps = part.steps(self.column)
        there = steps[~np.isnan(steps)]
        return np.array([len(there)]), np.array([np.abs(there).sum()]).astype(np.int64)

    def typical(self, schema: Schema, rows: int) -> tuple[np.ndarray, ...]:
        return np.array([float(rows)]), np.array([rows / 4])


@dataclass(frozen=True)
class MeanDeviation(Analysis):
    """The mean distance of a column from the middle of its bounds.

    **Sensitivity.** One row changes the count by at most 1 and the sum of |t| by at most 1; when one row
    replaces another of which both or none are missing, only the sum moves. So sqrt(2) in both relations.
    """

    kind: ClassVar[str] = "mean-deviation"
    example: ClassVar[dict[str, Any]] = {"column": "age"}
    column: str

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        return Query((AbsoluteDeviations(self.column),), ((1.0, 1.0),), 2**0.5)

    def finish(self, answer: Answer) -> list[Estimate]:
        ((count, deviations),), ((_, noise),) = answer.sums, answer.noise
        scale = answer.schema.number(self.column).half / max(float(count[0]), 1.0)
        return [Estimate(self.column, scale * float(deviations[0]), 0.0, scale * noise)]

    def describe(self) -> str:
        return f"mean distance of {self.column} from the middle of its bounds"

    def notes(self, release: Release) -> list[str]:
        return ["A toy, for tests."]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in a registry."""
    monkeypatch.setitem(KINDS, MeanDeviation.kind, MeanDeviation)


AGES = {
    name: np.clip(np.random.default_rng(seed).normal(50, 15, 800), 18, 90) for seed, name in enumerate("abcd")
}
STUDY = """
[study]
name = "toy"
[privacy]
epsilon = 8.0
delta = 1e-6
colluding = 1
[schema]
age = {{ bounds = [18, 90], label = "Age", unit = "years" }}
[sites]
{sites}
[[analysis]]
kind = "mean-deviation"
column = "age"
share = 1.0
"""


def truth() -> float:
    return float(np.mean(np.abs(np.concatenate(list(AGES.values())) - 54)))


def near(release: Release) -> bool:
    return abs(release.value - truth()) < 6 * release.standard_error + 1e-3


@pytest.fixture
def study(tmp_path: Path) -> Path:
    for name, ages in AGES.items():
        pl.DataFrame({"age": ages}).write_csv(tmp_path / f"{name}.csv")
    path = tmp_path / "toy.toml"
    path.write_text(STUDY.format(sites="\n".join(f'{name} = "{name}.csv"' for name in AGES)))
    return path


def test_in_python():
    tables = {name: pl.DataFrame({"age": ages}) for name, ages in AGES.items()}
    together = Consortium(
        tables, Schema(age=(18, 90)), Budget(20, 1e-6), colluding=1, stream=SecureStream(b"own".ljust(32))
    )
    analysis = build({"kind": "mean-deviation", "column": "age"})
    plan = together.plan(analysis, 0.5)
    release = together.release(analysis, 0.5)
    assert near(release)
    assert plan.noise["age"]["cape"] == pytest.approx(release.standard_error, rel=0.05)
    told = json.loads(json.dumps(release.to_dict()))
    assert told["analysis"] == {"kind": "mean-deviation", "column": "age"}
    assert told["notes"] == ["A toy, for tests."]
    (figure,) = release.figures()
    assert isinstance(figure, Figure)


def test_from_a_study_file_to_a_report(cape, study):
    planned = cape("plan", study)
    assert planned.code == 0, planned.err
    assert "mean distance of age from the middle of its bounds" in planned.out
    done = cape("run", study, "--out", study.parent / "out")
    assert done.code == 0, done.err
    results = json.loads((study.parent / "out" / "results.json").read_text())
    (found,) = results["analyses"]
    (estimate,) = found["estimates"]
    assert abs(estimate["value"] - truth()) < 6 * estimate["standard_error"] + 1e-3
    page = (study.parent / "out" / "report.html").read_text()
    assert "Age (years)" in page
    assert "A toy, for tests." in page
    bad = study.with_name("bad.toml")
    bad.write_text(study.read_text().replace('column = "age"', 'colum = "age"'))
    refused = cape("plan", bad)
    assert refused.code != 0
    assert "did you mean 'column'" in refused.err


def test_a_site_decides_about_it_by_its_policy(tmp_path):
    world = World(tmp_path)
    asked = {"kind": "mean-deviation", "column": "age", "share": 0.25}
    found = world.decide(world.request(document(analyses=[asked])))
    assert isinstance(found, Refusal)
    assert "mean-deviation" in found.sentence, "the policy does not allow the kind"
    world.edit('"count"', '"count", "mean-deviation"')
    grant = world.granted(world.request(document(analyses=[asked])))
    assert isinstance(grant, Grant)
    assert isinstance(world.site.answer(grant), np.ndarray)
    world.edit('columns = ["age", ', "columns = [")
    refused = world.decide(world.request(document(analyses=[asked])))
    assert isinstance(refused, Refusal)
    assert "column 'age'" in refused.sentence, "the block says which columns it reads"


def test_it_is_audited_like_any_other():
    rows = random_rows(60, stream_of("own analysis"))
    assert not order_matters(analysis_of("mean-deviation"), rows, rows[::-1])
    budget = Budget(4.0, 1e-6)
    found = find("mean-deviation", "replace-one", budget, seed=3)
    played = play(Game("mean-deviation", "cape", found.tables, budget), range(8), 3)
    assert 0.2 * budget.mu < played.attained <= budget.mu * (1 + 1e-6), "the claim holds, and is not idle"
