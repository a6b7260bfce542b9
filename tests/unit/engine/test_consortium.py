from __future__ import annotations

import copy
import math
import pickle
import threading
import warnings

import numpy as np
import polars as pl
import pytest

from cape.analyses import Mean, Sum
from cape.core.errors import (
    BadMessage,
    BudgetExceeded,
    CapeError,
    DataError,
    InvalidInput,
    PrivacyLeakWarning,
    TooFewSites,
    TooNoisyWarning,
)
from cape.data import Number, Schema, Site
from cape.engine.consortium import Consortium
from cape.engine.schemes import CapeGaussian
from cape.noise import SecureStream
from cape.privacy import Budget
from tests.unit.engine.questions import Average, Bins, Size, Squares

RNG = np.random.default_rng(11)
TABLES = {
    name: pl.DataFrame({"age": RNG.normal(50, 12, rows)})
    for name, rows in {"a": 60, "b": 900, "c": 300, "d": 40, "e": 200}.items()
}
SCHEMA = Schema(age=Number(18, 90, missing=False))
EDGES = np.linspace(18, 90, 37)
BUDGET = Budget(epsilon=1.0, delta=1e-6)


def consortium(key=b"consortium", budget=BUDGET, **options):
    options.setdefault("colluding", 1)
    options.setdefault("stream", SecureStream(key.ljust(32, b"-")))
    return Consortium(TABLES, SCHEMA, budget, **options)


def truth():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return np.array(list(consortium().release(Bins("age", EDGES), 0.1, scheme="none").value.values()))


def test_without_noise_the_answer_is_the_exact_one_and_a_warning_says_so():
    ages = np.concatenate([t["age"].to_numpy() for t in TABLES.values()]).clip(18, 90)
    together = consortium()
    with pytest.warns(PrivacyLeakWarning, match="not private"):
        release = together.release(Bins("age", EDGES), 0.5, scheme="none")
    assert list(release.value.values()) == np.histogram(ages, EDGES)[0].tolist()
    assert together.budget.spent == 0
    assert release.guarantee.mu == math.inf
    assert "There is no guarantee" in release.guarantee.statement


@pytest.mark.one_in(4, seconds=1.5)
@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian", "conventional", "pooled"])
def test_the_stated_error_is_the_error(scheme):
    exact = truth()
    together = consortium(scheme.encode(), scheme=scheme)
    z = []
    for _ in range(40):
        release = together.release(Bins("age", EDGES), 0.025)
        z.append((np.array(list(release.value.values())) - exact) / release.estimates[0].privacy)
    assert np.std(z) == pytest.approx(1, abs=4 / math.sqrt(2 * 40 * exact.size))
    assert np.std(z) != pytest.approx(1.15, abs=4 / math.sqrt(2 * 40 * exact.size))  # sqrt(4/3): a lost site


def test_shares_compose_exactly_and_cannot_be_overdrawn():
    together = consortium()
    mus = [together.release(Bins("age", EDGES), 0.1).guarantee.mu for _ in range(10)]
    assert math.sqrt(sum(mu * mu for mu in mus)) == pytest.approx(BUDGET.mu, rel=1e-12)
    assert together.budget.remaining == 0
    with pytest.raises(BudgetExceeded, match=r"at most what is left, 0, not 0\.1"):
        together.release(Bins("age", EDGES), 0.1)
    assert len(together.releases) == 10


def test_a_skipped_composition_would_be_seen():
    """Ten releases at the whole budget each would cost sqrt(10) times its mu: the noise tells."""
    share, whole = (consortium().release(Bins("age", EDGES), s).estimates[0].privacy for s in (0.1, 1.0))
    assert share == pytest.approx(whole * math.sqrt(10), rel=2e-3)


def test_releases_at_once_cannot_overdraw():
    together = consortium()
    done, refused = [], []

    def ask():
        try:
            done.append(together.release(Bins("age", EDGES), 0.3))
        except BudgetExceeded:
            refused.append(1)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(done), len(refused)) == (3, 5)
    noise = [np.array(list(r.value.values())) for r in done]
    assert not np.array_equal(noise[0], noise[1])


@pytest.mark.parametrize(("when", "spent"), [("share", 0.0), ("mask", 0.25)])
def test_a_failed_release_costs_its_share_only_if_a_message_left_a_site(when, spent):
    together = consortium(min_sites=4)
    with pytest.raises(TooFewSites):
        together.release(Bins("age", EDGES), 0.25, drop={"a": when, "b": when})
    assert float(together.budget.spent) == spent


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError, BadMessage])
@pytest.mark.parametrize(
    ("scheme", "place"),
    [("cape", "cape.secagg.shamir.combine"), ("conventional", "cape.engine.schemes.messages.aggregate")],
)
def test_whatever_breaks_once_messages_may_have_left_the_share_is_spent(monkeypatch, failure, scheme, place):
    def broken(*_):
        raise failure

    together = consortium(scheme=scheme)
    monkeypatch.setattr(place, broken)
    with pytest.raises(failure):
        together.release(Bins("age", EDGES), 0.25)
    assert float(together.budget.spent) == 0.25


def test_a_function_that_fails_is_paid_for():
    """Whether it fails is a fact about the rows: asking again and again would find a cell."""

    def picky(batch):
        if batch["age"].max() > 60:
            raise KeyError
        return batch["age"]

    together = consortium()
    with pytest.raises(DataError):
        together.release(Sum.of(picky, columns=["age"], bound=90), 0.25)
    assert float(together.budget.spent) == 0.25


def test_the_largest_site_is_chosen_by_what_is_public():
    sizes = {"a": 10, "b": 5, "c": 5, "d": 5, "e": 5}  # b is the largest, which is private here
    together = consortium(neighbours="add-remove", scheme="local", sizes=sizes)
    assert together.release(Bins("age", EDGES), 0.2).participants == ("a",)
    assert consortium(scheme="local").release(Bins("age", EDGES), 0.2).participants == ("b",)


def test_a_site_without_rows_is_a_mistake_unless_sizes_are_private():
    tables = {**TABLES, "f": TABLES["a"].head(0)}
    together = Consortium(tables, SCHEMA, BUDGET, colluding=1)
    with pytest.raises(DataError, match="no rows"):
        together.release(Bins("age", EDGES), 0.5)
    assert together.budget.spent == 0
    private = Consortium(tables, SCHEMA, BUDGET, colluding=1, neighbours="add-remove")
    assert len(private.release(Bins("age", EDGES), 0.5).participants) == 6


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_consortium_cannot_be_copied(copier):
    with pytest.raises(TypeError, match="spend the budget again"):
        copier(consortium())


def test_a_plan_of_what_is_public_costs_nothing():
    plan = consortium().plan(Size(), 0.5)
    assert plan.noise == {"rows": dict.fromkeys(("cape", "conventional", "local", "pooled"), 0.0)}
    assert plan.guarantee.mu == 0
    assert "is public" in plan.guarantee.statement
    assert consortium().release(Size(), 0.5).guarantee.mu == 0


def test_a_plan_scales_what_one_site_counts_to_all():
    sizes = {"a": 900, "b": 25, "c": 25, "d": 25, "e": 25}
    counts = consortium(sizes=sizes).plan(Bins("age", EDGES), 0.5).noise["bin 0"]
    assert counts["local"] / counts["pooled"] == pytest.approx(1000 / 900, rel=1e-3)
    means = consortium(sizes=sizes).plan(Average("age"), 0.5).noise["age"]
    assert means["local"] / means["pooled"] == pytest.approx(1000 / 900, rel=1e-3)


def test_a_plan_says_when_too_little_is_left():
    together = consortium()
    together.release(Average("age"), 0.9)
    assert "Only 0.1 of the budget is left." in together.plan(Average("age"), 0.2).advice
    assert "is left" not in together.plan(Average("age"), 0.1).advice


def test_tables_in_memory_show_their_lengths_where_sizes_are_public():
    assert consortium().plan(Average("age"), 0.5).rows == 1500
    assert not consortium().plan(Average("age"), 0.5).assumed_rows
    assert consortium(neighbours="add-remove").plan(Bins("age", EDGES), 0.5).assumed_rows


def test_the_random_graph_of_many_sites_is_in_the_promise():
    sites = {f"{i:03d}": f"nowhere{i}.csv" for i in range(200)}
    together = Consortium(sites, SCHEMA, BUDGET, colluding=10, min_sites=180)
    promise = together.plan(Average("age"), 0.5).guarantee
    assert 0 < promise.extra < 2.0**-40
    assert f"adds at most {promise.extra:.1g} to delta" in promise.statement
    strict = Consortium(sites, SCHEMA, Budget(1.0, 1e-14), colluding=10, min_sites=180)
    with pytest.raises(InvalidInput, match="delta must be more than twice"):
        strict.plan(Average("age"), 0.5)
    assert consortium().plan(Average("age"), 0.5).guarantee.extra == 0


def test_a_lost_site_is_named_by_its_absence():
    release = consortium(min_sites=4).release(Average("age"), 0.5, drop={"b": "mask"})
    assert release.participants == ("a", "c", "d", "e")
    assert release.rows == 600
    ages = np.concatenate([TABLES[n]["age"].to_numpy() for n in "acde"]).clip(18, 90)
    assert abs(release.value - ages.mean()) < 6 * release.estimates[0].privacy


def test_by_default_a_lost_site_is_tolerated_as_long_as_a_lying_aggregator_is_held_off():
    whole, without_b = (
        consortium(b"default").release(Average("age"), 0.5, drop=drop) for drop in ({}, {"b": "mask"})
    )
    assert without_b.participants == ("a", "c", "d", "e")
    assert "a lying aggregator is held off too" in without_b.guarantee.statement
    rows = sum(TABLES[name].height for name in "acde") / sum(TABLES[name].height for name in "abcde")
    noise = without_b.estimates[0].privacy / whole.estimates[0].privacy
    assert noise * rows == pytest.approx(math.sqrt((4 / 3) / (5 / 4)), rel=1e-6)
    with pytest.raises(TooFewSites):
        consortium().release(Average("age"), 0.5, drop={"a": "mask", "b": "mask"})
    assert consortium(scheme="conventional").parties.min_sites == 4
    assert consortium(scheme="cape-gaussian").parties.min_sites == 5, "its noise is not taken off again"


def test_fewer_required_sites_cost_nothing_until_sites_are_lost():
    noise = {
        (required, lost): consortium(min_sites=required)
        .release(Average("age"), 0.5, drop=dict.fromkeys("abcde"[:lost], "mask"))
        .estimates[0]
        .privacy
        for required, lost in ((5, 0), (3, 0), (3, 1), (3, 2))
    }
    rows = [sum(len(TABLES[name]) for name in "abcde"[lost:]) for lost in range(3)]
    assert noise[3, 0] == pytest.approx(noise[5, 0])
    for lost in (1, 2):  # of so many sites less one colluding
        over = math.sqrt((5 - lost) / (4 - lost) / (5 / 4)) * rows[0] / rows[lost]
        assert noise[3, lost] / noise[5, 0] == pytest.approx(over, rel=1e-6)


def test_a_site_that_falls_silent_after_its_vector_leaves_its_surplus_noise():
    def noise(**options):
        return consortium(min_sites=3).release(Average("age"), 0.5, **options).estimates[0].privacy

    levels = {lost: 1 / (4 - lost) for lost in range(3)}
    late = math.sqrt((4 * levels[0] + levels[2]) / (5 * levels[0]))
    assert noise(drop={"a": "unmask"}) / noise() == pytest.approx(late, rel=1e-6)
    assert noise(drop={"a": "consistency"}) / noise() == pytest.approx(late, rel=1e-6)


def test_a_table_that_does_not_fit_costs_nothing():
    tables = {**TABLES, "bad": pl.DataFrame({"wrong": [1.0]})}
    together = Consortium(tables, SCHEMA, BUDGET, colluding=1)
    with pytest.raises(CapeError, match="bad"):
        together.release(Bins("age", EDGES), 0.5)
    assert together.budget.spent == 0


def test_under_add_remove_the_number_of_rows_is_nobodys_business():
    release = consortium(neighbours="add-remove").release(Bins("age", EDGES), 0.5)
    assert release.rows is None
    assert "added or left out" in release.guarantee.statement
    assert "sizes of sites public" not in release.guarantee.statement


def test_what_is_public_costs_nothing():
    together = consortium()
    assert together.release(Size(), 0.5).value == 1500
    assert together.budget.spent == 0


def test_one_instance_of_cape_gaussian_keeps_its_stock():
    together = consortium(scheme=CapeGaussian())
    first = together.release(Average("age"), 0.2)
    assert first.cost.rounds == 6
    together.prepare(numbers=100)
    later = [together.release(Average("age"), 0.2) for _ in range(2)]
    assert [release.cost.rounds for release in later] == [1, 1]
    assert ("6 rounds," in str(first), "1 round," in str(later[0])) == (True, True)
    with pytest.raises(InvalidInput, match="cape-gaussian"):
        consortium().prepare(numbers=10)


def test_the_same_key_gives_the_same_release_and_no_key_does_not():
    one, two = (consortium(b"same").release(Average("age"), 0.5).value for _ in range(2))
    assert one == two
    free = [
        Consortium(TABLES, SCHEMA, BUDGET, colluding=1).release(Average("age"), 0.5).value for _ in range(2)
    ]
    assert free[0] != free[1]


def test_a_release_prints_and_serialises():
    release = consortium().release(Average("age"), 0.5)
    assert release.interval(0.95)[0] < release.value < release.interval(0.95)[1]
    text = str(release)
    for word in ("average of age", "standard error", "cape: a, b, c, d, e", "share 0.5"):
        assert word in text
    plain = release.to_dict()
    assert plain["guarantee"]["epsilon"] == pytest.approx(release.guarantee.epsilon)
    assert plain["cost"]["rounds"] == 5
    assert "mu = " in str(release.guarantee)
    assert "Consortium(a, b, c, d, e; 1 colluding, 4 of 5 must answer" in repr(consortium())


def test_plans_read_no_data_and_agree_with_the_release():
    together = Consortium(
        {"a": "/nowhere/a.csv", "b": "/nowhere/b.csv", "c": "/nowhere/c.parquet", "d": "x.csv"},
        SCHEMA,
        BUDGET,
    )
    plan = together.plan(Average("age"), 0.5)
    assert plan.assumed_rows
    assert plan.rows == 4000
    assert together.budget.spent == 0
    sized = consortium(sizes={name: len(t) for name, t in TABLES.items()})
    planned = sized.plan(Average("age"), 0.5)
    assert planned.noise["age"]["cape"] == pytest.approx(
        sized.release(Average("age"), 0.5).estimates[0].privacy, rel=2e-3
    )
    assert planned.noise["age"]["conventional"] / planned.noise["age"]["pooled"] == pytest.approx(
        math.sqrt(5), rel=2e-3
    )
    assert planned.noise["age"]["cape"] / planned.noise["age"]["pooled"] == pytest.approx(
        math.sqrt(5 / 4), rel=2e-3
    )
    assert "The error would halve with" in str(planned)
    assert planned.to_dict()["guarantee"]["mu"] == planned.guarantee.mu


def test_what_a_plan_says_would_halve_the_error_does():
    sizes = dict.fromkeys(TABLES, 300)
    plan = consortium(sizes=sizes).plan(Average("age"), 0.5)
    now = plan.noise["age"]["cape"]
    more = Budget(plan.halving["epsilon"], BUDGET.delta)
    assert consortium(sizes=sizes, budget=more).plan(Average("age"), 0.5).noise["age"][
        "cape"
    ] == pytest.approx(now / 2, rel=2e-3)
    doubled = {name: round(plan.halving["rows"] / 5) for name in sizes}
    assert consortium(sizes=doubled).plan(Average("age"), 0.5).noise["age"]["cape"] <= now / 2 * 1.002
    count = int(plan.halving["sites"])
    for sites, holds in ((count, True), (count - 1, False)):
        larger = Consortium(
            {str(i): f"{i}.csv" for i in range(sites)},
            SCHEMA,
            BUDGET,
            colluding=1,
            sizes={str(i): 300 for i in range(sites)},
        )
        assert (larger.plan(Average("age"), 0.5).noise["age"]["cape"] <= now / 2 * 1.0005) is holds
    assert consortium(sizes=sizes).plan(Bins("age", EDGES), 0.5).halving["rows"] is None


@pytest.mark.parametrize(
    ("options", "drop", "lost", "variance"),
    [
        ({}, {}, (), 1.0),
        ({}, {"b": "mask"}, ("b",), (4 / 3) / (5 / 4)),
        ({"min_sites": 2}, {"b": "mask", "e": "share"}, ("b", "e"), (3 / 2) / (5 / 4)),
        ({"min_sites": 2}, {"d": "unmask"}, ("d",), (5 / 4 + 1 / 1 - 1 / 4) / (5 / 4)),  # all its parts stay
        ({"min_sites": 2}, {"b": "mask", "d": "unmask"}, ("b", "d"), (4 / 3 + 1 / 1 - 1 / 3) / (5 / 4)),
        ({"scheme": "cape-gaussian", "min_sites": 4}, {"b": "message"}, ("b",), 4 * 2 / 5),
        ({"scheme": "conventional"}, {"b": "message"}, ("b",), 4 / 5),
        ({"scheme": "pooled"}, {"d": "message"}, (), 1.0),
        ({"scheme": "local"}, {"d": "message"}, (), 1.0),
        ({"colluding": 0}, {"b": "mask"}, ("b",), 1.0),
    ],
)
def test_a_release_tells_how_much_larger_its_noise_is_for_lost_sites(options, drop, lost, variance):
    release = consortium(**options).release(Average("age"), 0.5, drop=drop)
    assert release.growth == pytest.approx(math.sqrt(variance), rel=1e-6)
    assert release.lost == lost
    told = release.to_dict()
    assert (told["growth"], told["lost"]) == (release.growth, list(lost))
    times = f"{math.sqrt(variance):.3g}"
    names = [f"{name}{' (after its rows were counted)' * (drop[name] == 'unmask')}" for name in lost]
    said = f"Lost: {', '.join(names)}; the noise of the sums is {times} times as large as with all sites, and"
    flat = " ".join(str(release).split())
    assert (said in flat) == (said in " ".join(told["notes"])) == (variance > 1)
    assert ("as large as" in flat) == (variance > 1)


def test_without_noise_nothing_grows():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        assert consortium().release(Average("age"), 0.5, scheme="none", drop={"b": "message"}).growth == 1.0


def test_a_plan_tells_the_noise_with_sites_lost_and_it_is_that_of_the_release():
    together = consortium(min_sites=2)
    plan = together.plan(Average("age"), 0.3)
    expected = {lost: math.sqrt((5 - lost) / (5 - lost - 1) / (5 / 4)) for lost in (1, 2, 3)}
    assert plan.lost == pytest.approx(expected, rel=1e-6)
    assert plan.to_dict()["lost"] == {str(lost): times for lost, times in plan.lost.items()}
    said = "the noise is 1.03 times as large, with 2 lost 1.1 times, with 3 lost 1.26 times, over the same"
    assert f"With 1 site lost before it sends its sums {said} rows." in plan.advice
    whole, without = (together.release(Bins("age", EDGES), 0.3, drop=drop) for drop in ({}, {"b": "mask"}))
    noise = without.estimates[0].privacy / whole.estimates[0].privacy
    assert noise == pytest.approx(plan.lost[1], rel=1e-6)


def test_a_scheme_named_by_a_release_has_its_own_default_of_min_sites():
    """Losses that are accepted cost noise under cape-gaussian, so nobody gets them without asking."""
    named = consortium().plan(Average("age"), 0.5, scheme="cape-gaussian")
    own = consortium(scheme="cape-gaussian").plan(Average("age"), 0.5)
    asked = consortium(min_sites=4).plan(Average("age"), 0.5, scheme="cape-gaussian")
    assert named.guarantee.parties.min_sites == 5
    assert named.noise == own.noise
    assert asked.guarantee.parties.min_sites == 4
    assert asked.expected_error["age"] > own.expected_error["age"]
    with pytest.raises(TooFewSites):
        consortium().release(Average("age"), 0.5, scheme="cape-gaussian", drop={"b": "message"})


def test_a_plan_tells_of_at_most_four_numbers_of_lost_sites():
    tables = {str(i): TABLES["a"] for i in range(30)}
    plan = Consortium(tables, SCHEMA, BUDGET, colluding=9).plan(Average("age"), 0.5)
    assert list(plan.lost) == [1, 2, 3, 10]
    assert plan.lost[10] == pytest.approx(math.sqrt((20 / 11) / (30 / 21)), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "lost", "advice"),
    [
        ({"min_sites": 5}, {}, "A lost site ends the release; min_sites = 4 would allow 1, at no cost until"),
        ({"colluding": 3}, {}, "A lost site ends the release."),
        ({"scheme": "cape-gaussian"}, {}, "A lost site ends the release."),
        ({"colluding": 0}, {1: 1.0, 2: 1.0}, "With up to 2 sites lost before they send their sums the noise"),
        (
            {"colluding": 0, "min_sites": 4},
            {1: 1.0},
            "With 1 site lost before it sends its sums the noise stays the same.",
        ),
        (
            {"scheme": "conventional"},
            {1: math.sqrt(4 / 5)},
            "A lost site takes its own noise with it: with 1 site lost the noise is 0.894 times as large,",
        ),
        # 4 sites' own noise, and as much again: the paper's zero-sum noise does not cancel without one site
        (
            {"scheme": "cape-gaussian", "min_sites": 4},
            {1: math.sqrt(4 * 2 / 5)},
            "With 1 site lost the noise is at most 1.26 times as large, over the same rows.",
        ),
        ({"scheme": "pooled"}, {}, ""),
        ({"scheme": "local"}, {}, ""),
        ({"scheme": "none"}, {}, ""),
    ],
)
def test_what_a_lost_site_does_under_other_schemes_and_numbers(options, lost, advice):
    plan = consortium(**options).plan(Average("age"), 0.5)
    assert plan.lost == pytest.approx(lost, rel=1e-6)
    assert advice in plan.advice
    assert ("lost" in plan.advice) == bool(advice)


def test_a_plan_of_a_late_loss_is_what_the_papers_noise_leaves():
    together = consortium(scheme="cape-gaussian", min_sites=4)
    plan = together.plan(Bins("age", EDGES), 0.3)
    whole, without = (together.release(Bins("age", EDGES), 0.3, drop=drop) for drop in ({}, {"b": "message"}))
    noise = without.estimates[0].privacy / whole.estimates[0].privacy
    assert noise == pytest.approx(plan.lost[1], rel=1e-6)


def test_three_sites_or_fewer_warn_that_no_site_may_be_curious():
    with pytest.warns(PrivacyLeakWarning, match="no colluding site"):
        Consortium({n: TABLES[n] for n in "abc"}, SCHEMA, BUDGET)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "capes"}, "scheme must be one of cape, cape-gaussian"),
        ({"neighbours": "replace"}, "neighbours must be 'replace-one' or 'add-remove', not 'replace'"),
        ({"colluding": 5}, "colluding must be an integer at least 0 and at most 4, not 5"),
        ({"min_sites": 1}, r"min_sites \(1\) must be above colluding \(1\)"),
        ({"budget": 1.0}, "budget must be a Budget, not float"),
        ({"scheme": []}, "scheme must be one of cape"),
        ({"sizes": {"a": 3}}, "sizes must give a number of rows for each of a, b, c, d, e"),
        ({"sizes": [1, 2, 3, 4, 5]}, "sizes must give a number of rows"),
        ({"sizes": dict.fromkeys("abcde", -1)}, "must be an integer at least 0, not -1"),
        ({"stream": np.random.default_rng(1)}, "stream must be a SecureStream"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(InvalidInput, match=message):
        consortium(**options).plan(Average("age"), 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.release("mean", 0.1), "analysis must be a cape analysis such as Mean"),
        (lambda c: c.release(Average("age"), 0.0), "share must be a finite number above 0 and at most 1"),
        (lambda c: c.release(Average("age"), 2.0), "share must be"),
        (lambda c: c.release(Average("aeg"), 0.1), "no column 'aeg' in the schema; did you mean 'age'"),
        (lambda c: c.release(Average("age"), 0.1, drop={"q": "mask"}), "drop names site 'q'"),
        (lambda c: c.release(Average("age"), 0.1, drop={"a": "message"}), "must be at one of .*unmask, not"),
        (lambda c: c.plan(Average("age"), -1.0), "share must be"),
        (
            lambda c: c.release(Mean("age", where="age > 200"), 0.1),
            "no row can meet age > 200: the bounds of",
        ),
        (lambda c: c.plan(Mean("age", where="age < 18"), 0.1), "no row can meet age < 18: the bounds of age"),
    ],
)
def test_bad_questions_cost_nothing(call, message):
    together = consortium()
    with pytest.raises(InvalidInput, match=message):
        call(together)
    assert together.budget.spent == 0


@pytest.mark.parametrize("sites", [{}, [], "abc", None, {"": "a.csv"}, ["a.csv"]])
def test_no_sites_at_all(sites):
    with pytest.raises(InvalidInput, match="at least one name to a table"):
        Consortium(sites, SCHEMA, BUDGET)


@pytest.mark.parametrize("name", ["\udc80", "a\nb", "x" * 201])
def test_names_that_cannot_be_printed(name):
    with pytest.raises(InvalidInput, match="all printable"):
        Consortium({name: TABLES["a"], "b": TABLES["b"]}, SCHEMA, BUDGET, colluding=0)


def test_sites_may_come_as_a_list():
    sites = [Site(name, table) for name, table in TABLES.items()]
    together = Consortium(sites, SCHEMA, BUDGET, colluding=1)
    assert together.release(Average("age"), 0.5).participants == tuple(TABLES)
    with pytest.raises(InvalidInput, match="different names"):
        Consortium([*sites, sites[0]], SCHEMA, BUDGET)


def test_without_noise_private_sizes_do_not_matter():
    with pytest.warns(PrivacyLeakWarning):
        consortium(neighbours="add-remove").release(Squares("age"), 0.5, scheme="none")


def test_a_warning_names_the_line_that_called():
    rows = pl.DataFrame({"age": [40.0, 50.0, 60.0]})
    consortium = Consortium(
        {name: rows.clone() for name in "abc"}, Schema(age=(30, 90)), Budget(0.5, 1e-6), colluding=1
    )
    with pytest.warns(TooNoisyWarning) as caught:
        consortium.release(Mean("age"), 0.1)
    assert {each.filename for each in caught} == {__file__}


@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian"])
def test_one_site_alone_is_refused_where_a_sum_would_be_its_own(scheme):
    sites = {"a": TABLES["a"]}
    with pytest.raises(InvalidInput, match=f"scheme '{scheme}' needs at least two sites"):
        Consortium(sites, SCHEMA, BUDGET, scheme=scheme)
    with pytest.warns(PrivacyLeakWarning):
        alone = Consortium(sites, SCHEMA, BUDGET, scheme="pooled", min_sites=1)
    with pytest.raises(InvalidInput, match="needs at least two sites"):
        alone.release(Mean("age"), share=0.5, scheme=scheme)
    assert alone.budget.spent == 0.0
    assert math.isfinite(alone.release(Mean("age"), share=0.5).value)
