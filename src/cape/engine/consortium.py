"""Several sites, one schema, one budget: the object that people hold.

A vector's way through a release, one function per arrow:

    table -> exact integer sums          cape.blocks.Table.sums
    -> steps of the release's grid       Calibration.encode
    -> plus noise of the site            schemes.messages.add_noise
    -> plus zero-sum noise, message      a step of secagg, or CapeGaussian.run
    -> total                             schemes.messages.aggregate, or the unmasking of secure aggregation
    -> units of t and rows               Calibration.decode
    -> estimates                         Analysis.finish

Claim. All releases of a consortium together cost at most its budget, also when they fail or run at once.
Reason. The share is taken from the budget before anything is computed, under a lock, and is kept, whatever
happens, but for stages (see `run`) of which it is certain that nothing that depends on data has left a site.
Tested in tests/engine/test_consortium.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cape import check
from cape.blocks.holder import Holder
from cape.blocks.table import Table
from cape.data import Schema, Site
from cape.engine.calibration import Calibration
from cape.engine.plan import Plan, make_plan
from cape.engine.query import Analysis, Answer, Begun, Neighbours, Query
from cape.engine.result import Release
from cape.engine.run import Drops, Progress, Run
from cape.engine.schemes import SCHEMES, CapeGaussian, Cost, Outcome, Parties, Scheme, Task
from cape.engine.setting import Setting
from cape.engine.stages import Stages
from cape.errors import InvalidInput
from cape.noise import Ring, SecureStream
from cape.noise.stream import require_stream
from cape.privacy import Budget, correlated

__all__ = ["Consortium"]

MOST_ROWS = 1 << 36  # what the ring is made to hold when the number of rows is private


class Consortium:
    """Sites that want one answer and may not pool their rows.

    >>> consortium = Consortium({"a": a_frame, "b": "b.csv"}, schema, Budget(epsilon=1, delta=1e-6))
    >>> consortium.release(cape.Mean("age"), share=0.2).interval(0.95)

    Args:
        sites: name -> table, or a list of `Site`s (see `cape.blocks.Table` for what a table may be).
        schema: the columns with their public bounds or categories.
        budget: total (epsilon, delta) for all releases.
        colluding: how many sites may side with the aggregator; by default ceil(sites/3) - 1.
        min_sites: how many sites must take part for a release to count; by default all. Fewer cost
            noise: see the plan.
        scheme: how noise is made, "cape" unless a release says otherwise.
        neighbours: "replace-one" (sizes of sites are public) or "add-remove" (they are not).
        sizes: how many rows people expect at each site, for plans; they are never used in a release.
        stream: where all noise and keys come from; the operating system by default. A stream with a
            key makes a run that can be repeated, for tests only.
    """

    def __init__(
        self,
        sites: Mapping[str, Any] | Iterable[Site],
        schema: Schema | Mapping[str, Any],
        budget: Budget,
        *,
        colluding: int | None = None,
        min_sites: int | None = None,
        scheme: str | Scheme = "cape",
        neighbours: Neighbours = "replace-one",
        sizes: Mapping[str, int] | None = None,
        stream: SecureStream | None = None,
    ) -> None:
        self.schema = schema if isinstance(schema, Schema) else Schema(schema)
        self.sites = _named(sites)
        self._tables: dict[str, Table] = {}  # opened when first asked: a plan opens none
        if not isinstance(budget, Budget):
            raise InvalidInput(f"budget must be a Budget, not {type(budget).__name__}")
        if neighbours not in ("replace-one", "add-remove"):
            raise InvalidInput(f"neighbours must be 'replace-one' or 'add-remove', not {neighbours!r}")
        count = len(self.sites)
        colluding = correlated.default_colluding(count) if colluding is None else colluding
        parties = Parties(count, colluding, count if min_sites is None else min_sites)
        self._setting = Setting(self.schema, budget, parties, neighbours)
        self._scheme = _scheme(scheme)
        self._sizes = _sizes(sizes, self.sites)
        self._stream = SecureStream() if stream is None else require_stream(stream)
        self._lock = threading.Lock()
        self._budget = budget
        self._count = 0
        self._begun: dict[str, int] = {}  # how many stages of runs that can be resumed have begun here
        self._held_runs: set[str] = set()
        self.releases: list[Release] = []

    @property
    def budget(self) -> Budget:
        """The budget, and what of it is spent."""
        return self._budget

    @property
    def parties(self) -> Parties:
        """How many sites there are, may collude, and must take part."""
        return self._setting.parties

    def plan(self, analysis: Analysis, share: float, *, scheme: str | Scheme | None = None) -> Plan:
        """Return what a release would do to privacy and accuracy. Reads no data and spends nothing."""
        _require_analysis(analysis)
        kind = self._scheme if scheme is None else _scheme(scheme)
        sizes = self._sizes or self._shown_sizes()
        return make_plan(analysis, self._setting, kind, _share(share), sizes, self._budget.remaining)

    def release(
        self,
        analysis: Analysis,
        share: float,
        *,
        scheme: str | Scheme | None = None,
        drop: Mapping[Any, Any] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Release:
        """Answer an analysis across the sites, for a share of the budget.

        Args:
            analysis: what is asked.
            share: how much of the budget it may cost; shares of all releases add up to at most 1.
            scheme: how noise is made, if not as the consortium does.
            drop: site -> round from which on it says nothing, to see what happens then. With "cape"
                rounds are advertise, share, mask, consistency and unmask; "cape-gaussian" has message
                too, and the others have message alone. For an analysis in several stages, stage -> such a
                mapping loses sites in that stage (counted from 0) only; they take part again in the next.
            progress: called after each stage.

        Raises:
            BudgetExceeded: less is left. Nothing was computed or spent.
            TooFewSites: fewer than `min_sites` took part; the share is spent if `error.sent`.
            DataError: a site's table does not fit the schema. Nothing was spent, unless the analysis
                brings a function of its own, which could tell by failing.
        """
        _require_analysis(analysis)
        share = _share(share)
        kind = self._scheme if scheme is None else _scheme(scheme)
        stages = Stages.of(analysis, self._setting, kind, share)
        drops = Drops.of(drop, self.sites, kind.rounds, len(stages))
        release = Run(self, analysis, stages, drops, progress).whole()
        self.releases.append(release)
        return release

    def _shown_sizes(self) -> dict[str, int] | None:
        """Return the lengths that tables in memory show of themselves, where sizes are public."""
        lengths = {name: _length(table) for name, table in self.sites.items()}
        if self._setting.neighbours != "replace-one" or None in lengths.values():
            return None
        return {name: length for name, length in lengths.items() if length is not None}

    def prepare(self, numbers: int) -> Cost:
        """Make the zero-sum noise for the next `numbers` released numbers, in one run without data.

        For scheme "cape-gaussian" with the paper's variances: later releases then take one message a
        site. Returns what the run took.
        """
        scheme = self._scheme
        if not isinstance(scheme, CapeGaussian) or scheme.correlated_std != "paper":
            raise InvalidInput(
                "noise can be prepared for scheme 'cape-gaussian' with the paper's variances only"
            )
        names = dict.fromkeys(self.sites, np.zeros(0, np.int64))
        return scheme.prepare(
            self._task(names, {}, {}, 1.0, Ring(64), self._fork()),
            check.integer("numbers", numbers, least=1),
        )

    @contextmanager
    def _hold(self, run: Begun | None) -> Iterator[int]:
        """Hold a run that can be resumed, so that it goes on once at a time; how much of it began here."""
        if run is None:
            yield 0
            return
        with self._lock:
            if run.run in self._held_runs:
                raise InvalidInput("the run of this checkpoint is going on already")
            self._held_runs.add(run.run)
            known = self._begun.get(run.run, 0)
        try:
            yield known
        finally:
            with self._lock:
                self._held_runs.discard(run.run)

    def _has_begun(self, run: str, stages: int) -> None:
        """Write down that so many stages of a run have begun here."""
        with self._lock:
            self._begun[run] = max(stages, self._begun.get(run, 0))

    def _spend(self, cost: Fraction) -> None:
        """Take from the budget, or raise."""
        with self._lock:
            self._budget = self._budget.spend(cost) if cost else self._budget

    def _give_back(self, cost: Fraction) -> None:
        with self._lock:
            budget = self._budget
            self._budget = Budget(budget.epsilon, budget.delta, budget.spent - cost)

    def _table(self, name: str) -> Table | Holder:
        source = self.sites[name]
        if isinstance(source, Holder):
            return source
        if name not in self._tables:
            self._tables[name] = Table(name, source, self.schema)
        return self._tables[name]

    def _rows(self) -> dict[str, int]:
        """Return how many rows each site holds. Where that is public, none may be empty."""
        if self._setting.neighbours == "replace-one":
            for name in self.sites:
                self._table(name).require_rows()
        return {name: self._table(name).rows() for name in self.sites}

    def _contributions(
        self, query: Query, calibration: Calibration, randomness: SecureStream
    ) -> dict[str, NDArray[np.int64]]:
        """Return each site's exact sums, in steps. A site that samples rows draws from its own stream."""
        vectors = {}
        for name in self.sites:
            drawn = randomness.fork(f"sample {name}")
            sums = tuple(part for parts in self._table(name).sums(query.blocks, drawn) for part in parts)
            vectors[name] = calibration.encode(sums) if sums else np.zeros(0, np.int64)
        return vectors

    def _ring(
        self, scheme: Scheme, calibration: Calibration, rows: Mapping[str, int], local_std: float
    ) -> Ring:
        """Return the ring of a release, from what is public: else how it fails could tell something."""
        public = self._setting.neighbours == "replace-one" or calibration.std is None
        adders = scheme.reach(self.parties, local_std) if local_std else 1
        return calibration.ring(sum(rows.values()) if public else MOST_ROWS, len(rows), adders)

    def _expected_rows(self, rows: dict[str, int]) -> dict[str, int]:
        """Return the sizes of sites as everyone may know them."""
        if self._setting.neighbours == "replace-one":
            return rows
        return dict.fromkeys(rows, 0) | (self._sizes or {})  # private: go by what people expect

    def _fork(self) -> SecureStream:
        """Return randomness that nothing else has."""
        with self._lock:
            self._count += 1
            return self._stream.fork(f"run {self._count}")

    def _task(
        self,
        vectors: dict[str, NDArray[np.int64]],
        rows: dict[str, int],
        drop: Mapping[str, str],
        local_std: float,
        ring: Ring,
        run: SecureStream,
    ) -> Task:
        """Return what the parties of one release are given."""
        streams = {name: run.fork(f"site {name}") for name in vectors}
        return Task(vectors, rows, self.parties, local_std, ring, drop, streams, run.fork("keys"))

    def _answer(
        self, query: Query, calibration: Calibration, outcome: Outcome, rows: Mapping[str, int]
    ) -> Answer:
        arrays = iter(calibration.decode(outcome.total))
        noise = iter(calibration.noise(outcome.noise))
        public = self._setting.neighbours == "replace-one"
        return Answer(
            tuple(tuple(next(arrays) for _ in scales) for scales in query.scales),
            tuple(tuple(next(noise) for _ in scales) for scales in query.scales),
            sum(rows[name] for name in outcome.participants) if public else None,
            self.schema,
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Consortium cannot be copied or pickled: the copy would spend the budget again")

    def __repr__(self) -> str:
        p = self.parties
        return (
            f"Consortium({', '.join(self.sites)}; {p.colluding} colluding, {p.min_sites} of {p.sites} must "
            f"answer; {self._budget})"
        )


def _named(sites: Any) -> dict[str, Any]:
    if not isinstance(sites, Mapping):
        listed = list(sites) if isinstance(sites, Iterable) and not isinstance(sites, (str, bytes)) else []
        if not all(isinstance(site, Site) for site in listed):
            listed = []
        if len({site.name for site in listed}) < len(listed):
            raise InvalidInput("sites must have different names")
        sites = {site.name: site.table for site in listed}
    if not sites or not all(isinstance(name, str) and name for name in sites):
        raise InvalidInput("sites must map at least one name to a table, as in {'a': 'a.csv'}")
    for name in sites:
        if not name.isprintable() or len(name) > 200:
            raise InvalidInput(
                f"a site's name must have at most 200 characters, all printable, not {check.show(name)}"
            )
    return dict(sites)


def _length(table: Any) -> int | None:
    """Return the number of rows of a table in memory: what it says of itself, with no row read."""
    length = getattr(table, "num_rows", None)  # Arrow
    if length is None and hasattr(table, "columns"):
        shape = getattr(table, "shape", None)  # pandas, polars
        length = shape[0] if isinstance(shape, tuple) and shape else None
    return length if isinstance(length, int) else None


def _sizes(sizes: Any, sites: Mapping[str, Any]) -> dict[str, int] | None:
    if not sizes:
        return None
    if not isinstance(sizes, Mapping) or set(sizes) != set(sites):
        raise InvalidInput(f"sizes must give a number of rows for each of {', '.join(sites)}")
    return {name: check.integer(f"sizes[{name!r}]", rows, least=0) for name, rows in sizes.items()}


def _scheme(scheme: Any) -> Scheme:
    if isinstance(scheme, Scheme):
        return scheme
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise InvalidInput(f"scheme must be one of {', '.join(SCHEMES)}, not {scheme!r}")
    return CapeGaussian() if scheme == "cape-gaussian" else SCHEMES[scheme]()


def _share(share: Any) -> float:
    return check.real("share", share, above=0.0, most=1.0)


def _require_analysis(analysis: Any) -> None:
    if not isinstance(analysis, Analysis):
        raise InvalidInput(f"analysis must be one, as in cape.Mean('age'), not {type(analysis).__name__}")
