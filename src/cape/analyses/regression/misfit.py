"""That a model does not fit, where released numbers certainly show it: a sentence, with what to ask instead.

Nothing is asked for it: the dispersion, the deviance and the spread of scores (`spreading`) come with every
generalised linear model, the test of proportional hazards with a Cox regression that was asked for it. "For
certain" is beyond what their noise and sampling could do: an interval of 95% on one side of a value that a
fitting model does not reach.
Tested in tests/unit/analyses/regression/test_misfit.py.
"""

from __future__ import annotations

import math

from cape.analyses.regression.joint import WaldTest
from cape.analyses.regression.spreading import Spreading
from cape.show.numbers import number, p_said
from cape.stats.estimates import Estimate

__all__ = ["hazards_misfit", "misfit_of", "spread_misfit"]

_MORE, _LESS = 1.3, 0.77  # the variance of counts over that of Poisson's from which on a sentence is worth it
_DEVIANCE = 1.5  # per row: that of counts that fit is about 1, whatever their mean
_SURE = 0.01  # of a test
_FREE, _DISPERSED = 1.02, 1.1  # times the spread that a model has, from which on a sentence is worth it
_AVERAGES = "Coefficients are averages over rows, and their intervals allow for it."
_BENDS = "Ask spline(...) of a number, or an interaction"


def misfit_of(family: str, dispersion: Estimate | None, deviance: Estimate, rows: float) -> str:
    """Return a sentence if counts certainly do not have the variance of their family; else nothing."""
    least = deviance.interval()[0] / max(rows, 1.0)
    if family == "poisson" and dispersion is not None:
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


def spread_misfit(family: str, predictor: str, found: Spreading | None) -> str:
    """Return a sentence if scores certainly do not spread as the family says; else nothing."""
    if found is None:
        return ""
    if family in ("binomial", "multinomial", "ordinal"):
        if 1 / _FREE < found.sure < _FREE:
            return ""
        end = f"at {'least' if found.sure > 1 else 'most'} {found.sure:.2f} times"
        not_linear = f"{predictor[0].upper()}{predictor[1:]} are not linear in these features"
        other = ', or family = "multinomial"' if family == "ordinal" else ""
        if family == "ordinal":
            not_linear += ", or differ between thresholds"
        return (
            f"{not_linear}: along one combination of them outcomes vary {end} as much around predicted "
            f"probabilities as these say. {_AVERAGES} {_BENDS}{other}, and evaluate for calibration."
        )
    if family == "poisson" or not found.sure > _DISPERSED:
        return ""
    how, ask = _VARIED[family]
    return (
        f"{how} along one combination of the features it is at least {found.sure:.2f} times what it is "
        f"on average. {_AVERAGES} {_BENDS}{ask}."
    )


_VARIED = {
    "gaussian": (
        "The variance around the mean is not the same in all rows, or the mean is not linear in these "
        "features:",
        ', or family = "gamma" if larger targets vary more',
    ),
    "gamma": (
        "The SD around the mean is not proportional to it, or log means are not linear in these features: in "
        "parts of its square, the variance is not the same in all rows, and",
        ', or family = "gaussian" if all targets vary alike',
    ),
    "negative-binomial": (
        "Counts do not vary as a negative binomial's, or log rates are not linear in these features: in "
        "parts of what the family says, the variance is not the same in all rows, and",
        "; where many counts are 0, a logistic regression of whether there are any",
    ),
}


def hazards_misfit(test: WaldTest | None) -> str:
    """Return a sentence if hazards are certainly not proportional; nothing if not, or if nobody asked."""
    if test is None or math.isnan(test.p) or not test.p < _SURE:
        return ""
    return (
        f"Hazards are not proportional ({p_said(test.p)}): a hazard ratio is an average over follow-up. Ask "
        "kaplan-meier by group for survival at single times, or put a feature that changes in strata."
    )
