"""mu against the whole view of the adversary, written out and solved in exact arithmetic.

The view is a linear map of independent noises. It is degenerate (colluders see their own messages and noise),
so mu² = v' x for any exact solution x of Sigma x = v: no pseudo-inverse, no rounding.
"""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import InvalidInput
from cape.privacy import correlated
from tests.slices import examples

RING = Fraction(10) ** 60  # the variance of a ring mask, as good as infinite


def solve(matrix, right):
    """Return an exact solution x of matrix @ x = right, or None where there is none."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size, pivots = len(right), []
    for column in range(size):
        at = len(pivots)
        found = next((r for r in range(at, size) if rows[r][column]), None)
        if found is None:
            continue
        rows[at], rows[found] = rows[found], rows[at]
        pivot = rows[at][column]
        rows[at] = [value / pivot for value in rows[at]]
        for r in range(size):
            if r != at and rows[r][column]:
                scale = rows[r][column]
                rows[r] = [a - scale * b for a, b in zip(rows[r], rows[at], strict=True)]
        pivots.append(column)
    if any(row[-1] for row in rows[len(pivots) :]):
        return None
    x = [Fraction(0)] * size
    for row, column in zip(rows, pivots, strict=False):
        x[column] = row[-1]
    return x


def mu_of_view(seen, variances, site_rows, site, *others):
    """Return mu when the messages of these sites move by 1. `seen` holds rows over the independent noises."""
    size = len(seen)
    sigma = [[sum(a * b * v for a, b, v in zip(r, c, variances, strict=True)) for c in seen] for r in seen]
    moved = {site_rows[each] for each in (site, *others)}
    shift = [Fraction(int(row in moved)) for row in range(size)]
    x = solve(sigma, shift)
    if x is None:
        return math.inf
    return math.sqrt(sum(a * b for a, b in zip(shift, x, strict=True)))


def unit(size, place):
    return [Fraction(int(i == place)) for i in range(size)]


def broadcast_view(sites, colluding, missing, correlated_variance, local_variance):
    """Build the paper's view: noises ê_0.., g_0..; the last sites collude, the first honest ones are lost."""
    size = 2 * sites
    total = [Fraction(int(i < sites)) for i in range(size)]
    seen, site_rows = [total], {}
    for s in range(missing, sites):
        site_rows[s] = len(seen)
        message = [-part / sites for part in total]
        message[s] += 1
        message[sites + s] += 1
        seen.append(message)
    for s in range(sites - colluding, sites):
        seen += [unit(size, s), unit(size, sites + s)]
    return seen, [correlated_variance] * sites + [local_variance] * sites, site_rows


@pytest.mark.parametrize("sites", [1, 2, 3, 5, 7])
@pytest.mark.parametrize(("alpha", "gamma"), [(0, 2), (Fraction(1, 3), 1), (1, 1), (7, Fraction(1, 5))])
def test_broadcast_noise_has_the_mu_of_its_whole_view(sites, alpha, gamma):
    alpha, gamma = Fraction(alpha), Fraction(gamma)
    for colluding in range(sites):
        for missing in range(sites - colluding):
            view = broadcast_view(sites, colluding, missing, alpha**2, gamma**2)
            exact = 3 * mu_of_view(*view, site=missing)
            found = correlated.mu(3.0, float(gamma), float(alpha), sites, colluding, missing=missing)
            assert found == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("sites", "colluding", "missing"), [(5, 0, 0), (6, 1, 0), (6, 1, 2), (7, 3, 1)])
@pytest.mark.parametrize("alpha", [0, Fraction(1, 3), 2, None])
def test_a_person_at_several_sites_has_the_mu_of_the_whole_view(sites, colluding, missing, alpha):
    variance = RING if alpha is None else Fraction(alpha) ** 2
    noise = math.inf if alpha is None else float(alpha)
    honest = range(missing, sites - colluding)
    if alpha is None and missing:
        return  # masks of lost sites are revealed: another view
    for many in range(1, len(honest) + 1):
        view = broadcast_view(sites, colluding, missing, variance, Fraction(1, 4))
        exact = mu_of_view(*view, *honest[:many])
        found = correlated.mu(1.0, 0.5, noise, sites, colluding, missing=missing, person_sites=many)
        assert found == pytest.approx(exact, rel=1e-12)
        one = correlated.mu(1.0, 0.5, noise, sites, colluding, missing=missing)
        if alpha is None:
            assert found == pytest.approx(many * one)
        if alpha == 0:
            assert found == pytest.approx(math.sqrt(many) * one)


@pytest.mark.parametrize(("sites", "colluding"), [(5, 0), (5, 1), (6, 3), (4, 3)])
def test_ring_masks_are_the_limit_of_large_correlated_noise(sites, colluding):
    view = broadcast_view(sites, colluding, 0, RING, Fraction(4))
    exact = mu_of_view(*view, site=0)
    assert correlated.mu(1.0, 2.0, math.inf, sites, colluding) == pytest.approx(exact, rel=1e-12)


def graph_view(edges, local_variances, colluding, missing):
    """Build the view of noise on edges: colluders know theirs, and masks of missing sites are revealed."""
    sites = len(local_variances)
    pairs = list(edges)
    size = len(pairs) + sites
    seen, site_rows = [], {}
    for s in range(sites):
        if s in missing:
            continue
        site_rows[s] = len(seen)
        message = unit(size, len(pairs) + s)
        for k, (i, j) in enumerate(pairs):
            message[k] += int(i == s) - int(j == s)
        seen.append(message)
    for s in colluding:
        seen.append(unit(size, len(pairs) + s))
    for k, pair in enumerate(pairs):
        if colluding & set(pair) or (edges[pair] == RING and missing & set(pair)):
            seen.append(unit(size, k))
    return seen, [*edges.values(), *local_variances], site_rows


def as_stds(variances):
    return {pair: math.inf if v == RING else math.sqrt(v) for pair, v in variances.items()}


def assert_graph_agrees(edges, local_variances, colluding, missing):
    found = correlated.graph_mus(
        2.0, [math.sqrt(v) for v in local_variances], as_stds(edges), colluding, missing
    )
    view = graph_view(edges, local_variances, colluding, missing)
    honest = [s for s in range(len(local_variances)) if s not in colluding | missing]
    assert sorted(found) == honest
    for site in honest:
        assert found[site] == pytest.approx(2 * mu_of_view(*view, site=site), rel=1e-12)
    worst = correlated.graph_mu(
        2.0, [math.sqrt(v) for v in local_variances], as_stds(edges), colluding, missing
    )
    assert worst == max(found.values())


@st.composite
def graphs(draw):
    sites = draw(st.integers(1, 6))
    pairs = [(i, j) for i in range(sites) for j in range(sites) if i < j]
    weight = st.sampled_from([None, None, Fraction(1, 9), Fraction(1), Fraction(25), RING])
    edges = {pair: v for pair in pairs if (v := draw(weight)) is not None}
    local = [draw(st.sampled_from([Fraction(1, 4), Fraction(1), Fraction(5)])) for _ in range(sites)]
    roles = [draw(st.sampled_from(["honest", "honest", "colluding", "missing"])) for _ in local]
    roles[draw(st.integers(0, sites - 1))] = "honest"
    pick = lambda role: {s for s, r in enumerate(roles) if r == role}  # noqa: E731
    return edges, local, pick("colluding"), pick("missing")


@given(graphs())
@examples(60)
def test_any_graph_has_the_mu_of_its_whole_view(graph):
    assert_graph_agrees(*graph)


@pytest.mark.one_in(3, seconds=0.06)
@pytest.mark.parametrize("variance", [Fraction(2), RING])
@pytest.mark.parametrize("shape", [correlated.complete, correlated.star, correlated.tree])
@pytest.mark.parametrize(
    ("colluding", "missing"), [(set(), set()), ({0}, set()), ({2}, {0}), (set(), {0, 5}), ({1, 4}, set())]
)
def test_named_graphs_have_the_mu_of_their_whole_view(shape, variance, colluding, missing):
    edges = dict.fromkeys(shape(6, 1.0), variance)
    assert_graph_agrees(edges, [Fraction(1)] * 6, colluding, missing)


def test_a_complete_graph_is_the_broadcast_scheme_at_the_right_variance():
    for sites, colluding in [(5, 0), (5, 2), (9, 3)]:
        honest = sites - colluding
        edges = correlated.complete(sites, 3.0 / math.sqrt(honest))
        chosen = range(colluding)
        assert correlated.graph_mu(1.0, 0.5, edges, chosen) == pytest.approx(
            correlated.mu(1.0, 0.5, 3.0, sites, colluding), rel=1e-12
        )
        ring = correlated.complete(sites, math.inf)
        assert correlated.graph_mu(1.0, 0.5, ring, chosen) == pytest.approx(
            correlated.mu(1.0, 0.5, math.inf, sites, colluding), rel=1e-12
        )


def test_edges_of_very_different_size_cost_no_digits():
    edges = {(0, 1): 1e9, (1, 2): 1e-3, (2, 3): 1e9, (3, 0): 1e4, (1, 3): 1e7}
    stds = [1.0, 2e-3, 1.0, 5.0]
    exact = {pair: Fraction(std) ** 2 for pair, std in edges.items()}
    view = graph_view(exact, [Fraction(std) ** 2 for std in stds], set(), set())
    found = correlated.graph_mus(1.0, stds, edges)
    for site in range(4):
        assert found[site] == pytest.approx(mu_of_view(*view, site=site), rel=1e-12)


def test_a_star_whose_hub_colludes_leaves_every_leaf_alone():
    star = correlated.star(6, math.inf)
    assert correlated.graph_mu(1.0, 2.0, star) == pytest.approx(0.5 / math.sqrt(6))
    assert correlated.isolated_sites(star, 6) == ()
    assert correlated.graph_mu(1.0, 2.0, star, {0}) == 0.5
    assert correlated.isolated_sites(star, 6, {0}) == (1, 2, 3, 4, 5)
    assert correlated.isolated_sites(star, 6, (), {0}) == (1, 2, 3, 4, 5)
    # Gaussian noise of a lost hub is never unmasked
    assert correlated.isolated_sites(correlated.star(6, 3.0), 6, (), {0}) == ()
    assert correlated.isolated_sites(correlated.star(6, 0.0), 6) == (0, 1, 2, 3, 4, 5)


def test_a_tree_is_cut_where_a_site_colludes():
    mus = correlated.graph_mus(1.0, 1.0, correlated.tree(7, math.inf), {1})
    assert mus == pytest.approx({s: 1.0 if s in (3, 4) else 0.5 for s in (0, 2, 3, 4, 5, 6)})


def test_a_site_with_no_noise_within_reach_has_no_guarantee():
    mus = correlated.graph_mus(1.0, [0.0, 0.0, 1.0, 0.0], {(0, 1): 5.0, (2, 3): 2.0})
    assert mus[0] == mus[1] == math.inf
    assert mus[2] == 1.0
    assert mus[3] == pytest.approx(math.sqrt(1 + 1 / 4))
    assert correlated.graph_mu(1.0, 0.5, {(0, 1): 1.0}, sites=3) == 2.0


def test_the_number_of_sites_must_be_known():
    with pytest.raises(InvalidInput, match="sites must be given"):
        correlated.graph_mu(1.0, 1.0, {})
    with pytest.raises(InvalidInput, match="local_std must have one value for each of the sites, not 2"):
        correlated.graph_mu(1.0, [1.0, 1.0], {(0, 1): 1.0}, sites=3)
    assert correlated.graph_mus(1.0, 0.5, {}, sites=2) == {0: 2.0, 1: 2.0}
