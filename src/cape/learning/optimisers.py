"""Steps downhill: plain, with momentum, and Adam. They see what was released, and spend nothing.

The state is plain arrays: `state()` gives a copy of it for a checkpoint, and `restore(state)` takes it
back, after which the steps are the same to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from cape import check
from cape.arrays import Floats
from cape.errors import InvalidInput

__all__ = ["SGD", "Adam", "Momentum", "Optimiser"]


class Optimiser(Protocol):
    """What `cape.learning` asks of an optimiser."""

    def step(self, parameters: ArrayLike, gradient: ArrayLike) -> Floats:
        """Return the parameters after one step; the given ones stay as they are."""
        ...

    def state(self) -> dict[str, Floats]:
        """Return a copy of what is remembered between steps."""
        ...

    def restore(self, state: Mapping[str, ArrayLike]) -> None:
        """Go on from a state that `state` returned."""
        ...


class SGD:
    """parameters - rate * gradient."""

    def __init__(self, rate: float) -> None:
        self.rate = check.real("rate", rate, above=0.0)

    def step(self, parameters: ArrayLike, gradient: ArrayLike) -> Floats:
        """Return the parameters after one step; the given ones stay as they are."""
        start, slope = _vectors(parameters, gradient)
        moved = slope * -self.rate
        moved += start
        return moved

    def state(self) -> dict[str, Floats]:
        """Return nothing: there is nothing to remember."""
        return {}

    def restore(self, state: Mapping[str, ArrayLike]) -> None:
        """Go on from a state that `state` returned."""
        _require(state, ())


class Momentum:
    """Velocity = momentum * velocity + gradient; parameters - rate * velocity."""

    def __init__(self, rate: float, momentum: float = 0.9) -> None:
        self.rate = check.real("rate", rate, above=0.0)
        self.momentum = check.probability("momentum", momentum)
        self._velocity: Floats | None = None

    def step(self, parameters: ArrayLike, gradient: ArrayLike) -> Floats:
        """Return the parameters after one step; the given ones stay as they are."""
        start, slope = _vectors(parameters, gradient)
        velocity = np.zeros_like(start) if self._velocity is None else self._velocity
        _require_length("velocity", velocity, start)
        self._velocity = self.momentum * velocity + slope
        return start - self.rate * self._velocity

    def state(self) -> dict[str, Floats]:
        """Return the velocity; nothing before the first step."""
        return {} if self._velocity is None else {"velocity": self._velocity.copy()}

    def restore(self, state: Mapping[str, ArrayLike]) -> None:
        """Go on from a state that `state` returned."""
        if _require(state, ("velocity",)):
            self._velocity = np.array(state["velocity"], np.float64)
        else:
            self._velocity = None


class Adam:
    """Steps divided by the root of a running mean of squares (Kingma and Ba, 2015)."""

    def __init__(
        self, rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8
    ) -> None:
        self.rate = check.real("rate", rate, above=0.0)
        self.beta1 = check.probability("beta1", beta1)
        self.beta2 = check.probability("beta2", beta2)
        self.eps = check.real("eps", eps, above=0.0)
        self._steps = 0
        self._first: Floats | None = None
        self._second: Floats | None = None

    def step(self, parameters: ArrayLike, gradient: ArrayLike) -> Floats:
        """Return the parameters after one step; the given ones stay as they are."""
        start, slope = _vectors(parameters, gradient)
        first = np.zeros_like(start) if self._first is None else self._first
        second = np.zeros_like(start) if self._second is None else self._second
        _require_length("first", first, start)
        self._steps += 1
        self._first = self.beta1 * first + (1.0 - self.beta1) * slope
        self._second = self.beta2 * second + (1.0 - self.beta2) * slope * slope
        rate = self.rate / (1.0 - self.beta1**self._steps)
        root = np.sqrt(self._second) / math.sqrt(1.0 - self.beta2**self._steps)
        return np.asarray(start - rate * self._first / (root + self.eps))

    def state(self) -> dict[str, Floats]:
        """Return both running means and the number of steps; nothing before the first step."""
        if self._first is None or self._second is None:
            return {}
        return {
            "first": self._first.copy(),
            "second": self._second.copy(),
            "steps": np.array([float(self._steps)]),
        }

    def restore(self, state: Mapping[str, ArrayLike]) -> None:
        """Go on from a state that `state` returned."""
        if not _require(state, ("first", "second", "steps")):
            self._steps, self._first, self._second = 0, None, None
            return
        first, second = np.array(state["first"], np.float64), np.array(state["second"], np.float64)
        _require_length("second", second, first)
        self._first, self._second = first, second
        self._steps = int(np.asarray(state["steps"]).reshape(-1)[0])


def _vectors(parameters: ArrayLike, gradient: ArrayLike) -> tuple[Floats, Floats]:
    start, slope = np.asarray(parameters, np.float64), np.asarray(gradient, np.float64)
    if start.shape != slope.shape:
        raise InvalidInput(f"gradient must have the shape {start.shape} of parameters, not {slope.shape}")
    return start, slope


def _require_length(name: str, array: Floats, like: Floats) -> None:
    if array.shape != like.shape:
        raise InvalidInput(f"{name} must have the shape {like.shape}, not {array.shape}")


def _require(state: Mapping[str, ArrayLike], names: tuple[str, ...]) -> bool:
    """Return whether the state holds these arrays, or raise if it holds something else."""
    if not state:
        return False
    if set(state) != set(names):
        raise InvalidInput(f"state must hold {', '.join(names) or 'nothing'}, not {', '.join(sorted(state))}")
    return True
