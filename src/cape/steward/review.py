"""What a site's policy says of a question, before ledger and data: built and priced by its own code.

Claim. What passes has columns, bounds, noise and price that this site's owner allows, as this site computes
them; nothing but the question itself is taken from the request.
Reason. The analysis is built here from its description, and its sums, sensitivity, calibration and mu come
from it. Every column that a sum reads must be allowed and have this site's own bounds. Noise is calibrated
to the honest sites that must be left, of which the policy demands a number.
Tested in tests/steward/test_decide.py: each refusal once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from cape.errors import InvalidInput
from cape.release.calibration import Calibration, discretisation_error
from cape.release.query import Query
from cape.site import Block, Schema
from cape.site.blocks import Counts, Gradient, Gram, Moments, Nearest, Newton, Tensors
from cape.steward.codes import Code, Denied
from cape.steward.ledger import Amount, Limit
from cape.steward.policy import Allowance, Policy
from cape.steward.request import Asked, grid_of, read

__all__ = ["check_question", "check_roster", "columns_of", "limits_of", "price", "question", "same_grid"]

_CLOSE = 1 + 1e-9


def question(study: dict[str, object], number: int) -> Asked:
    """Return what is asked, or deny it: the sentence is about the request alone."""
    try:
        return read(study, number)
    except InvalidInput as error:
        problem = str(error)
    except Exception as error:  # a study's document may hold anything
        problem = f"it cannot be understood ({type(error).__name__})"
    raise Denied(Code.REQUEST, f"the study is not in order: {problem}")


def check_question(policy: Policy, asked: Asked) -> None:
    """Deny what the policy does not allow to ask, of any stage."""
    kind = asked.analysis.kind
    if kind not in policy.analyses:
        raise Denied(Code.ANALYSIS, f"this site does not answer analyses of kind {kind!r}")
    setting, scheme = asked.setting, asked.scheme
    if scheme.name not in policy.schemes:
        raise Denied(Code.SCHEME, f"this site does not take part in scheme {scheme.name!r}")
    if setting.neighbours not in policy.neighbours:
        raise Denied(Code.NEIGHBOURS, f"this site does not answer with neighbours {setting.neighbours!r}")
    check_columns(policy, asked, asked.analysis.query(setting.schema, setting.neighbours))
    if scheme.name == "cape":
        _check_parties(policy, asked)
    if asked.release_mu_squared > policy.release.most.mu_squared:
        raise Denied(Code.RELEASE, "one release would cost more than this site's policy allows")


def check_columns(policy: Policy, asked: Asked, query: Query) -> None:
    """Deny a query that reads a column which is not allowed, or with other bounds than this site's."""
    theirs = asked.setting.schema
    for name in columns_of(query.blocks):
        if name not in policy.columns:
            raise Denied(Code.COLUMN, f"this site does not answer questions about column {name!r}")
        if not _same(policy.schema, theirs, name):
            raise Denied(
                Code.SCHEMA,
                f"column {name!r} has other bounds or categories in the study than at this site",
                f"here {policy.schema.to_dict()[name]}, in the study {theirs.to_dict()[name]}",
            )


def columns_of(blocks: Iterable[Block]) -> list[str]:
    """Return all columns that sums read; a kind of sum that is not known here is denied."""
    found: dict[str, None] = {}
    for block in blocks:
        match block:
            case Moments():
                names = [*block.columns, *([] if block.by is None else [block.by])]
            case Gram():
                names = list(block.columns)
            case Counts():
                names = [axis.column for axis in block.axes]
            case Tensors() | Newton() | Nearest() | Gradient():
                names = list(block.design.columns)
            case _:
                raise Denied(Code.ANALYSIS, "this site does not compute sums of this kind for others")
        found.update(dict.fromkeys(names))
    return list(found)


def check_roster(policy: Policy, asked: Asked, roster: Sequence[tuple[str, bytes]], own: bytes) -> None:
    """Deny a roster that this site is not on, or on which somebody stands whom it does not trust."""
    sites = dict(roster)
    if len(sites) < len(roster) or len(set(sites.values())) < len(roster) or set(sites) != set(asked.sites):
        raise Denied(Code.ROSTER, "the roster must name every site of the study once, each with its own key")
    if sites.get(policy.name) != own:
        raise Denied(Code.ROSTER, "this site is not on the roster with its own name and key")
    for name, key in roster:
        if name != policy.name and policy.peers.get(name) != key:
            raise Denied(
                Code.ROSTER,
                f"the roster names {name[:60]!r} with a key that this site does not trust",
                f"{name!r} with key {key.hex()}",
            )


def price(asked: Asked, stage: int, query: Query, local_std: float) -> tuple[Amount, Amount]:
    """Return what this stage costs, and what the whole run costs beside it, charged once.

    Where rows are sampled, all stages are covered together: a site pays for the run when it first takes part.
    """
    if not query.blocks:  # nothing is asked of the table
        return Amount(), Amount()
    stages, setting = asked.stages, asked.setting
    whole = Fraction(setting.budget.mu) ** 2
    beside = Fraction(asked.scheme.failure(setting.parties) + discretisation_error(setting.parties.honest))
    if stages.sampling < 1:
        graphs = Fraction((len(stages) - 1) * asked.scheme.failure(setting.parties))
        given_up = max(Fraction(stages.slack) - graphs, Fraction(0))
        return Amount(Fraction(0), beside), Amount(stages.cost(len(stages)) * whole, given_up)
    cost = Amount(stages.share * stages.parts[stage] * whole, beside)
    # What is written down must cover what the noise really costs: never rely on one formula alone.
    if asked.scheme.cost_mu(local_std, setting.parties) ** 2 > float(cost.mu_squared) * _CLOSE:
        raise Denied(Code.SITE, "this site could not calibrate its noise", "cost_mu is above the price")
    return cost, Amount()


def limits_of(policy: Policy, asked: Asked, study_hash: str) -> tuple[Limit, ...]:
    """Return what may not be passed: the policy's totals, and what the study itself says that it costs.

    The last is for whoever approved the study: no retry, second submission or lying coordinator gets more
    under its hash than its own epsilon.
    """
    budget = asked.setting.budget
    stated = Allowance(budget.epsilon, budget.delta).most
    own = Limit(
        "that the study itself states (earlier submissions count)",
        stated,
        of_coordinator=True,
        of_study=study_hash,
    )
    return (*policy.limits, own)


def same_grid(calibration: Calibration, grid: Sequence[tuple[int, int]]) -> None:
    """Deny a request that comes with another noise than this site's own calibration."""
    if tuple(grid) != grid_of(calibration):
        raise Denied(
            Code.NOISE,
            "the noise asked for is not what this site computes for this price",
            f"here {grid_of(calibration)[:4]}, asked {tuple(grid)[:4]}",
        )


def _check_parties(policy: Policy, asked: Asked) -> None:
    parties = asked.setting.parties
    if parties.sites < 2:
        raise Denied(Code.ROSTER, "scheme 'cape' needs at least two sites")
    if parties.colluding < policy.colluding:
        raise Denied(
            Code.HONEST,
            f"the study must suppose that at least {policy.colluding} of its sites side with the aggregator",
        )
    if parties.honest - 1 < policy.other_honest:
        raise Denied(
            Code.HONEST,
            f"in every sum there must be {policy.other_honest} other honest sites, and this study makes "
            f"sure of {parties.honest - 1}: {parties.colluding} of its min_sites ({parties.min_sites}) may "
            "collude, and one is this site",
        )
    if not parties.lying:
        raise Denied(
            Code.THRESHOLD,
            "min_sites must be more than half of sites + colluding, or an aggregator that lies could win",
        )
    try:
        asked.setting.promise(asked.scheme, float(asked.stages.share), None, asked.stages.slack)
    except InvalidInput as error:
        problem = str(error)
    else:
        return
    raise Denied(Code.REQUEST, f"the study is not in order: {problem}")


def _same(ours: Schema, theirs: Schema, name: str) -> bool:
    return name in ours and ours[name] == theirs[name] and _types(ours, name) == _types(theirs, name)


def _types(schema: Schema, name: str) -> list[type]:
    """Return the types of categories: True equals 1 in Python."""
    return [type(value) for value in getattr(schema[name], "values", ())]
