"""The calculator of choosing-epsilon.md against the library: its formulas, and what the page shows."""

from __future__ import annotations

import math

import polars as pl
import pytest
from scipy.special import ndtr, ndtri

import cape
from cape import privacy
from cape.privacy import correlated
from cape.show.numbers import at_most
from cape.stats.law import Law

EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 50.0)
DELTAS = (1e-15, 1e-12, 1e-9, 1e-6, 1e-5, 1e-3, 0.01, 0.1, 0.4)


@pytest.fixture
def page(site, visit):
    return visit(site / "choosing-epsilon.html")


def test_mu_epsilon_and_delta_are_the_library_s(page):
    grid = [[epsilon, delta, privacy.mu(epsilon, delta)] for epsilon in EPSILONS for delta in DELTAS]
    found = page.evaluate(
        """grid => grid.map(([e, d, m]) => {
             const law = capePrivacy.gaussian;
             return [law.mu(e, d), law.delta(e, m), law.epsilon(d, m), law.found(m, 0.05), law.bet(m)];
           })""",
        grid,
    )
    for (epsilon, delta, mu), one in zip(grid, found, strict=True):
        expected = [mu, delta, epsilon, ndtr(ndtri(0.05) + mu), ndtr(mu / 2)]
        assert one == pytest.approx(expected, rel=1e-9), (epsilon, delta)


@pytest.mark.filterwarnings("ignore::cape.PrivacyLeakWarning")  # of the default for few sites
def test_the_price_of_each_scheme_is_the_library_s(page):
    cases = [[sites, colluding] for sites in (2, 3, 5, 10, 40) for colluding in (0, 1, sites // 2)]
    found = page.evaluate(
        "cases => cases.map(c => Object.values(capePrivacy.ratios).map(r => r(...c)))", cases
    )
    for (sites, colluding), (pooled, cape_, conventional) in zip(cases, found, strict=True):
        assert pooled == 1
        assert cape_ == pytest.approx(correlated.pooled_ratio(1.0, math.inf, sites, colluding))
        assert conventional == pytest.approx(correlated.pooled_ratio(1.0, 0.0, sites, colluding))
    defaults = page.evaluate("[2, 3, 4, 5, 6, 7, 10, 30].map(capePrivacy.colluding)")
    assert defaults == [correlated.default_colluding(sites) for sites in (2, 3, 4, 5, 6, 7, 10, 30)]


@pytest.mark.parametrize("delta", [1e-6, 0], ids=["gaussian", "laplace"])
@pytest.mark.parametrize(
    ("what", "analysis"),
    [
        ({"what": "mean", "low": 18, "high": 90}, cape.Mean("age")),
        ({"what": "count"}, cape.Count(sex="f")),
        ({"what": "share", "categories": 2}, cape.Proportion("sex")),
        ({"what": "share", "categories": 4}, cape.Proportion("region")),
    ],
    ids=["mean", "count", "share of two", "share of four"],
)
def test_the_noise_is_that_of_a_plan(what, analysis, delta, page):
    schema = cape.Schema(
        age=cape.Number(18, 90, missing=False),
        sex=cape.Category(["f", "m"], missing=False),
        region=cape.Category(["n", "e", "s", "w"], missing=False),
    )
    rows = dict.fromkeys("abcde", 200)
    frame = pl.DataFrame({"age": [50.0], "sex": ["f"], "region": ["n"]})
    budget = cape.Budget(epsilon=1.0, delta=delta) if delta else cape.Budget(epsilon=1.0)
    tables = {name: frame.clone() for name in rows}
    consortium = cape.Consortium(tables, schema, budget, colluding=1, sizes=rows)
    planned = next(iter(consortium.plan(analysis, share=0.25).noise.values()))
    asked = {"epsilon": 1.0, "delta": delta, "part": 0.25, "rows": 1000, "sites": 5, "colluding": 1}
    asked |= {"sd": 10, "expected": 0.3, **what}
    found = page.evaluate("asked => capePrivacy.release(asked).schemes", asked)
    for scheme in ("cape", "conventional", "pooled"):
        assert found[scheme]["noise"] == pytest.approx(planned[scheme], rel=1e-3)  # it counts the grid


def test_a_bet_against_a_pure_budget_is_that_of_randomised_response(page):
    for epsilon in (0.1, 1.0, 3.0, 8.0):
        bet, found = page.evaluate(
            "e => [capePrivacy.laplace.bet(e), capePrivacy.laplace.found(e, 0.05)]", epsilon
        )
        assert bet == pytest.approx(math.exp(epsilon) / (1 + math.exp(epsilon)))
        least = (1 - 0.05) / math.exp(epsilon)  # of those whose row it is, who is not accused
        assert found == pytest.approx(min(0.05 * math.exp(epsilon), 1 - least))


@pytest.mark.parametrize("shape", [1.0, 1.25, 3.0, 12.0])
def test_intervals_of_laplace_noise_are_the_library_s(shape, page):
    for noise, sampling in ((1.0, 0.0), (1.0, 0.3), (1.0, 1.0), (0.2, 1.0)):
        half = page.evaluate("a => capePrivacy.laplace.half(...a)", [noise, sampling, shape])
        assert half == pytest.approx(float(Law(shape).quantile(0.975, noise, sampling)), rel=1e-4)
    assert page.evaluate("capePrivacy.laplace.half(Math.SQRT2, 0, 1)") == pytest.approx(
        math.log(20), rel=1e-5
    )


@pytest.mark.parametrize("delta", [1e-6, 0], ids=["gaussian", "laplace"])
def test_the_epsilon_that_is_needed_gives_the_noise_that_was_wanted(delta, page):
    asked = {"what": "mean", "low": 0, "high": 1, "sd": 0.3, "epsilon": 1, "delta": delta, "part": 0.3}
    asked |= {"rows": 5000, "sites": 6, "colluding": 1}
    for noise in (0.0005, 0.002, 0.01):
        epsilon = page.evaluate("([a, n]) => capePrivacy.needed(a, n)", [asked, noise])
        found = page.evaluate("a => capePrivacy.release(a).schemes.cape.noise", asked | {"epsilon": epsilon})
        assert found == pytest.approx(noise, rel=1e-8)


def test_the_form_shows_what_the_formulas_say(page):
    page.fill("[name=epsilon]", "2")
    page.fill("[name=sites]", "10")
    assert page.input_value("[name=colluding]") == "3"  # follows the sites until somebody chooses
    mu = privacy.mu(2.0, 1e-6)
    said = page.locator("[data-says=budget]")
    assert float(said.get_attribute("data-budget")) == pytest.approx(mu, rel=1e-9)
    assert f"mu = {mu:.4f}" in said.inner_text()
    assert f"wins at most {at_most(privacy.laplace.bet(mu))} of such bets" in said.inner_text()
    # what is left by counts of cells outside the bounds
    curator = (90 - 18) / 2000 / (mu * math.sqrt(0.25 * (1 - 0.005)))
    shown = page.locator("tr[data-scheme=cape]")
    assert float(shown.get_attribute("data-noise")) == pytest.approx(curator * math.sqrt(10 / 7), rel=1e-9)
    assert f"{curator * math.sqrt(10 / 7):.3f}"[:4] in shown.inner_text()
    page.fill("[name=delta]", "")
    assert said.get_attribute("data-law") == "laplace"
    pure = math.sqrt(2) * (90 - 18) / 2000 / (2 * 0.25 * (1 - 0.01)) * math.sqrt(10 / 7)
    assert float(shown.get_attribute("data-noise")) == pytest.approx(pure, rel=1e-9)
    page.fill("[name=colluding]", "1")
    page.fill("[name=sites]", "20")
    assert page.input_value("[name=colluding]") == "1"


def test_wrong_numbers_are_named_and_nothing_is_shown(page):
    for field, value, words in (
        ("epsilon", "0", "Epsilon must be above 0"),
        ("delta", "1", "Delta must be"),
        ("colluding", "9", "fewer than the sites"),
        ("high", "3", "above the lower bound"),
        ("rows", "", "whole number"),
    ):
        before = page.input_value(f"[name={field}]")
        page.fill(f"[name={field}]", value)
        assert words in page.locator(".calculator .wrong").inner_text()
        assert page.locator(".calculator output").is_hidden()
        page.fill(f"[name={field}]", before)
        assert page.locator(".calculator output").is_visible()


def test_without_scripts_the_page_says_what_to_do(site, visit):
    shown = visit(site / "choosing-epsilon.html", scripts=False)
    assert shown.locator("#calculator").is_hidden()
    assert "needs JavaScript" in shown.locator("noscript").inner_text()
