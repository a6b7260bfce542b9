"""How a share is divided among the queries of one analysis, and how much noise each of them gets.

Claim. The stages of an analysis together cost at most the mu that its share of the budget buys.
Reason. Without sampling, stage i is given the part p_i of the share, so mu_i² = p_i share mu²; the parts are
decimals that add up to exactly 1, and mu² adds. With Poisson sampling all stages are alike, and their
noise is that of `privacy.noise_for_mu`: the whole run is dominated by one Gaussian release of mu² = share
mu², but for a slack that the promise adds to delta. The slacks of shares that add up to 1 are together at
most the part `BESIDE` of delta, which the mu of a budget leaves to them: its own (epsilon, delta) holds with
all slacks included.
Persons. One with k rows at a site moves its sums by at most k times what a row moves them: noise stands
against k times the query's sensitivity, and rounding to the grid, once a site, is added to that
(`calibrate`). That one person may move the sums of several sites is in `Parties.person_sites`, by which every
scheme's noise per unit of a site's sensitivity, and its price, is computed. Where rows are sampled, a person
is one row at one site.
Laplace noise. Stage i is given the epsilon p_i share epsilon, exactly, and epsilons add. A person with k rows
moves the sums of a site by k times the query's L1 sensitivity, and what is seen by as many times that as the
scheme says; rounding is counted at every site whose sums the person may move. Rows are never sampled then.
Tested in tests/unit/engine/test_stages.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.calibration import Calibration, calibrate, calibrate_laplace
from cape.engine.outside_bounds import beside
from cape.engine.query import Analysis, Neighbours, Query
from cape.engine.result import ReleaseGuarantee
from cape.engine.schemes import Parties, Scheme
from cape.noise import Kind, LaplacePart
from cape.privacy import Budget, laplace, noise_for_mu, subsampling
from cape.privacy.budget import BESIDE

__all__ = ["Setting", "Stages", "slack"]

_SLACK = 1e-5  # of delta: fifty runs over samples that state all of it fit into what is left beside
_LEAST_SLACK = 1e-12  # below, the accountant's own rounding is as large
_LEAST_SAMPLING = 1e-5
_DECIMALS = 10**40  # of parts: floats that are calibrated to them do not change


def slack(delta: float, share: float = 1.0) -> float:
    """Return what a run with sampling gives up of delta, so that its share adds to those of other releases.

    It is never more than what the share of a budget leaves beside Gaussian noise.
    """
    if BESIDE * share * delta < _LEAST_SLACK:
        least = _LEAST_SLACK / BESIDE / share
        raise InvalidInput(
            f"a run with sampling needs a delta of at least {least:.2g} at a share of {share:g}, "
            f"not {delta:g}"
        )
    return max(_SLACK * share * delta, _LEAST_SLACK)


@dataclass(frozen=True)
class Setting:
    """All that the calibration of a release depends on, besides the analysis."""

    schema: Schema
    budget: Budget
    parties: Parties
    neighbours: Neighbours
    noise: Kind = "gaussian"
    """The kind of noise; a budget without delta has Laplace noise."""

    def __post_init__(self) -> None:
        if self.budget.pure:
            object.__setattr__(self, "noise", "laplace")
        person = self.schema.person
        sites = 1 if person is None else person.sites
        if self.parties.person_sites != sites:
            object.__setattr__(self, "parties", replace(self.parties, person_sites=sites))

    def of_person(self, query: Query) -> Query:
        """Return a query with what one person, with all rows that count at a site, can do to its sums."""
        rows = 1 if self.schema.person is None else self.schema.person.rows
        if rows == 1:
            return query
        l1 = None if query.l1 is None or query.of_person is not None else rows * query.l1
        return replace(query, sensitivity=query.of_person or rows * query.sensitivity, l1=l1)

    def asked(self, analysis: Analysis, scheme: Scheme | None = None) -> Analysis:
        """Return an analysis as it is asked of these columns, under the kind of noise of this setting."""
        found = analysis.under(self.noise == "laplace")
        return found.over(self.schema) if scheme is None or scheme.private else found.exactly()

    def sized(
        self, analysis: Analysis, scheme: Scheme, sizes: Mapping[str, int] | None, share: float
    ) -> Analysis:
        """Return an analysis as it is asked of so many rows, if that is known, for a share of the budget."""
        if not sizes or not scheme.private or self.noise == "laplace":
            return analysis
        found = analysis.sized(sum(sizes.values()), self.budget.cost(share).mu)
        std, persons = self.local_std(scheme, share), self.schema.rows_of_person
        assert std is not None
        noise = persons * scheme.total_std(std, self.parties)
        return found.chosen(self.of(found).schema, noise, scheme.rows(sizes), self.neighbours)

    def of(self, analysis: Analysis) -> Setting:
        """Return the setting of one analysis: over the rows that its `where` keeps."""
        return self if analysis.where is None else replace(self, schema=self.schema.only(analysis.where))

    @property
    def sizes_public(self) -> bool:
        """Whether everyone may know how many rows of each site count."""
        return self.neighbours == "replace-one" and not self.schema.open

    def local_std(self, scheme: Scheme, share: float) -> float | None:
        """Return a site's noise per unit of sensitivity for a release paid for by this share."""
        return scheme.local_std(self.budget.cost(share).mu, self.parties) if scheme.private else None

    def mu(self, scheme: Scheme, share: float) -> float:
        """Return what the release really costs; with Laplace noise, a bound that no total is made of."""
        if self.noise == "laplace" and scheme.private:
            return laplace.dominating_mu(float(self.budget.part(share)))
        local_std = self.local_std(scheme, share)
        return math.inf if local_std is None else scheme.cost_mu(local_std, self.parties)

    def guarantee(
        self, scheme: Scheme, share: float, query: Query | None = None, slack: float = 0.0
    ) -> ReleaseGuarantee:
        """Return the guarantee of releases that spend this share, or of the release of one query.

        `slack` is what sampling adds to delta.
        """
        if query is not None and not query.private:  # nothing is asked of the tables
            return self._guarantee(0.0, scheme, 0.0)
        extra = scheme.discretisation(self.parties) + scheme.failure(self.parties) + slack
        if extra >= self.budget.delta / 2 and not self.budget.pure:
            raise InvalidInput(
                f"delta must be more than twice {extra:.2g}, the chance that the random graph of masks among "
                f"{self.parties.sites} sites does not hide a site; not {self.budget.delta:g}"
            )
        pure = self.noise == "laplace" and scheme.private
        return self._guarantee(
            self.mu(scheme, share), scheme, extra, self.budget.part(share) if pure else None
        )

    def _guarantee(
        self, mu: float, scheme: Scheme, extra: float, pure: Fraction | None = None
    ) -> ReleaseGuarantee:
        return ReleaseGuarantee(
            mu,
            self.budget.delta,
            scheme.name,
            self.parties,
            self.neighbours,
            extra,
            self.schema.person,
            self.schema.open,
            None if pure is None else float(pure),
        )


@dataclass(frozen=True)
class Stages:
    """One analysis at one share: what each of its queries is paid, and the noise that this buys."""

    setting: Setting
    scheme: Scheme
    share: Fraction
    parts: tuple[Fraction, ...]
    sampling: float

    @classmethod
    def of(cls, analysis: Analysis, setting: Setting, scheme: Scheme, share: float) -> Stages:
        """Return the stages of an analysis."""
        analysis = setting.asked(analysis, scheme)
        given = [Fraction(check.real("stages", part, above=0.0)) for part in analysis.stages()]
        if not given:
            raise InvalidInput("an analysis must have at least one stage")
        sampling = check.real("sampling", analysis.sampling, least=_LEAST_SAMPLING, most=1.0)
        if sampling < 1 and len(set(given)) > 1:
            raise InvalidInput("an analysis that samples must have stages of equal size")
        person = setting.schema.person
        if sampling < 1 and person is not None and person.open:
            raise InvalidInput(
                "an analysis over samples of rows needs one row per person, at one site: leave sampling out, "
                "or make one row per person with [person.row], and write sites = 1"
            )
        if scheme.private and scheme.noise != setting.noise:
            raise InvalidInput(f"a scheme for {scheme.noise} noise cannot make {setting.noise} noise")
        if setting.noise == "laplace" and scheme.private:
            _require_laplace(analysis, setting, sampling)
        return cls(setting.of(analysis), scheme, Fraction(repr(share)), _parts(given), sampling)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def mu(self) -> float:
        """The mu of the whole budget."""
        return self.setting.budget.mu

    @property
    def slack(self) -> float:
        """What sampling adds to delta, and the random graph of masks in each stage after the first."""
        graphs = (len(self) - 1) * self.scheme.failure(self.setting.parties)
        return graphs + (0.0 if self.sampling == 1 else self._given_up)

    @property
    def _given_up(self) -> float:
        return slack(self.setting.budget.delta, float(self.share))

    @property
    def pure(self) -> bool:
        """Whether its noise is Laplace noise, whose epsilons add."""
        return self.setting.noise == "laplace" and self.scheme.private

    def epsilon(self, stage: int) -> Fraction:
        """Return what a stage with Laplace noise costs, exactly."""
        return self.setting.budget.part(self.share * self.parts[stage])

    def cost(self, asked: int) -> Fraction:
        """Return the share that is spent once `asked` stages have begun."""
        if not asked or not self.scheme.private:
            return Fraction(0)
        return self.share * (1 if self.sampling < 1 else sum(self.parts[:asked], Fraction(0)))

    def guarantee(self, asked: int) -> ReleaseGuarantee:
        """Return what is promised once so many stages have begun."""
        share = self.cost(asked) if self.scheme.private else self.share
        nothing = None if asked else Query((), (), 0.0)
        return self.setting.guarantee(self.scheme, float(share) or 1.0, nothing, self.slack if asked else 0.0)

    def effort(self, analysis: Analysis, results: Sequence[int] = ()) -> float:
        """Return a bound on the seconds of CPU to the next query of an analysis and its calibration.

        `results` has the size of the result of each earlier stage.
        """
        asked = self.setting.asked(analysis, self.scheme)
        return asked.effort(self.setting.schema, results) + subsampling.effort(self.sampling)

    @property
    def terms(self) -> str:
        """What a run that is cut off and resumed must have in common: all that its promise depends on."""
        setting = self.setting
        told = [
            setting.budget.epsilon,
            setting.budget.delta,
            str(self.share),
            self.scheme.name,
            str(getattr(self.scheme, "correlated_std", "")),
            [setting.parties.sites, setting.parties.colluding, setting.parties.min_sites],
            setting.neighbours,
            setting.noise,
        ]
        return json.dumps(told)

    def first(self, query: Query) -> Query:
        """Return the first query of a run with counts of cells outside bounds."""
        if self.sampling < 1:
            return query
        return beside(query, self.setting, float(self.parts[0]), laplace=self.pure)

    def calibrate(self, stage: int, query: Query) -> tuple[Calibration, float]:
        """Return the grid and noise of a stage, and that noise per unit of sensitivity (0 for none).

        With sampling, what noise stands against is what one record alone adds, not what a pair differs by.
        """
        setting = self.setting
        if setting.noise == "laplace" and self.scheme.private:
            return self._laplace(stage, query)
        if self.sampling == 1:
            local_std = setting.local_std(self.scheme, float(self.share * self.parts[stage]))
            return calibrate(setting.of_person(query), setting.schema, local_std), local_std or 0.0
        if query.norm is None:
            raise InvalidInput("a query over a sample must say how much one record alone can add")
        if len(query.blocks) > 1:
            raise InvalidInput(
                "a query over a sample must have one block: each would draw a sample of its own"
            )
        if query.blocks[0].rate != self.sampling:
            raise InvalidInput("a query must sample as its analysis says")
        local_std = None
        if self.scheme.private:
            whole = self.mu * math.sqrt(self.share)
            multiplier = noise_for_mu(
                whole, self.sampling, len(self), self._given_up, adjacency=setting.neighbours
            )
            local_std = self.scheme.local_std(1 / multiplier, setting.parties)
        alone = replace(query, sensitivity=query.norm)
        return calibrate(alone, setting.schema, local_std), local_std or 0.0

    def _laplace(self, stage: int, query: Query) -> tuple[Calibration, float]:
        """Return the calibration of a stage with Laplace noise, and that noise per unit of sensitivity."""
        setting, scheme, parties = self.setting, self.scheme, self.setting.parties
        if not query.blocks:
            return calibrate(query, setting.schema, None), 0.0
        part = scheme.part(parties)
        assert isinstance(part, LaplacePart)
        q = parties.person_sites
        found = calibrate_laplace(
            setting.of_person(query),
            setting.schema,
            self.epsilon(stage),
            part,
            moved=scheme.moved_l1(parties),
            rounding=1 if q == 1 else min(2 * q, parties.sites),
        )
        whole = setting.of_person(query).l1
        return found, found.local_noise / whole if whole else 0.0


def _parts(given: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return parts of 1 in these proportions, each a decimal, which add up to exactly 1.

    Decimals keep a ledger's sums short: those of thirds, sevenths and elevenths are ever longer fractions.
    """
    total, before, spent = sum(given), Fraction(0), 0
    parts = []
    for each in given:
        before += each
        upto = math.floor(before / total * _DECIMALS)
        parts.append(Fraction(upto - spent, _DECIMALS))
        spent = upto
    if min(parts) <= 0:
        raise InvalidInput("a stage must not have so much less of the budget than another")
    return tuple(parts)


def _require_laplace(analysis: Analysis, setting: Setting, sampling: float) -> None:
    """Raise unless an analysis can be released with Laplace noise: before anything is asked or spent."""
    query = analysis.query(setting.of(analysis).schema, setting.neighbours)
    if sampling == 1 and (not query.blocks or setting.of_person(query).l1 is not None):
        return
    why = (
        "it samples rows" if sampling < 1 else "how far a person moves its sums in the L1 norm is not proved"
    )
    instead = "write delta = 1e-6 beside epsilon" if setting.budget.pure else 'write noise = "gaussian"'
    what = "delta" if setting.budget.pure else "Gaussian noise"
    raise InvalidInput(f"{type(analysis).__name__} needs {what}: {instead} ({why})")
