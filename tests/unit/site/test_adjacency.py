"""One ledger, one adjacency: nobody picks the cheaper of two; where sizes are private nothing tells them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from cape.blocks import Table
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.query import Query
from cape.privacy import Budget, gaussian
from cape.privacy.accounting import Basis
from cape.site import Code, Grant, Refusal, read, wire
from cape.site.endpoint import SiteEndpoint
from tests.world import SCHEMA, World, document

MEAN = {"kind": "mean", "columns": ["age"], "share": 1.0}
SAMPLED = {"kind": "neural-network", "target": "ill", "features": ["age"], "hidden": [2], "sampling": 0.2}
ANALYSES = {
    "mean": MEAN,
    "counts": {"kind": "histogram", "column": "sex", "share": 1.0},
    "logistic regression": {
        "kind": "logistic-regression",
        "target": "ill",
        "features": ["age"],
        "share": 1.0,
    },
    "clusters": {"kind": "k-means", "columns": ["age", "weight"], "clusters": 2, "share": 1.0},
}


def both(world: World) -> None:
    world.edit('adjacency = ["replace-one"]', 'adjacency = ["replace-one", "add-remove"]')
    for key, most in (("release", 1.0), ("coordinator", 2.0), ("year", 3.0), ("total", 3.0)):
        world.edit(f"{key} = {{epsilon = {most}", f"{key} = {{epsilon = 4.0")


def contributions(query: Query) -> np.ndarray:
    """What single rows at the corners and outside the bounds add, in units of the noise."""
    cells = (
        [17.0, 18.0, 54.0, 90.0, 91.0, None],
        [40.0, 90.0, 140.0, 150.0],
        ["female", "male", None],
        ["no", "yes", None],
    )
    found = []
    for age, weight, sex, ill in itertools.product(*cells):
        row = pl.DataFrame(
            {"age": [age], "weight": [weight], "sex": [sex], "ill": [ill], "hiv": ["no"]},
            {"age": pl.Float64, "weight": pl.Float64, "sex": pl.String, "ill": pl.String, "hiv": pl.String},
        )
        sums = Table("one", row, Schema(SCHEMA)).sums(query.blocks)
        arrays = [array for block in query.blocks for array in block.arrays(Schema(SCHEMA))]
        parts = [part for parts in sums for part in parts]
        found.append(
            np.concatenate(
                [
                    np.ravel(part) * 2.0**-array.bits / scale
                    for part, array, scale in zip(parts, arrays, query.flat_scales, strict=True)
                ]
            )
        )
    return np.array(found)


@pytest.mark.one_in(4, seconds=0.4)
@pytest.mark.parametrize("what", ANALYSES)
def test_what_is_charged_covers_the_exact_cost_of_replacing_a_row(world: World, what: str):
    """The attack: calibrated to add-remove, the same noise costs more once a row is replaced."""
    both(world)
    study = document(neighbours="add-remove", analyses=[ANALYSES[what]])
    grant = world.granted(world.request(study))
    rows = contributions(grant.query)
    one = np.linalg.norm(rows, axis=1).max()
    pair = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(rows, 2))
    assert one <= grant.query.sensitivity * (1 + 1e-6)
    stages = read(study, 1).stages
    stated = math.sqrt(float(stages.share * stages.parts[0])) * Budget(1.0, 1e-6).mu
    really = stated * pair / grant.query.sensitivity
    assert really > 1.1 * stated, "what was charged before was too little"
    (line,) = world.site.ledger.entries()
    assert really <= line.charged.mu
    assert line.charged.mu_squared == 4 * stages.share * stages.parts[0] * Fraction(stages.mu) ** 2
    assert (line.basis, line.asked) == (Basis("replace-one"), "add-remove")
    if what == "mean":
        assert gaussian.epsilon(1e-6, really) == pytest.approx(1.4547, abs=1e-3), "for a stated 1.0"


def test_by_default_the_cheaper_adjacency_cannot_be_picked(world: World):
    found = world.decide(world.request(document(neighbours="add-remove", analyses=[MEAN])))
    assert isinstance(found, Refusal)
    assert found.code is Code.NEIGHBOURS
    assert 'write neighbours = "replace-one" under [privacy] in the study file' in found.sentence
    world.granted(world.request(document(analyses=[MEAN])))


def test_a_study_under_add_remove_is_held_to_what_it_states_after_conversion(world: World):
    both(world)
    study = document(neighbours="add-remove", analyses=[MEAN])
    world.granted(world.request(study))
    assert world.code(world.request(study)) == "budget"
    assert world.site.ledger.spent().mu_squared == 4 * Fraction(Budget(1.0, 1e-6).mu) ** 2
    assert world.site.ledger.spent().epsilon(1e-6) == pytest.approx(2.12, abs=0.01)


def test_runs_over_samples_are_not_converted(world: World):
    both(world)
    study = document(neighbours="add-remove", analyses=[SAMPLED | {"share": 0.1, "rows": 1000}])
    found = world.decide(world.request(study))
    assert isinstance(found, Refusal)
    assert found.code is Code.NEIGHBOURS
    assert "run over samples" in found.sentence
    world.granted(world.request(document(analyses=[SAMPLED | {"share": 0.1}])))
    (line,) = world.site.ledger.entries()
    assert line.basis == Basis(sampled=True)


def test_a_policy_of_add_remove_cannot_add_to_lines_of_replace_one(world: World):
    world.granted(world.request(document(analyses=[MEAN | {"share": 0.1}])))
    world.hide_sizes()
    study = document(neighbours="add-remove", analyses=[MEAN | {"share": 0.1}])
    found = world.decide(world.request(study))
    assert isinstance(found, Refusal)
    assert found.code is Code.LEDGER
    assert "cannot be converted" in found.sentence
    world.granted(world.request(study), "b")


def test_lines_of_add_remove_count_four_times_once_replace_one_is_answered(world: World):
    world.hide_sizes()
    world.granted(world.request(document(neighbours="add-remove", analyses=[MEAN | {"share": 0.2}])))
    fifth = Fraction(1, 5) * Fraction(Budget(1.0, 1e-6).mu) ** 2
    assert world.site.ledger.spent().mu_squared == fifth
    world.edit('adjacency = ["add-remove"]', 'adjacency = ["replace-one"]')
    world.granted(world.request(document(analyses=[MEAN | {"share": 0.2}])))
    assert world.site.ledger.spent().mu_squared == 5 * fifth


def answers(world: World, rows: list[str]) -> list[wire.FromSite]:
    """All that site a says to trials and requests, over these rows; its noise aside."""
    (world.site.path / "rows.csv").write_text("\n".join(["age,weight,sex,ill,hiv", *rows]) + "\n")
    member = SiteEndpoint(type(world.site)(world.site.path))
    found = []
    for scheme, neighbours in itertools.product(("cape", "conventional"), ("replace-one", "add-remove")):
        study = document(scheme=scheme, neighbours=neighbours, analyses=[MEAN | {"share": 0.01}])
        trial = replace(world.request(study), trial=True).signed(world.office)
        found.append(wire.unpack_from_site(member.handle(wire.pack(wire.Review(1, (trial.pack(),))))))
        request = world.request(study)
        said = wire.unpack_from_site(member.handle(wire.pack(wire.Ask(1, request.pack()))))
        if isinstance(said, wire.Offered):
            assert said.rows is None
            said = wire.Offered(1, None, bytes(len(said.data)))
        found.append(said)
    return found


def test_where_sizes_are_private_nothing_that_a_site_says_depends_on_them(world: World):
    world.hide_sizes()
    row = "50,70,male,no,no"
    many, few, none = (answers(world, [row] * count) for count in (400, 99, 0))
    assert many == few == none
    reviewed = [each for each in many if isinstance(each, wire.Reviewed)]
    assert [each.rows for each in reviewed] == [None] * 4
    codes = [each.refusals[0] and each.refusals[0].code for each in reviewed]
    assert codes == ["neighbours", None, "neighbours", None]
    world.edit("expected_rows = 300", "expected_rows = 99")
    assert world.code(world.request(document(neighbours="add-remove", analyses=[MEAN]))) == "data"


def test_the_rows_are_not_even_opened_before_it_is_paid_for(world: World):
    world.hide_sizes()
    (world.site.path / "rows.csv").unlink()
    assert isinstance(world.decide(world.request(document(neighbours="add-remove"))), Grant)


def test_a_private_size_needs_a_number_that_everyone_may_know(world: World):
    world.edit('adjacency = ["replace-one"]', 'adjacency = ["add-remove"]')
    with pytest.raises(InvalidInput, match=r"\[site\]: expected_rows is missing: .* expected_rows = 1000"):
        _ = world.site.policy
    world.edit('adjacency = ["add-remove"]', 'adjacency = ["add-remove"]\nneighbours = ["add-remove"]')
    with pytest.raises(InvalidInput, match="mean the same"):
        _ = world.site.policy
