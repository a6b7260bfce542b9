"""Where events come only at some values of a category, ratios of hazards have no end, and that is said."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

import cape

SCHEMA = cape.Schema(
    years={"low": 0, "high": 10, "missing": False},
    died=["no", "yes"],
    arm=["a", "b"],
    other=["m", "f"],
    age={"low": 20, "high": 95, "missing": False},
)


def table(ratio: float, rows: int = 1500) -> pl.DataFrame:
    """Rows of which those of arm b have so many times the hazard; all events are theirs if it is infinite."""
    rng = np.random.default_rng(3)
    arm, age = rng.integers(0, 2, rows), rng.normal(60, 12, rows).clip(20, 95)
    slow = 0.2 / ratio
    with np.errstate(divide="ignore"):
        time = rng.exponential(1 / np.where(arm == 1, 0.2, max(slow, 1e-300)))
    end = rng.uniform(1, 10, rows)
    return pl.DataFrame(
        {
            "years": np.minimum(time, end),
            "died": np.where(time <= end, "yes", "no"),
            "arm": np.array(["a", "b"])[arm],
            "other": np.array(["m", "f"])[rng.integers(0, 2, rows)],
            "age": age,
        }
    )


def released(ratio: float, features: list[str], scheme: str = "cape", epsilon: float = 4.0) -> cape.Release:
    rows = table(ratio)
    sites = {f"s{i}": rows.gather_every(3, i) for i in range(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cape.Consortium(sites, SCHEMA, cape.Budget(epsilon, 1e-5)).release(
            cape.Cox("years", "died", features), share=1.0, scheme=scheme
        )


def test_events_only_at_one_value_are_named_and_the_interval_goes_on() -> None:
    found = released(np.inf, ["arm", "age"])
    low, high = found.interval()["arm=b"]
    assert any("there are events only where arm=b" in each for each in found.model.faults)
    assert any("noise hides whether there are any where arm=a" in each for each in found.model.faults)
    assert 0 < low < high
    assert high >= 10
    assert not any("separate rows" in each for each in found.model.faults)


def test_a_strong_effect_that_has_an_end_is_not_named() -> None:
    found = released(3.0, ["arm", "age"])
    assert not any("events only" in each for each in found.model.faults)
    low, high = found.interval()["arm=b"]
    assert 0 < low < high < 3


def test_without_noise_steps_that_have_no_end_are_named_and_end() -> None:
    found = released(np.inf, ["arm", "age"], scheme="none")
    assert any("there are events only where arm=b has some" in each for each in found.model.faults)
    assert found.model.rounds < 15
    low, high = found.interval()["arm=b"]
    assert high > low + 20  # nothing is known but that it is large
    fine = released(8.0, ["arm", "age"], scheme="none")
    assert not fine.model.faults
    assert fine.interval()["arm=b"][1] < 3.5


@pytest.mark.parametrize("ratio", [np.inf, 2.0])
def test_of_groups_those_without_events_are_named(ratio: float) -> None:
    found = released(ratio, ["arm"])
    named = any(
        "events only where arm=b: noise hides whether there are any where arm=a" in each
        for each in found.model.faults
    )
    assert named == np.isinf(ratio)


def test_a_result_says_which_likelihood_it_is_of_and_without_noise_nothing_of_noise() -> None:
    for features, of in ((["arm", "age"], ", in each of which"), (["arm"], ".")):
        exact, noisy = (released(2.0, features, scheme) for scheme in ("none", "cape"))
        said = "Estimates are those of the partial likelihood with times in 40 bins"
        for found in (exact, noisy):
            assert sum(each.startswith(said) for each in found.model.notes()) == 1
        assert any(each.startswith(said + of) for each in noisy.model.notes())
        assert not any("noise" in each for each in exact.model.notes())
        assert any("count the noise" in each for each in noisy.model.notes())
        assert all(each.privacy == 0 for each in exact.model.estimates)
