"""Maximum likelihood of laws of time and of Cox regressions on a whole population, for `truth_survival`."""

from __future__ import annotations

import numpy as np

from benchmarks.truth_choices import Fit, fitted, standardised
from benchmarks.truth_data import Floats

__all__ = ["cox", "weibull"]


def weibull(x: Floats, time: Floats, event: Floats) -> Fit:
    """Weibull's law with proportional hazards: the level, log-hazards, and the shape."""
    z, back = standardised(x)
    log = np.log(time)
    middle = float(log[event > 0].mean())
    v = np.column_stack([z, log - middle])
    start = np.zeros(v.shape[1])
    start[-1] = 1.0
    start[0] = np.log(event.mean() / np.exp(v[:, -1]).mean())

    def at(w: Floats) -> tuple[float, Floats, Floats]:
        k, eta = w[-1], v @ w
        if k <= 0:
            return -np.inf, v, np.eye(len(w))
        expected = np.exp(np.minimum(eta, 50.0))
        value = float(np.mean(event * (np.log(k) + eta) - expected))
        scores = (event - expected)[:, None] * v
        scores[:, -1] += event / k
        curvature = (v * expected[:, None]).T @ v / len(v)
        curvature[-1, -1] += float(event.mean()) / k**2
        return value, scores, curvature

    to = np.eye(len(start))
    to[:-1, :-1], to[0, -1] = back, -middle
    return fitted(at, start, to)


def cox(x: Floats, time: Floats, event: Floats) -> Fit:
    """Cox's partial likelihood with Breslow's ties: log-hazards, and each row's part of the score."""
    size, middle = x.std(axis=0) + 1e-12, x.mean(axis=0)
    order = np.argsort(time, kind="stable")
    z, t, d = ((x - middle) / size)[order], time[order], event[order]
    first = np.searchsorted(t, t, side="left")  # who is at risk at a time: from here on
    last = np.searchsorted(t, t, side="right") - 1

    def at(w: Floats) -> tuple[float, Floats, Floats]:
        eta = z @ w
        r = np.exp(eta - eta.max())
        risk = np.cumsum(r[::-1])[::-1][first]
        sums = np.cumsum((r[:, None] * z)[::-1], axis=0)[::-1][first]
        mean = sums / risk[:, None]
        jump = d / risk
        value = float(np.mean(d * (eta - eta.max() - np.log(risk))))
        hazard = np.cumsum(jump)[last]
        moved = np.cumsum(jump[:, None] * mean, axis=0)[last]
        scores = np.empty_like(z)
        scores[order] = d[:, None] * (z - mean) - r[:, None] * (hazard[:, None] * z - moved)
        curvature = (z * (r * hazard)[:, None]).T @ z - (mean * d[:, None]).T @ mean
        return value, scores, curvature / len(z)

    return fitted(at, np.zeros(z.shape[1]), np.diag(1 / size))
