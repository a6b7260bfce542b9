"""Maximum likelihood of multinomial and ordinal models on a whole population, for `truth_models`."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logsumexp

from benchmarks.truth_data import Floats

__all__ = ["Fit", "fitted", "multinomial", "ordinal", "standardised"]

Fit = tuple[Floats, Floats, Floats]
"""Coefficients, each row's scores, and the mean curvature, in the columns' units."""


def multinomial(x: Floats, y: Floats) -> Fit:
    """Log-odds of each category against the first, category by category: intercept, then slopes."""
    codes, free = y.astype(int), int(y.max())
    z, back = standardised(x)
    width = z.shape[1]
    hit = (codes[:, None] == np.arange(1, free + 1)).astype(float)

    def at(w: Floats) -> tuple[float, Floats, Floats]:
        eta = z @ w.reshape(free, width).T
        whole = logsumexp(np.column_stack([np.zeros(len(z)), eta]), axis=1)
        p = np.exp(eta - whole[:, None])
        scores = ((hit - p)[:, :, None] * z[:, None, :]).reshape(len(z), -1)
        curvature = np.empty((free * width, free * width))
        for j in range(free):
            for k in range(free):
                part = p[:, j] * ((j == k) - p[:, k])
                block = slice(j * width, (j + 1) * width), slice(k * width, (k + 1) * width)
                curvature[block] = (z * part[:, None]).T @ z / len(z)
        return float(np.mean((hit * eta).sum(axis=1) - whole)), scores, curvature

    return fitted(at, np.zeros(free * width), np.kron(np.eye(free), back))


def ordinal(x: Floats, y: Floats) -> Fit:
    """Thresholds, then log-odds of a higher category (proportional odds), with the observed curvature."""
    codes, free = y.astype(int), int(y.max())
    z, back = standardised(x)
    z, width = z[:, 1:], z.shape[1] - 1
    under = np.cumsum(np.bincount(codes, minlength=free + 1)[:-1]) / len(codes)
    start = np.concatenate([np.log(under / (1 - under)), np.zeros(width)])
    upper, lower = np.zeros((len(z), free + width)), np.zeros((len(z), free + width))
    upper[:, free:] = lower[:, free:] = -z
    for j in range(free):
        upper[codes == j, j] = lower[codes == j + 1, j] = 1.0
    first, last = codes == 0, codes == free

    def at(w: Floats) -> tuple[float, Floats, Floats]:
        a, b = np.where(last, np.inf, upper @ w), np.where(first, -np.inf, lower @ w)
        chance = np.maximum(expit(a) - expit(b), 1e-300)
        if (np.diff(w[:free]) <= 0).any():
            return -np.inf, upper, np.eye(len(w))
        fa, fb = expit(a) * expit(-a) / chance, expit(b) * expit(-b) / chance
        ga, gb = fa * (expit(-a) - expit(a)), fb * (expit(-b) - expit(b))
        scores = fa[:, None] * upper - fb[:, None] * lower
        curvature = -(
            (upper * (ga - fa**2)[:, None]).T @ upper
            + (lower * (-gb - fb**2)[:, None]).T @ lower
            + (upper * (fa * fb)[:, None]).T @ lower
            + (lower * (fa * fb)[:, None]).T @ upper
        )
        return float(np.log(chance).mean()), scores, curvature / len(z)

    to = np.zeros((free + width,) * 2)
    to[:free, :free], to[:free, free:] = np.eye(free), -back[0, 1:]
    to[free:, free:] = back[1:, 1:]
    return fitted(at, start, to)


def standardised(x: Floats) -> tuple[Floats, Floats]:
    """Return (1, x) standardised, and what makes weights of (1, x) of those of that."""
    middle, size = x.mean(axis=0), x.std(axis=0) + 1e-12
    back = np.diag(np.concatenate([[1.0], 1 / size]))
    back[0, 1:] = -middle / size
    return np.column_stack([np.ones(len(x)), (x - middle) / size]), back


def fitted(at, w: Floats, back: Floats) -> Fit:  # type: ignore[no-untyped-def]
    """Newton's method with halved steps."""
    value, scores, curvature = at(w)
    for _ in range(200):
        step = np.linalg.solve(curvature + 1e-12 * np.eye(len(w)), scores.mean(axis=0))
        while (found := at(w + step))[0] < value - 1e-12 and np.abs(step).max() > 1e-12:
            step = step / 2
        w, (value, scores, curvature) = w + step, found
        if np.abs(step).max() < 1e-10:
            break
    inverse = np.linalg.inv(back)
    return back @ w, scores @ inverse, inverse.T @ curvature @ inverse
