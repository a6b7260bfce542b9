"""Where events come only at some values of a category, ratios of hazards have no end, and that is said."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl

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


def released(
    ratio: float, features: list[str], scheme: str = "cape", epsilon: float = 4.0, *, law: bool = False
) -> cape.Release:
    rows = table(ratio)
    sites = {f"s{i}": rows.gather_every(3, i) for i in range(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cape.Consortium(sites, SCHEMA, cape.Budget(epsilon, 1e-5)).release(
            (cape.SurvivalRegression if law else cape.Cox)("years", "died", features),
            share=1.0,
            scheme=scheme,
        )


TRIES = 4  # noise may show events that are not there, in 2 of 100 releases


def test_events_only_at_one_value_are_named_and_the_interval_goes_on() -> None:
    named = 0
    for _ in range(TRIES):
        found = released(np.inf, ["arm", "age"])
        low, high = found.interval()["arm=b"]
        said = " ".join(found.model.faults)
        assert "separate" not in said
        if "events only where arm=b: noise hides whether there are any where arm=a" in said:
            named += 1
            assert 0 < low < high
            assert high >= 10
    assert named >= TRIES - 1


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


def test_of_groups_those_without_events_are_named() -> None:
    said = "events only where arm=b: noise hides whether there are any where arm=a"
    named = [
        any(said in each for each in released(ratio, ["arm"]).model.faults)
        for ratio in (*[np.inf] * TRIES, 2.0)
    ]
    assert sum(named[:-1]) >= TRIES - 1
    assert not named[-1]


def test_laws_of_time_name_values_without_events_and_their_intervals_go_on() -> None:
    named = 0
    for _ in range(TRIES):
        found = released(np.inf, ["arm", "age"], epsilon=8.0, law=True)
        if any("events only where arm=b" in each for each in found.model.faults):
            named += 1
            assert found.interval()["arm=b"][1] >= 10
    assert named >= TRIES - 2
    found = released(3.0, ["arm", "age"], epsilon=8.0, law=True)
    assert not any("events only" in each for each in found.model.faults)
    low, high = found.interval()["arm=b"]
    assert 0 < low < high < 3


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
