"""No sequence of releases that work, fail, are repeated, run at once or are cut off overdraws a budget."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cape.core.errors import CapeError
from cape.data import Number, Schema
from cape.engine.consortium import Consortium
from cape.engine.execute import Execution
from cape.engine.schemes import Conventional
from cape.privacy import Budget
from cape.secagg import Identity
from cape.site.ledger import ledger as ledgers
from cape.site.ledger.ledger import Amount, Entry, Ledger, Limit
from tests.slices import examples
from tests.unit.engine.questions import Average, Bins, Rounds

SHARES = st.sampled_from([0.01, 0.1, 0.25, 1 / 3, 0.5, 1.0])


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Call all of them in threads that start together; return what each returned, or its error."""
    ready, found = threading.Barrier(len(calls)), [None] * len(calls)

    def run(place: int, call: Callable[[], Any]) -> None:
        ready.wait()
        try:
            found[place] = call()
        except CapeError as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


class Consortiums(RuleBasedStateMachine):
    """Releases of one consortium; `left` is what is certain to have left its sites, as shares."""

    def __init__(self) -> None:
        super().__init__()
        tables = {name: pl.DataFrame({"age": [20.0, 50.0, 80.0]}) for name in "abcd"}
        self.consortium = Consortium(
            tables,
            Schema(age=Number(18, 90, missing=False)),
            Budget(1.0, 1e-6),
            colluding=1,
            scheme="conventional",
        )
        self.left = Fraction(0)
        self.mu_squared = 0.0

    def keep(self, release: Any) -> None:
        if not isinstance(release, CapeError):
            self.left += Fraction(repr(release.share))
            self.mu_squared += release.guarantee.mu**2

    @rule(share=SHARES)
    def works(self, share: float) -> None:
        with suppress(CapeError):
            self.keep(self.consortium.release(Average("age"), share))

    @rule(shares=st.lists(SHARES, min_size=2, max_size=4))
    def at_once(self, shares: list[float]) -> None:
        asked = [lambda share=share: self.consortium.release(Average("age"), share) for share in shares]
        for found in at_once(asked):
            self.keep(found)

    @rule(share=SHARES, lost=st.sets(st.sampled_from("abcd"), max_size=3))
    def sites_are_lost(self, share: float, lost: set[str]) -> None:
        with suppress(CapeError):
            self.keep(self.consortium.release(Average("age"), share, drop=dict.fromkeys(lost, "message")))

    @rule(share=SHARES, when=st.sampled_from([0, 1, 2]))
    def gives_up_between_stages(self, share: float, when: int) -> None:
        before = self.consortium.budget.spent
        asked = Rounds("age", (18.0, 50.0, 90.0), fail_after=when)
        try:
            self.consortium.release(asked, share)
        except CapeError:
            if len(asked.answers):  # so many stages were answered; parts are 1, 1 and 2 of 4
                paid = self.consortium.budget.spent - before
                assert paid >= Fraction(repr(share)) * len(asked.answers) / 4
                self.left += paid

    @rule(share=SHARES, error=st.sampled_from([KeyboardInterrupt, MemoryError, OSError]))
    def is_cut_off_once_messages_left(self, share: float, error: type[BaseException]) -> None:
        """An error of any kind after the messages were made: they may have been seen."""
        real = Conventional.run

        def broken(scheme: Any, task: Any) -> Any:
            real(scheme, task)
            raise error

        with mock.patch.object(Conventional, "run", broken):
            try:
                self.consortium.release(Bins("age", (18.0, 50.0, 90.0)), share)
            except CapeError:
                return  # refused before
            except error:
                self.left += Fraction(repr(share))

    @rule(share=SHARES)
    def is_cut_off_before(self, share: float) -> None:
        with (
            mock.patch.object(Execution, "_task", side_effect=OSError),
            suppress(CapeError, OSError),
        ):
            self.consortium.release(Average("age"), share)

    @invariant()
    def never_overdrawn(self) -> None:
        budget = self.consortium.budget
        assert self.left <= budget.spent <= 1
        assert self.mu_squared <= budget.mu**2 * (1 + 1e-9)


WHO = [bytes([n]) * 32 for n in range(2)]
COSTS = st.fractions(min_value=0, max_value=Fraction(1, 2), max_denominator=12)


class Ledgers(RuleBasedStateMachine):
    """A ledger that several hands reserve in; `granted` is what they were told is theirs."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / "ledger.sqlite"
        self.now = datetime(2025, 12, 30, tzinfo=UTC)
        Ledger.create(self.path)
        self.key = Identity()
        self.granted: list[int] = []
        self.runs = 0
        self.limits = [
            Limit("of one", Amount(Fraction(1)), True, True),
            Limit("of a year", Amount(Fraction(3, 2)), False, True),
            Limit("of all", Amount(Fraction(2))),
        ]

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.path, lambda: self.key, clock=lambda: self.now)

    def entry(self, who: int, cost: Fraction, run: int | None = None, stage: int = 0) -> Entry:
        if run is None:
            self.runs += 1
            run = self.runs
        name = run.to_bytes(16, "big")
        return Entry(WHO[who], "s", "00", 1, "mean", "m", "cape", name, stage, b"p", Amount(cost))

    @rule(who=st.integers(0, 1), cost=COSTS)
    def reserves(self, who: int, cost: Fraction) -> None:
        with suppress(CapeError):
            self.granted.append(self.ledger.reserve(self.entry(who, cost), self.limits))

    @rule(who=st.integers(0, 1), cost=COSTS, run=st.integers(1, 5), stage=st.integers(0, 2))
    def tries_again(self, who: int, cost: Fraction, run: int, stage: int) -> None:
        with suppress(CapeError):
            self.granted.append(self.ledger.reserve(self.entry(who, cost, run, stage), self.limits))

    @rule(costs=st.lists(COSTS, min_size=2, max_size=4))
    def at_once(self, costs: list[Fraction]) -> None:
        asked = [self.entry(n % 2, cost) for n, cost in enumerate(costs)]
        found = at_once([lambda e=e: self.ledger.reserve(e, self.limits) for e in asked])
        self.granted += [number for number in found if isinstance(number, int)]

    @rule(who=st.integers(0, 1), cost=COSTS)
    def is_cut_off_after_writing(self, who: int, cost: Fraction) -> None:
        """What dies before the end of the transaction was granted nothing."""
        real = ledgers._insert

        def broken(*args: Any) -> int:
            real(*args)
            raise KeyboardInterrupt

        with mock.patch.object(ledgers, "_insert", broken), suppress(CapeError, KeyboardInterrupt):
            self.ledger.reserve(self.entry(who, cost), self.limits)

    @rule(days=st.integers(-400, 3))
    def the_clock_moves(self, days: int) -> None:
        self.now += timedelta(days=days)

    @invariant()
    def never_overdrawn(self) -> None:
        lines = self.ledger.entries()
        assert sorted(self.granted) == [line.id for line in lines]
        for limit in self.limits:
            for who in WHO if limit.of_coordinator else [None]:
                for year in {line.at.year for line in lines} if limit.in_year else [None]:
                    spent = sum(
                        (
                            line.charged.mu_squared
                            for line in lines
                            if who in (None, line.coordinator) and year in (None, line.at.year)
                        ),
                        Fraction(0),
                    )
                    assert spent <= limit.most.mu_squared
                    assert spent == self.ledger.spent(who, year).mu_squared

    def teardown(self) -> None:
        self._folder.cleanup()


TestConsortiums = Consortiums.TestCase
TestConsortiums.settings = examples(30, stateful_step_count=12)
TestLedgers = Ledgers.TestCase
TestLedgers.settings = examples(15, stateful_step_count=12)
