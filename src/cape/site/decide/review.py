"""Checks a question against the policy, before ledger and data: built and priced by the site's own code.

Claim. A question that passes has columns, bounds, noise and a price that this site's owner allows, as this
site computes them; only the question itself is taken from the request.
Reason. The analysis is built here from its description; its sums, sensitivity, calibration and mu follow from
it. Every column that a sum reads must be allowed and have this site's own bounds. The noise that is left in
a sum suffices with the fewest honest sites that it may be over, for which the policy sets a minimum.
Tested in tests/unit/site/test_decide.py: each refusal once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction

from cape.blocks import Block
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.data.columns import Column
from cape.engine.calibration import RESOLUTION, Calibration
from cape.engine.query import Query
from cape.privacy.accounting import Amount, Basis, Incomparable, Limit, under
from cape.site.decide.codes import Code, Denied
from cape.site.decide.policy import Policy
from cape.site.decide.request import grid_of
from cape.study.document import ParsedAnalysis, read

__all__ = [
    "basis_of",
    "charged",
    "check_question",
    "check_roster",
    "check_terms",
    "columns_of",
    "is_large",
    "limits_of",
    "price",
    "question",
    "same_grid",
    "takes_long",
    "whole_price",
]

_CLOSE = 1 + 1e-9
_BESIDE = Fraction(1, 10)  # of delta: what samples and sparse graphs may add to what a study states
_LONG = 1.0  # seconds of CPU
_LARGE = 1 << 21  # numbers of one release
_STAGES = 1000  # whose sparse graphs may fail, of a study that states no delta


def question(study: dict[str, object], number: int, model: object = None) -> ParsedAnalysis:
    """Return the analysis that is asked for, or deny it with a sentence about the request alone."""
    try:
        return read(study, number, model)
    except InvalidInput as error:
        problem = str(error)
    except Exception as error:  # a study's document may hold anything
        problem = f"it cannot be read ({type(error).__name__})"
    raise Denied(Code.REQUEST, f"the study is invalid: {problem}")


def takes_long(asked: ParsedAnalysis, results: Sequence[int] = ()) -> bool:
    """Return whether finding out what is asked may take more than a second, after results of these sizes.

    That is known beforehand, from the question alone. Whoever asks may ask again and again without paying:
    what takes long waits until a steward approves it, or its run is in the ledger.
    """
    with _about_the_study():
        return asked.stages.effort(asked.analysis, results) > _LONG


def is_large(asked: ParsedAnalysis) -> bool:
    """Return whether more numbers are asked for than a site holds in memory without having approved it."""
    with _about_the_study():
        return sum(array.size for array in asked.query.arrays(asked.setting.schema)) > _LARGE


def check_terms(policy: Policy, asked: ParsedAnalysis) -> None:
    """Deny a kind, noise, adjacency, person or parties that the policy does not allow."""
    kind = asked.analysis.kind
    if kind not in policy.analyses:
        raise Denied(
            Code.ANALYSIS,
            f"this site does not answer analyses of kind {kind!r}; its steward can add it to analyses under "
            "[allow] in site.toml",
        )
    if asked.analysis.synthetic and not policy.synthetic:
        raise Denied(
            Code.TABLES,
            "this site takes no part in synthetic data; leave the analysis out, or its steward can write "
            "synthetic = true under [allow] in site.toml",
        )
    setting, scheme = asked.setting, asked.scheme
    if scheme.name not in policy.schemes:
        allowed = " or ".join(f'"{each}"' for each in sorted(policy.schemes))
        raise Denied(
            Code.SCHEME,
            f"this site does not take part in scheme {scheme.name!r}; write scheme = {allowed} under "
            "[privacy] in the study file",
        )
    if setting.neighbours not in policy.neighbours:
        raise Denied(
            Code.NEIGHBOURS,
            f"this site does not answer under {setting.neighbours!r}; write neighbours = "
            f'"{policy.adjacency}" under [privacy] in the study file, or its steward can add '
            f"{setting.neighbours!r} to adjacency under [allow] in site.toml",
        )
    check_person(policy, asked)
    if scheme.masked:
        _check_parties(policy, asked)


def check_question(policy: Policy, asked: ParsedAnalysis) -> None:
    """Deny a question of columns that the policy does not allow, or at a price that it does not."""
    check_columns(policy, asked, _query(asked))
    if not policy.release.covers(whole_price(policy, asked)):
        raise Denied(
            Code.RELEASE,
            "one release would cost more than this site's policy allows; give the analysis a smaller "
            "budget share or the study a smaller epsilon, or its steward can raise release under [budget] in "
            "site.toml",
        )


def _query(asked: ParsedAnalysis) -> Query:
    """Return what is asked, or deny what does not fit the columns of the study, or its model."""
    with _about_the_study():
        return asked.query


@contextmanager
def _about_the_study() -> Iterator[None]:
    """Deny what does not fit the columns of a study, with a sentence about the request alone."""
    try:
        yield
    except InvalidInput as error:
        problem = str(error)
    else:
        return
    raise Denied(Code.REQUEST, f"the study is invalid: {problem}")


def check_person(policy: Policy, asked: ParsedAnalysis) -> None:
    """Deny a study that takes other units for persons than this site does, or protects them less."""
    ours, theirs = policy.person, asked.setting.schema.person
    if ours is None and theirs is None:
        return
    if ours is None:
        raise Denied(
            Code.PERSON,
            "at this site each row is a person; leave [person] out of the study file, or its steward can "
            "write the same [person] in site.toml",
        )
    wanted = f'write [person] with id = "{ours.id}"'
    if theirs is None:
        raise Denied(
            Code.PERSON,
            f"a person may have several rows at this site; {wanted} and rows = {ours.rows} or fewer in the "
            "study file",
        )
    if theirs.id != ours.id:
        raise Denied(Code.PERSON, f"another column says whose a row is at this site; {wanted}")
    if theirs.rows > ours.rows:
        raise Denied(
            Code.PERSON,
            f"at most {ours.rows} rows of a person may count at this site; write rows = {ours.rows} or fewer "
            "under [person] in the study file",
        )
    if theirs.sites < ours.sites:
        raise Denied(
            Code.PERSON,
            f"persons of this site may appear at {ours.sites} sites; write sites = {ours.sites} or more "
            "under [person] in the study file",
        )


def check_columns(policy: Policy, asked: ParsedAnalysis, query: Query) -> None:
    """Deny a query of forbidden columns, of too many in one table, or whose bounds are not this site's."""
    theirs, columns = asked.setting.schema, columns_of(query.blocks)
    if theirs.by_site(columns) and not policy.by_site:
        raise Denied(
            Code.COLUMN,
            "this site does not answer questions that tell sites apart; leave out the column 'site', or its "
            "steward can write by_site = true under [allow] in site.toml",
        )
    ways = max((block.ways for block in query.blocks), default=0)
    if policy.ways is not None and ways > policy.ways:
        raise Denied(
            Code.TABLES,
            f"this site answers tables of at most {policy.ways} columns, not of {ways}; ask for smaller "
            "tables, or its steward can raise ways under [allow] in site.toml",
        )
    for name in theirs.sources(columns):
        if name not in policy.columns:
            raise Denied(
                Code.COLUMN,
                f"this site does not answer questions about column {name!r}; its steward can add it to "
                "columns under [allow], and to [schema], in site.toml",
            )
        if not _same(policy.schema, theirs, name):
            raise Denied(
                Code.SCHEMA,
                f"column {name!r} has other bounds or categories in the study than at this site; ask its "
                "steward for the line under [schema] in site.toml, and write the same in the study file",
                f"here {policy.schema.to_dict()[name]}, in the study {theirs.to_dict()[name]}",
            )


def columns_of(blocks: Iterable[Block]) -> list[str]:
    """Return all columns that sums read; deny a sum that would run code from the request."""
    found: dict[str, None] = {}
    for block in blocks:
        if block.brings_code:
            raise Denied(Code.ANALYSIS, "this site does not compute sums of this kind for others")
        found.update(dict.fromkeys(block.reads))
    return list(found)


def check_roster(
    policy: Policy, asked: ParsedAnalysis, roster: Sequence[tuple[str, bytes]], own: bytes
) -> None:
    """Deny a roster that lacks this site or lists an untrusted key."""
    sites = dict(roster)
    if len(sites) < len(roster) or len(set(sites.values())) < len(roster) or set(sites) != set(asked.sites):
        raise Denied(Code.ROSTER, "the roster must name every site of the study once, each with its own key")
    if sites.get(policy.name) != own:
        raise Denied(
            Code.ROSTER,
            "this site is not on the roster with its own name and key; ask it for its card, and run "
            "`cape deploy trust`",
        )
    for name, key in roster:
        if name != policy.name and policy.peers.get(name) != key:
            raise Denied(
                Code.ROSTER,
                f"the roster names {name[:60]!r} with a key that this site does not trust; its steward can "
                "run `cape site trust` with that site's card",
                f"{name!r} with key {key.hex()}",
            )


def price(asked: ParsedAnalysis, stage: int, query: Query, local_std: float) -> tuple[Amount, Amount]:
    """Return what this stage costs, and what the run costs in addition, charged once.

    Where rows are sampled, one bound dominates all stages: a site pays for the run when it first takes part.
    """
    stages, setting = asked.stages, asked.setting
    if not query.blocks and stages.sampling < 1:  # the run is charged with its first stage
        raise Denied(Code.REQUEST, "an analysis over samples must ask for something in every stage")
    if not query.blocks:  # the stage does not use the table
        return Amount(), Amount()
    if stages.pure:
        return _pure_price(asked, stage, query, local_std), Amount()
    whole = Fraction(stages.mu) ** 2
    if stages.sampling < 1:
        return Amount(extra=_beside(asked)), Amount(stages.cost(len(stages)) * whole, _given_up(asked))
    cost = Amount(stages.share * stages.parts[stage] * whole, _beside(asked))
    # The price must be at least what the noise really costs: never rely on one formula alone.
    if asked.scheme.cost_mu(local_std, setting.parties) ** 2 > float(cost.mu_squared) * _CLOSE:
        raise Denied(Code.SITE, "this site could not calibrate its noise", "cost_mu is above the price")
    return cost, Amount()


def _pure_price(asked: ParsedAnalysis, stage: int, query: Query, local_std: float) -> Amount:
    """Return what a stage with Laplace noise costs; deny it if the exact loss of the view is above that.

    The sensitivity is that of the site's own query, never of the request.
    """
    setting, scheme = asked.setting, asked.scheme
    cost = Amount(extra=_beside(asked), pure=asked.stages.epsilon(stage))
    part = scheme.part(setting.parties)
    scale = local_std * RESOLUTION / part.std  # per unit of a site's L1 sensitivity
    loss = (
        scheme.cost_epsilon(scheme.moved_l1(setting.parties), scale, setting.parties) if scale else math.inf
    )
    if loss > float(cost.pure) * _CLOSE:
        raise Denied(Code.SITE, "this site could not calibrate its noise", "cost_epsilon is above the price")
    return cost


def _beside(asked: ParsedAnalysis) -> Fraction:
    """Return what masks and samplers add to delta in each stage."""
    parties = asked.setting.parties
    return Fraction(asked.scheme.failure(parties) + asked.scheme.discretisation(parties))


def _given_up(asked: ParsedAnalysis) -> Fraction:
    """Return the slack of a run over samples, less what `_beside` counts for its stages after the first."""
    graphs = Fraction((len(asked.stages) - 1) * asked.scheme.failure(asked.setting.parties))
    return max(Fraction(asked.stages.slack) - graphs, Fraction(0))


def basis_of(policy: Policy, asked: ParsedAnalysis) -> Basis:
    """Return the basis of a cost in this site's ledger: the ledger's adjacency, whatever the request's."""
    return _stated(policy.adjacency, asked)


def _stated(adjacency: str, asked: ParsedAnalysis) -> Basis:
    sampled, person = asked.stages.sampling < 1, asked.setting.schema.person
    if person is None:
        return Basis(adjacency, sampled=sampled)
    return Basis(adjacency, "person", person.rows, person.sites, sampled)


def charged(policy: Policy, asked: ParsedAnalysis, cost: Amount) -> Amount:
    """Convert a cost to the adjacency of this site's ledger, or deny it."""
    stated = _stated(asked.setting.neighbours, asked)
    try:
        return under(policy.adjacency, stated, cost)
    except Incomparable as error:
        raise Denied(Code.NEIGHBOURS, str(error)) from None


def whole_price(policy: Policy, asked: ParsedAnalysis) -> Amount:
    """Return what all stages of a release together cost this site's ledger."""
    stages = asked.stages
    if not takes_long(asked) and not _query(asked).blocks:
        return Amount()
    given_up = _given_up(asked) if stages.sampling < 1 else 0
    extra = len(stages) * _beside(asked) + given_up
    mu_squared, pure = asked.price()
    return charged(policy, asked, Amount(mu_squared, extra, pure))


def limits_of(policy: Policy, asked: ParsedAnalysis, study_hash: str) -> tuple[Limit, ...]:
    """Return the limits of a release: the policy's totals, and the budget that the study itself states.

    The last protects a steward's approval: no retry, second submission or lying coordinator gets more under
    the study's hash than its own epsilon, unless lines of it were lost with a ledger and settled. What masks
    and samples add to delta is bounded by a tenth of it.
    """
    budget = asked.setting.budget
    beside = Fraction(budget.delta) * _BESIDE
    if asked.stages.pure:  # without delta, what sparse graphs may add is that of many stages
        beside = max(beside, _STAGES * _beside(asked))
        stated = Amount(extra=beside, pure=budget.part(1))
    else:
        stated = Amount(Fraction(budget.mu) ** 2, beside)
    own = Limit(
        "that the study itself states (earlier submissions count)",
        charged(policy, asked, stated),
        of_coordinator=True,
        of_study=study_hash,
    )
    return (*policy.limits, own)


def same_grid(calibration: Calibration, grid: Sequence[tuple[int, int]]) -> None:
    """Deny a request whose noise differs from this site's own calibration."""
    if tuple(grid) != grid_of(calibration):
        raise Denied(
            Code.NOISE,
            "the noise in the request is not what this site computes for this price; do both sides run the "
            "same version of cape?",
            f"here {grid_of(calibration)[:4]}, asked {tuple(grid)[:4]}",
        )


def _check_parties(policy: Policy, asked: ParsedAnalysis) -> None:
    parties = asked.setting.parties
    if parties.sites < 2:
        raise Denied(Code.ROSTER, "scheme 'cape' needs at least two sites")
    if parties.colluding < policy.colluding:
        raise Denied(
            Code.HONEST,
            f"write colluding = {policy.colluding} under [privacy] in the study file (this site's policy "
            "asks for it under [protect])",
        )
    if parties.honest - 1 < policy.other_honest:
        raise Denied(
            Code.HONEST,
            f"every sum must include {policy.other_honest} other honest sites, and this study guarantees "
            f"{parties.honest - 1}: {parties.colluding} of its min_sites ({parties.min_sites}) may collude, "
            f"and one is this site; write min_sites = {policy.other_honest + 1 + parties.colluding} "
            "or more under [privacy] in the study file",
        )
    if not parties.lying:
        enough = asked.scheme.default_min_sites(parties.sites, parties.colluding)
        raise Denied(
            Code.THRESHOLD,
            "min_sites must be more than half of sites + colluding, or a lying aggregator could unmask a "
            f"site; write min_sites = {enough} or more under [privacy] in the study file, or leave it out",
        )
    try:
        asked.setting.guarantee(asked.scheme, float(asked.stages.share), None, asked.stages.slack)
    except InvalidInput as error:
        problem = str(error)
    else:
        return
    raise Denied(Code.REQUEST, f"the study is invalid: {problem}")


def _same(ours: Schema, theirs: Schema, name: str) -> bool:
    stated = theirs.stated[name]
    return name in ours and ours[name] == stated and _types(ours[name]) == _types(stated)


def _types(column: Column) -> list[type]:
    """Return the types of categories, because True equals 1 in Python."""
    return [type(value) for value in getattr(column, "values", ())]
