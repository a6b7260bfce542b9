"""Several sites, one schema, one budget: the object that people hold.

A vector's way through a release, one function per arrow:

    table -> exact integer sums          cape.blocks.Table.sums
    -> steps of the release's grid       Calibration.encode
    -> plus noise of the site            engine.contribution, the same function at a deployed site
    -> masked, or plus zero-sum noise    a step of secagg, or CapeGaussian.run
    -> total                             schemes.messages.aggregate, or the unmasking of secure aggregation
    -> units of t and rows               AnalysisSession.tell
    -> estimates                         Analysis.finish
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Person, Schema, Site
from cape.engine.execute import Drops, Execution, Progress
from cape.engine.observer import Observer
from cape.engine.plan import Plan, make_plan
from cape.engine.query import Analysis, Neighbours
from cape.engine.result import Release, ReleaseGuarantee
from cape.engine.schemes import SCHEMES, CapeGaussian, Cost, Parties, Scheme, Task, make_scheme
from cape.engine.session import AnalysisSession
from cape.engine.site_set import SiteSet, named_sites
from cape.engine.stages import Setting, Stages
from cape.engine.wallet import Wallet
from cape.noise import Kind, Ring, SecureStream
from cape.noise.parts import KINDS
from cape.noise.stream import require_stream
from cape.privacy import Budget
from cape.show import Framed, Table
from cape.show.bar import bar

__all__ = ["Consortium"]


class Consortium(Framed):
    """Sites that want one answer and may not pool their rows.

    >>> files = {name: f"{name}.csv" for name in ("aspen", "birch", "cedar", "elm")}  # or DataFrames
    >>> consortium = Consortium(files, schema, Budget(epsilon=1, delta=1e-6))
    >>> consortium.release(cape.Mean("age"), share=0.2).interval(0.95)

    Args:
        sites: name -> table, or a list of `Site`s (see `cape.blocks.Table` for what a table may be).
        schema: the columns with their public bounds or categories.
        budget: total (epsilon, delta) for all releases.
        colluding: how many sites may side with the aggregator; by default ceil(sites/3) - 1.
        min_sites: how many sites must take part for a release to count. By default the fewest that hold off
            a lying aggregator, floor((sites + colluding)/2) + 1: with "cape" that costs no noise unless sites
            are lost. With "cape-gaussian" fewer cost noise always, so its default is all, also where only a
            release or plan names that scheme.
        scheme: how noise is made, "cape" unless a release says otherwise.
        noise: "gaussian" or "laplace"; Laplace noise where the budget has no delta, else Gaussian by default.
            It holds for all releases, because shares of one budget buy either kind: of mu² for Gaussian
            noise, of epsilon for Laplace noise, which then needs no delta. `plan` shows both. Which is better
            for a study as a whole ("auto" in a study file) takes all its analyses to say.
        neighbours: "replace-one" (sizes of sites are public) or "add-remove" (they are not).
        person: who is protected, if a person may have several rows, as in Person("patient_id", rows=4), or as
            [person] of a study file says it; by default each row is a person.
        sizes: how many rows people expect at each site, for plans; they are never used in a release.
        stream: where all noise and keys come from; the operating system by default. A stream with a
            key makes a run that can be repeated, for tests only.
        observer: watches the runs, for audits.
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
        noise: Kind | None = None,
        neighbours: Neighbours = "replace-one",
        person: Person | Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        stream: SecureStream | None = None,
        observer: Observer | None = None,
    ) -> None:
        schema = schema if isinstance(schema, Schema) else Schema(schema)
        named = named_sites(sites)
        if person is not None:
            schema = schema.of_persons(Person.of(person))
        self.schema = schema.at(named)
        public = neighbours == "replace-one" and not self.schema.open
        self._stream = SecureStream() if stream is None else require_stream(stream)
        choices = self._stream.fork("persons")
        self._sites = SiteSet(named, self.schema, sizes, public=public, choices=choices)
        if not isinstance(budget, Budget):
            raise InvalidInput(f"budget must be a Budget, not {type(budget).__name__}")
        if neighbours not in ("replace-one", "add-remove"):
            raise InvalidInput(f"neighbours must be 'replace-one' or 'add-remove', not {neighbours!r}")
        self._noise = _noise(noise, budget)
        self._scheme = self._made(scheme)
        parties = self._scheme.parties(len(self.sites), colluding, min_sites)
        self._setting = Setting(self.schema, budget, parties, neighbours, self._noise)
        self._default_min_sites = min_sites is None
        self._runs, self._lock = itertools.count(1), threading.Lock()
        self._wallet = Wallet(budget)
        self._observer = observer
        self.releases: list[Release] = []

    @property
    def sites(self) -> Mapping[str, Any]:
        """The sites' tables by name, as they were given."""
        return self._sites.sources

    @property
    def budget(self) -> Budget:
        """The budget, and what of it is spent."""
        return self._wallet.budget

    @property
    def parties(self) -> Parties:
        """How many sites there are, may collude, and must take part."""
        return self._setting.parties

    def plan(self, analysis: Analysis, share: float, *, scheme: str | Scheme | None = None) -> Plan:
        """Return what a release would do to privacy and accuracy. Reads no data and spends nothing."""
        _require_analysis(analysis)
        kind = self._scheme if scheme is None else self._made(scheme)
        sizes, left = self._sites.planned(), self.budget.remaining
        return make_plan(analysis, self._setting_of(kind), kind, _share(share), sizes, left)

    def promise(self, analysis: Analysis, share: float) -> ReleaseGuarantee:
        """Return what a release would promise once all its stages have begun. Reads and spends nothing."""
        _require_analysis(analysis)
        analysis = self._setting.sized(analysis, self._scheme, self._sites.planned(), _share(share))
        stages = self._stages(analysis, self._scheme, _share(share))
        return stages.guarantee(len(stages))

    def release(
        self,
        analysis: Analysis,
        share: float,
        *,
        scheme: str | Scheme | None = None,
        drop: Mapping[Any, Any] | None = None,
        progress: Callable[[Progress], None] | bool = False,
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
            progress: True shows a bar, in a terminal and in Jupyter; a function is called after each stage.

        Raises:
            BudgetExceeded: less is left. Nothing was computed or spent.
            TooFewSites: fewer than `min_sites` took part; the share is spent if `error.sent`.
            DataError: a site's table does not fit the schema. Nothing was spent, unless the analysis
                brings a function of its own, which could tell by failing.
        """
        _require_analysis(analysis)
        analysis.require_extras()
        share = _share(share)
        kind = self._scheme if scheme is None else self._made(scheme)
        analysis = self._setting.sized(analysis, kind, self._sites.planned(), share)
        stages = self._stages(analysis, kind, share)
        drops = Drops.of(drop, self.sites, kind.rounds, len(stages))
        session = AnalysisSession(analysis, stages, resumable=True)
        shown = bar(analysis.kind) if progress is True else nullcontext(progress or None)
        with shown as told:
            execution = Execution(session, self._sites, self._wallet, self._fork, drops, told, self._observer)
            release = execution.run()
        self.releases.append(release)
        return release

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
        entries = check.integer("numbers", numbers, least=1)
        vectors, keys = dict.fromkeys(self.sites, np.zeros(0, np.int64)), self._fork().fork("keys")
        return scheme.prepare(Task(vectors, {}, self.parties, 1.0, Ring(64), {}, keys), entries)

    def _stages(self, analysis: Analysis, scheme: Scheme, share: float) -> Stages:
        return Stages.of(analysis, self._setting_of(scheme), scheme, share)

    def _made(self, scheme: Any) -> Scheme:
        """Return a scheme with this consortium's kind of noise."""
        if not isinstance(scheme, Scheme):
            if not isinstance(scheme, str) or scheme not in SCHEMES:
                raise InvalidInput(f"scheme must be one of {', '.join(SCHEMES)}, not {scheme!r}")
            return make_scheme(scheme, self._noise)
        if scheme.private and scheme.noise != self._noise:
            raise InvalidInput(
                f"scheme {scheme.name!r} was made for {scheme.noise} noise, and this consortium's is "
                f"{self._noise}: name the scheme, as in scheme='cape'"
            )
        return scheme

    def _setting_of(self, scheme: Scheme) -> Setting:
        """Return the setting of a release under a scheme: each has its own default for `min_sites`."""
        scheme.require_sites(self.parties.sites)
        if not self._default_min_sites:
            return self._setting
        parties = scheme.parties(self.parties.sites, self.parties.colluding)
        return replace(self._setting, parties=parties)

    def _fork(self) -> SecureStream:
        """Return randomness that nothing else has."""
        with self._lock:
            return self._stream.fork(f"run {next(self._runs)}")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Consortium cannot be copied or pickled: the copy would spend the budget again")

    def tables(self) -> list[Table]:
        """Return who takes part under which terms, the columns, and the budget; reads no row."""
        p = self.parties
        rows = (
            ("sites", ", ".join(self.sites)),
            ("may collude", f"{p.colluding} of {p.sites}"),
            ("must answer", f"{p.min_sites} of {p.sites}"),
            ("scheme", self._scheme.name),
        )
        return [Table(("", "consortium"), rows, words=True), *self.schema.tables(), *self.budget.tables()]

    def __repr__(self) -> str:
        p = self.parties
        return (
            f"Consortium({', '.join(self.sites)}; {p.colluding} colluding, {p.min_sites} of {p.sites} must "
            f"answer; {self.budget})"
        )


def _noise(noise: Any, budget: Budget) -> Kind:
    if noise is None:
        return "laplace" if budget.pure else "gaussian"
    if noise == "auto":
        raise InvalidInput(
            'noise = "auto" compares whole studies, and is for study files; plan both kinds, and say '
            'noise="gaussian" or noise="laplace"'
        )
    if noise not in KINDS:
        raise InvalidInput(f"noise must be 'gaussian' or 'laplace', not {noise!r}")
    if noise == "gaussian" and budget.pure:
        raise InvalidInput(
            "Gaussian noise needs a budget with a delta, such as Budget(epsilon=1, delta=1e-6)"
        )
    return "laplace" if noise == "laplace" else "gaussian"


def _share(share: Any) -> float:
    return check.real("share", share, above=0.0, most=1.0)


def _require_analysis(analysis: Any) -> None:
    if not isinstance(analysis, Analysis):
        raise InvalidInput(
            f"analysis must be a cape analysis such as Mean('age'), not {type(analysis).__name__}"
        )
