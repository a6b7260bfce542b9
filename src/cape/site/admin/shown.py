"""A site's policy, ledger and studies as the structs of `cape.site.admin.data`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import numpy as np

from cape.core import check
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.privacy.accounting import Allowance, total
from cape.site.admin import data
from cape.site.admin.verdicts import verdicts
from cape.site.decide.approvals import Held, State
from cape.site.decide.policy import Policy
from cape.site.decide.preview import Verdict
from cape.site.keyring import fingerprint, public_text
from cape.site.ledger.book import Book, Places
from cape.site.ledger.heads import of_json
from cape.site.ledger.ledger import Amount, Answers, Line
from cape.site.ledger.lines import SETTLED
from cape.site.ledger.verify import Verified

__all__ = [
    "analyses",
    "curve",
    "key_of",
    "ledger",
    "limits",
    "line_of",
    "spent",
    "study",
    "summary",
    "verified",
]

_POINTS = 60  # of a curve
_LONG = 1000  # characters of what a study says of itself


def summary(policy: Policy) -> data.PolicySummary:
    """Return a summary of a policy."""
    trusted = [
        data.Trusted(name, public_text(key), fingerprint(key), coordinator)
        for coordinator, known in ((True, policy.coordinators), (False, policy.peers))
        for name, key in known.items()
    ]
    return data.PolicySummary(
        policy.name,
        policy.approve,
        policy.approvals,
        policy.expires.isoformat(),
        policy.expires < datetime.now(UTC).date(),
        tuple(sorted(policy.analyses)),
        tuple(name for name in policy.schema if name in policy.columns),
        {name: str(getattr(policy, name)) for name in ("release", "coordinator", "year", "total")},
        tuple(trusted),
        policy.notify.ways,
    )


def analyses(policy: Policy, verdicts: Iterable[Verdict]) -> tuple[data.Analysis, ...]:
    """Return what the policy says of each analysis of a study."""
    return tuple(
        data.Analysis(
            each.number,
            each.kind,
            each.description,
            each.cost.mu,
            each.cost.epsilon(policy.release.delta),
            each.refusal is None,
            each.refusal,
            each.columns,
        )
        for each in verdicts
    )


def study(policy: Policy, book: Book, held: Held, state: State, answers: Answers) -> data.Study:
    """Return a study with this site's verdicts in this year; `answers` are those to any of its analyses."""
    left = held.counting(answers)
    ended = state == "approved" and left.persons < policy.approvals
    told = verdicts(policy, book, held)
    answered = [each for each in told if each.refusal is None]
    whole = sum((each.cost for each in answered), Amount())

    def stated(name: str) -> str:
        return check.plain(str(held.study.get(name)))

    return data.Study(
        check.plain(held.name),
        held.study_hash,
        state,
        held.since,
        policy.who(held.coordinator),
        fingerprint(held.coordinator),
        check.plain(str(held.study.get("description") or ""), _LONG),
        stated("epsilon"),
        stated("delta"),
        stated("colluding"),
        stated("scheme"),
        stated("neighbours"),
        check.plain(", ".join(map(str, held.study.get("sites") or ())), _LONG),
        analyses(policy, told),
        len(answered),
        whole.mu,
        whole.epsilon(policy.release.delta),
        policy.release.delta,
        tuple(limits(policy, book, [held.coordinator], whole)),
        tuple(dict.fromkeys(name for each in told for name in each.columns)),
        check.plain(str(held.study.get("where") or ""), _LONG),
        *_unit(held),
        _why(policy, held, answers, "waiting" if ended else state),
        tuple(
            data.Approval(each.person, each.desk, each.at, each.once, each.text) for each in held.approvals
        ),
        policy.approvals,
        held.once,
        ended,
        "" if held.question is None else held.question.text,
        "" if held.refusal is None else held.refusal.text,
        *_decided(held),
        whole.bet,
        (_ever(policy, book) + whole).bet,
    )


def curve(policy: Policy, book: Book) -> data.Curve:
    """Return the running total of all releases, for a picture."""
    delta, step = policy.total.delta, 1
    while book.lines > _POINTS * step:  # the same lines, until the ledger is twice as long
        step *= 2
    places = np.array([*range(step - 1, book.lines - 1, step), book.lines - 1][: book.lines])
    points = []
    for line in book.read(places):
        spent = {each.basis: each.amount for each in of_json(line.totals)}
        points.append((line.at.isoformat(timespec="seconds"), total(spent, _counted(policy)).epsilon(delta)))
    return data.Curve(tuple(points), policy.total.epsilon, delta)


def ledger(
    policy: Policy, book: Book, chosen: Places, after: int | None, most: int, *, lines: bool, newest: bool
) -> data.Ledger:
    """Return a page of the selected lines, or of their runs."""
    entries = chosen if lines else book.runs(chosen)
    ordered = entries[::-1] if newest else entries
    if after is not None:
        ordered = ordered[ordered < after - 1] if newest else ordered[ordered > after - 1]
    page = ordered[:most]
    found, delta = book.read(page), policy.year.delta
    costs = [] if lines else book.cost_of_runs(page, chosen)
    epsilons = {cost: cost.epsilon(delta) for cost in {cost for _, cost in costs}}
    return data.Ledger(
        policy.name,
        delta,
        tuple(
            _run(policy, line, stages, cost, epsilons[cost])
            for line, (stages, cost) in zip(found, costs, strict=False)
        ),
        tuple(line_of(policy, line) for line in found) if lines else (),
        spent(len(chosen), book.cost(chosen), delta),
        spent(book.lines, book.spent(), delta),
        tuple(limits(policy, book, book.coordinators(chosen), Amount())),
        len(entries),
        found[-1].id if len(ordered) > len(page) and found else None,
    )


def verified(found: Verified) -> data.Verified:
    """Return what a check of the ledger found."""
    first, last = (
        "" if each is None else each.isoformat(timespec="seconds") for each in (found.first, found.last)
    )
    return data.Verified(
        not found.problems,
        found.ledger.hex(),
        found.lines,
        first,
        last,
        found.wrong,
        tuple(found.problems),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def key_of(policy: Policy, coordinator: str, book: Book | None = None) -> bytes:
    """Return the key of a coordinator, by its name in the policy or its fingerprint in the ledger."""
    if coordinator in policy.coordinators:
        return policy.coordinators[coordinator]
    for key in [] if book is None else book.known_coordinators():
        if fingerprint(key) == coordinator:
            return key
    known = policy.coordinators
    told = hint(coordinator, known) if known else "; the policy has none"
    raise InvalidInput(f"--coordinator: no coordinator {check.show(coordinator)}{told}")


def _unit(held: Held) -> tuple[str, int]:
    """Return whom a study says that it protects: a row, or a person of whom so many rows count."""
    person = held.study.get("person")
    if not isinstance(person, Mapping):
        return "row", 1
    rows = person.get("rows")
    return "person", rows if isinstance(rows, int) else 1


def _why(policy: Policy, held: Held, answers: Answers, state: State) -> str:
    """Return why a study waits, or will, in a sentence."""
    if state != "waiting":
        return ""
    if any(each.lost(answers) for each in held.approvals):
        return "It was approved before a part of the ledger was lost; nobody knows whether it was answered."
    if held.counting(answers) != held:
        return "It was approved for once, and was answered: what is asked a second time waits again."
    many = f"{policy.approvals} different persons approve it" if policy.approvals > 1 else "you approve it"
    why = f'The policy says approve = "ask": no part of this study is answered until {many}.'
    if held.approvals:
        names = ", ".join(each.person for each in held.approvals)
        why += f" {held.persons} of {policy.approvals} did: {check.plain(names, 300)}."
    return why


def _decided(held: Held) -> tuple[str, str]:
    """Return who decided last, and when."""
    last = held.refusal or (held.approvals[-1] if held.approvals else None)
    if last is None:
        return "", ""
    return last.person + (" (desk)" if last.desk else ""), last.at


def _counted(policy: Policy) -> str | None:
    """Return the adjacency under which the limits count."""
    return "replace-one" if policy.sizes_public else None


def _ever(policy: Policy, book: Book) -> Amount:
    return book.spent(adjacency=_counted(policy))


def limits(policy: Policy, book: Book, keys: list[bytes], more: Amount) -> Iterable[data.Limit]:
    """Return what is spent of each budget, and what would be after spending `more`."""
    year = book.year
    under = _counted(policy)
    for key in keys:
        who = policy.who(key) or fingerprint(key)
        yield _limit(f"{who} in {year}", policy.coordinator, book.spent(key, year, under), more)
    yield _limit(f"All coordinators in {year}", policy.year, book.spent(None, year, under), more)
    yield _limit("All coordinators, ever", policy.total, _ever(policy, book), more)


def _limit(name: str, allowance: Allowance, spent: Amount, more: Amount) -> data.Limit:
    delta = allowance.delta
    return data.Limit(name, allowance.epsilon, delta, spent.epsilon(delta), (spent + more).epsilon(delta))


def _who(policy: Policy, line: Line) -> str:
    settled = "(settled)" if line.kind == SETTLED else fingerprint(line.coordinator)
    return policy.who(line.coordinator) or settled


def spent(lines: int, amount: Amount, delta: float) -> data.Spent:
    """Return a sum of lines."""
    return data.Spent(lines, amount.mu, amount.epsilon(delta))


def _run(policy: Policy, line: Line, stages: int, cost: Amount, epsilon: float) -> data.Run:
    return data.Run(
        line.id,
        line.run.hex(),
        line.at.isoformat(timespec="seconds"),
        _who(policy, line),
        check.plain(line.study),
        line.number,
        line.description,
        stages,
        cost.mu,
        epsilon,
    )


def line_of(policy: Policy, line: Line) -> data.Line:
    """Return a line of the ledger."""
    return data.Line(
        line.id,
        line.at.isoformat(timespec="seconds"),
        policy.who(line.coordinator),
        public_text(line.coordinator),
        check.plain(line.study),
        line.study_hash,
        line.number,
        line.kind,
        line.description,
        line.scheme,
        line.run.hex(),
        line.stage,
        line.charged.mu,
        str(line.charged.mu_squared),
        str(line.charged.pure),
        str(line.charged.extra),
        line.basis.adjacency,
        line.asked,
        line.basis.unit,
        line.basis.rows,
        line.basis.sites,
    )
