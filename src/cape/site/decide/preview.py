"""What a site would answer to a study: the same checks as for a request, except its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cape.core import check
from cape.core.errors import CapeError
from cape.privacy.accounting import Amount, Basis, Limit
from cape.site.decide.codes import Code, Denied, Refusal
from cape.site.decide.grant import denying
from cape.site.decide.policy import Policy
from cape.site.decide.review import (
    basis_of,
    check_question,
    check_terms,
    columns_of,
    limits_of,
    question,
    takes_long,
    whole_price,
)
from cape.study.document import ParsedAnalysis, hash_of

__all__ = ["Verdict", "preview"]


@dataclass(frozen=True)
class Verdict:
    """One analysis: its cost, why it would be refused, if so, and the columns that its first stage reads."""

    number: int
    kind: str
    description: str
    cost: Amount
    refusal: Refusal | None
    columns: tuple[str, ...] = ()


class Budgets(Protocol):
    """A ledger, or a book of it: says whether a cost is covered."""

    def check(
        self, coordinator: bytes, cost: Amount, limits: Sequence[Limit], basis: Basis | None = None
    ) -> None:
        """Raise `BudgetExceeded` if this could not be reserved now."""
        ...


def preview(
    policy: Policy, ledger: Budgets, study: Mapping[str, Any], coordinator: bytes | None = None
) -> list[Verdict]:
    """Return what this site would say to each analysis of a study, asked one after the other now.

    Without a `coordinator`, one is assumed that has spent nothing this year.
    """
    verdicts = []
    planned = Amount()
    for number, given in enumerate(study["analyses"], 1):
        kind = check.plain(str(given.get("kind"))) if isinstance(given, Mapping) else check.show(given)
        description, cost, refusal = "", Amount(), None
        columns: tuple[str, ...] = ()
        try:
            asked = question(dict(study), number)
            kind, description = asked.analysis.kind, asked.analysis.sentence
            _check_names(policy, asked)
            cost = whole_price(policy, asked)
            check_terms(policy, asked)
            if takes_long(asked):  # whatever it asks for is compared with the policy once it is approved
                description += " (its columns are checked once it is approved)"
            else:
                columns = _columns(asked)
                check_question(policy, asked)
            limits = limits_of(policy, asked, hash_of(study))
            with denying():
                ledger.check(coordinator or b"", planned + cost, limits, basis_of(policy, asked))
            planned += cost
        except Denied as denied:
            refusal = denied.refusal
        except CapeError as error:  # other analyses of a held study may be invalid
            refusal = Refusal(Code.REQUEST, check.plain(str(error), 300))
        verdicts.append(Verdict(number, kind, description, cost, refusal, columns))
    return verdicts


def _columns(asked: ParsedAnalysis) -> tuple[str, ...]:
    """Return the columns of the site's table that the first stage reads."""
    return tuple(dict.fromkeys(asked.setting.schema.sources(columns_of(asked.query.blocks))))


def _check_names(policy: Policy, asked: ParsedAnalysis) -> None:
    if policy.name not in asked.sites:
        raise Denied(Code.ROSTER, f"the study does not name this site, {policy.name!r}")
    strangers = [name for name in asked.sites if name != policy.name and name not in policy.peers]
    if strangers:
        raise Denied(
            Code.ROSTER,
            f"this site has no key of {', '.join(map(repr, strangers))}; run `cape site trust` with each "
            "site's card",
        )
