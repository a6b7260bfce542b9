"""The guarantee as mathematics: mu, epsilon and delta of Gaussian and Laplace releases by many sites; how
many sites may collude, and what is assumed when nobody says; composition, subsampling, budgets, and
accounting: what several releases cost together.

Not here: drawing noise (`noise`), the sensitivity of a question (`analyses`), and the record of what was
spent (`site/ledger`, and `engine` in one process).
"""

from __future__ import annotations

from cape.privacy import correlated, laplace, paper
from cape.privacy.budget import Budget, Guarantee
from cape.privacy.gaussian import compose, delta, epsilon, mu
from cape.privacy.subsampling import dominating_mu, noise_for_mu, subsampled

__all__ = [
    "Budget",
    "Guarantee",
    "compose",
    "correlated",
    "delta",
    "dominating_mu",
    "epsilon",
    "laplace",
    "mu",
    "noise_for_mu",
    "paper",
    "subsampled",
]
