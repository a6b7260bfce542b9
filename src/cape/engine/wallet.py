"""The budget of a consortium: what is spent of it, and which runs are under way.

Claim. All releases of a consortium together cost at most its budget, also when they fail or run at once.
Reason. What a release may cost is taken from the budget before anything is computed, under a lock; it is
given back only for stages of which it is certain that nothing that depends on data has left a site (see
`execute`).
Tested in tests/unit/engine/test_consortium.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

from cape.core.errors import InvalidInput
from cape.engine.query import ResumePoint
from cape.privacy import Budget

__all__ = ["Wallet"]


class Wallet:
    """A budget with a lock, and how many stages of each resumable run it has paid for."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._begun: dict[str, int] = {}
        self._held: set[str] = set()

    @property
    def budget(self) -> Budget:
        """The budget, and what of it is spent."""
        return self._budget

    @contextmanager
    def hold(self, run: ResumePoint | None) -> Iterator[int]:
        """Hold a resumable run, so that one thread at a time continues it; yield what began here."""
        if run is None:
            yield 0
            return
        with self._lock:
            if run.run in self._held:
                raise InvalidInput("the run of this checkpoint is going on already")
            self._held.add(run.run)
            known = self._begun.get(run.run, 0)
        try:
            yield known
        finally:
            with self._lock:
                self._held.discard(run.run)

    def note_begun(self, run: ResumePoint | None, stages: int) -> None:
        """Write down that so many stages of a resumable run have begun here."""
        if run is not None:
            with self._lock:
                self._begun[run.run] = max(stages, self._begun.get(run.run, 0))

    def spend(self, cost: Fraction) -> None:
        """Take from the budget, or raise `BudgetExceeded`."""
        with self._lock:
            self._budget = self._budget.spend(cost) if cost else self._budget

    def give_back(self, cost: Fraction) -> None:
        """Put back what was taken for stages that never began."""
        with self._lock:
            budget = self._budget
            self._budget = Budget(budget.epsilon, budget.delta, budget.spent - cost)
