"""Would a discrete-time model be better than Cox's scores? With times known exactly, or by bin alone.

`python -m benchmarks.survival_discrete [RUNS]` draws 3,000 rows of `survival.cox` again and again and fits,
by maximum likelihood, the piecewise exponential model that `Cox` is, and the complementary log-log model by
bin. Of each it prints the bias and the SD of the coefficients, and the SD of the noise that scores of
persons, clipped at their 95th percentile, have at epsilon 1 and delta 1e-3 from a trusted curator.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from benchmarks.survival_cox import DELTA, TRUE, uniform
from cape import privacy

Floats = NDArray[np.float64]
ROWS, BINS = 3_000, (2, 5, 20)
WAYS = (
    "piecewise, exact times",
    "piecewise, times at the ends of bins",
    "cloglog, times at the ends of bins",
)


def fitted(
    x: Floats, time: Floats, event: NDArray[np.bool_], edges: Floats, way: str
) -> tuple[Floats, Floats, Floats]:
    """The coefficients, their information, and the score of each row, orthogonal to the baseline."""
    rows, bins = np.arange(len(time)), len(edges) - 1
    cell = np.searchsorted(edges, time, side="left") - 1
    had = np.zeros((len(time), bins))
    had[rows, cell] = event
    at_risk = ((time[:, None] - edges[:-1]) / np.diff(edges)).clip(0.0, 1.0)
    if way != WAYS[0]:
        at_risk = np.ceil(at_risk)
    if way == WAYS[2]:  # who was censored within a bin says nothing about it
        at_risk[rows, cell] = event | (time >= edges[cell + 1])
    slopes, levels = np.zeros(x.shape[1]), np.full(bins, np.log(0.3))
    for _ in range(30):
        hazard = np.exp(levels + (x @ slopes)[:, None])
        if way == WAYS[2]:
            p = -np.expm1(-hazard)
            residual, weight = at_risk * (had - p) * hazard / p, at_risk * hazard**2 * (1 - p) / p
        else:
            residual, weight = had - hazard * at_risk, hazard * at_risk
        total, moved, cross = weight.sum(axis=0), residual.sum(axis=0), weight.T @ x
        means = cross / total[:, None]
        information = (x * weight.sum(axis=1)[:, None]).T @ x - cross.T @ means
        change = np.linalg.solve(information, x.T @ residual.sum(axis=1) - means.T @ moved)
        slopes, levels = slopes + change, levels + (moved - cross @ change) / total
    scores = x * residual.sum(axis=1)[:, None] - residual @ means
    return slopes, information, scores


def main(runs: int) -> None:
    """Print the comparison."""
    mu = float(privacy.mu(1.0, DELTA))
    for bins in BINS:
        edges = np.linspace(0.0, 1.0, bins + 1)
        for way in WAYS:
            errors, noise = [], []
            for seed in range(runs):
                table = uniform(ROWS, np.random.default_rng(seed))
                x = np.column_stack([table[name] for name in "abc"])
                time, event = np.minimum(table["time"], 1.0), (table["event"] == "yes") & (table["time"] <= 1)
                slopes, information, scores = fitted(x, time, event, edges, way)
                bound = np.quantile(np.linalg.norm(scores, axis=1), 0.95)
                inverse = np.linalg.inv(information)
                errors.append(slopes - TRUE)
                noise.append(2 * bound / mu * np.sqrt(np.diag(inverse @ inverse)))
            found = np.array(errors)
            parts = (found.mean(axis=0), found.std(axis=0), np.mean(noise, axis=0))
            said = zip(("bias", "SD", "noise"), parts, strict=True)
            print(f"{bins:2} bins, {way:36}", *(f"{what} {each.round(3)}" for what, each in said), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
