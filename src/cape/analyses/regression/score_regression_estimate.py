"""What the noisy sums of regressions by scores say: steps, and estimates with their errors.

All of it is post-processing: `cape.stats.score_steps` says what a step means, and here it gets the columns'
units and names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cape.analyses.regression.joint import Joint, rows_of
from cape.analyses.regression.limited import Capped, Limited
from cape.analyses.regression.marginals import Marginals
from cape.blocks import Choices, Design, LawScores, Scores
from cape.blocks.units import Units
from cape.core.arrays import Floats
from cape.engine.query import Answer
from cape.stats.estimates import Estimate
from cape.stats.matrices import symmetric
from cape.stats.score_norms import Lengths
from cape.stats.score_steps import Errors, Point, ScoreStep, for_predictions

__all__ = ["Fitted", "Named", "Scored", "fitted_of", "plain_design", "step_of"]

Scored = Scores | Choices | LawScores


def step_of(answer: Answer, block: Scored, point: Point, *, curved: bool, blocks: int) -> ScoreStep:
    """Return what an answer holds.

    `curved` says whether curvature changes with the weights; `blocks` is how many predictors share features.
    """
    _, score, square, cross, spread, beside, *more = answer.sums[0]
    _, score_noise, _, curvature_noise, _, spread_noise, *more_noise = answer.noise[0]
    if len(score) == 1:  # a matrix of one number has nothing above its diagonal
        curvature_noise = answer.noise[0][2] / math.sqrt(2)
        spread_noise = answer.noise[0][4] / math.sqrt(2)
    count, count_noise = answer.complete_rows(block.reads)
    lengths = None
    if block.lengths:
        counts, edges = np.asarray(more[0], float), np.array(block.lengths)
        lengths = Lengths.possible(
            edges, counts, more_noise[0], max(count, 1.0), block.longest(answer.schema)
        )
    limit = block.deviance
    return ScoreStep(
        point,
        max(count, 1.0),
        point.bound * score,
        point.curve * symmetric(square, cross),
        (block.persons * point.bound) ** 2 * symmetric(spread, beside),
        point.bound * score_noise,
        point.curve * curvature_noise,
        (block.persons * point.bound) ** 2 * spread_noise,
        lengths,
        curved,
        limit * float(more[-1][0]) if limit else math.nan,
        limit * more_noise[-1] if limit else math.nan,
        blocks=blocks,
        count_noise=count_noise,
        persons=block.persons,
    )


def plain_design(design: Design) -> Design:
    """Return the design of features alone: without an intercept before them."""
    return replace(design, intercept=0.0, beside=())


@dataclass(frozen=True)
class Named:
    """What the weights of a step stand for.

    Attributes:
        to: makes coefficients, in the columns' units, of weights.
        labels: what the coefficients are called.
        owners: which feature each belongs to; empty for none.
        slopes: the label of each weight that belongs to a feature, by its place among the weights.
    """

    to: Floats
    labels: tuple[str, ...]
    owners: tuple[str, ...]
    slopes: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Fitted:
    """What the steps say, in the columns' units.

    Attributes:
        units: between x and these units.
        steps: the steps, the last one last.
        weights: of (1, x), to predict with; of several predictors a row for each.
        estimated: the same, as they are estimated.
        kept: which part of the estimates the weights to predict with keep.
        estimates: the intercept and the coefficients.
        joint: the same, with the covariances of their errors.
        limited: what was capped and shortened.
        means: released means of numeric columns, to two digits of their SDs.
        hidden: which part of each slope noise hides, with its label.
        left: by how many standard errors steps that had not arrived may have left estimates off.
    """

    units: Units
    steps: list[ScoreStep]
    marginals: Marginals | None
    weights: Floats
    estimated: Floats
    kept: float
    estimates: tuple[Estimate, ...]
    joint: Joint
    limited: Limited
    means: tuple[tuple[str, float], ...]
    hidden: tuple[tuple[str, float], ...]
    left: float


def fitted_of(
    steps: list[ScoreStep],
    marginals: Marginals | None,
    units: Units,
    named: Named,
    found: Errors,
    *,
    target: str,
    kept: slice,
    most: Floats,
    allowed: Callable[[Floats], Floats],
    by_x: Callable[[Floats], Floats],
) -> Fitted:
    """Return the estimates with their errors.

    Args:
        steps: the steps, the last one last.
        marginals: what the first stage found.
        units: between x and the columns' units.
        named: what weights stand for.
        found: the weights with their errors.
        target: the column that is explained.
        kept: which coefficients are estimates.
        most: the largest weights that are possible.
        allowed: makes weights at which scores can be asked for of those that were found.
        by_x: makes weights of (1, x) of those of a step.
    """
    last, to, labels = steps[-1], named.to, named.labels
    weights = allowed(found.weights)
    values = to @ weights
    sampling = to @ found.sampling @ to.T
    privacy = to @ (found.noise + found.clipped + found.unsettled + found.hidden) @ to.T
    estimates = tuple(
        Estimate(
            label,
            float(values[i]),
            math.sqrt(max(sampling[i, i], 0.0)),
            math.sqrt(max(privacy[i, i], 0.0)),
        )
        for i, label in enumerate(labels)
    )
    predicting, share = for_predictions(last, steps[0].point.weights)
    predicting = weights if share == 1.0 else allowed(predicting)
    joint = Joint(
        labels[kept],
        ((-math.inf, math.inf),) * len(labels[kept]),
        tuple(map(float, values[kept])),
        rows_of(privacy[kept, kept]),
        rows_of(sampling[kept, kept]),
        owners=named.owners[kept],
    )
    error = np.maximum(np.sqrt(np.maximum(np.diag(sampling + privacy), 0.0)), 1e-150)
    left = np.sqrt(np.maximum(np.diag(to @ found.unsettled @ to.T), 0.0)) / error
    shortened = np.sqrt(np.maximum(np.diag(to @ found.clipped @ to.T), 0.0)) / error
    hidden, sources = _hidden(last, found, most), units.design.sources
    return Fitted(
        units,
        steps,
        marginals,
        by_x(predicting),
        by_x(weights),
        share,
        estimates,
        joint,
        Limited(
            _capped(marginals, (*sources, target)),
            0.0 if last.point.beyond is None else last.point.beyond.rows,
            tuple((label, float(each)) for label, each in zip(labels, shortened, strict=True))[kept],
        ),
        () if marginals is None else marginals.means(sources),
        tuple((label, float(hidden[place])) for place, label in named.slopes),
        float(left[kept].max()),
    )


def _hidden(last: ScoreStep, found: Errors, most: Floats) -> Floats:
    """Return which part of each weight noise hides."""
    hidden = np.clip(np.abs(np.diag(found.pull)), 0.0, 1.0)
    if last.score_noise and not last.endless:  # an error as large as all that is possible
        private = np.diag(found.noise + found.clipped + found.unsettled + found.hidden)
        hidden = np.where(np.sqrt(private) >= most, 1.0, hidden)
    return np.asarray(hidden)


def _capped(marginals: Marginals | None, names: tuple[str, ...]) -> tuple[Capped, ...]:
    """Return which of these columns were capped, and where."""
    if marginals is None:
        return ()
    return tuple(
        Capped.of(name, marginals.numbers[name])
        for name in names
        if name in marginals.numbers and any(marginals.numbers[name].capped)
    )
