from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from cape.core.errors import InvalidInput, PrivacyLeakWarning
from cape.sklearn import CoxRegression


def rows(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 2, (n, 2))
    time, left = rng.exponential(size=n) * np.exp(-X @ [0.8, -0.4]), rng.exponential(2, n)
    return X, np.minimum(time, left), time <= left


OPTIONS: dict[str, Any] = {"epsilon": 10.0, "bounds_X": (0, 2), "follow_up": 3.0}


@pytest.mark.slow(2)
def test_it_finds_the_ratios_of_hazards_and_predicts_survival() -> None:
    X, time, event = rows(3000)
    model = CoxRegression(**OPTIONS).fit(X, np.column_stack([time, event]))
    assert model.coef_ == pytest.approx([0.8, -0.4], abs=0.2)
    assert model.hazard_ratios_ == pytest.approx(np.exp(model.coef_))
    new = np.array([[1.0, 1.0], [2.0, 0.0]])
    assert np.diff(model.predict(new)) == pytest.approx(model.coef_[0] - model.coef_[1], abs=1e-6)
    true = np.exp(-np.exp(new @ [0.8, -0.4]) * 0.5)
    assert model.predict_survival(new, [0.5])[:, 0] == pytest.approx(true, abs=0.05)
    assert model.score(X, np.column_stack([time, event])) == pytest.approx(model.concordance_, abs=0.04)
    assert set(model.interval()) == {"x0", "x1"}
    assert model.guarantee_.mu > 0


@pytest.mark.filterwarnings("ignore::cape.PrivacyLeakWarning", "ignore::cape.TooNoisyWarning")
def test_a_structured_array_says_the_same_as_two_columns() -> None:
    X, time, event = rows(400)
    given = np.array(list(zip(event, time, strict=True)), dtype=[("dead", bool), ("years", float)])
    first = CoxRegression(**OPTIONS, random_state=3).fit(X, given)
    second = clone(first).fit(X, np.column_stack([time, event]))
    assert first.coef_ == pytest.approx(second.coef_)


@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_an_end_of_follow_up_that_is_taken_from_the_data_is_warned_of() -> None:
    X, time, event = rows(200)
    with pytest.warns(PrivacyLeakWarning, match="follow_up"):
        CoxRegression(epsilon=50.0, bounds_X=(0, 2)).fit(X, np.column_stack([time, event]))


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.zeros(3), "two columns"),
        (np.array([[1, 0], [-1, 1], [2, 0.0]]), "0 or more"),
        (np.array([[1, 0], [1, 2], [2, 0.0]]), "0 or 1"),
        (np.array([[1, 0], [math.inf, 1], [2, 0.0]]), "finite"),
    ],
)
def test_outcomes_that_make_no_sense_are_refused(y: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        CoxRegression(**OPTIONS).fit(np.ones((3, 2)), y)


def test_edges_and_an_end_of_follow_up_are_not_given_together() -> None:
    X, time, event = rows(50)
    with pytest.raises(InvalidInput, match="either edges or follow_up"):
        CoxRegression(**OPTIONS, edges=[1, 2]).fit(X, np.column_stack([time, event]))
