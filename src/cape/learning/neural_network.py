"""A multi-layer perceptron, learned across sites: the paper's classifier, and any other of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cape.blocks import Design, Gradient
from cape.blocks.network import Network
from cape.blocks.units import Units
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Category, Schema
from cape.engine.query import AnalysisResult
from cape.learning.descent import WATCHED, Descent, Training, history_table
from cape.show import Figure, Line, Mark, Shown, Table
from cape.show.numbers import count, number
from cape.show.plain import plain
from cape.show.tables import listed
from cape.stats.estimates import Estimate

__all__ = ["NetworkModel", "NeuralNetwork"]


_LOSS = (
    "The mean loss as it was released in each step, before that step was taken; the band is its 95% interval."
)


@dataclass(frozen=True, init=False)
class NeuralNetwork(Descent):
    """A classifier or a regression by a multi-layer perceptron, one release per step.

    >>> NeuralNetwork("disease", ["age", "chol", "sex"], hidden=(5,), epochs=100)

    A target with categories makes it a classifier (two categories: one sigmoid output; more: a softmax),
    a numeric one a regression. Features are scaled by their public bounds to [-1, 1], categories spread
    out to 0 and 1. The other arguments are those of `Training`.

    **Sensitivity.** A row adds its gradient, shortened to the clip: see `cape.blocks.clipped` and
    `cape.learning.descent`.
    """

    kind: ClassVar[str] = "neural-network"
    loss_bound: ClassVar[float] = 4.0
    example: ClassVar[dict[str, Any]] = {
        "target": "disease",
        "features": ["age", "chol"],
        "hidden": [2],
        "epochs": 3,
        "rows": 14,
    }
    target: str
    features: tuple[str, ...]
    hidden: tuple[int, ...]
    activation: Literal["relu", "tanh", "sigmoid", "identity"]
    training: Training

    def __init__(
        self,
        target: str,
        features: Sequence[str],
        *,
        hidden: Sequence[int] = (5,),
        activation: Literal["relu", "tanh", "sigmoid", "identity"] = "relu",
        **training: Any,
    ) -> None:
        if not isinstance(features, (list, tuple)) or not all(isinstance(name, str) for name in features):
            raise InvalidInput(f"features must be a list of columns, not {features!r}")
        if isinstance(hidden, int):
            hidden = (hidden,)
        if not isinstance(hidden, (list, tuple)):
            raise InvalidInput(
                f"hidden must be how many units each layer has, as in (64, 16), not {hidden!r}"
            )
        self._set(
            target=target,
            features=tuple(features),
            hidden=tuple(check.integer("hidden", n, least=1) for n in hidden),
            activation=activation,
            training=Training.of(training),
        )
        Design(self.features, self.target)
        Network(1, self.hidden, 1, self.activation)

    def design(self) -> Design:
        """Return how a row becomes an input and a target."""
        return Design(self.features, self.target, cube=True)

    def network(self, schema: Schema) -> Network:
        inputs = self.design().width(schema)
        column = schema[self.target]
        if not isinstance(column, Category):
            return Network(inputs, self.hidden, 1, self.activation, "squared")
        classes = len(column.values)
        if classes < 2:
            raise InvalidInput(f"target {self.target!r} must have two or more categories, or bounds")
        return Network(inputs, self.hidden, 1 if classes == 2 else classes, self.activation)

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return the time for the start, and for a step after each result: linear in the parameters."""
        return (1e-3 + 2e-7 * self.network(schema).size) * (1 + len(results))

    def start(self, schema: Schema) -> Floats:
        return self.network(schema).initial(self.training.seed_bytes())

    def block(self, schema: Schema, parameters: Floats, clip: float) -> Gradient:
        bound = self.loss_bound if self.training.watched else None
        return Gradient(
            self.design(),
            self.network(schema),
            parameters,
            clip,
            self.training.sampling,
            bound,
            by_person=schema.rows_of_person > 1,
        )

    def found(self, schema: Schema, parameters: Floats, history: Floats) -> AnalysisResult:
        """Return the network; the estimates are its last watched loss, if losses were watched."""
        estimates = []
        if self.training.watch and len(history):
            loss = history[-1]
            beside = loss[3] / loss[1] * WATCHED * self.loss_bound
            estimates.append(
                Estimate("mean loss", float(loss[0]), 0.0, float(beside), (0.0, self.loss_bound))
            )
        design, network = self.design(), self.network(schema)
        return AnalysisResult(
            estimates, NetworkModel(schema, design, network, parameters, history, tuple(estimates))
        )

    def describe(self) -> str:
        layers = " x ".join(map(str, self.hidden)) or "no"
        return (
            f"neural network ({layers} hidden units) for {self.target}, "
            f"from {count(len(self.features), 'column')}, in {count(self.training.steps, 'step')}"
        )


@dataclass(frozen=True, repr=False)
class NetworkModel(Shown):
    """A learned network, and the history of training."""

    schema: Schema
    design: Design
    network: Network
    parameters: Floats
    history: Floats
    estimates: tuple[Estimate, ...] = ()

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The categories of the target, None for a regression."""
        column = self.schema[self.design.target or ""]
        return column.values if isinstance(column, Category) else None

    @property
    def learning_curve(self) -> list[Any]:
        """What was released of each step: loss (NaN if not watched), clip, gradient's length, noise."""
        return history_table(self.history)

    def predict_proba(self, rows: Any) -> Floats:
        """Return the probability of each class, (rows, classes)."""
        if self.classes is None:
            raise InvalidInput("a regression has no probabilities; use predict")
        said = self.network.predict(self.parameters, Units(self.design, self.schema).rows(rows))
        return said if said.ndim == 2 else np.column_stack([1 - said, said])

    def predict(self, rows: Any) -> NDArray[Any]:
        """Return the most likely class, or the target in its own unit, of each row."""
        if self.classes is not None:
            return np.asarray(np.array(self.classes, object)[self.predict_proba(rows).argmax(axis=1)])
        column = self.schema.number(self.design.target or "")
        said = self.network.predict(self.parameters, Units(self.design, self.schema).rows(rows))
        return np.asarray(column.middle + column.half * np.clip(said, -1, 1))

    def tables(self) -> Sequence[Table]:
        rows = tuple(
            (f"{i + 1}", f"{fan_in:,}", f"{fan_out:,}", f"{(fan_in + 1) * fan_out:,}")
            for i, (fan_in, fan_out) in enumerate(self.network.shapes)
        )
        title = f"neural network for {self.design.target}"
        layers = Table(("layer", "inputs", "outputs", "parameters"), rows, title)
        return [layers, listed(self.estimates)] if self.estimates else [layers]

    def figures(self) -> Sequence[Figure]:
        if not self.estimates:
            return []
        (last,), noise = self.estimates, self.history[:, 3] / self.history[:, 1]
        noise = noise * (last.privacy / noise[-1] if noise[-1] else 0.0)
        marks = tuple(
            Mark.of(Estimate(f"loss at step {i + 1}", float(loss), 0.0, float(error), last.within))
            for i, (loss, error) in enumerate(zip(self.history[:, 0], noise, strict=True))
        )
        steps = tuple(float(i + 1) for i in range(len(marks)))
        return [Figure((Line(steps, marks, "step", "mean loss"),), _LOSS)]

    def notes(self) -> Sequence[str]:
        size = f"{count(self.network.size, 'parameter')} after {count(len(self.history), 'step')}"
        notes = [f"The result is a network: {size}. All of it is in results.json, under model."]
        if len(self.history):
            _, clip, _, noise = self.history[-1]
            notes.append(f"In the last step the clip was {number(clip)}, the noise {number(noise)} an entry.")
        return notes

    def to_dict(self) -> dict[str, Any]:
        return plain(
            {
                "features": list(self.design.names(self.schema)),
                "hidden": list(self.network.hidden),
                "outputs": self.network.outputs,
                "activation": self.network.activation,
                "loss": self.network.loss,
                "parameters": self.parameters,
            }
        )
