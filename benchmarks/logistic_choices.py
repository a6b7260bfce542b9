"""How much the choices of logistic regression matter: each halved and doubled, over the same rows and noise.

`python -m benchmarks.logistic_choices [RUNS] [NAME ...]` prints, for each choice and each table below,

- coverage: the share of 95% intervals that hold the truth, over all coefficients and runs,
- width: the median width of an interval, beside that of the choice made,
- loss: log-loss on new rows, less that of the true coefficients, in units of log 2: mean and worst run.

Sums are exact and noise is normal, of the size that five sites have, one of them colluding. Two lines differ
by the choice alone, because rows and noise are the same; with 40 runs a coverage is known to 1.5%.
"""

from __future__ import annotations

import importlib
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cape import privacy
from cape.analyses.regression.logistic import LogisticRegression
from cape.core.errors import TooNoisyWarning
from cape.data import Category, Number, Schema
from tests.unit.analyses.regression.conversations import converse

Floats = NDArray[np.float64]

ROOMS = [importlib.import_module(f"cape.analyses.regression.{name}") for name in ("logistic", "scores")]
CHOICES = (
    "ROUNDS",
    "LAST",
    "INTERCEPT",
    "SPREAD",
    "MOST_MOVED",
    "RIDGE",
    "NEAR",
    "FAR",
    "MISFIT",
    "ROUGH",
    "BENT",
    "LEFT",
    "EARLIER",
)


@dataclass(frozen=True)
class Setting:
    """Rows with known coefficients, and what is asked about them."""

    name: str
    true: tuple[float, ...]  # the intercept first
    rows: int
    epsilon: float
    features: str = "normal"
    rounds: Any = "auto"

    def table(self, rng: np.random.Generator, rows: int) -> tuple[Floats, NDArray[np.int64]]:
        width = len(self.true) - 1
        if self.features == "skewed":
            x = np.clip(rng.exponential(1.0, (rows, width)), 0, 4)
        elif self.features == "sphere":
            x = rng.normal(size=(rows, width))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        else:
            x = np.clip(rng.normal(1, 1, (rows, width)), -2, 4)
        return x, (rng.random(rows) < expit(self.true[0] + x @ np.array(self.true[1:]))).astype(int)

    def found(self, runs: int) -> tuple[float, float, float, float]:
        """Return the coverage, the median width of intervals, and the loss: its mean, and the worst."""
        names = [f"x{i}" for i in range(len(self.true) - 1)]
        bounds = {"normal": (-2, 4), "skewed": (0, 4), "sphere": (-1, 1)}[self.features]
        columns: dict[str, Any] = {name: Number(*bounds, missing=False) for name in names}
        schema = Schema(columns | {"y": Category((0, 1), missing=False)})
        analysis = LogisticRegression(
            "y", names, rounds=self.rounds, norm=1.0 if self.features == "sphere" else None
        )
        truth, hits, widths, losses = np.array(self.true), [], [], []
        for run in range(runs):
            rng = np.random.default_rng(run)
            x, y = self.table(rng, self.rows)
            new, _ = self.table(rng, 2000)
            told, _ = converse(
                analysis,
                schema,
                {name: x[:, i] for i, name in enumerate(names)} | {"y": y},
                rng,
                mu=float(privacy.mu(self.epsilon, 1e-6)),
            )
            ends = np.array([each.interval(0.95) for each in told.estimates])
            hits.append(float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()))
            widths.append(float(np.median(ends[:, 1] - ends[:, 0])))
            p = expit(truth[0] + new @ truth[1:])
            odds = told.model.decision_function(new)
            losses.append(float(np.mean(np.logaddexp(0, odds) - p * odds)) - entropy(p))
        loss = np.array(losses) / math.log(2)
        return float(np.mean(hits)), float(np.median(widths)), float(loss.mean()), float(loss.max())


def entropy(p: Floats) -> float:
    odds = np.log(p / (1 - p))
    return float(np.mean(np.logaddexp(0, odds) - p * odds))


MILD, STRONG = (-0.5, 0.8, -0.5, 0.3, 0.0), (-0.5, 1.5, -1.0, 0.5, 0.0)
SETTINGS = (
    Setting("mild", MILD, 20_000, 1.0),
    Setting("mild, few", MILD, 2000, 1.0),
    Setting("mild, moments", MILD, 10_000, 1.0, rounds=1),
    Setting("strong, eps .3", STRONG, 5000, 0.3),
    Setting("strong, eps 2", STRONG, 5000, 2.0),
    Setting("strong, eps 4.5", STRONG, 5000, 4.5),
    Setting("rare", (-5.0, 0.8, -0.5, 0.3, 0.0), 5000, 2.0),
    Setting("skewed, eps 1", STRONG, 5000, 1.0, "skewed"),
    Setting("skewed, eps 4", STRONG, 5000, 4.0, "skewed"),
    Setting("nothing", (0.3, 0.0, 0.0, 0.0), 1000, 0.3),
    Setting("sphere, eps .02", (0.2, 4.0) + (0.0,) * 9, 2000, 0.02, "sphere"),
    Setting("sphere, eps 1", (0.2, 4.0) + (0.0,) * 9, 2000, 1.0, "sphere"),
    Setting("sphere", (0.0, 10.3) + (0.0,) * 19, 10_000, 0.1, "sphere"),
)


@contextmanager
def changed(name: str, times: float) -> Iterator[None]:
    """Let a choice be so many times as large, wherever it is used."""
    rooms = [room for room in ROOMS if hasattr(room, name)]
    before = getattr(rooms[0], name)
    for room in rooms:
        setattr(room, name, type(before)(times * before))
    try:
        yield
    finally:
        for room in rooms:
            setattr(room, name, before)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    warnings.simplefilter("ignore", TooNoisyWarning)
    as_made = {each.name: each.found(runs) for each in SETTINGS}
    for name, (cover, width, loss, worst) in as_made.items():
        print(f"{name:16} coverage {cover:.3f} width {width:.3g} loss {loss:.4f}, at worst {worst:.3f}")
    for choice in sys.argv[2:] or CHOICES:
        for times in (0.5, 2.0):
            print(f"{choice} times {times}:", flush=True)
            for each in SETTINGS:
                with changed(choice, times):
                    cover, width, loss, worst = each.found(runs)
                was = as_made[each.name]
                if not np.allclose((cover, width / was[1], loss, worst), (was[0], 1, *was[2:]), atol=5e-4):
                    print(
                        f"  {each.name:16} coverage {cover:.3f} ({cover - was[0]:+.3f}) width "
                        f"{width / was[1]:.3f} loss {loss:.4f} ({loss - was[2]:+.4f}), at worst "
                        f"{worst:.3f} ({worst - was[3]:+.3f})"
                    )


if __name__ == "__main__":
    main()
