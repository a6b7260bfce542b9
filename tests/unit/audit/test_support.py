"""Which answers can come from which table: floats tell, integers do not."""

from __future__ import annotations

import numpy as np

from cape.audit.support import float_noise, reachable
from cape.engine.calibration import RESOLUTION
from cape.noise import discrete_gaussian

COUNT = 20_000
FIRST, SECOND = np.zeros(COUNT, np.int64), np.full(COUNT, RESOLUTION // 4)


def test_a_sum_of_floats_can_always_come_from_its_own_table(stream):
    for exact in (FIRST, SECOND, SECOND * 7 + 3):
        answer = exact + float_noise(float(RESOLUTION), COUNT, stream)
        assert reachable(answer, exact).all()


def test_a_sum_of_floats_often_cannot_come_from_the_other(stream):
    answer = FIRST + float_noise(float(RESOLUTION), COUNT, stream)
    assert 0.1 < 1 - reachable(answer, SECOND).mean() < 0.9


def test_a_sum_on_the_grid_can_come_from_both(stream):
    answer = FIRST + discrete_gaussian(float(RESOLUTION), COUNT, stream)
    assert reachable(answer, FIRST).all()
    assert reachable(answer, SECOND).all()
    assert not reachable(answer, SECOND + (1 << 40)).any()  # and what is out of reach is said to be


def test_float_noise_has_the_scale_it_says(stream):
    noise = float_noise(3.0, COUNT, stream)
    assert abs(noise.std() / 3 - 1) < 4 / np.sqrt(2 * COUNT)
