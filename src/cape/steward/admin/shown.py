"""A site's policy, ledger and studies as the structs of `cape.steward.admin.data`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from cape import check
from cape.data.schema import hint
from cape.errors import InvalidInput
from cape.steward.admin import data
from cape.steward.amount import Allowance, Basis, total
from cape.steward.approvals import Held, State
from cape.steward.keyring import fingerprint, public_text
from cape.steward.ledger import Amount, Ledger, Line
from cape.steward.lines import SETTLED
from cape.steward.policy import Policy
from cape.steward.preview import Verdict, preview

__all__ = ["analyses", "key_of", "ledger", "study", "summary"]

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
        policy.expires.isoformat(),
        policy.expires < datetime.now(UTC).date(),
        tuple(sorted(policy.analyses)),
        tuple(name for name in policy.schema if name in policy.columns),
        {name: str(getattr(policy, name)) for name in ("release", "coordinator", "year", "total")},
        tuple(trusted),
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
        )
        for each in verdicts
    )


def study(policy: Policy, book: Ledger, held: Held, state: State) -> data.Study:
    """Return a study with this site's verdicts in this year."""
    verdicts = preview(policy, book, held.study, held.coordinator)
    answered = [each for each in verdicts if each.refusal is None]
    whole = sum((each.cost for each in answered), Amount())

    def stated(name: str) -> str:
        return check.plain(str(held.study.get(name)))

    return data.Study(
        check.plain(held.name),
        held.study_hash,
        state,
        _since(held),
        policy.who(held.coordinator),
        fingerprint(held.coordinator),
        check.plain(str(held.study.get("description") or ""), _LONG),
        stated("epsilon"),
        stated("delta"),
        stated("colluding"),
        stated("scheme"),
        check.plain(", ".join(map(str, held.study.get("sites") or ())), _LONG),
        analyses(policy, verdicts),
        len(answered),
        whole.mu,
        whole.epsilon(policy.release.delta),
        policy.release.delta,
        tuple(_limits(policy, book, [held.coordinator], whole)),
    )


def ledger(
    policy: Policy, book: Ledger, coordinator: bytes | None, year: int | None, wanted: str | None, lines: bool
) -> data.Ledger:
    """Return the ledger, or a selection of it."""
    every = book.entries()
    found = [
        line
        for line in every
        if coordinator in (None, line.coordinator)
        and year in (None, line.at.year)
        and (wanted is None or line.study == wanted or line.study_hash.startswith(wanted.lower()))
    ]
    delta = policy.year.delta
    keys = dict.fromkeys(line.coordinator for line in found if line.kind != SETTLED)
    return data.Ledger(
        policy.name,
        delta,
        () if lines else tuple(_run(policy, run, delta) for run in _runs(found)),
        tuple(_line(policy, line) for line in found) if lines else (),
        _spent(len(found), _cost(found), delta),
        _spent(len(every), book.spent(), delta),
        tuple(_limits(policy, book, list(keys), Amount())),
    )


def key_of(policy: Policy, coordinator: str, book: Ledger | None = None) -> bytes:
    """Return the key of a coordinator, by its name in the policy or its fingerprint in the ledger."""
    if coordinator in policy.coordinators:
        return policy.coordinators[coordinator]
    for line in [] if book is None else book.entries():
        if fingerprint(line.coordinator) == coordinator:
            return line.coordinator
    known = policy.coordinators
    told = hint(coordinator, known) if known else "; the policy has none"
    raise InvalidInput(f"--coordinator: no coordinator {check.show(coordinator)}{told}")


def _since(held: Held) -> str:
    try:
        return datetime.fromtimestamp(held.path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except OSError:  # it was just moved
        return ""


def _limits(policy: Policy, book: Ledger, keys: list[bytes], more: Amount) -> Iterable[data.Limit]:
    """Return what is spent of each budget, and what would be after spending `more`."""
    year = book.year
    under = "replace-one" if policy.sizes_public else None  # as the limits count
    for key in keys:
        who = policy.who(key) or fingerprint(key)
        yield _limit(f"{who} in {year}", policy.coordinator, book.spent(key, year, under), more)
    yield _limit(f"All in {year}", policy.year, book.spent(None, year, under), more)
    yield _limit("All ever", policy.total, book.spent(adjacency=under), more)


def _limit(name: str, allowance: Allowance, spent: Amount, more: Amount) -> data.Limit:
    delta = allowance.delta
    return data.Limit(name, allowance.epsilon, delta, spent.epsilon(delta), (spent + more).epsilon(delta))


def _runs(lines: list[Line]) -> list[list[Line]]:
    runs: dict[tuple[bytes, bytes], list[Line]] = {}
    for line in lines:
        runs.setdefault((line.coordinator, line.run), []).append(line)
    return list(runs.values())


def _cost(lines: Iterable[Line]) -> Amount:
    """Add up under one adjacency, as the ledger does."""
    parts: dict[Basis, Amount] = {}
    for line in lines:
        parts[line.basis] = parts.get(line.basis, Amount()) + line.charged
    return total(parts)


def _who(policy: Policy, line: Line) -> str:
    settled = "(settled)" if line.kind == SETTLED else fingerprint(line.coordinator)
    return policy.who(line.coordinator) or settled


def _spent(lines: int, amount: Amount, delta: float) -> data.Spent:
    return data.Spent(lines, amount.mu, amount.epsilon(delta))


def _run(policy: Policy, lines: list[Line], delta: float) -> data.Run:
    line, cost = lines[0], _cost(lines)
    return data.Run(
        line.run.hex(),
        line.at.isoformat(timespec="seconds"),
        _who(policy, line),
        check.plain(line.study),
        line.number,
        line.description,
        len(lines),
        cost.mu,
        cost.epsilon(delta),
    )


def _line(policy: Policy, line: Line) -> data.Line:
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
