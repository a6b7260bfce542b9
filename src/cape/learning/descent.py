"""Gradient descent in which every training step is one release: broadcast, add up, release, update.

Claim. A step whose query is made by `Descent.question` costs at most the mu of its stage.
Reason. A record adds to the sums a vector of length at most 1 in units of the clip (each block's own claim).
Beside it stand, if they are watched, whether its gradient was shorter than the clip, as 0 or 1 and released
with scale `WATCHED`, and its loss, cut off at a bound and divided by it, with the same scale. Replacing a
record moves the three by at most 2, 1 and 1: sqrt(4 + 2 / scale²) in all; adding one by 1, 1 and 1: sqrt(1 +
2 / scale²), which is also the most that one record alone adds. Where k records may be one person's, the sum
of a person's gradients at a site is shortened to the clip again, and the two numbers beside it move by k:
replacing a person moves the three by at most 2, k and k. Everything else (optimiser, clip, stopping) looks at
released numbers only.
Tested in tests/unit/learning/test_descent.py.

The adaptive clip follows a private quantile of the gradients' lengths (Andrew et al. 2021): clip times
exp(-rate (share below - wanted)), from the released count.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from cape.blocks import Block
from cape.core import check
from cape.core.arrays import Floats
from cape.core.check import hint
from cape.core.errors import CapeError, InvalidInput
from cape.data import Schema
from cape.engine.query import (
    Analysis,
    AnalysisResult,
    Answer,
    Conversation,
    Neighbours,
    Noise,
    Query,
    ResumePoint,
)
from cape.engine.stages import slack
from cape.learning.checkpoint import Checkpoint, State, new_run
from cape.learning.optimisers import SGD, Adam, Momentum, Optimiser
from cape.privacy import dominating_mu, gaussian, noise_for_mu, subsampled
from cape.secagg.parameters import MAX_STEPS

__all__ = ["WATCHED", "Descent", "Diverged", "Training"]


_OPTIMISERS: dict[str, Callable[[float], Optimiser]] = {"sgd": SGD, "momentum": Momentum, "adam": Adam}
WATCHED = 4.0  # the noise of the two watched numbers over that of the gradient: they cost 3% of mu²
_MOST_EPOCHS = 1e6
_QUANTILE = 0.5
_CLIP_RATE = 0.2
_TOO_LARGE = 1e6  # parameters beyond it are useless, and the run stops


class Diverged(CapeError):
    """The parameters diverged: the steps so far are spent, the rest are not."""


@dataclass(frozen=True)
class Training:
    """Options of training: public, and the same at every site.

    Attributes:
        epochs: how often each row is used, on average.
        sampling: the probability with which a row takes part in a step, drawn in secret at its site; 1 is
            the whole table in each step.
        clip: the length that a row's gradient is shortened to, or "adaptive".
        rate: of learning.
        optimiser: "adam", "momentum" or "sgd".
        watch: also release the mean loss in each step, for a learning curve; costs 3% of the budget.
        seed: of the first weights, which are public.
        checkpoint: a file from which an interrupted run is resumed.
        rows: the number of rows to assume, where it is private ("add-remove").
    """

    epochs: float = 50.0
    sampling: float = 1.0
    clip: float | Literal["adaptive"] = 1.0
    rate: float = 0.05
    optimiser: str = "adam"
    watch: bool = False
    seed: int = 0
    checkpoint: str | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        check.real("epochs", self.epochs, above=0.0, most=_MOST_EPOCHS)
        check.real("sampling", self.sampling, above=0.0, most=1.0)
        if self.epochs / self.sampling > MAX_STEPS:
            steps = f"{self.epochs / self.sampling:.3g} steps"
            raise InvalidInput(f"epochs / sampling makes {steps}, and {MAX_STEPS:,} are possible")
        if self.clip != "adaptive":
            check.real("clip", self.clip, least=1 / _TOO_LARGE, most=_TOO_LARGE)
        check.real("rate", self.rate, above=0.0)
        if self.optimiser not in _OPTIMISERS:
            raise InvalidInput(f"optimiser must be one of {', '.join(_OPTIMISERS)}, not {self.optimiser!r}")
        if not isinstance(self.watch, bool):
            raise InvalidInput(f"watch must be true or false, not {self.watch!r}")
        check.integer("seed", self.seed, least=0)
        if self.rows is not None:
            check.integer("rows", self.rows, least=1)
        if self.checkpoint is not None and not isinstance(self.checkpoint, (str, Path)):
            raise InvalidInput(f"checkpoint must be a path, not {self.checkpoint!r}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Training:
        """Return the training with these options, or raise `InvalidInput`."""
        known = [each.name for each in fields(cls)]
        for option in options:
            if option not in known:
                raise InvalidInput(f"unknown training option {option!r}{hint(option, known)}")
        return cls(**options)

    @property
    def steps(self) -> int:
        """The number of training steps."""
        return max(1, round(self.epochs / self.sampling))

    def noise(self, epsilon: float, delta: float, neighbours: Neighbours = "replace-one") -> float:
        """Return the noise in a step's sum, in clips, with which all steps together cost epsilon at delta."""
        mu = gaussian.mu(epsilon, delta)
        return noise_for_mu(mu, self.sampling, self.steps, slack(delta), adjacency=neighbours)

    def epsilon(self, noise: float, delta: float, neighbours: Neighbours = "replace-one") -> float:
        """Return what all steps together cost at delta, with this noise in each step's sum, in clips."""
        if self.sampling < 1:
            return subsampled(noise, self.sampling, self.steps, delta, adjacency=neighbours).epsilon
        return gaussian.epsilon(delta, dominating_mu(noise, 1.0, self.steps, delta, adjacency=neighbours))

    @property
    def watched(self) -> bool:
        """Whether lengths and losses are released beside the gradient."""
        return self.watch or self.clip == "adaptive"

    def first_clip(self) -> float:
        """Return the clip to begin with."""
        return 1.0 if self.clip == "adaptive" else float(self.clip)

    def new_optimiser(self) -> Optimiser:
        """Return the optimiser, with no memory."""
        return _OPTIMISERS[self.optimiser](self.rate)

    def seed_bytes(self) -> bytes:
        """Return the seed of the first weights."""
        return hashlib.sha256(f"cape first weights {self.seed}".encode()).digest()


class Descent(Analysis):
    """An analysis that is learned step by step. A subclass says its block, its start and its result."""

    loss_bound: ClassVar[float] = 1.0
    """The bound at which losses are cut off, and by which they are divided."""
    training: Training
    options: ClassVar[tuple[str, ...]] = tuple(each.name for each in fields(Training))
    """Further keys that a study file may give."""

    @abstractmethod
    def start(self, schema: Schema) -> Floats:
        """Return the parameters to begin with."""

    @abstractmethod
    def block(self, schema: Schema, parameters: Floats, clip: float) -> Block:
        """Return the sum of clipped gradients at these parameters.

        Its arrays are the gradients in units of the clip and, if they are watched, how many were shorter
        than the clip, and the losses over their bound.
        """

    @abstractmethod
    def found(self, schema: Schema, parameters: Floats, history: Floats) -> AnalysisResult:
        """Return what has been learned. `history` has a row per step: loss, clip, length, noise."""

    @property
    def sampling(self) -> float:
        return self.training.sampling

    def stages(self) -> tuple[float, ...]:
        return (1.0,) * self.training.steps

    def question(self, schema: Schema, neighbours: Neighbours, parameters: Floats, clip: float) -> Query:
        """Return the query of one step: proof at the head of the module."""
        if (neighbours == "add-remove" or schema.open) and self.training.rows is None:
            why = "under 'add-remove'" if neighbours == "add-remove" else "with where, or with [person]"
            raise InvalidInput(
                f"a step divides by the number of rows, which is private {why}: give the number to assume, "
                "as rows = ..."
            )
        block = self.block(schema, parameters, clip)
        beside = 2 / WATCHED**2 if self.training.watched else 0.0
        alone = math.sqrt(1 + beside)
        moved = math.sqrt(4 + beside) if neighbours == "replace-one" else alone
        scales = (1.0, WATCHED, WATCHED) if self.training.watched else (1.0,)
        whole = math.sqrt((4 if neighbours == "replace-one" else 1) + schema.rows_of_person**2 * beside)
        clipped = getattr(block, "by_person", False)
        return Query((block,), (scales,), moved, norm=alone, of_person=whole if clipped else None)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the query of the first step; those of all steps have the same noise."""
        return self.question(schema, neighbours, self.start(schema), self.training.first_clip())

    def finish(self, answer: Answer) -> AnalysisResult:
        """Raise an error: one answer is not enough, see `conduct`."""
        raise InvalidInput(f"{self.kind!r} is learned step by step, not from one answer")

    def converse(
        self, schema: Schema, neighbours: Neighbours, terms: str
    ) -> tuple[ResumePoint | None, Conversation]:
        """Train from the beginning, or resume from the checkpoint."""
        checkpoint = self._checkpoint(schema, terms)
        state = State(new_run(), self.start(schema), self.training.first_clip())
        held = None if checkpoint is None else checkpoint.read(state, self.training.steps)
        if checkpoint is not None and held is not None:
            try:
                self.training.new_optimiser().restore(held.memory)
            except InvalidInput as error:
                raise InvalidInput(f"the checkpoint {checkpoint.path} is damaged: {error}") from None
            state = held
        begun = None if checkpoint is None else ResumePoint(state.run, state.begun)
        return begun, self._descend(schema, neighbours, state, checkpoint)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        state = State(new_run(), self.start(schema), self.training.first_clip())
        return self._descend(schema, neighbours, state, None)

    def _descend(
        self, schema: Schema, neighbours: Neighbours, state: State, checkpoint: Checkpoint | None
    ) -> Conversation:
        optimiser = self.training.new_optimiser()
        optimiser.restore(state.memory)
        note = ""
        for step in range(state.begun, self.training.steps):

            def write(step: int = step) -> None:
                state.begun, state.memory = step + 1, optimiser.state()
                if checkpoint is not None:
                    checkpoint.write(state)

            query = self.question(schema, neighbours, state.parameters, state.clip)
            answer = yield replace(query, note=note, before=write)
            note = self._move(state, optimiser, answer)
            state.done = step + 1
        if checkpoint is not None and state.done == self.training.steps:
            checkpoint.write(state)
        return self.found(schema, state.parameters, state.curve)

    def _move(self, state: State, optimiser: Optimiser, answer: Answer) -> str:
        """Take one training step, and return its note."""
        training = self.training
        count = (answer.rows or training.rows or 1) * training.sampling
        gradient = np.asarray(answer.sums[0][0], np.float64).reshape(-1) * (state.clip / count)
        loss = math.nan
        if training.watched:
            below = float(answer.sums[0][1][0]) / count
            loss = float(answer.sums[0][2][0]) / count * self.loss_bound
        noise = answer.noise[0][0] * state.clip / count
        state.history.append((loss, state.clip, float(np.linalg.norm(gradient)), noise))
        moved = optimiser.step(state.parameters, gradient)
        if not np.all(np.isfinite(moved)) or np.max(np.abs(moved), initial=0.0) > _TOO_LARGE:
            raise Diverged(
                f"the parameters diverged after {len(state.history)} steps; use a smaller rate "
                f"(now {training.rate:g}) or a smaller clip. These steps stay spent"
            )
        state.parameters = moved
        if training.clip == "adaptive":
            clip = state.clip * math.exp(-_CLIP_RATE * (min(max(below, 0.0), 1.0) - _QUANTILE))
            state.clip = min(max(clip, 1 / _TOO_LARGE), _TOO_LARGE)
        return f"loss {max(loss, 0.0):.4g}" if training.watch else ""

    def _checkpoint(self, schema: Schema, terms: str) -> Checkpoint | None:
        if self.training.checkpoint is None:
            return None
        path = Path(self.training.checkpoint)
        if not os.path.isdir(path.parent):  # False for a name that is too long, where Path raises
            raise InvalidInput(f"the folder of the checkpoint does not exist: {path.parent}")
        asked = json.dumps([self.to_dict(), schema.key, terms], sort_keys=True, default=str)
        return Checkpoint(path, hashlib.sha256(asked.encode()).hexdigest())

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the noise in each entry of a step's mean gradient, in its own unit."""
        each = noise[0][0] * self.training.first_clip() / (rows * self.training.sampling)
        return {"each entry of a step's gradient": each}

    def keys(self) -> dict[str, Any]:
        plain = {key: value for key, value in super().keys().items() if key != "training"}
        options = {key: value for key, value in vars(self.training).items() if key != "checkpoint"}
        return {**plain, **options}


def history_table(history: Floats) -> list[Mapping[str, float]]:
    """Return the learning curve, one entry per step."""
    return [
        {"step": i + 1, "loss": loss, "clip": clip, "gradient": length, "noise": noise}
        for i, (loss, clip, length, noise) in enumerate(history.tolist())
    ]
