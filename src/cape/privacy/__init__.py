"""What is guaranteed: the exact privacy of Gaussian releases with correlated noise, as pure mathematics."""

from __future__ import annotations

from cape.privacy import correlated, paper
from cape.privacy.budget import Budget, Guarantee
from cape.privacy.gaussian import compose, delta, epsilon, mu
from cape.privacy.subsampling import covered_noise, gaussian_cover, subsampled

__all__ = [
    "Budget",
    "Guarantee",
    "compose",
    "correlated",
    "covered_noise",
    "delta",
    "epsilon",
    "gaussian_cover",
    "mu",
    "paper",
    "subsampled",
]
