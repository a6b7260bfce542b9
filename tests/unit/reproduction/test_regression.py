"""The paper's regressions: the shortcut has the protocol's distribution, and claims can fail."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from scipy import stats

from cape.core.errors import CapeError
from cape.data import Number, Schema
from cape.engine.consortium import Consortium
from cape.noise import SecureStream
from cape.privacy import Budget, paper
from reproduction import FIRST_SEED, Cell, Reference, datasets, find
from reproduction import regression as r
from reproduction.calibration import release_as_published
from reproduction.figures import _linear as panels
from reproduction.figures import figure_3, figure_7
from reproduction.runner import reproduce
from tests.unit.reproduction.conftest import Noise

RUNS = 100


@pytest.fixture
def noise_figure():
    return Noise()


def cell(rows=500, epsilon=1.0, delta=1e-5, seed=1, shortcut=True, width=5, data="synthetic"):
    return Cell.of(
        "figure-3", seed, sweep="s", data=data, width=width, rows=rows, epsilon=epsilon, delta=delta,
        x=epsilon, drawn=3, shortcut=shortcut,
    )  # fmt: skip


@functools.cache
def noise(scheme, exact):
    """Return the noise of many releases over what the paper's formula says it is: 1 in every entry."""
    of, epsilon, delta = r.experiment("synthetic", 4, 100, 3), 1.0, 1e-5
    asked = r.FunctionalMechanism("y", of.data.names, alone=True)
    tau = paper.classical_tau(epsilon, delta)
    found = []
    for run in range(RUNS):
        stream = SecureStream(bytes([run, exact]) * 16)
        budget = Budget(4 * epsilon, delta)
        consortium = Consortium(of.sites, of.schema, budget, stream=stream)
        way = scheme if exact else r.Shortcut(scheme)
        release = release_as_published(consortium, asked, 1 / 16, way)
        assert (release.cost.bytes > 0) == exact  # the one sends messages, the other none
        loss = release.model
        local = scheme == "local"
        n = of.data.rows // r.SITES if local else of.data.rows
        part = slice(n * (r.SITES - 1) if local else 0, None)  # of sites of equal size the last one
        x, y = (each[part] for each in (of.pooled().x, of.pooled().y))
        above = np.triu_indices(of.data.X.shape[1], 1)
        total = {"cape-gaussian": 1.0, "local": 1.0}.get(scheme, math.sqrt(r.SITES)) * tau / n
        gaps = [
            np.array([loss.constant - y @ y / n]) / total,
            (loss.first + 2 * y @ x / n) / (4 * total),
            np.diag(loss.second - x.T @ x / n) / (math.sqrt(2) * total),
            (loss.second - x.T @ x / n)[above] / total,  # two entries of the paper's matrix as one
        ]
        found.append(np.concatenate(gaps))
    return np.concatenate(found)


@pytest.mark.slow(4.9)
@pytest.mark.parametrize("scheme", r.COMPARED)
def test_the_shortcut_has_the_protocols_distribution(scheme):
    protocol, shortcut = (noise(scheme, exact) for exact in (True, False))
    for sample in (protocol, shortcut):
        assert abs(sample.mean()) < 4 / math.sqrt(sample.size)
        assert abs(sample.var() - 1) < 4 * math.sqrt(2 / sample.size)
        assert stats.kstest(sample, "norm").pvalue > 1e-4
    assert stats.ks_2samp(protocol, shortcut).pvalue > 1e-4


def ring_noise(exact):
    """Return the noise that ring masks leave in releases of the same budget, in units of one array's."""
    of = r.experiment("synthetic", 4, 100, 3)
    asked = r.FunctionalMechanism("y", of.data.names, alone=False)
    x, n = of.pooled().x, of.data.rows
    found, stated = [], set()
    for run in range(RUNS):
        stream = SecureStream(bytes([run, 2 + exact]) * 16)
        consortium = Consortium(of.sites, of.schema, Budget(1.0, 1e-5), stream=stream)
        release = consortium.release(asked, 1.0, scheme="cape" if exact else r.Shortcut("cape"))
        found.append((release.model.second - x.T @ x / n)[np.triu_indices(4, 1)])
        stated.add(release.guarantee.mu)
        assert (release.cost.bytes > 0) == exact  # the one sends messages, the other none
    assert len(stated) == 1
    return np.concatenate(found), stated.pop()


@pytest.mark.slow(6)
def test_the_shortcut_of_ring_masks_has_their_distribution():
    (protocol, mu), (shortcut, same) = (ring_noise(exact) for exact in (True, False))
    assert mu == pytest.approx(same, rel=1e-12)
    of = r.experiment("synthetic", 4, 100, 3)
    together = r.FunctionalMechanism("y", of.data.names, alone=False).query(of.schema, "replace-one")
    # S sites, of which S - S_C hide: S/(S - S_C) times a curator's variance; an entry of two is over sqrt(2)
    std = together.sensitivity / mu * math.sqrt(r.SITES / (r.SITES - 1)) / of.data.rows
    for sample in (protocol / std, shortcut / std):
        assert abs(sample.mean()) < 4 / math.sqrt(sample.size)
        assert abs(sample.var() - 1) < 4 * math.sqrt(2 / sample.size)
    assert stats.ks_2samp(protocol, shortcut).pvalue > 1e-4
    assert stats.ks_2samp(protocol, 1.5 * shortcut).pvalue < 1e-2


@pytest.mark.slow(4)
@pytest.mark.parametrize("exact", [True, False])
def test_a_wrong_scale_is_rejected(exact):
    for factor in (0.75, 1.25, math.sqrt(r.SITES)):
        wrong = noise("cape-gaussian", exact) / factor
        assert abs(wrong.var() - 1) > 4 * math.sqrt(2 / wrong.size)
    assert stats.kstest(wrong, "norm").pvalue < 1e-4  # what conventional noise would be


def test_equal_calibration_spends_what_it_says_and_the_paper_more():
    rows = r.compute(cell())
    true = {(row["calibration"], row["algorithm"]): row["true_epsilon"] for row in rows}
    assert true["published", "cape-gaussian"] == pytest.approx(1.66, abs=0.005)
    for scheme in r.COMPARED:
        assert true["equal", scheme] == pytest.approx(1.0, rel=1e-4)
    assert true["both", "cape"] == pytest.approx(1.0, rel=1e-4)
    ten = {
        row["algorithm"]: row for row in r.compute(cell(epsilon=10.0)) if row["calibration"] == "published"
    }
    assert ten["cape-gaussian"]["true_epsilon"] == pytest.approx(26, abs=0.5)


def test_protocol_and_shortcut_give_the_same_columns_and_other_noise():
    protocol, shortcut = (r.compute(cell(shortcut=each)) for each in (False, True))
    assert [(row["calibration"], row["algorithm"]) for row in protocol] == [
        (row["calibration"], row["algorithm"]) for row in shortcut
    ]
    assert protocol == r.compute(cell(shortcut=False))
    exact = {row["algorithm"]: row for row in protocol if row["calibration"] == "both"}
    assert exact["none"]["loss"] < 1e-20
    assert exact["zero"]["err_w"] == pytest.approx(1 / 5)
    other = r.compute(cell(shortcut=False, seed=2))
    for mine, theirs in zip(protocol, other, strict=True):
        assert (mine["loss"] == theirs["loss"]) == (mine["algorithm"] in ("none", "zero"))


def test_the_box_holds_the_least_value_of_a_convex_quadratic():
    draw = np.random.default_rng(1)
    for width in (1, 3, 8):
        root = draw.normal(size=(width, width))
        second, first = root @ root.T + 0.1 * np.eye(width), draw.normal(size=width)
        free = -np.linalg.solve(second, first) / 2
        inside = r.Quadratic(0.0, 0.5 * first / np.abs(free).max(), second)
        np.testing.assert_allclose(r.in_the_box(inside), 0.5 * free / np.abs(free).max(), atol=1e-5)
        loss = r.Quadratic(0.0, 30 * first, second)
        w = r.in_the_box(loss)
        slope = loss.first + 2 * second @ w
        assert np.abs(w).max() <= 1
        pushed = np.where(w >= 1, slope < 1e-4, np.where(w <= -1, slope > -1e-4, np.abs(slope) < 1e-3))
        assert pushed.all()  # the conditions for a least value in a box


def test_noise_without_data_ends_in_a_corner_but_never_above_zero():
    noise_alone = r.Quadratic(1.0, np.array([3.0, -1.0]), np.array([[-5.0, 1.0], [1.0, -4.0]]))
    w = r.in_the_box(noise_alone)
    np.testing.assert_allclose(np.abs(w), 1)
    assert noise_alone(w) < noise_alone(np.zeros(2))


def test_rows_are_no_longer_than_the_mechanism_assumes():
    for name in ("synthetic", "unit-rows"):
        of = r.experiment(name, 6, 200, 3)
        norms = np.linalg.norm(of.data.X, axis=1)
        assert norms.max() <= 1
        assert np.abs(of.data.y).max() <= 1
        if name == "unit-rows":
            assert norms.min() > 1 - 1e-9
        np.testing.assert_allclose(of.pooled().x, of.data.X, atol=2.0**-20)


def test_the_product_leaves_codes_out():
    X = np.full((10, 3), 0.1)
    bounds = dict.fromkeys(("state", "a", "fold", "y"), (-1.0, 1.0))
    data = datasets.Dataset("crime", ("state", "a", "fold"), X, X[:, 0], "y", bounds, None)
    of = r.Experiment(data, {}, Schema({name: Number(-1, 1) for name in bounds}))
    assert of.own_features == ("a",)


def test_figure_7_shares_what_figure_3_computes():
    for fast in (True, False):
        three, seven = (set(find(name).cells(fast)) for name in ("figure-3", "figure-7"))
        assert three < seven
        assert len({c.seed for c in seven}) == (panels.FAST_RUNS if fast else panels.RUNS)


def small(sweep, given):
    """Return the cells of a run of few values, and few rows."""
    kept = {"epsilon": (1.0, 10.0), "samples": sweep.fast[-2:], "delta": sweep.fast[-2:]}[sweep.variable]
    if given["x"] in kept:
        return Cell("figure-7", tuple((dict(given.settings) | {"rows": 100, "width": 3}).items()), given.seed)
    return None


def legend(picture):
    return [text.get_text() for each in picture.legends for text in each.get_texts()]


@pytest.mark.slow(11)
def test_figures_are_drawn_and_judged():
    drawn = (*figure_7._PANELS, *figure_7._UNIT, *figure_3.CORNERS)
    everything = [sweep for sweeps in drawn for sweep in sweeps]
    cells = [small(sweep, c) for sweep in everything for c in sweep.cells("figure-7", True, (1, 2))]
    rows = [row for each in cells if each for row in r.compute(each)]
    points = {
        (sweep.reference, algo, metric): [panels.Point(10.0, 0.1, 0.01, 10)]
        for sweep in figure_7._PANELS[0]
        for algo in panels.AUTHORS.values()
        for metric in ("errW", "noisy_objective")
    }
    for figure in (figure_3.FIGURE, figure_7.FIGURE):
        pictures = figure.draw(rows, Reference(points))
        assert set(pictures) == {"published", "equal", "unit-rows-published", "unit-rows-equal"}
        assert all(axes.lines for picture in pictures.values() for axes in picture.axes)
        assert "the authors' values" in legend(pictures["published"])
        assert panels.LABELS["cape"] in legend(pictures["published"])
        assert "the authors' values" not in legend(pictures["equal"])
        claims = figure.claims(rows, Reference(points))
        assert all(claim.measured for claim in claims)
        assert any("within a factor 2" in claim.says for claim in claims)
        assert len(figure.claims(rows, None)) < len(claims)
        assert figure.notes(rows)


def test_a_cell_that_two_figures_share_is_computed_once(noise_figure, tmp_path):
    class Other(type(noise_figure)):
        name = "figure-5"

        def cells(self, fast, seed=FIRST_SEED):
            return noise_figure.cells(fast, seed)

    other = Other()
    reproduce([noise_figure, other], tmp_path, workers=1)
    assert len(noise_figure.computed) + len(other.computed) == 6


def test_an_order_that_does_not_hold_is_said():
    sweep = figure_3.PANELS[0][0]
    losses = {"cape-gaussian": 1.0, "conventional": 3.0, "local": 2.0, "dp-fm": 4.0}
    rows = [
        {"sweep": sweep.reference, "calibration": "published", "algorithm": name, "x": 1.0, "loss": loss}
        for name, loss in losses.items()
    ]
    claim = panels.ordered(rows, [sweep], "published", "here")
    assert claim.holds is False
    assert "1 / 3 / 2 / 4" in claim.measured
    rows[1]["loss"] = 1.5
    assert panels.ordered(rows, [sweep], "published", "here").holds is True


def test_figure_4_says_what_data_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("CAPE_DATA", str(tmp_path))
    monkeypatch.setattr("reproduction.datasets.fetch.urlopen", _no_network, raising=False)
    monkeypatch.setattr("urllib.request.urlopen", _no_network)
    with pytest.raises(CapeError):
        find("figure-4").require()


def _no_network(*_args, **_more):
    raise OSError("no network")
