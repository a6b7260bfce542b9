"""Random numbers of simulations are the same for everybody."""

from __future__ import annotations

import numpy as np
import pytest

from cape.stats.simulation import DRAWS, generator, normals


def test_a_seed_draws_the_same_numbers_every_time_and_another_one_others():
    assert generator(3).random(4).tolist() == generator(3).random(4).tolist()
    assert generator((3, 1)).random(4).tolist() != generator((3, 2)).random(4).tolist()


def test_normal_numbers_are_kept_and_cannot_be_changed():
    found = normals(7, 3)
    assert found.shape == (DRAWS, 3)
    assert found is normals(7, 3)
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1.0
    assert np.corrcoef(found.T) == pytest.approx(np.eye(3), abs=0.12)
