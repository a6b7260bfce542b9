"""The paper's network across sites: its data, its noise for each iteration, and what all iterations cost.

An iteration is the paper's: a batch, gradients of length at most the clip C, and noise of tau = (Delta /
epsilon) sqrt(2 log(1.25 / delta)) with Delta = 2 C, which is what one record that is replaced moves their sum
by. CAPE leaves tau in the sum, the conventional scheme sqrt(S) tau. `learn` runs it through the protocol:
the consortium is given the budget with which its own calibration arrives at exactly this noise.
`learn_without_protocol` adds noise of the same size to the sum of all rows: many steps in little time.

Batches are drawn in secret, each row with the same probability, so that sampling can be accounted for.
Tested in tests/unit/reproduction/test_network.py.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.blocks.clipped import BITS, Records, clipped_sum
from cape.blocks.sampling import sample as sampled
from cape.blocks.units import Units
from cape.core.errors import PrivacyLeakWarning
from cape.data import Category, Number, Schema
from cape.engine.calibration import RESOLUTION
from cape.engine.consortium import Consortium
from cape.engine.schemes import SCHEMES, Parties
from cape.engine.stages import slack
from cape.learning import NeuralNetwork
from cape.noise import SecureStream
from cape.privacy import Budget, correlated, dominating_mu, noise_for_mu, paper, subsampled
from cape.privacy import mu as mu_of
from reproduction import datasets
from reproduction.calibration import published_std
from reproduction.datasets.made_up import gaussian

__all__ = [
    "COLLUDING",
    "DELTA",
    "SITES",
    "TRUE_DELTA",
    "Learned",
    "Task",
    "batch_against_rows",
    "learn",
    "learn_without_protocol",
    "multiplier_at",
    "published_budget",
    "published_multiplier",
    "total_epsilon",
    "trained_on",
]

SITES = 4
COLLUDING = correlated.default_colluding(SITES)
DELTA = 0.01  # the paper's, for one iteration
TRUE_DELTA = 1e-5  # for all of them
WIDTH, HIDDEN, RATE, CLIP = 50, 5, 0.01, 1.0
_PARAMETERS = (WIDTH + 1) * HIDDEN + HIDDEN + 1
_LEAST_NOISE = 0.5  # below it a consortium reckons without sampling
_BUDGET_DELTA = 1e-6  # of the budget that stands for the published noise: any does, if mu can be had from it
_PARTIES = Parties(SITES, COLLUDING, SITES)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """One training: the number of rows, 70% of which are learned from, batch, epochs, and the seed of all."""

    rows: int
    batch: float
    epochs: float
    seed: int

    @property
    def trained_on(self) -> int:
        """How many rows are learned from."""
        return trained_on(self.rows)

    @property
    def sampling(self) -> float:
        """The probability of a row to be in a batch."""
        return min(1.0, self.batch / self.trained_on)

    def network(self) -> NeuralNetwork:
        """Return the paper's network: 5 units, Adam with rate 0.01."""
        names = [f"x{i + 1}" for i in range(WIDTH)]
        return NeuralNetwork(
            "y",
            names,
            hidden=(HIDDEN,),
            epochs=self.epochs,
            sampling=self.sampling,
            clip=CLIP,
            rate=RATE,
            optimiser="adam",
            seed=self.seed,
        )

    @property
    def steps(self) -> int:
        """How many iterations there are."""
        return self.network().training.steps


@dataclass(frozen=True)
class Learned:
    """What came of a training: accuracies in percent, noise in each entry of a mean gradient, weights."""

    train: float
    test: float
    noise: float
    parameters: Floats


def trained_on(rows: int) -> int:
    """Return 70% of the rows."""
    return round(0.7 * rows)


def batch_against_rows(rows: int) -> float:
    """Return the paper's batch where the number of rows is varied."""
    return min(trained_on(rows) / 10, 128.0)


def published_multiplier(scheme: str, epsilon: float) -> float:
    """Return the noise that counts for privacy over one record's norm, for an epsilon per iteration.

    It is what `privacy.subsampled` takes: of the conventional scheme a site's own noise, of the paper's
    the exact mu of all that the aggregator and the colluding sites see. Ring masks are not published: they
    get the noise with which one iteration truly is (epsilon, delta)-private, its sampling not counted.
    """
    if scheme == "cape":
        return 2.0 / float(mu_of(epsilon, DELTA))
    kind = SCHEMES[scheme]()
    std = published_std(kind, 2.0 * paper.classical_tau(epsilon, DELTA), _PARTIES)
    return 1.0 / kind.cost_mu(std, _PARTIES)


@lru_cache(maxsize=64)
def published_budget(scheme: str, epsilon: float, sampling: float, steps: int) -> Budget:
    """Return the budget for which a consortium adds the published noise in each of so many steps.

    It is the inverse of `privacy.noise_for_mu`, to 0.1%, less the noise that a release adds because sums
    are rounded: the noise is then the published one, and the budget's epsilon covers the total.
    """
    own = SCHEMES[scheme]().local_std(1.0, _PARTIES)
    assert own is not None
    multiplier = published_multiplier(scheme, epsilon)
    multiplier /= 1.0 + own * multiplier * math.sqrt(_PARAMETERS) / RESOLUTION
    if sampling == 1.0 or multiplier <= _LEAST_NOISE:
        mu = 2.0 * math.sqrt(steps) / multiplier
    else:
        mu = dominating_mu(multiplier, sampling, steps, slack(_BUDGET_DELTA))
    return Budget.of(mu, _BUDGET_DELTA)


def total_epsilon(multiplier: float, sampling: float, steps: int, delta: float) -> float:
    """Return the true epsilon of all steps together."""
    return subsampled(multiplier, sampling, steps, delta=delta).epsilon


def multiplier_at(budget: Budget, task: Task) -> float:
    """Return the noise multiplier that a budget for the whole training buys: the library's calibration."""
    return noise_for_mu(budget.mu, task.sampling, task.steps, slack(budget.delta))


def learn(task: Task, scheme: str, budget: Budget, stream: SecureStream) -> Learned:
    """Train across four sites, every step one run of the protocol."""
    data, schema = _data(task)
    tables = {name: _labelled(frame) for name, frame in data.take(task.trained_on).split(SITES).items()}
    consortium = Consortium(
        tables, schema, budget, colluding=COLLUDING, min_sites=SITES, scheme=scheme, stream=stream
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # the curve without privacy is asked for
        model: Any = consortium.release(task.network(), 1.0).model
    return _judged(task, data, schema, model.parameters, float(model.history[-1, 3]))


def learn_without_protocol(
    task: Task, scheme: str, multiplier: float | None, stream: SecureStream
) -> Learned:
    """Train on all rows at once with the noise that the scheme would leave in each sum; None for none."""
    data, schema = _data(task)
    asked, rows = task.network(), task.trained_on
    network, optimiser = asked.network(schema), asked.training.new_optimiser()
    inputs = Units(asked.design(), schema).rows(_labelled(data.frame()[:rows]))
    records = Records(network, inputs, data.y[:rows])
    count, noise = rows * task.sampling, 0.0
    if multiplier is not None:
        kind = SCHEMES[scheme]()
        own = kind.local_std(1.0 / multiplier, _PARTIES)
        noise = 0.0 if own is None else kind.total_std(own, _PARTIES)
    sample, draw = stream.fork("sample"), stream.fork("noise")
    parameters = asked.start(schema)
    for _ in range(task.steps):
        taken = None if task.sampling == 1.0 else sampled(sample, rows, task.sampling)
        summed = clipped_sum(parameters, records, CLIP, rows=taken).sums
        total = summed * 2.0**-BITS
        if noise:
            total += noise * gaussian(draw, network.size)
        parameters = optimiser.step(parameters, total * (CLIP / count))
    return _judged(task, data, schema, parameters, noise * CLIP / count)


def _data(task: Task) -> tuple[datasets.Dataset, Schema]:
    data = datasets.two_gaussians(task.rows, WIDTH, seed=task.seed)
    columns: dict[str, Any] = {name: Number(*data.bounds[name], missing=False) for name in data.names}
    return data, Schema(columns | {"y": Category(("0", "1"), missing=False)})


def _labelled(frame: Any) -> Any:
    """Return the frame with its classes as words, which the schema knows."""
    import polars

    return frame.with_columns(polars.col("y").cast(polars.Int64).cast(polars.String))


def _judged(task: Task, data: datasets.Dataset, schema: Schema, parameters: Floats, noise: float) -> Learned:
    """Return accuracies on the rows that were learned from, and on the others."""
    asked = task.network()
    inputs = Units(asked.design(), schema).rows(_labelled(data.frame()))
    said = np.asarray(asked.network(schema).predict(parameters, inputs)) > 0.5
    right = 100.0 * (said.reshape(-1) == (data.y > 0.5))
    rows = task.trained_on
    return Learned(float(right[:rows].mean()), float(right[rows:].mean()), noise, parameters)
