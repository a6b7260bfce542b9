"""One analysis from its first query to its release: the engine of every run, in one process or across
machines.

`AnalysisSession` knows which query comes next, its grid and noise, what the stages cost, and what was
released; it has no tables, sockets, locks or clock. `Consortium.release` drives it over tables in this
process (`cape.engine.execute`), a submission drives it across machines (`cape.coordinator.submission`), and a
site replays it from released totals to find out what it is asked (`cape.site.decide.decide`).

Claim. Whatever the totals of earlier stages are, true or made up, the next query is calibrated for the price
of its stage.
Reason. A query's sensitivity is what the analysis proves for any earlier answer, and `Stages.calibrate`
depends on the query, the stage and the study's terms alone. The first query also counts cells outside bounds
(`cape.engine.outside_bounds`), in a block that follows from that query and the terms; the analysis sees its
own sums only. An analysis whose first query asks nothing of the tables is free, and may not ask for private
sums later.
Tested in tests/unit/engine/test_session.py and tests/unit/site/test_decide.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import msgspec
import numpy as np

from cape.core import check
from cape.core.errors import CapeError, InvalidInput
from cape.engine.calibration import MOST_ROWS, Calibration
from cape.engine.outside_bounds import OutsideBounds, OutsideShare, shares
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Query, ResumePoint
from cape.engine.result import Release, ReleaseGuarantee
from cape.engine.schemes import Cost
from cape.engine.schemes.cape import MOST_STEPS
from cape.engine.schemes.scheme import Int64
from cape.engine.stages import Stages
from cape.noise import Ring
from cape.stats.estimates import Estimates
from cape.stats.law import GAUSSIAN

__all__ = ["AnalysisSession", "StageResult"]


class StageResult(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one stage released: the total (int64, little-endian), over how many sites and rows.

    `rows` is None where sizes are private. `noise` is the standard deviation in the total, in steps; None
    stands for that of a total over so many sites from which all surplus was taken off.
    """

    total: bytes
    participants: int
    rows: int | None = None
    noise: float | None = None

    @classmethod
    def of(
        cls, total: Int64, participants: int, rows: int | None = None, noise: float | None = None
    ) -> StageResult:
        """Pack a total."""
        return cls(np.asarray(total, "<i8").tobytes(), participants, rows, noise)


class AnalysisSession:
    """An analysis that is asked stage after stage, from released numbers alone.

    Attributes:
        resume: the run that it continues, for analyses that can be interrupted; None for all others.
        stage: the number of the present stage, from 0.
        query: what is asked in it; None once the analysis is done.
        free: whether nothing private is asked.
    """

    def __init__(self, analysis: Analysis, stages: Stages, *, resumable: bool = False) -> None:
        setting = stages.setting
        analysis = setting.asked(analysis, stages.scheme)
        self.analysis, self.stages = analysis, stages
        self.resume: ResumePoint | None = None
        self._conversation: Conversation
        if resumable:
            self.resume, self._conversation = analysis.converse(
                setting.schema, setting.neighbours, stages.terms
            )
        else:
            self._conversation = analysis.conduct(setting.schema, setting.neighbours)
        self.stage = 0
        if self.resume is not None:
            self.stage = check.integer("stages begun", self.resume.stages, least=0, most=len(stages))
        self.query: Query | None = None
        self._found: AnalysisResult | None = None
        self._outside: tuple[OutsideShare, ...] | None = None
        self._rows: int | None = None
        self._growth: list[float] = []
        self._law = GAUSSIAN  # of the noise in the last stage
        self._length = -1  # of what the analysis asked for in the last stage
        self._keys: tuple[int, int] | None = None
        self._calibrated: tuple[Calibration, float] | None = None
        self._proceed(None)
        self.free = not self.stage if self.query is None else not self.query.private

    @property
    def done(self) -> bool:
        """Whether there is nothing left to ask."""
        return self.query is None

    def calibrate(self) -> tuple[Calibration, float]:
        """Return grid and noise of the present stage, and that noise per unit of sensitivity (0 for none)."""
        if self._calibrated is None:
            query = self.pending()
            if self.stage >= len(self.stages):
                raise InvalidInput(
                    f"{self.analysis.kind!r} asked more often than its {len(self.stages)} stages"
                )
            if self.free and query.private:
                raise InvalidInput(
                    f"{self.analysis.kind!r} began as a public question, and asked for private sums"
                )
            self._calibrated = self.stages.calibrate(self.stage, query)
        return self._calibrated

    def pending(self) -> Query:
        """Return the query of the present stage."""
        if self.query is None:
            raise InvalidInput(f"{self.analysis.kind!r} has nothing left to ask")
        return self.query

    def ring(self, rows: int | None) -> Ring:
        """Return the ring of the present stage, for so many rows in all, or for the most that there can be.

        It is made from what is public: otherwise the way in which a release fails could tell something.
        """
        calibration, local_std = self.calibrate()
        setting = self.stages.setting
        public = setting.sizes_public or calibration.std is None
        most = rows if public and rows is not None else MOST_ROWS
        adders = self.stages.scheme.reach(setting.parties, local_std) if local_std else 1
        return calibration.ring(most, setting.parties.sites, adders)

    def keys(self) -> tuple[int, int]:
        """Return the first stage and the number of stages for which keys are agreed at once.

        The second query of the same length opens a series for all stages that are left.
        """
        stage, length = self.stage, self.calibrate()[0].size
        if not self.stages.scheme.keeps_keys or length != self._length:
            self._keys = None
            return stage, 1
        if self._keys is None or stage >= sum(self._keys):
            self._keys = stage, max(1, min(len(self.stages) - stage, MOST_STEPS))
        return self._keys

    def price(self, stages: int) -> Fraction:
        """Return the part of the budget that so many stages cost."""
        return Fraction(0) if self.free else self.stages.cost(stages)

    def guarantee(self, stages: int) -> ReleaseGuarantee:
        """Return what is guaranteed once so many stages have begun."""
        return self.stages.guarantee(0 if self.free else stages)

    def tell(self, result: StageResult) -> None:
        """Take what the present stage released, and proceed to the next stage or to the result."""
        query, (calibration, _) = self.pending(), self.calibrate()
        setting = self.stages.setting
        least = setting.parties.min_sites if self.stages.scheme.masked else 1
        most = setting.parties.sites
        participants = check.integer("participants", result.participants, least=least, most=most)
        if len(result.total) != 8 * calibration.size:
            raise InvalidInput("a total must have as many numbers as its stage releases")
        rows = check.integer("rows", result.rows, least=0) if setting.sizes_public else None
        noise = result.noise
        if noise is None:
            noise = self.stages.scheme.noise_in_total(participants, setting.parties)
        noise = check.real("noise", noise, least=0.0)
        everyone = self.stages.scheme.noise_in_total(setting.parties.sites, setting.parties)
        arrays = iter(calibration.decode(np.frombuffer(result.total, "<i8").astype(np.int64, copy=False)))
        stds = iter(calibration.noise(noise))
        try:
            law = GAUSSIAN if calibration.part is None else calibration.part.law(noise)
        except (ArithmeticError, InvalidInput) as error:  # more noise, or less, than any sites make
            raise self._impossible(self.stage + 1) from error
        answer = Answer(
            tuple(tuple(next(arrays) for _ in scales) for scales in query.scales),
            tuple(tuple(next(stds) for _ in scales) for scales in query.scales),
            rows,
            setting.schema,
            law,
        )
        self._length = calibration.size
        if query.blocks and isinstance(query.blocks[-1], OutsideBounds):
            self._length -= answer.sums[-1][0].size
            answer = self._without_counts(query.blocks[-1], answer)
        self._law = answer.law
        self.stage += 1
        self._rows = rows
        if everyone and calibration.size:
            self._growth.append(noise / everyone)
        self._proceed(answer)

    def release(self, participants: Iterable[str], cost: Cost, lost: Iterable[str] = ()) -> Release:
        """Return the release of an analysis that is done: who took part, what it took, and who was lost."""
        if self._found is None:
            raise InvalidInput(f"{self.analysis.kind!r} is not done")
        return Release(
            self.analysis,
            Estimates.of(self._found.estimates).under(self._law),
            self.guarantee(self.stage),
            float(self.price(self.stage)),
            self.stages.scheme.name,
            tuple(participants),
            self._rows,
            cost,
            self._found.model,
            schema=self.stages.setting.schema,
            growth=max(self._growth, default=1.0),
            lost=tuple(lost),
            outside=self._outside,
        )

    def close(self) -> None:
        """Let the analysis put away what it holds."""
        self._conversation.close()

    def _without_counts(self, block: OutsideBounds, answer: Answer) -> Answer:
        """Keep the counts of cells outside bounds, and return what the analysis has asked for."""
        ((counts,), (noise,)) = answer.sums[-1], answer.noise[-1]
        self._outside = shares(block.columns, counts, noise, answer.rows, answer.schema, answer.law)
        return replace(answer, sums=answer.sums[:-1], noise=answer.noise[:-1])

    def _proceed(self, answer: Answer | None) -> None:
        self.query, self._calibrated = None, None
        try:
            if answer is None:
                asked = next(self._conversation)
                self.query = asked if self.stage else self.stages.first(asked)
            else:
                self.query = self._conversation.send(answer)
        except StopIteration as stop:
            self._found = stop.value if isinstance(stop.value, AnalysisResult) else AnalysisResult(stop.value)
        except CapeError:
            raise
        except (np.linalg.LinAlgError, ArithmeticError, ValueError, IndexError) as error:
            if answer is None:
                raise
            raise self._impossible(self.stage) from error

    def _impossible(self, stage: int) -> InvalidInput:
        """Return the error of a total that rows and noise do not make; stages are counted from 1."""
        return InvalidInput(
            f"{self.analysis.kind!r} cannot go on from the total of stage {stage}: no table and no "
            "noise of this size makes it. Ask who added it up, and start the analysis again"
        )
