"""Gradient descent on any loss: the user provides the gradient of one row as a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cape.blocks import Custom
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined, names
from cape.engine.query import AnalysisResult
from cape.learning.checkpoint import fingerprint
from cape.learning.descent import Descent, Training, history_table
from cape.show import Shown, Table
from cape.show.numbers import count, number
from cape.show.plain import plain
from cape.stats.estimates import Estimates

__all__ = ["GradientDescent"]

_MOST_TOLD = 200
Gradient = Callable[[dict[str, NDArray[Any]], Floats], Floats]


@dataclass(frozen=True, init=False)
class GradientDescent(Descent):
    """Minimise the mean over rows of any loss, given its gradient.

    >>> def gradient(batch, w):  # of (height - w)² / 2
    ...     return w - batch["height"][:, None]
    >>> GradientDescent(gradient, columns=["height"], start=[170.0], clip=50.0, epochs=50, rate=1.0)

    Args:
        gradient: takes a batch, a dict of column -> array (float64 with NaN for missing, or int64 codes of
            a category, -1 for missing), and the parameters; returns (rows, parameters), one gradient for
            each row by itself.
        columns: what it reads.
        start: the parameters to begin with.
        **training: see `Training`; watching losses and an adaptive clip need `NeuralNetwork`.

    **Sensitivity.** A row's gradient is shortened to the clip and rounded toward zero (`cape.blocks.clip`),
    so in units of the clip it has length at most 1: 2 under replace-one, 1 under add-remove. That holds for a
    function that treats each row by itself; anyone who approves a function must read it.
    """

    kind: ClassVar[str] = "gradient-descent"
    gradient: Gradient
    columns: tuple[str, ...]
    first: tuple[float, ...]
    training: Training

    def __init__(
        self, gradient: Gradient, *, columns: Sequence[str], start: ArrayLike, **training: Any
    ) -> None:
        if not callable(gradient):
            raise InvalidInput(f"gradient must take a batch and parameters, not be {type(gradient).__name__}")
        try:
            begin = np.asarray(start, np.float64)
        except (TypeError, ValueError):
            begin = np.empty(0)
        if begin.ndim != 1 or not begin.size or not np.all(np.isfinite(begin)):
            raise InvalidInput("start must be a vector of finite parameters")
        self._set(
            gradient=gradient,
            columns=names((columns,) if isinstance(columns, str) else columns),
            first=tuple(begin.tolist()),
            training=Training.of(training),
        )
        if self.training.watched:
            raise InvalidInput("losses are watched, and clips adapted, in a NeuralNetwork only")

    def start(self, schema: Schema) -> Floats:
        """Return the parameters to begin with."""
        return np.array(self.first)

    def block(self, schema: Schema, parameters: Floats, clip: float) -> Custom:
        return Custom(
            lambda batch: self.gradient(batch, parameters.copy()),
            self.columns,
            len(self.first),
            clip,
            self.training.sampling,
            by_person=schema.rows_of_person > 1,
        )

    def found(self, schema: Schema, parameters: Floats, history: Floats) -> AnalysisResult:
        """Return the parameters; their errors depend on the loss and are not reported."""
        labels = [f"w[{i}]" for i in range(len(parameters))]
        estimates = Estimates(labels, parameters, np.nan, np.nan)
        return AnalysisResult(estimates, DescentModel(parameters, history))

    def describe(self) -> str:
        return (
            f"gradient descent on a function of {joined(self.columns)}, "
            f"{count(len(self.first), 'parameter')}, in {count(self.training.steps, 'step')}"
        )

    def keys(self) -> dict[str, Any]:
        name = getattr(self.gradient, "__qualname__", type(self.gradient).__name__)
        return {**super().keys(), "gradient": name, "code": fingerprint(self.gradient)}


@dataclass(frozen=True, repr=False)
class DescentModel(Shown):
    """Learned parameters, and the history of training."""

    parameters: Floats
    history: Floats

    @property
    def learning_curve(self) -> list[Any]:
        return history_table(self.history)

    def tables(self) -> Sequence[Table]:
        rows = tuple((f"w[{i}]", number(float(w))) for i, w in enumerate(self.parameters[:_MOST_TOLD]))
        more = len(self.parameters) - len(rows)
        title = f"parameters after {count(len(self.history), 'step')}"
        return [Table(("", "value"), rows, title, more=more)]

    def notes(self) -> Sequence[str]:
        return ["The errors of parameters depend on the loss, and are not known."]

    def to_dict(self) -> dict[str, Any]:
        return plain({"parameters": self.parameters, "steps": len(self.history)})
