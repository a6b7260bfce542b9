"""No plan grows with rows or with the budget, and a scheme with more noise is planned to have more."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.analyses.registry import KINDS, build
from cape.data import Category, Number, Schema
from cape.engine.plan import BESIDE, expected_noise
from cape.engine.query import Noise
from cape.engine.schemes import Parties, make_scheme
from cape.engine.stages import Setting
from cape.engine.steady import steady
from cape.privacy import Budget
from tests.slices import examples

SITES = 5
MORE = 1.01
SCHEMA = Schema(
    age=Number(0, 120, missing=False, expected={"mean": 50, "sd": 12}),
    chol=Number(0, 800, missing=False, expected={"mean": 200, "sd": 40}),
    sex=Category(("female", "male"), missing=False),
    disease=Category(("no", "yes"), missing=False, expected={"share": 0.3}),
)
BARE = Schema({name: replace(column, expected=None) for name, column in SCHEMA.items()})
OF_THEIR_OWN = {
    "log-rank",  # more rows show more bins, whose events count as well
    "mixed-model",  # where nothing is expected, noise that hides an intercept is planned too small
}
MANY_STEPS = ("cox", "glm", "logistic-regression", "survival-regression")


@cache
def noise(kind: str, expected: bool, scheme: str, epsilon: float, rows: int) -> dict[str, float]:
    """What is planned for the example of a kind, with rows spread evenly over sites."""
    schema = SCHEMA if expected else BARE
    setting = Setting(schema, Budget(epsilon, 1e-6), Parties(SITES, 0, SITES), "replace-one")
    analysis = setting.asked(build({"kind": kind, **KINDS[kind].example}))
    sizes = {str(i): rows // SITES for i in range(SITES)}
    query = analysis.query(schema, setting.neighbours)
    return expected_noise(analysis, query, setting, make_scheme(scheme, "gaussian"), 1.0, sizes)


@pytest.mark.slow_cases(*MANY_STEPS, seconds=3)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OF_THEIR_OWN])
def test_plans_do_not_grow_with_rows_or_epsilon_and_follow_the_noise_of_schemes(kind: str) -> None:
    for expected in (True, False):
        for rows, epsilon in ((1_000, 1.0), (5_000, 0.3), (20_000, 2.0)):
            now = noise(kind, expected, "pooled", epsilon, rows)
            for more in ((2 * epsilon, rows), (epsilon, 2 * rows), (4 * epsilon, rows), (epsilon, 4 * rows)):
                then = noise(kind, expected, "pooled", *more)
                assert all(then[label] <= MORE * now[label] for label in now), more
        by_scheme = [noise(kind, expected, name, 1.0, 5_000) for name in ("pooled", *BESIDE[:-1])]
        for one, other in itertools.pairwise(by_scheme):
            assert all(one[label] <= MORE * other[label] for label in one)


@examples(100)
@given(st.floats(0.01, 100), st.integers(1, 10**6), st.floats(1, 8), st.integers(1, 8))
def test_jumps_are_evened_out(std: float, rows: int, worse: float, fewer: int) -> None:
    """Bounds that are powers of 2 make the noise jump up where there is a little less of it."""

    def jumping(noise: Noise, many: int) -> dict[str, float]:
        each = noise[0][0] / many
        return {"x": each * 2.0 ** (1 - (math.log2(each) % 1)) ** 3}

    now = steady(jumping, [[std]], rows)["x"]
    assert steady(jumping, [[worse * std]], rows)["x"] >= 0.999 * now
    assert steady(jumping, [[std]], -(-rows // fewer))["x"] >= 0.999 * now
    assert 0.5 < now / jumping([[std]], rows)["x"] < 4


def test_what_has_no_noise_is_left_as_it_is() -> None:
    assert steady(lambda noise, rows: {"x": 0.0}, [[0.0]], 10) == {"x": 0.0}
    assert steady(lambda noise, rows: {"x": 0.0, "y": math.inf}, [[1.0]], 10) == {"x": 0.0, "y": math.inf}
    assert steady(lambda noise, rows: {}, [[1.0]], 10) == {}
