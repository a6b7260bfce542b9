"""The noise that the default scheme really leaves in a sum when sites are lost, in random patterns.

The benchmark `dropout.least` runs 2,000 of them, with up to 12 sites.
"""

import math
from dataclasses import replace

import pytest

from cape.engine.schemes import cape
from tests.unit.engine.losses import left, patterns

COUNT, MOST_SITES = 50, 5


def sums():
    found = (left(pattern, seed) for seed, pattern in enumerate(patterns(COUNT, MOST_SITES, 17)))
    return [each for steps in found for each in steps if each is not None]


@pytest.fixture(scope="module")
def honest_sums():
    return sums()


@pytest.mark.slow(1.5)
def test_noise_of_honest_sites_is_never_below_the_calibrated_amount(honest_sums):
    assert len(honest_sums) > COUNT
    assert min(each.honest for each in honest_sums) >= 1
    assert any(each.honest > 1.01 for each in honest_sums)  # somewhere a site fell silent, and left more


def test_reported_noise_is_what_is_left(honest_sums):
    for each in honest_sums:
        assert math.isclose(each.told, each.whole, rel_tol=1e-12)


@pytest.mark.slow(1.5)
def test_a_last_part_that_is_3_percent_short_would_be_seen(monkeypatch):
    right = cape._surplus

    def short(parties, noise="gaussian"):
        surplus = right(parties, noise)
        return replace(surplus, stds=(*surplus.stds[:-1], *(0.97 * std for std in surplus.stds[-1:])))

    monkeypatch.setattr(cape, "_surplus", short)
    assert min(each.honest for each in sums()) < 1
