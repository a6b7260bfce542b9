"""The learned test: it finds what is there, in the ring too, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np

from cape.audit import learned
from cape.audit.bounds import errors_of, mu_bound
from cape.audit.learned import learn, stack
from cape.engine.calibration import RESOLUTION

RUNS = 1200
PRESENT = np.arange(RUNS) // 2 % 2 == 1


def words(stream, mask, shift=0.0):
    """Return noise with a shift, under a mask, modulo 2^64."""
    rng = np.random.default_rng(1)
    values = np.rint(RESOLUTION * (rng.normal(size=RUNS) + shift * PRESENT)).astype(np.int64)
    with np.errstate(over="ignore"):
        return (values + mask)[:, None]


def bound(views):
    return mu_bound(learn(views, PRESENT, 0.01)[0], 0.01)


def test_fresh_masks_hide_everything(stream):
    assert bound(words(stream, stream.words(RUNS, np.int64), 5.0)) < 0.3


def test_a_mask_that_is_used_again_hides_nothing(stream):
    assert bound(words(stream, stream.words(1, np.int64), 3.0)) > 2.0


def test_without_a_difference_nothing_is_found(stream):
    assert bound(words(stream, 0)) < 0.3


def test_two_features_together_tell_what_neither_tells(stream):
    rng = np.random.default_rng(2)
    noise = 20 * rng.normal(size=RUNS)
    pair = np.column_stack([noise + 3 * PRESENT + rng.normal(size=RUNS), noise])
    assert bound(np.rint(pair * RESOLUTION).astype(np.int64)) > 2.0


def test_views_of_runs_that_asked_less_end_in_zeros():
    assert stack([np.array([1, 2, 3]), np.array([4])]).tolist() == [[1, 2, 3], [4, 0, 0]]


def test_judging_on_the_runs_that_were_learned_from_is_caught():
    """The audit's own mistake: with many features and few runs, noise is then told from noise."""
    rng, present = np.random.default_rng(3), np.arange(160) // 2 % 2 == 1
    honest, cheating = [], []
    for _ in range(20):
        views = np.rint(rng.normal(size=(160, 60)) * RESOLUTION).astype(np.int64)
        honest.append(mu_bound(learn(views, present, 0.05)[0], 0.05))
        design = learned._design(views, views[0])
        scores = design @ learned._discriminant(design, present)
        cheating.append(mu_bound(errors_of(scores > np.median(scores), present), 0.05))
    assert sum(bound > 0 for bound in honest) <= 4
    assert sum(bound > 0 for bound in cheating) == 20
