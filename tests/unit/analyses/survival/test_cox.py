from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks.conversation import conducted
from cape import Budget, Consortium, Cox, Person, privacy
from cape.analyses.registry import build
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Category, Number, Schema
from cape.data.expected import Expected
from cape.engine.query import AnalysisResult, Neighbours

EDGES = tuple(np.arange(1, 11) / 10)
SCHEMA = Schema(
    a=Number(-1, 1, missing=False),
    b=Number(0, 2, missing=False),
    c=Category(("u", "v"), missing=False),
    t=Number(0, 5, missing=False),
    e=Category(("no", "yes"), missing=False),
    start=Number(0, 5, missing=False),
    arm=Category(("p", "q", "r"), missing=False),
)
SKEWED_NUMBERS = ("nodes", "pgr", "dose")
TRUE = {"a": 0.6, "b": -0.4, "c=v": 0.5}


def people(
    n: int, seed: int, *, binned: bool = False, late: bool = False, arms: bool = False
) -> dict[str, Any]:
    """Rows with hazards 1.2 t^0.3 exp(TRUE x), twice as large in each further arm if there are any."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(-1, 1, n), rng.uniform(0, 2, n), rng.integers(0, 2, n)
    arm = rng.integers(0, 3, n) if arms else np.zeros(n, int)
    if arms:
        a = np.clip(a + 0.3 * (arm - 1), -1, 1)
    r = np.exp(0.6 * a - 0.4 * b + 0.5 * c) * (2.0**arm if arms else 1.0)
    start = np.where(rng.random(n) < 0.5, rng.uniform(0, 0.5, n), 0.0) if late else np.zeros(n)
    t = ((start**1.3) + rng.exponential(size=n) / r * 1.3 / 1.2) ** (1 / 1.3)
    censored = start + rng.exponential(2.5, n)
    e = (t <= censored).astype(int)
    t = np.minimum(t, censored)
    if binned:
        t = np.array((*EDGES, 1.5))[np.minimum(np.searchsorted(EDGES, t), 10)]
        start = np.floor(start * 10 + 1e-9) / 10
        keep = start < t
        a, b, c, t, e, start, arm = (each[keep] for each in (a, b, c, t, e, start, arm))
    return {
        "a": a, "b": b, "c": np.array(["u", "v"])[c], "t": np.minimum(t, 5.0),
        "e": np.array(["no", "yes"])[e], "start": start, "arm": np.array(["p", "q", "r"])[arm],
    }  # fmt: skip


def converse(
    analysis: Cox,
    table: dict[str, Any],
    mu: float = math.inf,
    seed: int = 0,
    neighbours: Neighbours = "replace-one",
) -> AnalysisResult:
    """What the analysis makes of a table, with the noise of five sites of which one colludes."""
    return conducted(analysis, table, SCHEMA, mu, np.random.default_rng(seed), neighbours)


def breslow(table: dict[str, Any]) -> np.ndarray:
    """The maximum of Cox's partial likelihood with Breslow's ties, within arms, at risk from the start on."""
    x = np.column_stack([table["a"], table["b"] - 1, table["c"] == "v"]).astype(float)
    x = np.trunc(x / math.sqrt(3) * 2**20) / 2**20 * math.sqrt(3)  # the grid on which sites have them
    t, event = np.minimum(table["t"], 1.0), (table["e"] == "yes") & (table["t"] <= 1.0)
    weights = np.zeros(3)
    for _ in range(30):
        slope, curve = np.zeros(3), np.zeros((3, 3))
        r = np.exp(x @ weights)
        for arm in np.unique(table["arm"]):
            for at in np.unique(t[event & (table["arm"] == arm)]):
                risk = (t >= at - 1e-12) & (table["start"] < at - 1e-12) & (table["arm"] == arm)
                tied = event & (t == at) & (table["arm"] == arm)
                mean = r[risk] @ x[risk] / r[risk].sum()
                centred = x[risk] - mean
                slope += (x[tied] - mean).sum(axis=0)
                curve += tied.sum() * (centred * r[risk, None]).T @ centred / r[risk].sum()
        change = np.linalg.solve(curve, slope)
        weights = weights + change
        if np.abs(change).max() < 1e-12:
            return weights
    raise AssertionError("the likelihood has no maximum")


def values(found: AnalysisResult) -> np.ndarray:
    return np.array([each.value for each in found.estimates])


@pytest.mark.parametrize(
    ("late", "arms"), [(False, False), (True, False), (False, True), (True, True)], ids=str
)
def test_on_binned_times_without_noise_it_is_the_partial_likelihood_with_breslows_ties(
    late: bool, arms: bool
) -> None:
    table = people(2000, 3, binned=True, late=late, arms=arms)
    analysis = Cox(
        "t", "e", ["a", "b", "c"], edges=EDGES, rounds=12,
        entry="start" if late else None, strata="arm" if arms else (),
    )  # fmt: skip
    assert np.abs(values(converse(analysis, table)) - breslow(table)).max() < 1e-6


def test_one_bin_is_exponential_regression() -> None:
    import statsmodels.api as sm

    table = people(2000, 4)
    x = np.column_stack([np.ones(2000), table["a"], table["b"] - 1, table["c"] == "v"]).astype(float)
    event = (table["e"] == "yes").astype(float)
    known = sm.GLM(event, x, sm.families.Poisson(), offset=np.log(table["t"])).fit(tol=1e-12)
    analysis = Cox("t", "e", ["a", "b", "c"], bins=1, rounds=12)
    assert np.abs(values(converse(analysis, table)) - known.params[1:]).max() < 1e-4
    told = converse(analysis, table, mu=1.0)
    assert all(math.isfinite(end) for each in told.estimates for end in each.interval())


def test_lifelines_agrees_where_no_two_events_are_tied() -> None:
    lifelines = pytest.importorskip("lifelines")
    import pandas as pd

    table = people(1500, 8)
    rare = np.random.default_rng(0).random(1500) < 0.08
    table["e"] = np.where(rare, table["e"], "no")
    events = np.sort(table["t"][table["e"] == "yes"])
    table["t"] = events[np.searchsorted(events, table["t"]).clip(None, len(events) - 1)]
    x = np.column_stack([table["a"], table["b"] - 1, table["c"] == "v"]).astype(float)
    x = np.trunc(x / math.sqrt(3) * 2**20) / 2**20 * math.sqrt(3)
    frame = pd.DataFrame(x, columns=list("abc")).assign(t=table["t"], e=(table["e"] == "yes") * 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it was written for an older pandas
        fit = lifelines.CoxPHFitter().fit(frame, "t", "e", fit_options={"precision": 1e-12})
    analysis = Cox("t", "e", ["a", "b", "c"], edges=events.tolist(), rounds=12)
    assert np.abs(values(converse(analysis, table)) - fit.params_.to_numpy()).max() < 1e-6


def test_times_within_bins_count_so_that_wide_bins_hardly_matter() -> None:
    table = people(4000, 5)
    few, many = (values(converse(Cox("t", "e", ["a", "b", "c"], bins=bins), table)) for bins in (8, 100))
    assert np.abs(few - many).max() < 0.02


SKEWED = Schema(
    nodes=Number(0, 200, missing=False),
    pgr=Number(0, 40_000, missing=False),
    dose=Number(0, 0.01, missing=False),
    g=Category(("u", "v"), missing=False),
    t=Number(0, 5, missing=False),
    e=Category(("no", "yes"), missing=False),
)


def wild(n: int, seed: int, *, binned: bool = False) -> dict[str, Any]:
    """Skewed features of very different scales whose effects are neither linear nor the same at all times."""
    rng = np.random.default_rng(seed)
    nodes = np.minimum(rng.poisson(rng.gamma(0.5, 8, n)), 60).astype(float)
    pgr = np.minimum(rng.lognormal(3.5, 1.6, n), 9000.0)
    dose, g = rng.gamma(2.0, 2e-4, n).clip(0, 0.01), rng.integers(0, 2, n)
    log = 0.6 * np.log1p(nodes) - 0.15 * np.log1p(pgr) + 800 * dose * (rng.random(n) < 0.5)
    t = rng.weibull(1.2, n) * 1.5 * np.exp(-0.5 * log) * np.where(g == 1, rng.gamma(2, 0.6, n), 1.0)
    end = rng.uniform(0.2, 2.5, n)
    e, t = t <= end, np.minimum(t, end)
    if binned:
        t = np.array((*EDGES, 1.5))[np.minimum(np.searchsorted(EDGES, t), 10)]
    return {
        "nodes": nodes, "pgr": pgr, "dose": dose, "g": np.array(["u", "v"])[g],
        "t": np.minimum(t, 5.0), "e": np.array(["no", "yes"])[e.astype(int)],
    }  # fmt: skip


def partial(table: dict[str, Any], caps: dict[str, tuple[float, float]] | None = None) -> Any:
    """The maximum of the partial likelihood (Breslow's ties) on capped columns, and the SDs of columns."""
    columns = [np.clip(table[name], *(caps or {}).get(name, (-np.inf, np.inf))) for name in SKEWED_NUMBERS]
    x = np.column_stack([*columns, table["g"] == "v"]).astype(float)
    spread = x.std(axis=0)
    until = 1.0 if set(np.unique(table["t"])) <= {*EDGES, 1.5} else 5.0
    order = np.argsort(-table["t"], kind="stable")
    t, x = table["t"][order], ((x - x.mean(axis=0)) / spread)[order]
    event = (table["e"][order] == "yes") & (t <= until)
    last = np.append(np.flatnonzero(np.diff(t)), len(t) - 1)
    at = last[np.searchsorted(last, np.flatnonzero(event))]  # the end of those at risk, in falling times
    weights = np.zeros(4)
    for _ in range(40):
        r = np.exp(x @ weights)
        total = np.cumsum(r)[at]
        means = np.cumsum(r[:, None] * x, axis=0)[at] / total[:, None]
        squares = np.cumsum(r[:, None, None] * x[:, :, None] * x[:, None, :], axis=0)[at]
        curve = (squares / total[:, None, None]).sum(axis=0) - means.T @ means
        change = np.linalg.solve(curve, (x[event] - means).sum(axis=0))
        weights = weights + change * min(1.0, 1.0 / np.abs(change).max())
        if np.abs(change).max() < 1e-11:
            return weights / spread, spread
    raise AssertionError("the likelihood has no maximum")


@pytest.mark.filterwarnings("ignore:scheme 'none'")
@pytest.mark.parametrize("cap", ["none", "auto", {"nodes": (0, 20)}])
def test_without_noise_it_is_the_partial_likelihood_of_skewed_features(cap: Any) -> None:
    table = wild(2000, 4, binned=True)
    sites = {str(site): pl.DataFrame(table)[site::4] for site in range(4)}
    consortium = Consortium(sites, SKEWED, budget=Budget(1, 1e-3), scheme="none")
    model = consortium.release(
        Cox("t", "e", ["nodes", "pgr", "dose", "g"], edges=EDGES, cap=cap), share=1.0
    ).model
    caps = {
        each.column: (each.low or 0.0, math.inf if each.high is None else each.high)
        for each in model.limited.capped
    }
    assert set(caps) == ({"nodes", "pgr", "dose"} if cap == "auto" else set() if cap == "none" else {"nodes"})
    known, spread = partial(table, caps)
    found = np.array([model.coefficients[name] for name in ("nodes", "pgr", "dose", "g=v")])
    assert np.abs((found - known) * spread).max() < 2e-6  # sites round to 2^-20 of the bounds


@pytest.mark.slow(4)
def test_intervals_cover_the_fit_without_privacy_to_all_rows_where_no_model_is_true() -> None:
    population = wild(20_000, 1)
    mu, analysis = float(privacy.mu(3.0, 1e-6)), Cox("t", "e", ["nodes", "pgr", "dose", "g"])
    inside, widths = [], []
    for seed in range(10):
        chosen = np.random.default_rng(seed).integers(0, 20_000, 4000)
        rows = {name: cells[chosen] for name, cells in population.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            found = conducted(analysis, rows, SKEWED, mu, np.random.default_rng(100 + seed))
        caps = {
            each.column: (each.low or 0.0, math.inf if each.high is None else each.high)
            for each in found.model.limited.capped
        }
        known, _ = partial(population, caps)
        for each, true in zip(found.estimates, known, strict=True):
            low, high = each.interval()
            inside.append(low <= true <= high)
            widths.append((high - low) / each.sampling)
    assert np.mean(inside) >= 0.85  # 40 intervals of 95%: fewer than 34 have a probability of 0.3%
    assert np.median(widths) < 12


def test_what_was_capped_is_said_and_caps_hold_for_predictions() -> None:
    found = conducted(
        Cox("t", "e", ["nodes", "g"], cap={"nodes": (0, 20)}, bins=10), wild(3000, 2), SKEWED, 2.0,
        np.random.default_rng(1),
    )  # fmt: skip
    model = found.model
    assert any("nodes above 20" in note for note in model.notes())
    assert not any("Caution" in note for note in model.notes())
    said = model.to_dict()
    assert said["limited"]["caps"]["nodes"]["high"] == 20
    assert set(said["limited"]["moved"]) == {"nodes", "g=v"}
    at, beyond = (model.log_hazards({"nodes": [n], "g": ["u"]})[0] for n in (20.0, 150.0))
    assert at == beyond


@pytest.mark.slow(1)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_intervals_with_noise_hold_the_truth_and_are_not_much_wider(neighbours: Neighbours) -> None:
    mu, analysis = float(privacy.mu(3.0, 1e-3)), Cox("t", "e", ["a", "b", "c"], edges=EDGES)
    inside, widths = [], []
    for seed in range(12):
        found = converse(analysis, people(3000, 100 + seed), mu, seed, neighbours)
        for each in found.estimates:
            low, high = each.interval()
            inside.append(low <= TRUE[each.label] <= high)
            widths.append((high - low) / each.sampling)
    assert np.mean(inside) >= 0.86  # 36 intervals of 95%: fewer than 31 have a probability of 0.4%
    assert np.median(widths) < 6
    assert np.median(widths) > 3.9  # those of sampling alone are 3.92 wide


def test_a_stronger_effect_of_a_stratum_does_not_bias_where_strata_are_given() -> None:
    table = people(6000, 2, arms=True)
    mu = float(privacy.mu(3.0, 1e-3))
    within = values(converse(Cox("t", "e", ["a", "b", "c"], edges=EDGES, strata="arm"), table, mu))
    without = values(converse(Cox("t", "e", ["a", "b", "c"], edges=EDGES), table, mu))
    assert abs(within[0] - 0.6) < 0.15
    assert without[0] > 0.75


def test_a_test_of_proportional_hazards_finds_an_effect_that_turns() -> None:
    table, rng = people(6000, 4), np.random.default_rng(1)
    mu = float(privacy.mu(3.0, 1e-3))
    analysis = Cox("t", "e", ["a"], edges=EDGES, proportional=True)
    kept = converse(analysis, table, mu).model.proportional
    a, amount = rng.uniform(-1, 1, 6000), rng.exponential(size=6000)
    early, late = np.exp(a), np.exp(-a)  # the ratio is e until 0.4, and 1 / e from then on
    t = np.where(amount < 0.4 * early, amount / early, 0.4 + (amount - 0.4 * early) / late)
    turned = dict(table, a=a, t=np.minimum(t, 5.0), e=np.full(6000, "yes"))
    found = converse(analysis, turned, mu).model.proportional
    assert kept.p > 0.01
    assert found.p < 1e-6
    assert converse(Cox("t", "e", ["a"], edges=EDGES), table).model.proportional is None


def test_predicted_survival_is_that_of_the_hazards() -> None:
    table = people(20_000, 6)
    model = converse(Cox("t", "e", ["a", "b", "c"], edges=EDGES), table).model
    new = {"a": [0.0, 1.0], "b": [1.0, 0.0], "c": ["u", "v"]}
    r = np.exp([-0.4, 0.6 + 0.5])
    for at in (0.25, 0.5, 1.0):
        true = np.exp(-r * 1.2 / 1.3 * at**1.3)
        assert model.predict_survival(new, [at])[:, 0] == pytest.approx(true, abs=0.03)
    low, high = model.baseline_survival()[4].interval()
    centre = model.to_dict()["baseline"]["centre"]
    log = 0.6 * centre["a"] - 0.4 * centre["b"] + 0.5 * centre["c=v"]
    assert low - 0.01 < math.exp(-math.exp(log) * 1.2 / 1.3 * 0.5**1.3) < high + 0.01


def test_concordance_is_that_of_pairs_of_rows() -> None:
    table = people(3000, 7)
    model = converse(Cox("t", "e", ["a", "b", "c"], edges=EDGES), table).model
    log, t, e = model.log_hazards(table), table["t"], table["e"] == "yes"
    first = e[:, None] & (t[:, None] < t)
    seen = float((first & (log[:, None] > log)).sum() / first.sum())
    assert model.concordance.value == pytest.approx(seen, abs=0.03)


def test_a_release_reports_ratios_with_intervals_and_can_be_read_back() -> None:
    sites = {str(seed): pl.DataFrame(people(900, seed)) for seed in range(4)}
    consortium = Consortium(sites, SCHEMA, budget=Budget(3, 1e-3))
    release = consortium.release(Cox("t", "e", ["a", "b", "c"], edges=EDGES, rounds=2), share=1.0)
    model = release.model
    assert set(model.hazard_ratios) == set(TRUE)
    assert model.hazard_ratios["a"] == pytest.approx(math.exp(model.coefficients["a"]))
    assert "hazard ratio" in str(release)
    assert model.to_dict()["hazard_ratios"]["a"]["interval"][0] > 0
    assert model.test("a", "b", "c").freedom == 3
    both = model.combination({"a": 1, "c=v": 1})
    assert both.standard_error > 0
    assert np.array(model.covariance).shape == (3, 3)


@pytest.mark.filterwarnings("ignore:scheme 'none'")
def test_a_whole_release_without_noise_is_the_same_as_sums_by_hand() -> None:
    table = people(2000, 3, binned=True)
    consortium = Consortium(
        {str(site): pl.DataFrame(table)[site::4] for site in range(4)},
        SCHEMA,
        budget=Budget(1, 1e-3),
        scheme="none",
    )
    release = consortium.release(Cox("t", "e", ["a", "b", "c"], edges=EDGES, rounds=12), share=1.0)
    assert np.abs(np.array([each.value for each in release.estimates]) - breslow(table)).max() < 1e-6


def test_few_rows_warn_and_intervals_are_wide() -> None:
    with pytest.warns(TooNoisyWarning, match="unreliable|hides whether there are any events"):
        found = converse(Cox("t", "e", ["a", "b", "c"]), people(60, 1), 0.2)
    assert all(1 < each.interval()[1] - each.interval()[0] < 300 for each in found.estimates)


@pytest.mark.parametrize(
    "made",
    [
        {"features": ["a"], "bins": 5},
        {"features": ["a", "c"], "edges": [1.0, 2.0], "strata": "arm", "entry": "start"},
        {"features": ["a"], "bins": 20, "rounds": 3, "norm": 0.5, "proportional": True},
        {"features": ["a"], "cap": "none"},
        {"features": ["a"], "cap": {"a": (-0.5, 0.5)}},
    ],
)
def test_a_study_file_says_the_same(made: dict[str, Any]) -> None:
    analysis = Cox("t", "e", **made)
    assert build(analysis.to_dict()) == analysis
    assert analysis.describe().startswith("Cox regression of e by t on a")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"features": ["t"]}, "'t' is named twice"),
        ({"features": ["a"], "strata": "a"}, "'a' is named twice"),
        ({"features": ["a"], "entry": "t"}, "'t' is named twice"),
        ({"features": ["a"], "bins": 3, "edges": [1, 2]}, "either edges or bins"),
        ({"features": ["a"], "rounds": 0}, "rounds"),
        ({"features": ["a"], "cap": "all"}, "cap must be 'auto', 'none'"),
        ({"features": ["a"], "proportional": 1}, "proportional must be True or False"),
    ],
)
def test_what_makes_no_sense_is_refused(made: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Cox("t", "e", **made)


def test_so_many_strata_that_a_site_has_no_room_for_them_are_refused_at_once() -> None:
    wide = Schema(t=(0, 5), e=["no", "yes"], a=(0, 1), **{name: list(range(20)) for name in ("g", "h")})
    analysis = Cox("t", "e", ["a"], strata=("g", "h"), bins=21)
    with pytest.raises(InvalidInput, match="at most 8192 cells, not 8400"):
        analysis.query(wide, "replace-one")
    with pytest.raises(InvalidInput, match="at most 8192 cells"):
        next(analysis.conduct(wide, "replace-one")).arrays(wide)


@pytest.mark.slow(1)
def test_a_plan_expects_the_noise_that_there_is() -> None:
    table, mu = people(4000, 9), float(privacy.mu(1.0, 1e-3))
    analysis = Cox("t", "e", ["a", "b", "c"], edges=EDGES)
    query = analysis.query(SCHEMA, "replace-one")
    std = query.sensitivity / mu / math.sqrt(analysis.stages()[-1]) * math.sqrt(5 / 4)
    stated = SCHEMA.changed({"t": Number(0, 5, missing=False, expected=Expected(0.7, 0.5))})
    planned = analysis.expected(stated, [[std * scale for scale in query.scales[0]]], 4000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooNoisyWarning)
        runs = np.array([values(converse(analysis, table, mu, seed)) for seed in range(15)])
    measured = runs.std(axis=0)
    assert (np.array(list(planned.values())) / measured < 4).all()
    assert (np.array(list(planned.values())) / measured > 0.25).all()
    assert set(analysis.limits(SCHEMA, [[std * scale for scale in query.scales[0]]], 4000)) == set(TRUE)


def test_sites_can_be_strata_and_formulas_say_features() -> None:
    sites = {str(seed): pl.DataFrame(people(600, seed)) for seed in range(4)}
    consortium = Consortium(sites, SCHEMA, budget=Budget(20, 1e-3))
    release = consortium.release(
        Cox("t", "e", formula="a * c", strata="site", edges=EDGES, rounds=2), share=1.0
    )
    assert list(release.model.coefficients) == ["a", "c=v", "a:c=v"]
    survival = release.model.predict_survival({"a": [0.0], "c": ["u"]}, [0.5], stratum="1")
    assert 0 < survival[0, 0] < 1
    with pytest.raises(InvalidInput, match="stratum must be one of"):
        release.model.predict_survival({"a": [0.0], "c": ["u"]}, [0.5])
    assert "site has a baseline hazard of its own" in str(release)


@pytest.mark.slow(2)
def test_a_plan_shows_what_strata_cost() -> None:
    sites = {str(seed): pl.DataFrame(people(600, seed)) for seed in range(4)}
    consortium = Consortium(sites, SCHEMA, budget=Budget(3, 1e-3))
    plan = consortium.plan(Cox("t", "e", ["a"], strata="arm", edges=EDGES), share=1.0)
    (table,) = plan.outlook
    assert table.columns[1:] == ("within arm", "one baseline for all")
    assert not consortium.plan(Cox("t", "e", ["a"], edges=EDGES), share=1.0).outlook


@pytest.mark.slow(1.5)
def test_persons_of_several_rows_from_start_to_stop_are_protected_as_a_whole() -> None:
    table = people(1200, 12)
    first = table["t"] > 0.3  # these have a second row, from 0.3 on, with another value of a
    more = {name: cells[first] for name, cells in table.items()}
    split = {name: np.concatenate([table[name], more[name]]) for name in table}
    split["start"] = np.concatenate([table["start"], np.full(first.sum(), 0.3)])
    split["t"] = np.concatenate([np.where(first, 0.3, table["t"]), more["t"]])
    split["e"] = np.concatenate([np.where(first, "no", table["e"]), more["e"]])
    split["id"] = np.concatenate([np.arange(1200), np.flatnonzero(first)])
    whole = values(converse(Cox("t", "e", ["a", "b"], edges=EDGES, rounds=8), table))
    parts = {name: cells for name, cells in split.items() if name != "id"}
    in_rows = values(converse(Cox("t", "e", ["a", "b"], edges=EDGES, entry="start", rounds=8), parts))
    assert np.abs(whole - in_rows).max() < 1e-6  # the same likelihood
    frame = pl.DataFrame(split)
    sites = {str(site): frame.filter(pl.col("id") % 4 == site) for site in range(4)}

    def noise(rows: int) -> float:
        time, start = (Number(0, 5, missing=False, expected=Expected(mean, mean)) for mean in (0.7, 0.1))
        stated = SCHEMA.changed({"t": time, "start": start})
        consortium = Consortium(sites, stated, budget=Budget(3, 1e-3), person=Person("id", rows=rows))
        plan = consortium.plan(Cox("t", "e", ["a", "b"], edges=EDGES, entry="start"), share=1.0)
        return plan.noise["a"]["cape"]

    assert noise(2) > 1.5 * noise(1)
