"""Gradient steps: plain, with momentum, and Adam. They see released numbers only, and spend nothing.

The state is plain arrays: `state()` returns a copy for a checkpoint. After `restore(state)` the steps are the
same to the bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput

__all__ = ["SGD", "Adam", "Momentum", "Optimiser"]


class Optimiser(ABC):
    """What `cape.learning` asks of an optimiser. `memory` names the arrays that it keeps between steps."""

    memory: ClassVar[tuple[str, ...]] = ()

    def __init__(self, rate: float) -> None:
        self.rate = check.real("rate", rate, above=0.0)
        self._kept: dict[str, Floats] = {}

    @abstractmethod
    def step(self, parameters: ArrayLike, gradient: ArrayLike) -> Floats:
        """Return the parameters after one step; the given ones stay as they are."""

    def state(self) -> dict[str, Floats]:
        """Return a copy of what is kept between steps; nothing before the first step."""
        return {name: array.copy() for name, array in self._kept.items()}

    def restore(self, state: Mapping[str, ArrayLike]) -> None:
        """Continue from a state that `state` returned."""
        if state and set(state) != set(self.memory):
            wanted = ", ".join(self.memory) or "nothing"
            raise InvalidInput(f"state must hold {wanted}, not {', '.join(sorted(state))}")
        self._kept = {name: np.array(array, np.float64) for name, array in state.items()}

    def _recall(self, name: str, like: Floats) -> Floats:
        """Return a kept array, or zeros before the first step."""
        array = self._kept.get(name, np.zeros_like(like))
        _require_shape(name, array, like)
        return array


class SGD(Optimiser):
    """parameters - rate * gradient."""

    def step(self, parameters: ArrayLike, gradient: ArrayLike) -> Floats:
        start, slope = _vectors(parameters, gradient)
        moved = slope * -self.rate
        moved += start
        return moved


class Momentum(Optimiser):
    """Velocity = momentum * velocity + gradient; parameters - rate * velocity."""

    memory: ClassVar[tuple[str, ...]] = ("velocity",)

    def __init__(self, rate: float, momentum: float = 0.9) -> None:
        super().__init__(rate)
        self.momentum = check.probability("momentum", momentum)

    def step(self, parameters: ArrayLike, gradient: ArrayLike) -> Floats:
        start, slope = _vectors(parameters, gradient)
        velocity = self.momentum * self._recall("velocity", start) + slope
        self._kept = {"velocity": velocity}
        return start - self.rate * velocity


class Adam(Optimiser):
    """Steps divided by the root of a running mean of squares (Kingma and Ba, 2015)."""

    memory: ClassVar[tuple[str, ...]] = ("first", "second", "steps")

    def __init__(
        self, rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8
    ) -> None:
        super().__init__(rate)
        self.beta1 = check.probability("beta1", beta1)
        self.beta2 = check.probability("beta2", beta2)
        self.eps = check.real("eps", eps, above=0.0)

    def step(self, parameters: ArrayLike, gradient: ArrayLike) -> Floats:
        start, slope = _vectors(parameters, gradient)
        steps = self._kept.get("steps", np.zeros(1)) + 1.0
        first = self.beta1 * self._recall("first", start) + (1.0 - self.beta1) * slope
        second = self.beta2 * self._recall("second", start) + (1.0 - self.beta2) * slope * slope
        self._kept = {"first": first, "second": second, "steps": steps}
        made = int(steps[0])
        rate = self.rate / (1.0 - self.beta1**made)
        root = np.sqrt(second) / math.sqrt(1.0 - self.beta2**made)
        return np.asarray(start - rate * first / (root + self.eps))

    def restore(self, state: Mapping[str, ArrayLike]) -> None:
        super().restore(state)
        if self._kept:
            _require_shape("second", self._kept["second"], self._kept["first"])
            _require_shape("steps", self._kept["steps"], np.zeros(1))


def _vectors(parameters: ArrayLike, gradient: ArrayLike) -> tuple[Floats, Floats]:
    start, slope = np.asarray(parameters, np.float64), np.asarray(gradient, np.float64)
    if start.shape != slope.shape:
        raise InvalidInput(f"gradient must have the shape {start.shape} of parameters, not {slope.shape}")
    return start, slope


def _require_shape(name: str, array: Floats, like: Floats) -> None:
    if array.shape != like.shape:
        raise InvalidInput(f"{name} must have the shape {like.shape}, not {array.shape}")
