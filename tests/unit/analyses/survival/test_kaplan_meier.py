from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses import KaplanMeier
from cape.analyses.registry import build
from cape.analyses.survival.curve import SurvivalCurve
from cape.analyses.survival.incidence import Incidence
from cape.analyses.survival.risk_table import RiskTable, risk_tables
from cape.blocks import Table
from cape.blocks.survival import woven
from cape.core.errors import InvalidInput, PrivacyLeakWarning, TooNoisyWarning
from cape.data import Schema
from cape.engine.query import Answer
from tests.unit.analyses.survival.people import EDGES, SCHEMA, at_ends, people, plainly

pytestmark = pytest.mark.filterwarnings("ignore::cape.core.errors.PrivacyLeakWarning")


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return people()


def fitter(frame: pl.DataFrame) -> Any:
    import lifelines  # which takes two seconds

    years, died = at_ends(frame["years"].to_numpy()), (frame["died"] == "yes").to_numpy()
    return lifelines.KaplanMeierFitter().fit(years, died)


def test_without_noise_the_curve_is_kaplan_and_meiers(frame):
    release = plainly(KaplanMeier("years", "died", edges=EDGES, at_edges=True), frame)
    years, died = at_ends(frame["years"].to_numpy()), (frame["died"] == "yes").to_numpy()
    survival, squares = 1.0, 0.0
    for edge in EDGES:
        events, at_risk = int((died & (years == edge)).sum()), int((years >= edge).sum())
        survival *= 1 - events / at_risk
        squares += events / (at_risk * (at_risk - events))
        assert release.value[f"years > {edge:g}"] == pytest.approx(survival, abs=1e-9)
        error = release.standard_error[f"years > {edge:g}"]
        assert error == pytest.approx(survival * math.sqrt(squares), abs=1e-9)  # Greenwood's


def test_a_replaced_row_moves_the_sums_by_what_is_claimed():
    asked = KaplanMeier("years", "died", edges=[2, 5])
    claimed, alone = (asked.query(SCHEMA, each).sensitivity for each in ("replace-one", "add-remove"))
    (block,) = asked.query(SCHEMA, "replace-one").blocks
    sums = []
    for years, died in [(0.1, "yes"), (0.1, "no"), (9.0, "no"), (9.0, "yes"), (None, "yes")]:
        frame = people(1).with_columns(pl.lit(years, pl.Float64).alias("years"), pl.lit(died).alias("died"))
        ((found,),) = Table("a", frame, SCHEMA).sums([block])
        sums.append(np.ldexp(found.astype(float), -20))
    apart = [float(np.linalg.norm(a - b)) for a in sums for b in sums]
    assert max(apart) == pytest.approx(claimed, rel=1e-5)
    assert max(apart) <= claimed
    assert max(float(np.linalg.norm(a)) for a in sums) <= alone <= 1


@pytest.mark.slow(3)
def test_without_noise_curves_are_those_of_lifelines_on_times_at_the_ends_of_bins(frame):
    from lifelines.utils import qth_survival_time, restricted_mean_survival_time

    asked = KaplanMeier("years", "died", by="arm", edges=EDGES, at_edges=True, quantiles=(0.25, 0.5))
    with pytest.warns(TooNoisyWarning, match="arm=none"):  # nobody is in it
        release = plainly(asked, frame)
    for arm in ("old", "new"):
        known = fitter(frame.filter(pl.col("arm") == arm))
        for edge in EDGES:
            found = release.value[f"arm={arm}, years > {edge:g}"]
            assert found == pytest.approx(known.survival_function_at_times(edge).item(), abs=1e-6)
        assert release.value[f"arm={arm}, years quantile 0.5"] == min(known.median_survival_time_, 10)
        quarter = qth_survival_time(0.75, known.survival_function_)
        assert release.value[f"arm={arm}, years quantile 0.25"] == quarter
        area = restricted_mean_survival_time(known, t=10)
        assert release.value[f"arm={arm}, years mean to 10"] == pytest.approx(area, abs=1e-6)
    difference = release.value["arm=new - arm=old, years mean to 10"]
    two = [release.value[f"arm={arm}, years mean to 10"] for arm in ("new", "old")]
    assert difference == pytest.approx(two[0] - two[1])


@pytest.mark.slow(3)
def test_without_noise_hazards_and_incidences_are_those_of_lifelines(frame):
    import lifelines

    model = plainly(KaplanMeier("years", "cause", edges=EDGES, at_edges=True), frame).model
    years = at_ends(frame["years"].to_numpy())
    had = (frame["cause"] != "no").to_numpy()
    known = lifelines.NelsonAalenFitter(nelson_aalen_smoothing=False).fit(years, had)
    assert model.nelson_aalen().values == pytest.approx(
        known.cumulative_hazard_at_times(EDGES).to_numpy(), abs=1e-6
    )
    codes = frame["cause"].replace_strict({"no": 0, "cancer": 1, "other": 2}).to_numpy()
    for cause in (1, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of ties, which lifelines breaks at random
            fit = lifelines.AalenJohansenFitter(jitter_level=1e-9, seed=1, calculate_variance=False)
            fit.fit(years, codes, event_of_interest=cause)
        at = fit.cumulative_density_.reset_index().to_numpy()
        wanted = [at[at[:, 0] <= edge + 1e-6][-1, 1] for edge in EDGES]
        assert model.incidence(cause - 1).values == pytest.approx(wanted, abs=2e-3)  # it breaks ties
    both = model.incidence(0).values + model.incidence(1).values
    assert both == pytest.approx(1 - model.groups[0].curve.survival[1:], abs=1e-9)


def table_of(counts: np.ndarray, noise: float = 0.0, seed: int = 0, *, at_edges: bool = False) -> RiskTable:
    """The table of one group that releases event x cell with noise."""
    rng = np.random.default_rng(seed)
    released = counts @ woven(counts.shape[1]).matrix.T + noise * rng.normal(size=counts.shape)
    return risk_tables(released[None], noise, None, at_edges)[0]


COUNTS = np.array([[12, 9, 20, 5, 40], [30, 22, 9, 17, 0], [8, 5, 11, 3, 0]], float)
TIMES = np.array([0.0, 1.0, 2.5, 3.0, 5.0])


@pytest.mark.parametrize("at_edges", [True, False])
def test_the_noise_of_curves_hazards_and_incidences_is_that_of_their_linear_part(at_edges):
    """Each derivative is taken again, by moving one count."""
    noise, step = 3.0, 1e-4
    exact = table_of(COUNTS, at_edges=at_edges)

    def numbers(counts: np.ndarray) -> np.ndarray:
        moved = RiskTable(counts[1:, :-1], counts[0], exact.blur, at_edges)
        curve = SurvivalCurve(TIMES, moved)
        second = Incidence(curve, 1).values
        return np.concatenate([curve.hazard.values, second, [curve.area(4.0).value]])

    slopes = []
    for place in np.ndindex(COUNTS.shape):
        if place[0] > 0 and place[1] == 4:
            continue  # events after the last edge do not count
        up, down = COUNTS.copy(), COUNTS.copy()
        up[place] += step
        down[place] -= step
        slopes.append((numbers(up) - numbers(down)) / (2 * step))
    matrix = woven(5).matrix
    inner = matrix.T @ matrix
    whole = np.zeros((13, 13))
    whole[:5, :5] = np.linalg.inv(inner)
    for start in (5, 9):
        whole[start : start + 4, start : start + 4] = np.linalg.inv(inner[:-1, :-1])
    wanted = np.diag(noise**2 * np.array(slopes).T @ whole @ np.array(slopes))
    blur = type(exact.blur)(noise, 4, 2, False)
    table = RiskTable(exact.events, exact.censored, blur, at_edges)
    curve = SurvivalCurve(TIMES, table)
    found = [*np.diag(curve.hazard.noise), *Incidence(curve, 1).noise, curve.area(4.0).errors[1] ** 2]
    assert found == pytest.approx(wanted, rel=1e-5 if at_edges else 0.03)  # the exposure's last term


def test_a_public_total_is_kept_and_takes_its_share_of_the_noise_away():
    rng = np.random.default_rng(4)
    released = COUNTS @ woven(5).matrix.T + 6 * rng.normal(size=COUNTS.shape)
    total = COUNTS.sum()
    tied, untied = (risk_tables(released[None], 6.0, each, False)[0] for each in (total, None))
    for table in (tied, tied.free):
        assert table.total == pytest.approx(total)
    assert (tied.events >= 0).all()
    assert (tied.censored >= 0).all()
    assert tied.exposure_noise[0] < 0.5 * untied.exposure_noise[0]


@pytest.mark.parametrize("noise", [2.0, 20.0, 200.0])
def test_curves_fall_within_0_and_1_whatever_the_noise_is(noise):
    for seed in range(20):
        curve = SurvivalCurve(TIMES, table_of(COUNTS, noise, seed))
        assert curve.survival[0] == 1
        assert (np.diff(curve.survival) <= 0).all()
        assert (curve.survival >= 0).all()
        (low, high), (below, above) = curve.intervals(0.95), curve.band(0.95)
        assert (low <= curve.survival + 1e-12).all()
        assert (curve.survival <= high + 1e-12).all()
        assert (np.diff(below) <= 1e-12).all()
        assert (np.diff(above) <= 1e-12).all()
        assert (np.diff(curve.table.at_risk) <= 1e-9).all()


def test_past_the_edge_where_noise_hides_who_is_at_risk_only_falling_is_known():
    counts = np.zeros((2, 5))
    counts[1, :4], counts[0, 4] = [400, 300, 250, 45], 5
    table = table_of(counts, 20.0, 3)
    curve = SurvivalCurve(TIMES, table)
    assert 0 < curve.known < 4
    low, high = curve.intervals(0.95)
    assert low[-1] == 0
    assert high[-1] == high[curve.known]
    ends = curve.area(5.0)(0.95)
    assert ends[1] - ends[0] > 0.9 * high[curve.known] * (5.0 - TIMES[curve.known])


@pytest.mark.slow(2)
def test_intervals_bands_medians_and_means_cover_the_population():
    """600 rows at epsilon 1, from five sites of which one colludes: half of the variance is noise."""
    rng, runs, noise, rate = np.random.default_rng(8), 120, 6.7, 1.2
    edges = np.linspace(0, 1, 13)
    truth, middle, area = np.exp(-rate * edges), math.log(2) / rate, -math.expm1(-rate) / rate
    inside = np.zeros((4, runs), bool)
    for run in range(runs):
        event, end = rng.exponential(1 / rate, 600), np.minimum(rng.uniform(0.3, 2, 600), 1)
        place = np.minimum(np.searchsorted(edges, np.minimum(event, end)) - 1, 11)
        counts = np.zeros((2, 13))
        np.add.at(counts, ((event <= end).astype(int), np.where((end == 1) & (event > 1), 12, place)), 1)
        curve = SurvivalCurve(edges, table_of(counts, noise, run))
        (low, high), (below, above) = curve.intervals(0.95), curve.band(0.95)
        held = (low <= truth + 1e-12) & (truth <= high + 1e-12)
        ends = curve.quantile("", 0.5).interval(), curve.area(1.0)(0.95)
        inside[:, run] = (
            held[6],
            ((below <= truth + 1e-12) & (truth <= above + 1e-12)).all(),
            ends[0][0] <= middle <= ends[0][1],
            ends[1][0] <= area <= ends[1][1],
        )
    assert (inside.mean(1) >= 0.89).all(), inside.mean(1)
    assert inside[[0, 3]].mean() < 0.995


def test_a_note_names_the_horizon_until_which_all_curves_are_known():
    counts = np.zeros((1, 2, 5))
    counts[0, 1, :4], counts[0, 0, 4] = [400, 300, 250, 45], 5
    released = counts @ woven(5).matrix.T
    schema = Schema(years=(0, 5), died=["no", "yes"])
    asked = KaplanMeier("years", "died", edges=TIMES[1:])
    model = asked.finish(Answer(((released,),), ((20.0,),), None, schema)).model
    assert model is not None
    assert any("horizon = 3 would make them narrower" in note for note in model.notes())


def test_bands_are_wider_than_intervals_and_the_same_every_time():
    curve = SurvivalCurve(TIMES, table_of(COUNTS * 20, 5.0))
    again = SurvivalCurve(TIMES, table_of(COUNTS * 20, 5.0))
    (low, high), (below, above) = curve.intervals(0.95), curve.band(0.95)
    assert (below[1:] < low[1:]).all()
    assert (high[1:] < above[1:]).all()
    assert (curve.band(0.95)[0] == again.band(0.95)[0]).all()


def test_a_quantile_that_is_not_reached_is_the_last_edge_with_an_open_interval():
    release = plainly(KaplanMeier("years", "died", edges=[1, 2, 3]), people(300))
    found = release.estimates[3]
    assert found.label == "years quantile 0.5"
    assert found.value == 3
    assert found.interval()[1] == math.inf
    assert any("Not reached: not by 3" in note for note in release.notes())
    median = next(row for row in release.tables()[0].rows if "median" in row[0])
    assert median[1] == "not reached"
    assert median[2].endswith("to not reached")
    assert set(median[3:]) == {""}


def test_a_median_without_an_upper_end_has_no_standard_error():
    release = plainly(KaplanMeier("years", "died", edges=[1, 2, 3, 4, 5, 6]), people(300))
    found = {each.label: each for each in release.estimates}["years quantile 0.5"]
    assert found.value < 6
    assert found.interval()[1] == math.inf
    (median,) = [row for row in release.tables()[0].rows if "median" in row[0]]
    assert float(median[1]) == pytest.approx(found.value, rel=0.01)
    assert median[2].endswith("to not reached")
    assert set(median[3:]) == {""}
    assert any("Not reached: not by 6" in note for note in release.notes())


@pytest.mark.parametrize("by", [None, "sex"])
def test_incidences_of_events_that_compete_are_shown_with_their_intervals(by):
    release = plainly(KaplanMeier("years", "cause", by=by, edges=EDGES), people(300))
    (table,) = [table for table in release.tables() if table.title.startswith("Cumulative incidence")]
    assert not table.folded
    assert [column.rpartition("=")[2] for column in table.columns[1:]] == ["cancer", "other"]
    rows = [row for row in table.rows if len(row) > 1]
    assert [row[0] for row in rows][5::6] == ["by 10"] * (1 if by is None else 2)
    start = "" if by is None else "sex=f, "
    value, (low, high) = (each[f"{start}cause=cancer by 10"] for each in (release.value, release.interval()))
    shown = [float(each) for each in re.findall(r"[0-9.]+", rows[5][1])]
    assert shown == pytest.approx([value, low, high], abs=6e-4)
    plain = release.to_dict()["model"]["groups"][0]["incidence"]
    assert plain["cancer"][-1] == pytest.approx(value)


def test_where_nothing_is_known_of_a_curve_no_median_is_shown():
    with pytest.warns(TooNoisyWarning, match="arm=none"):
        release = plainly(KaplanMeier("years", "died", by="arm", edges=[2, 5]), people(300))
    rows = {row[0]: row for row in release.tables()[0].rows}
    hidden = [row for title, row in rows.items() if "none" in title]
    assert len(hidden) == 3
    assert all(row[1] == "-" for row in hidden)


def test_without_events_the_curve_stays_at_1(frame):
    nobody = frame.with_columns(pl.lit("no").alias("died"))
    release = plainly(KaplanMeier("years", "died", edges=EDGES), nobody)
    assert release.value["years > 10"] == 1
    assert release.interval()["years > 4"][1] == 1
    assert 0.9 < release.interval()["years > 4"][0] < 1


def test_all_times_in_one_bin_and_everybody_gone_give_a_curve(frame):
    same = frame.with_columns(pl.lit(0.7).alias("years"), pl.lit("yes").alias("died"))
    release = plainly(KaplanMeier("years", "died", edges=EDGES), same)
    assert release.value["years > 0.5"] == 1
    assert release.value["years > 1"] == 0
    assert 0.5 < release.value["years quantile 0.5"] < 1


def test_a_group_without_rows_is_unknown_and_the_others_are_not():
    with pytest.warns(TooNoisyWarning, match="arm=none"):
        release = plainly(KaplanMeier("years", "died", by="arm", edges=[5]), people(300))
    assert release.interval()["arm=none, years > 5"] == (0, 1)
    assert release.interval()["arm=old, years > 5"][0] > 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edges": [5, 11]}, "must lie within its bounds"),
        ({"horizon": 12}, "horizon must be at most the last edge, 10"),
        ({"by": "years"}, "named twice"),
        ({"quantiles": (0.5, 0.5)}, "must be different"),
        ({"quantiles": 1.5}, "between 0 and 1"),
        ({"at_edges": 1}, "True or False"),
    ],
)
def test_a_question_that_has_no_answer_is_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        KaplanMeier("years", "died", **options).query(SCHEMA, "replace-one")


def test_a_study_file_says_the_same():
    asked = KaplanMeier("years", "died", by="arm", edges=EDGES, quantiles=[0.25], horizon=5, at_edges=True)
    assert build(asked.to_dict()) == asked
    assert build({"kind": "kaplan-meier", "time": "years", "event": "died"}) == KaplanMeier("years", "died")


def test_a_plan_says_how_wide_the_interval_is_at_each_edge(frame):
    sites = {name: frame[i::3] for i, name in enumerate("abc")}
    consortium = cape.Consortium(sites, SCHEMA, cape.Budget(1, 1e-6), colluding=0)
    plan = consortium.plan(KaplanMeier("years", "died", edges=[2, 5, 8]), share=1.0)
    (table,) = plan.outlook
    assert [row[0] for row in table.rows] == ["2", "5", "8"]
    assert 0 < float(table.rows[1][2]) < 1
    assert plan.to_dict()["outlook"][0]["rows"] == table.rows


def test_the_picture_has_a_curve_and_numbers_at_risk_for_every_group(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        model = plainly(KaplanMeier("years", "cause", by="sex", edges=EDGES), frame).model
    page = model._repr_html_()
    assert page.count('class="line c1"') == 2 * 3  # the curve and two incidences, wide and narrow
    assert "Number at risk (events until then)" in page
    assert f"{(frame['sex'] == 'm').sum():,} (0)" in page
    found = model.to_dict()["groups"][0]
    assert len(found["survival"]) == len(EDGES) + 1
    assert model.predict([0.0, 10.0, 11.0])[:2] == pytest.approx([1.0, found["survival"][-1]])
    assert "cause = cancer or other" in model.summary()


@pytest.mark.parametrize("scheme", ["none", "cape"])
def test_without_events_there_is_no_median_before_the_last_edge(scheme):
    table = people(900, 2).with_columns(died=pl.lit("no"))
    sites = {name: table[i::3] for i, name in enumerate("abc")}
    for _ in range(6 if scheme == "cape" else 1):
        release = cape.Consortium(sites, SCHEMA, cape.Budget(1, 1e-6), scheme=scheme).release(
            cape.KaplanMeier("years", "died", bins=12), share=0.5
        )
        (median,) = [row for row in release.tables()[0].rows if "median" in row[0]]
        assert median[1] in ("not reached", "-")
        assert release.value["years quantile 0.5"] >= 5


def test_intervals_of_medians_end_at_edges_with_their_digits_and_without_a_standard_error():
    release = plainly(cape.KaplanMeier("years", "died", bins=40), people(700))
    (median,) = [row for row in release.tables()[0].rows if "median" in row[0]]
    low, high = median[2].split(" to ")
    assert len(low.partition(".")[2]) == len(high.partition(".")[2]) <= 2
    assert not any(median[3:])
    whole = plainly(cape.KaplanMeier("years", "died", edges=EDGES), people(700))
    times = [row[0] for row in whole.tables()[1].rows]
    assert times == ["0.5", "1", "2", "3", "4", "6", "8", "10"]


def test_without_noise_nothing_is_said_of_noise_where_nobody_is_at_risk():
    table = people(300).filter(pl.col("years") < 5)
    notes = " ".join(plainly(cape.KaplanMeier("years", "died", bins=20), table).notes())
    assert "nobody is at risk" in notes
    assert "noise" not in notes
