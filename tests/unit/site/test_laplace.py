"""Requests without delta: a site computes noise and price itself, and its ledger adds both kinds."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from scipy.stats import kstest

from cape.analyses.describe.histogram import Histogram
from cape.engine.calibration import RESOLUTION
from cape.noise import LaplacePart
from cape.privacy import Budget
from cape.privacy.accounting import Amount
from cape.secagg import LaplaceSurplus
from cape.site import Refusal, read
from cape.stats.law import Law
from tests.world import World, document

BINS = {"kind": "histogram", "column": "age", "bins": 512, "share": 0.25}
pytestmark = pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")


def pure(*analyses, **changes):
    return document(**{"delta": 0.0, "noise": "laplace", "analyses": list(analyses or [BINS])} | changes)


def bent(world, study):
    """A request that the coordinator's own code would not have made."""
    return replace(world.request(pure()), study=study).signed(world.office)


def test_a_grant_is_priced_in_epsilon_and_its_noise_is_a_part_of_laplace_noise(world: World):
    grant = world.granted(world.request(pure()))
    (line,) = world.site.ledger.entries()
    assert line.charged == grant.paid == Amount(pure=Fraction(1, 4))
    assert grant.calibration.part == LaplacePart(Fraction(1, 2), float(RESOLUTION))
    assert isinstance(grant.parameters.surplus, LaplaceSurplus)
    vector = world.site.answer(grant)
    exact = grant.calibration.encode(
        tuple(p for ps in world.site.table().sums(grant.query.blocks) for p in ps)
    )
    noise = (vector - exact) / (RESOLUTION * math.sqrt(2 / 2))
    assert kstest(noise, Law(0.5).cdf).pvalue > 1e-4
    assert kstest(noise * 2.5, Law(0.5).cdf).pvalue < 1e-4


def test_the_study_says_which_noise_and_a_site_takes_no_other(world: World):
    asked = world.request(pure())
    other = world.request(document(analyses=[BINS]))
    assert asked.study_hash != other.study_hash
    assert asked.grid != other.grid
    assert world.code(replace(asked, grid=other.grid).signed(world.office)) == "noise"
    assert world.code(bent(world, pure(noise="gaussian"))) == "request"
    assert world.code(bent(world, pure(noise="auto"))) == "request"


def test_what_has_no_l1_sensitivity_is_refused_without_a_charge(world: World):
    regression = {"kind": "linear-regression", "target": "weight", "features": ["age"], "share": 0.5}
    refused = world.decide(bent(world, pure(regression)))
    assert isinstance(refused, Refusal)
    assert "LinearRegression needs delta" in refused.sentence
    assert world.lines() == 0


def test_a_coordinators_smaller_sensitivity_is_refused(world: World, monkeypatch):
    real = Histogram.query

    def small(self, schema, neighbours):
        query = real(self, schema, neighbours)
        return replace(query, l1=query.l1 / 2)

    with monkeypatch.context() as patch:
        patch.setattr(Histogram, "query", small)
        asked = world.request(pure())
    assert world.code(asked) == "noise"
    assert world.lines() == 0


def test_epsilons_of_a_study_add_up_to_what_it_states_and_no_more(world: World):
    study = pure({**BINS, "share": 0.5}, {**BINS, "share": 0.5})
    for number in (1, 2):
        world.granted(world.request(study, number=number))
    assert world.site.ledger.spent() == Amount(pure=Fraction(1))
    assert world.code(world.request(study, number=1)) == "budget"


def test_a_ledger_adds_pure_and_gaussian_releases(world: World):
    world.granted(world.request(pure({**BINS, "share": 0.5})))
    study = document(analyses=[{**BINS, "share": 0.5}, {**BINS, "share": 0.4}])
    world.granted(world.request(study))
    spent = world.site.ledger.spent()
    mu = Budget(1.0, 1e-6).mu
    assert spent.pure == Fraction(1, 2)
    assert spent.mu_squared == Fraction(mu) ** 2 / 2
    assert 1.1 < spent.epsilon(1e-6) < 1.2  # less than the sum
    assert world.code(world.request(study, number=2)) == "budget"  # who asks may choose kinds after answers
    world.site.ledger.entries()  # the chain holds
    assert world.site.ledger.head().totals[0].epsilon == "1/2"


def test_a_policy_without_delta_answers_pure_studies_only(world: World):
    for key in ("release", "coordinator", "year", "total"):
        text = (world.site.path / "site.toml").read_text()
        line = next(each for each in text.splitlines() if each.startswith(f"{key} = "))
        world.edit(line, line.replace(", delta = 1e-06", "").replace(", delta = 1e-6", ""))
    assert str(world.site.policy.release) == "epsilon = 1 without delta"
    assert world.code(world.request(document(analyses=[BINS]))) == "release"
    world.granted(world.request(pure()))


def test_a_price_below_the_exact_loss_is_never_granted(world: World, monkeypatch):
    """The view's loss by another formula: a ladder whose honest shapes fall short is refused."""
    from cape.privacy.ladder import Ladder

    asked = world.request(pure())
    monkeypatch.setattr(Ladder, "_honest_left", lambda *args: Fraction(1))
    assert world.code(asked) in ("site", "request")
    assert world.lines() == 0


def test_replays_of_a_pure_release_agree(world: World):
    one, two = (read(pure(), 1).session().calibrate() for _ in range(2))
    assert one == two
    assert world.request(pure()).parameters(read(pure(), 1).setting.parties, 512).surplus.losses == (0,)
