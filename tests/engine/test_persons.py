"""What a person with several rows, at several sites, costs: noise, price and words count it exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import cape
from cape.data import Person, Schema
from cape.engine.calibration import RESOLUTION
from cape.engine.schemes import SCHEMES, Parties
from cape.engine.stages import Setting, Stages
from cape.errors import InvalidInput
from cape.privacy import Budget

SCHEMA = Schema(age=(18, 90), chol=(100, 600), sex=["female", "male"])
BUDGET = Budget(1.0, 1e-6)
FIVE = Parties(5, 1, 4)
MEAN = cape.Mean("age", "chol")
# how many times as much noise a site needs for a person at 2 sites as for one at 1, squared
AT_TWO = {
    "cape": 4.0,
    "cape-gaussian": (2 / 6 + (4 / 3) * (1 - 1 / 6)) / (1 / 6 + (1 / 3) * (1 - 1 / 6)),
    "conventional": 2.0,
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
    moved = rows * query.sensitivity / calibration.local_noise + math.sqrt(entries) * (1 + 2.0**-9) / RESOLUTION
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
