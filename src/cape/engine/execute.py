"""Drive an analysis over tables in this process, stage after stage: pay, ask, add up, tell.

Claim. What a run keeps of the budget covers every stage of which something may have left a site.
Reason. The whole share is taken before the first table is opened. Whatever ends the run, only the parts of
stages are given back that never began, and the part of the last one if it is certain that nothing that
depends on data had left a site. A function that a query brings along has seen the rows once it runs, and
could tell by failing: its stage is paid for. Stages over samples are paid for all together. A resumed run
reports how many of its stages began, from none to all; the report is not trusted, and what it asks is counted
here.
Tested in tests/unit/engine/test_stages.py and test_consortium.py.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from cape.core.errors import CapeError, InvalidInput, PrivacyLeakWarning, TooFewSites, outside
from cape.engine.contribution import contribution
from cape.engine.observer import Observer
from cape.engine.result import Release
from cape.engine.schemes import Cost, Outcome, Scheme, Task, check_drop
from cape.engine.session import AnalysisSession, StageResult
from cape.engine.site_set import SiteSet
from cape.engine.wallet import Wallet
from cape.noise import Ring, SecureStream

__all__ = ["Drops", "Execution", "Progress"]


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


class Execution:
    """One run of an analysis over the tables of a consortium."""

    def __init__(
        self,
        session: AnalysisSession,
        sites: SiteSet,
        wallet: Wallet,
        randomness: Callable[[], SecureStream],
        drops: Drops,
        progress: Callable[[Progress], None] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._session, self._sites, self._wallet = session, sites, wallet
        self._randomness, self._drops = randomness, drops
        self._progress, self._observer = progress, observer or Observer()
        self._begun = session.stage  # stages of which something may have left a site
        self._cost = Cost(0, 0, 0, 0.0)
        self._took_part: set[str] = set()
        self._lost: set[str] = set()
        self._carrier: Scheme = session.stages.scheme

    def run(self) -> Release:
        """Ask until the analysis is done, and leave the budget as it then truly stands."""
        session, wallet = self._session, self._wallet
        # What cannot be guaranteed or calibrated fails before it is paid for.
        session.guarantee(len(session.stages))
        if not session.done:
            session.calibrate()
            if not session.stages.scheme.private:
                warnings.warn(
                    "scheme 'none' adds no noise: the answer is exact and not private",
                    PrivacyLeakWarning,
                    stacklevel=outside(),
                )
        with wallet.hold(session.resume) as known:
            self._ask_all(known)
        participants, lost = (
            [name for name in self._sites.sources if name in them] for them in (self._took_part, self._lost)
        )
        return session.release(participants, self._cost, lost)

    def _ask_all(self, known: int) -> None:
        """Pay, and go through the stages; this consortium has paid for `known` stages of a resumed run.

        What began elsewhere is paid for here too; what is asked again (an older copy of the file) is paid
        for again.
        """
        session, wallet = self._session, self._wallet
        stages, first = session.stages, session.stage
        repeated = stages.sampling < 1 and first < known  # then nothing less than the whole covers it
        before = Fraction(0) if repeated and not session.done else session.price(min(first, known))
        paid = session.price(first if session.done else len(stages)) - before
        wallet.spend(paid)
        wallet.note_begun(session.resume, first)
        try:
            rows = {} if session.done else self._sites.rows()
            while not session.done:
                self._ask(rows)
        except CapeError as error:
            if len(stages) > 1:
                error.add_note(f"{self._begun} of {len(stages)} stages had begun; what they cost stays spent")
            raise
        finally:
            session.close()
            kept = max(session.price(self._begun) - before, Fraction(0))
            wallet.give_back(paid - kept)

    def _ask(self, rows: dict[str, int]) -> None:
        session, began = self._session, time.perf_counter()
        query, (calibration, _) = session.pending(), session.calibrate()
        public = session.stages.setting.sizes_public
        ring, run = session.ring(sum(rows.values())), self._randomness()
        if query.before is not None:
            query.before()
        self._wallet.note_begun(session.resume, session.stage + 1)
        self._begun = session.stage + query.brings_code
        task = self._task(rows, ring, run)
        self._begun = session.stage + 1
        if calibration.steps:
            try:
                outcome = self._carry(task).run(task)
            except TooFewSites as error:
                self._begun = session.stage + error.sent
                raise
        else:  # nothing is asked of the tables
            outcome = Outcome(np.zeros(0, np.int64), 0.0, tuple(rows), Cost(0, 0, 0, 0.0))
        self._cost = self._cost + outcome.cost
        self._took_part.update(outcome.participants)
        if session.stages.scheme.distributed:
            self._lost.update(set(rows) - set(outcome.participants), outcome.late)
        held = sum(rows[name] for name in outcome.participants) if public else None
        if self._progress is not None:
            spent = session.stages.guarantee(session.stage + 1)
            took = time.perf_counter() - began
            done = session.stage + 1
            self._progress(Progress(done, len(session.stages), spent.epsilon, took, query.note))
        self._observer.released(outcome)
        session.tell(StageResult.of(outcome.total, len(outcome.participants), held, outcome.noise))

    def _task(self, rows: dict[str, int], ring: Ring, run: SecureStream) -> Task:
        """Return what the parties of this stage are given: each site's contribution among it."""
        session, sites = self._session, self._sites
        query, (calibration, local_std) = session.pending(), session.calibrate()
        scheme, parties = session.stages.scheme, session.stages.setting.parties
        known, drop = sites.known(rows), self._drops.at(session.stage)
        noisy = scheme.noisy(known, drop)
        self._observer.asked(query, calibration)
        vectors = {
            name: contribution(
                sites.table(name).of(session.stages.setting.schema),
                query,
                calibration,
                sample=run.fork(f"sample {name}"),
                noise=run.fork(f"site {name}") if name in noisy else None,
            )
            for name in sites.sources
        }
        return Task(vectors, known, parties, local_std, ring, drop, run.fork("keys"), self._observer)

    def _carry(self, task: Task) -> Scheme:
        """Return what carries this stage: the scheme, or a series of it with keys that are agreed once."""
        first, steps = self._session.keys()
        if first == self._session.stage:
            scheme = self._session.stages.scheme
            self._carrier = scheme.series(task, steps) if steps > 1 else scheme
        return self._carrier
