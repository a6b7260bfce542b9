"""One contract for every scheme, and the variance that each leaves in the total."""

from __future__ import annotations

import math
import sys
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import stats

from cape.core.errors import InvalidInput, TooFewSites
from cape.engine import schemes
from cape.engine.calibration import RESOLUTION
from cape.engine.contribution import add_noise
from cape.engine.schemes import SCHEMES, CapeGaussian, Parties, Task, check_drop
from cape.engine.schemes.cape import secagg_choices
from cape.noise import Ring, SecureStream
from cape.privacy import correlated
from tests.checkout import ROOT
from tests.unit.noise.statistics import ERROR_RATE

ENTRIES = 20_000
ROWS = {"a": 50, "b": 5000, "c": 300, "d": 2000, "e": 700}
PARTIES = Parties(sites=5, colluding=1, min_sites=5)
MU = 0.3
NAMES = list(SCHEMES)


@dataclass(frozen=True)
class Known(Task):
    """A task whose exact sums are known, for comparison."""

    exact: dict[str, np.ndarray] = field(default_factory=dict)


def task(scheme, key, entries=ENTRIES, parties=PARTIES, drop=None, mu=MU, rows=ROWS):
    rng = np.random.default_rng(5)
    root = SecureStream(key.ljust(32, b"."))
    local_std = scheme.local_std(mu, parties) or 0.0
    exact = {name: rng.integers(-(2**40), 2**40, entries) for name in rows}
    noisy = scheme.noisy(rows, drop or {})
    return Known(
        vectors={
            name: add_noise(vector, scheme.part(parties), root.fork(f"site {name}"))
            if name in noisy
            else vector
            for name, vector in exact.items()
        },
        rows=rows,
        parties=parties,
        local_std=local_std,
        ring=Ring(64),
        drop=drop or {},
        keys=root.fork("keys"),
        exact=exact,
    )


def exact(task, participants):
    return sum(task.exact[name] for name in participants)


def over_pooled(outcome, task):
    """The released noise over what a curator would add, as variances: both per unit of sensitivity."""
    noise = outcome.total - exact(task, outcome.participants)
    return float(np.mean((noise * task.local_std / RESOLUTION) ** 2)) * MU**2


@pytest.mark.parametrize("name", NAMES)
def test_contract(name):
    scheme = SCHEMES[name]()
    this = task(scheme, b"contract")
    outcome = scheme.run(this)
    assert outcome.total.dtype == np.int64
    assert outcome.total.size == ENTRIES
    assert set(outcome.participants) == ({"b"} if name == "local" else set(ROWS))
    assert outcome.cost.bytes >= 8 * ENTRIES
    noise = outcome.total - exact(this, outcome.participants)
    if name == "none":
        assert not noise.any()
        return
    # the stated noise is the noise: its chi-square fits, and would not fit if it were 3% larger or smaller
    z = np.sum((noise / outcome.noise) ** 2)
    assert ERROR_RATE < stats.chi2.cdf(z, ENTRIES) < 1 - ERROR_RATE
    for wrong in (0.97, 1.03):
        assert not ERROR_RATE < stats.chi2.cdf(z * wrong**2, ENTRIES) < 1 - ERROR_RATE
    # what the plan says of the total is the noise, and what the noise costs is the mu that was asked for
    assert outcome.noise * this.local_std / RESOLUTION == pytest.approx(
        scheme.total_std(this.local_std, PARTIES)
    )
    assert scheme.cost_mu(this.local_std, PARTIES) == pytest.approx(MU)


@pytest.mark.parametrize("rows", [ROWS, dict.fromkeys("abcde", 1000)], ids=["unequal", "equal"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cape", 5 / 4),
        ("cape-gaussian", 5 * (5 + 4) / (6 * 4)),
        ("conventional", 5),
        ("pooled", 1),
        ("local", 1),
    ],
)
def test_variance_over_pooled_is_within_three_percent(name, expected, rows):
    scheme = SCHEMES[name]()
    this = task(scheme, b"variance" + name.encode(), rows=rows)
    assert over_pooled(scheme.run(this), this) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_two_releases_of_the_same_data_have_different_noise(name):
    scheme = SCHEMES[name]()
    one, two = (scheme.run(task(scheme, key, entries=50)).total for key in (b"one", b"two"))
    assert np.array_equal(one, two) == (name == "none")


@pytest.mark.parametrize("name", ["cape", "cape-gaussian", "conventional", "pooled", "none"])
def test_a_lost_site_is_left_out_and_the_noise_is_calibrated_for_it(name):
    parties = Parties(5, 1, 4)
    scheme = SCHEMES[name]()
    this = task(scheme, b"lost" + name.encode(), parties=parties, drop={"c": "mask"})
    outcome = scheme.run(this)
    assert set(outcome.participants) == set(ROWS) - {"c"}
    noise = outcome.total - exact(this, outcome.participants)
    if name != "none":
        z = np.sum((noise / outcome.noise) ** 2)
        assert ERROR_RATE < stats.chi2.cdf(z, ENTRIES) < 1 - ERROR_RATE
        assert scheme.cost_mu(this.local_std, parties) == pytest.approx(MU)  # at four sites, the worst case
    if name == "cape":  # four survivors, one of them colluding: the noise of three covers the sensitivity
        assert over_pooled(outcome, this) == pytest.approx(4 / 3, rel=0.03)
        assert this.local_std == pytest.approx(1 / (MU * math.sqrt(4)))  # made for the case that all stay


@pytest.mark.parametrize(
    ("name", "when", "sent"),
    [
        ("cape", "advertise", False),
        ("cape", "share", False),
        ("cape", "mask", True),
        ("cape", "unmask", True),
        ("cape-gaussian", "share", False),
        ("cape-gaussian", "mask", False),  # the offline run holds no data
        ("cape-gaussian", "message", True),
        ("conventional", "message", True),
    ],
)
def test_too_few_sites_give_no_answer_and_say_whether_data_had_left(name, when, sent):
    scheme = SCHEMES[name]()
    drop = dict.fromkeys("ab", when)
    with pytest.raises(TooFewSites) as caught:
        scheme.run(task(scheme, b"few", entries=10, parties=Parties(5, 1, 4), drop=drop))
    assert caught.value.sent is sent


def test_a_site_lost_after_it_sent_its_masked_vector_still_counts():
    scheme = SCHEMES["cape"]()
    this = task(scheme, b"late", parties=Parties(5, 1, 4), drop={"c": "unmask"})
    assert set(scheme.run(this).participants) == set(ROWS)


def test_gaussian_noise_left_over_by_a_lost_site_is_counted():
    parties = Parties(5, 1, 4)
    scheme = CapeGaussian()
    this = task(scheme, b"left over", parties=parties, drop={"c": "message"})
    outcome = scheme.run(this)
    noise = outcome.total - exact(this, outcome.participants)
    stated = correlated.aggregate_std(RESOLUTION, RESOLUTION * math.sqrt(5), 5, missing=1)
    assert outcome.noise == pytest.approx(stated)
    assert np.std(noise) == pytest.approx(stated, rel=0.03)


def test_one_offline_run_serves_many_releases():
    scheme = CapeGaussian()
    this = task(scheme, b"stock", entries=100)
    made = scheme.prepare(this, 300)
    assert made.rounds == 5
    totals = []
    for number in range(3):
        outcome = scheme.run(task(scheme, b"stock %d" % number, entries=100))
        assert outcome.cost.rounds == 1
        totals.append(outcome.total)
    assert len({t.tobytes() for t in totals}) == 3
    again = task(scheme, b"more", entries=100)
    assert scheme.run(again).cost.rounds == 6  # the stock is used up, and no part of it is used twice


def test_no_part_of_the_stock_is_handed_out_twice_at_once():
    """Two messages of a site with the same zero-sum noise would lose it in their difference."""
    scheme = CapeGaussian()
    this = task(scheme, b"race", entries=10)
    scheme.prepare(this, 2000)
    taken, threads = [], []

    def take():
        for _ in range(25):
            taken.append(scheme._take(10, scheme._std(this), frozenset(ROWS)).noise["a"])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len({noise.tobytes() for noise in taken}) == 200
    assert scheme._take(10, scheme._std(this), frozenset(ROWS)) is None


@pytest.mark.parametrize("when", ["mask", "consistency", "unmask", "message"])
def test_the_stated_noise_is_right_whenever_a_site_is_lost(when):
    scheme = CapeGaussian()
    this = task(scheme, b"when" + when.encode(), parties=Parties(5, 1, 4), drop={"c": when})
    outcome = scheme.run(this)
    noise = outcome.total - exact(this, outcome.participants)
    assert np.std(noise) == pytest.approx(outcome.noise, rel=0.03)


def test_a_stock_serves_the_sites_that_made_it():
    scheme = CapeGaussian()
    scheme.prepare(task(scheme, b"these", entries=10), 100)
    others = task(scheme, b"others", entries=10, rows={f"other {n}": 5 for n in ROWS})
    assert scheme.run(others).cost.rounds == 6


@pytest.mark.parametrize("std", [0.0, -1.0, math.inf, math.nan, "papers"])
def test_a_correlated_std_that_makes_no_sense_is_refused(std):
    with pytest.raises(InvalidInput, match="correlated_std must be"):
        CapeGaussian(std)


def test_a_correlated_std_out_of_reach_is_refused():
    scheme = CapeGaussian(1e9)
    with pytest.raises(InvalidInput, match="correlated_std must be 2"):
        scheme.run(task(scheme, b"far", entries=5))


def test_a_given_correlated_std_lies_between_conventional_and_ring_masks():
    parties = Parties(5, 1, 5)
    noise = [CapeGaussian(std).local_std(MU, parties) for std in (1e-9, 1.0, 30.0, 1e6)]
    assert noise == sorted(noise, reverse=True)
    assert noise[0] == pytest.approx(SCHEMES["conventional"]().local_std(MU, parties))
    assert noise[-1] == pytest.approx(SCHEMES["cape"]().local_std(MU, parties), rel=1e-6)
    scheme = CapeGaussian(3.0)
    this = task(scheme, b"given")
    assert over_pooled(scheme.run(this), this) == pytest.approx(5 * this.local_std**2 * MU**2, rel=0.03)


@pytest.mark.parametrize("std", [0.5, 3.0, 40.0])
def test_a_given_correlated_std_is_what_sites_draw_and_what_is_charged_for(std):
    parties, scheme = Parties(5, 1, 5), CapeGaussian(std)
    local = scheme.local_std(MU, parties)
    assert scheme.cost_mu(local, parties) == pytest.approx(MU)
    assert scheme.cost_mu(local, parties) == pytest.approx(correlated.mu(1.0, local, std, 4))
    made, _ = scheme._make(task(scheme, b"drawn"), 4000)
    drawn = np.std(list(made.noise.values())) / math.sqrt(1 - 1 / 5)  # the mean of five is taken off
    assert drawn / RESOLUTION == pytest.approx(std / task(scheme, b"drawn").local_std, rel=0.03)


def test_the_aggregator_of_conventional_sees_messages_that_are_private_alone():
    """Each message carries the whole noise; with `cape` a single one carries a quarter of its variance."""
    conventional, cape = SCHEMES["conventional"](), SCHEMES["cape"]()
    assert conventional.local_std(MU, PARTIES) == pytest.approx(1 / MU)
    assert cape.local_std(MU, PARTIES) == pytest.approx(0.5 / MU)


@pytest.mark.parametrize("name", SCHEMES)
def test_by_default_the_fewest_sites_that_hold_off_a_lying_aggregator_must_take_part(name):
    scheme = SCHEMES[name]()
    for sites in range(2 if scheme.cryptography else 1, 40):
        for colluding in range(sites):
            parties = scheme.parties(sites, colluding)
            enough = [m for m in range(colluding + 1, sites + 1) if 2 * m > sites + colluding]
            assert parties.min_sites == (sites if name == "cape-gaussian" else min(enough)), parties
            assert parties.lying
            assert scheme.parties(sites, colluding, sites) == Parties(sites, colluding, sites)
    assert scheme.parties(10).colluding == 3
    with pytest.raises(InvalidInput, match=r"colluding must be .*at most 2, not 3"):
        scheme.parties(3, 3)
    with pytest.raises(InvalidInput, match="min_sites is 4, but there are only 3 sites"):
        scheme.parties(3, 1, 4)


def test_the_page_on_the_guarantee_has_the_noise_that_lost_sites_leave():
    page = (ROOT / "docs/guarantee.md").read_text(encoding="utf-8")
    lines = page.split("| nobody lost |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    assert len(lines) == 5
    for line in lines:
        sites, colluding, needed, *told = (cell.strip() for cell in line.strip("|").split("|"))
        parties, scheme = Parties(int(sites), int(colluding), int(needed)), SCHEMES["cape"]()
        pooled = RESOLUTION**2 * (parties.sites - parties.colluding)  # a curator's, in steps²
        most = parties.sites - parties.min_sites
        for lost, cell in zip((0, 1, 2, 3, most), told, strict=True):
            if lost > most:
                assert not cell
                continue
            left = scheme.noise_in_total(parties.sites - lost, parties) ** 2 / pooled
            assert cell == f"{left:.3f}"
            assert left == pytest.approx(
                (parties.sites - lost) / (parties.sites - lost - parties.colluding)
            ), "every number of losses up to 12 has its own level"


def test_thresholds_follow_min_sites_and_say_when_a_lying_aggregator_is_held_off():
    assert Parties(5, 1, 5).lying
    assert Parties(5, 1, 4).lying
    assert not Parties(5, 1, 3).lying
    assert Parties(3, 0, 2).threshold == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Parties(0, 0, 0), "sites must be an integer at least 1"),
        (lambda: Parties(3, 3, 3), "colluding must be an integer at least 0 and at most 2, not 3"),
        (lambda: Parties(3, 1, 1), r"min_sites \(1\) must be above colluding \(1\)"),
        (lambda: Parties(3, 1, 4), "min_sites is 4, but there are only 3 sites"),
        (lambda: Parties(3, 1, 2.0), "min_sites must be an integer"),
        (lambda: check_drop({"z": "mask"}, ROWS), "drop names site 'z'; there are a, b, c, d, e"),
        (lambda: check_drop(["a"], ROWS), "drop must map sites to rounds"),
        (lambda: check_drop({"a": "lunch"}, ROWS), "drop of 'a' must be at one of advertise"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_every_scheme_is_registered_under_its_name():
    assert {name: kind.name for name, kind in SCHEMES.items()} == {name: name for name in SCHEMES}
    assert set(schemes.SCHEMES) == {"cape", "cape-gaussian", "conventional", "local", "pooled", "none"}


def test_the_graph_is_made_for_all_losses_or_in_large_consortia_for_one_site_in_ten():
    """Tolerating a third of 1,000 sites would make all of them neighbours, and a run takes an hour."""
    scheme = SCHEMES["cape"]()
    for sites in (51, 100, 150):
        parties = scheme.parties(sites, sites // 3)
        assert scheme.bears(parties) == secagg_choices(parties)["dropping"] == sites - parties.min_sites
    many = scheme.parties(1000, 1)
    assert (many.min_sites, many.lying) == (501, True)
    assert scheme.bears(many) == secagg_choices(many)["dropping"] == 100
    assert scheme.bears(Parties(1000, 1, 990)) == 10
    curious = Parties(1000, 1, 400)
    assert not curious.lying
    assert scheme.bears(curious) == 600, "the graph hides sites only if no more drop"


@pytest.mark.slow(1.5)
def test_just_above_fifty_sites_all_accepted_losses_are_survived():
    names = [f"{i:02d}" for i in range(51)]
    scheme, parties = SCHEMES["cape"](), SCHEMES["cape"]().parties(51, 16)
    lost = names[: parties.sites - parties.min_sites]
    vectors = {name: np.full(2, number) for number, name in enumerate(names)}
    local_std = scheme.local_std(1.0, parties)
    drop = dict.fromkeys(lost, "mask")
    rows = dict.fromkeys(names, 1)
    keys = SecureStream(bytes(32))
    outcome = scheme.run(Task(vectors, rows, parties, local_std, Ring(64), drop, keys))
    assert len(lost) == 17
    assert outcome.participants == tuple(names[17:])
