"""That a model does not fit, where released numbers certainly show it: a sentence, with what to ask instead.

Nothing is asked for it: the dispersion and the deviance come with every generalised linear model, the test of
proportional hazards with a Cox regression that was asked for it. "For certain" is beyond what their noise
and sampling could do: an interval of 95% on one side of a value that a fitting model does not reach.
Tested in tests/unit/analyses/regression/test_misfit.py.
"""

from __future__ import annotations

import math

from cape.analyses.regression.joint import WaldTest
from cape.show.numbers import number, p_said
from cape.stats.estimates import Estimate

__all__ = ["hazards_misfit", "misfit_of"]

_MORE, _LESS = 1.2, 0.8  # the variance of counts over that of Poisson's from which on a sentence is worth it
_FAINT = 0.15  # of a dispersion: with more noise in it, its interval is not one to rest on
_DEVIANCE = 1.5  # per row: that of counts that fit is about 1, whatever their mean
_SURE = 0.01  # of a test


def misfit_of(family: str, dispersion: Estimate | None, deviance: Estimate, rows: float) -> str:
    """Return a sentence if counts certainly do not have the variance of their family; else nothing."""
    least = deviance.interval()[0] / max(rows, 1.0)
    if family == "poisson" and dispersion is not None and dispersion.privacy < _FAINT * dispersion.value:
        low, high = dispersion.interval()
        told = "Rates and their intervals allow for that, chances of single counts do not: for these ask"
        if low > _MORE:
            return (
                f"Counts vary more than Poisson's: their variance is at least {number(low)} times as large. "
                f'{told} family = "negative-binomial".'
            )
        if high < _LESS:
            return (
                f"Counts vary less than Poisson's: their variance is at most {number(high)} times as large. "
                f'{told} family = "gaussian".'
            )
    # beside noise, the deviance is that of means that are off, and alpha has an error that nobody knows
    if family in ("poisson", "negative-binomial") and not deviance.privacy and least > _DEVIANCE:
        what = "a negative binomial's" if family == "negative-binomial" else "Poisson's"
        return (
            f"Counts are further out than {what}: the deviance is at least {number(least)} a row, where "
            "about 1 is usual. Where many are 0, ask a logistic regression of whether there are any, and for "
            "the counts where there are some."
        )
    return ""


def hazards_misfit(test: WaldTest | None) -> str:
    """Return a sentence if hazards are certainly not proportional; nothing if not, or if nobody asked."""
    if test is None or math.isnan(test.p) or not test.p < _SURE:
        return ""
    return (
        f"Hazards are not proportional ({p_said(test.p)}): a hazard ratio is an average over follow-up. Ask "
        "kaplan-meier by group for survival at single times, or put a feature that changes in strata."
    )
