"""What a study would be allowed, before anybody asks: the same checks as for a request, but for its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cape import check
from cape.errors import BudgetExceeded, CapeError
from cape.steward.codes import Code, Denied, Refusal
from cape.steward.ledger import Amount, Ledger
from cape.steward.policy import Policy
from cape.steward.request import Asked, hash_of
from cape.steward.review import check_question, limits_of, question

__all__ = ["Verdict", "preview"]


@dataclass(frozen=True)
class Verdict:
    """One analysis: what it would cost, and why it would be refused, if it would."""

    number: int
    kind: str
    description: str
    cost: Amount
    refusal: Refusal | None


def preview(
    policy: Policy, ledger: Ledger, study: Mapping[str, Any], coordinator: bytes | None = None
) -> list[Verdict]:
    """Return what this site would say to each analysis of a study, asked one after the other now.

    `coordinator` is who would ask; without one, somebody who has spent nothing this year.
    """
    verdicts = []
    planned = Amount()
    for number in range(1, len(study["analyses"]) + 1):
        given = study["analyses"][number - 1]
        kind = check.plain(str(given.get("kind"))) if isinstance(given, Mapping) else check.show(given)
        description, cost, refusal = "", Amount(), None
        try:
            asked = question(dict(study), number)
            kind, description = asked.analysis.kind, asked.analysis.describe()
            cost = _cost(asked)
            _check_names(policy, asked)
            check_question(policy, asked)
            ledger.check(coordinator or b"", planned + cost, limits_of(policy, asked, hash_of(study)))
            planned += cost
        except Denied as denied:
            refusal = denied.refusal
        except BudgetExceeded as error:
            refusal = Refusal(Code.BUDGET, str(error))
        except CapeError as error:  # a request looks at its own analysis only: another may be anything
            refusal = Refusal(Code.REQUEST, check.plain(str(error), 300))
        verdicts.append(Verdict(number, kind, description, cost, refusal))
    return verdicts


def _cost(asked: Asked) -> Amount:
    setting = asked.setting
    free = not asked.analysis.query(setting.schema, setting.neighbours).blocks
    return Amount() if free else Amount(asked.release_mu_squared)


def _check_names(policy: Policy, asked: Asked) -> None:
    if policy.name not in asked.sites:
        raise Denied(Code.ROSTER, f"the study does not name this site, {policy.name!r}")
    strangers = [name for name in asked.sites if name != policy.name and name not in policy.peers]
    if strangers:
        raise Denied(Code.ROSTER, f"this site has no key of {', '.join(map(repr, strangers))}")
