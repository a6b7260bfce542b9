"""A study without delta across members in one process, and when a site is lost."""

from __future__ import annotations

from fractions import Fraction

import pytest

from cape.stats.law import Law
from cape.study import Study
from tests.world import HISTOGRAM, NAMES, World

pytestmark = pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")


def without_delta(world: World, min_sites: int) -> Study:
    path = world.study(HISTOGRAM, epsilon=1.0, min_sites=min_sites).path
    path.write_text(path.read_text().replace("delta = 1e-6\n", ""))
    return Study.load(path)


def test_it_agrees_with_one_process(world: World):
    study = without_delta(world, 3)
    submission, consortium = world.submission(study), study.consortium()
    (entry,) = study.analyses
    ours, theirs = submission.answer(entry), consortium.release(entry.analysis, entry.share)
    assert ours.guarantee == theirs.guarantee
    assert ours.guarantee.pure == 1.0
    assert ours.estimates.privacy.tolist() == theirs.estimates.privacy.tolist()
    assert {e.law for e in ours.estimates} == {e.law for e in theirs.estimates} == {Law(round(4 / 3, 9))}
    for one, other in zip(ours.estimates, theirs.estimates, strict=True):
        assert abs(one.value - other.value) < 15 * one.privacy
    for name in NAMES:
        assert world.sites[name].ledger.spent().pure == Fraction(1)


def test_surplus_laplace_noise_is_taken_off_bit_for_bit(world: World):
    """With a site lost before it masks, the others keep the level that is made for one loss."""
    study = without_delta(world, 3)
    world.channel.deaf = {"d": "mask"}
    (entry,) = study.analyses
    found = world.submission(study).answer(entry)
    assert found.lost == ("d",)
    assert {e.law for e in found.estimates} == {Law(1.5)}  # three sites of shape 1/2
    rows = sum(e.value for e in found.estimates)
    assert abs(rows - 400 - 523 - 701) < 15 * 6 * found.estimates[0].privacy
