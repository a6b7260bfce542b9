"""One analysis and its sites, stage after stage: ask, pay, add up, answer, and ask again.

Claim. What a run keeps of the budget covers every stage of which something may have left a site.
Reason. The whole share is taken before the first table is opened. Whatever ends the run, only the parts of
stages are given back that never began, and the part of the last one if it is certain that nothing that
depends on data had left a site. A function that a question brings along has seen the rows once it runs, and
could tell by failing: its stage is paid for. Stages over samples are paid for all together. A run that goes
on says where, and may say anything from none to all of its stages: what it then asks is counted here.
Tested in tests/engine/test_stages.py and test_consortium.py.

Keys. The second query of the same length opens a series: keys are agreed (or zero-sum noise is made) once
for all stages that are left.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from cape import check
from cape.blocks import Custom
from cape.blocks.block import Held
from cape.engine.query import Analysis, Answer, Begun, Conversation, Finding, Query
from cape.engine.result import Release
from cape.engine.schemes import Cost, Outcome, Scheme, check_drop
from cape.engine.stages import Stages
from cape.errors import CapeError, InvalidInput, PrivacyLeakWarning, TooFewSites

if TYPE_CHECKING:
    from cape.engine.consortium import Consortium

__all__ = ["Drops", "Progress", "Run"]


@dataclass(frozen=True)
class Progress:
    """How far a run is: after `done` of `of` stages."""

    done: int
    of: int
    epsilon: float
    """What has been spent so far, at the study's delta."""
    seconds: float
    """How long the last stage took."""
    note: str
    """What the analysis says of itself, from released numbers only."""


@dataclass(frozen=True)
class Drops:
    """Which sites are lost in which stage, from which round on."""

    always: Mapping[str, str]
    by_stage: Mapping[int, Mapping[str, str]]

    @classmethod
    def of(cls, drop: Any, sites: Mapping[str, Any], rounds: Sequence[str], stages: int) -> Drops:
        """Return what was asked for, or raise an error that names the choices."""
        if isinstance(drop, Mapping) and drop and all(isinstance(key, int) for key in drop):
            for stage in drop:
                if not 0 <= stage < stages:
                    raise InvalidInput(f"drop names stage {stage}; this analysis has 0 to {stages - 1}")
            return cls({}, {stage: check_drop(each, sites, rounds) for stage, each in drop.items()})
        return cls(check_drop(drop or {}, sites, rounds), {})

    def at(self, stage: int) -> Mapping[str, str]:
        """Return who is lost in one stage."""
        return {**self.always, **self.by_stage.get(stage, {})}


class Run:
    """The release of one analysis by one consortium."""

    def __init__(
        self,
        consortium: Consortium,
        analysis: Analysis,
        stages: Stages,
        drops: Drops,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._of, self._analysis, self._stages = consortium, analysis, stages
        self._drops, self._progress = drops, progress
        self._series: Scheme | None = None
        self._length = -1
        self._cost = Cost(0, 0, 0, 0.0)
        self._took_part: dict[str, None] = {}
        self._left = False  # whether something of the present stage may have left a site
        self._free = False

    def whole(self) -> Release:
        """Return the release, or raise, with the budget as it then truly stands."""
        of, stages, setting = self._of, self._stages, self._stages.setting
        begun, conversation = self._analysis.converse(of.schema, setting.neighbours, stages.terms)
        first = 0 if begun is None else check.integer("stages begun", begun.stages, least=0, most=len(stages))
        # What cannot be promised, asked or calibrated fails before it is paid for.
        stages.promise(len(stages))
        try:
            query = next(conversation)
        except StopIteration as stop:  # a run that goes on had nothing left to ask: what it took is paid for
            with of._hold(begun) as known:
                of._spend(self._price(first) - self._price(min(first, known)))
                self._has_begun(begun, first)
            return self._release(stop.value, None, first, free=not first)
        stages.calibrate(first, query)
        if stages.scheme.name == "none":
            warnings.warn(
                "scheme 'none' adds no noise: the answer is exact and not private",
                PrivacyLeakWarning,
                stacklevel=4,
            )
        self._free = not query.blocks  # nothing private is asked
        with of._hold(begun) as known:
            return self._stage_by_stage(conversation, query, begun, first, known)

    def _stage_by_stage(
        self, conversation: Conversation, query: Query, begun: Begun | None, first: int, known: int
    ) -> Release:
        """Pay, and go through the stages from `first` on; this consortium has paid for `known` of them.

        What began elsewhere is paid for here too; what is asked again (an older copy of the file) is paid
        for again.
        """
        of, stages = self._of, self._stages
        repeated = stages.sampling < 1 and first < known  # then nothing less than the whole covers it
        before = Fraction(0) if repeated else self._price(min(first, known))
        paid = self._price(len(stages)) - before
        of._spend(paid)
        self._has_begun(begun, first)
        stage = first
        try:
            rows = of._rows()
            while True:
                if stage == len(stages):
                    raise InvalidInput(f"{self._analysis.kind!r} asked more often than its stages say")
                answer = self._ask(stage, query, rows, begun)
                stage, self._left = stage + 1, False
                try:
                    query = conversation.send(answer)
                except StopIteration as stop:
                    return self._release(stop.value, answer.rows, stage, free=self._free)
        except CapeError as error:
            if len(stages) > 1:
                error.add_note(
                    f"{stage + self._left} of {len(stages)} stages had begun; what they cost stays spent"
                )
            raise
        finally:
            conversation.close()
            kept = max(self._price(stage + self._left) - before, Fraction(0))
            of._give_back(paid - kept)

    def _has_begun(self, begun: Begun | None, stages: int) -> None:
        if begun is not None:
            self._of._has_begun(begun.run, stages)

    def _price(self, stages: int) -> Fraction:
        """Return what so many stages cost."""
        if self._free:
            return Fraction(0)
        return self._stages.cost(stages)

    def _ask(self, stage: int, query: Query, rows: dict[str, int], begun: Begun | None) -> Answer:
        of, stages = self._of, self._stages
        began = time.perf_counter()
        if self._free and query.blocks:
            raise InvalidInput(
                f"{self._analysis.kind!r} began as a public question, and asked for private sums"
            )
        calibration, local_std = stages.calibrate(stage, query)
        ring = of._ring(stages.scheme, calibration, rows, local_std)
        randomness = of._fork()
        if query.before is not None:
            query.before()
        self._has_begun(begun, stage + 1)
        self._left = any(isinstance(block, (Custom, Held)) for block in query.blocks)
        vectors = of._contributions(query, calibration, randomness)
        self._left = True
        if calibration.steps:
            task = of._task(
                vectors, of._expected_rows(rows), self._drops.at(stage), local_std, ring, randomness
            )
            scheme = self._scheme(stage, calibration.size, task)
            try:
                outcome = scheme.run(task)
            except TooFewSites as error:
                self._left = error.sent
                raise
        else:  # nothing is asked of the tables
            outcome = Outcome(np.zeros(0, np.int64), 0.0, tuple(of.sites), Cost(0, 0, 0, 0.0))
        self._cost = self._cost + outcome.cost
        self._took_part.update(dict.fromkeys(outcome.participants))
        if self._progress is not None:
            spent = stages.promise(stage + 1)
            took = time.perf_counter() - began
            self._progress(Progress(stage + 1, len(stages), spent.epsilon, took, query.note))
        return of._answer(query, calibration, outcome, rows)

    def _scheme(self, stage: int, length: int, task: Any) -> Scheme:
        """Return what carries this stage: the scheme, or a series of it from the second query on."""
        left = len(self._stages) - stage
        if length != self._length or left < 1:
            self._length, self._series = length, None
            return self._stages.scheme
        if self._series is None:
            self._series = self._stages.scheme.series(task, left)
        return self._series

    def _release(
        self, finding: Finding | Sequence[Any], rows: int | None, stage: int, *, free: bool
    ) -> Release:
        of, stages = self._of, self._stages
        found = finding if isinstance(finding, Finding) else Finding(finding)
        cost = Fraction(0) if free else stages.cost(stage)
        promise = stages.promise(0 if free else stage)
        return Release(
            self._analysis,
            tuple(found.estimates),
            promise,
            float(cost),
            stages.scheme.name,
            tuple(name for name in of.sites if name in self._took_part),
            rows,
            self._cost,
            found.model,
        )
