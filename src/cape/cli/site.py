"""`cape site`: a site's key, policy and ledger, for its data steward. None of it needs a network."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cape.check import plain
from cape.cli import screen, words
from cape.cli.options import AsJson
from cape.errors import CapeError, InvalidInput, PrivacyLeakWarning
from cape.site.schema import hint
from cape.steward.approvals import Held
from cape.steward.codes import Refusal
from cape.steward.folder import SiteFolder
from cape.steward.keyring import Card, fingerprint, public_text
from cape.steward.ledger import Amount, Ledger, Line
from cape.steward.policy import Policy
from cape.steward.preview import Verdict, preview
from cape.steward.request import document
from cape.study import Study

__all__ = ["site"]

site = typer.Typer(
    name="site",
    help="""A site's policy, keys and ledger: what its data steward allows, and what was given.

    Example: [bold]cape site init our-site --name cleveland[/bold]

    Example: [bold]cape site ledger --site our-site[/bold]""",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Asker = Annotated[
    str | None,
    typer.Option(
        "--coordinator", metavar="NAME", help="Who asks, where several ask the same.", show_default=False
    ),
]
Folder = Annotated[Path, typer.Option("--site", metavar="DIR", help="The site's folder.")]
_HERE = Path()


@site.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.", show_default=False)],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What others call the site; else the folder's name.")
    ] = None,
) -> None:
    """Make a site's folder: a key, a policy to fill in, and an empty ledger. Overwrites nothing.

    Example: [bold]cape site init our-site --name cleveland[/bold]
    """
    made = SiteFolder.create(folder, name)
    typer.echo(
        f"Made {folder} for site {made.policy.name!r}. Next: fill in {folder / 'site.toml'}, then run\n"
        f"  cape site check --site {folder}\n"
        f"Fingerprint of its key: {fingerprint(made.identity.public)}"
    )


@site.command("export-key")
def export_key(folder: Folder = _HERE, as_json: AsJson = False) -> None:
    """Print this site's public key, as a file for coordinators and for the other sites.

    Example: [bold]cape site export-key --site our-site > cleveland.card[/bold]
    """
    card = SiteFolder(folder).card
    if as_json:
        screen.print_json(
            {"name": card.name, "key": public_text(card.key), "fingerprint": fingerprint(card.key)}
        )
    else:
        typer.echo(card.to_text(), nl=False)


@site.command()
def trust(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What export-key printed there.", show_default=False)
    ],
    coordinator: Annotated[
        bool, typer.Option("--coordinator", help="Somebody who may ask; else a site that may be in a sum.")
    ] = False,
    folder: Folder = _HERE,
) -> None:
    """Write somebody's public key into the policy. Compare the fingerprint by telephone first.

    Example: [bold]cape site trust zurich.card --site our-site[/bold]

    Example: [bold]cape site trust trial-office.card --coordinator --site our-site[/bold]
    """
    card = Card.load(file)
    added = SiteFolder(folder).trust(card, coordinator=coordinator)
    what = "coordinator" if coordinator else "site"
    typer.echo(
        f"{'Trusted from now on' if added else 'Trusted already'}: {what} {card.name!r}, fingerprint "
        f"{fingerprint(card.key)}"
    )


@site.command()
def check(
    study_file: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="A study file to try.", show_default=False)
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who would ask, of the policy's coordinators; else the only one."),
    ] = None,
    folder: Folder = _HERE,
    as_json: AsJson = False,
) -> None:
    """Try the policy against the data, and say what a study would be allowed. Nothing is spent or sent.

    What it says of the data is for the steward's eyes only.

    Example: [bold]cape site check study.toml --site our-site[/bold]
    """
    here = SiteFolder(folder)
    policy, ledger = here.policy, here.ledger
    checked = _Checked(policy, *_data(here, policy), _key(policy, coordinator), ledger)
    checked.problems.extend(here.approvals.unreadable())
    verdicts = None if study_file is None else _try(study_file, checked)
    if as_json:
        screen.print_json(_checked_dict(here, checked, verdicts))
    else:
        _show_checked(screen.console(), here, checked, verdicts)
    refused = [each for each in verdicts or () if each.refusal is not None]
    if checked.problems or refused:
        reason = (
            checked.problems[0] if checked.problems else f"{len(refused)} of its analyses would be refused"
        )
        typer.echo(f"cape: {reason}", err=True)
        raise typer.Exit(1)


@site.command()
def ledger(folder: Folder = _HERE, as_json: AsJson = False) -> None:
    """Show every release: when, who asked, what, its mu, and the epsilon of all together.

    Example: [bold]cape site ledger --site our-site[/bold]
    """
    here = SiteFolder(folder)
    policy, book = here.policy, here.ledger
    lines = book.entries()
    if as_json:
        screen.print_json(_ledger_dict(policy, book, lines))
    else:
        _show_ledger(screen.console(), policy, book, lines)


@site.command()
def approve(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY]", help="Its name, or the start of its hash.", show_default=False),
    ] = None,
    coordinator: Asker = None,
    folder: Folder = _HERE,
    as_json: AsJson = False,
) -> None:
    """Let a study that waits be answered, as far as the policy allows; without STUDY, show what waits.

    Example: [bold]cape site approve heart --site our-site[/bold]
    """
    here = SiteFolder(folder)
    who = _key(here.policy, coordinator) if coordinator else None
    held = here.approvals.waiting() if study is None else [here.approvals.find(study, coordinator=who)]
    told = [_told(here, each, as_json) for each in held]
    _warn_unreadable(here)
    if study is not None:
        here.approvals.approve(held[0])
        here.log(f"approved {held[0].name!r} {held[0].study_hash} of {told[0]['coordinator']!r}")
    if as_json:
        screen.print_json({"approved": study is not None, "studies": told})
    else:
        _say_next(here, held, approved=study is not None)


@site.command()
def refuse(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="Its name, or the start of its hash.", show_default=False)
    ],
    coordinator: Asker = None,
    folder: Folder = _HERE,
    as_json: AsJson = False,
) -> None:
    """Let nothing of a study be answered: one that waits, or one that was approved and still runs.

    What was answered before stays in the ledger. `cape site approve` takes it back. Where the policy says
    approve = "auto", studies are not kept: change it to "ask", and one that runs waits at its next question.

    Example: [bold]cape site refuse heart --site our-site[/bold]
    """
    here = SiteFolder(folder)
    who = _key(here.policy, coordinator) if coordinator else None
    held = here.approvals.find(study, to="refuse", coordinator=who)
    here.approvals.refuse(held)  # first: whatever is in it, it can be refused
    told = _told(here, held, as_json)
    _warn_unreadable(here)
    here.log(f"refused {held.name!r} {held.study_hash} of {told['coordinator']!r}")
    if as_json:
        screen.print_json({"refused": True, "studies": [told]})
    else:
        typer.echo(f"Refused. `cape site approve {held.study_hash[:12]}` takes it back.")


def _warn_unreadable(here: SiteFolder) -> None:
    """Name a file among the studies that is none, in a line."""
    found = here.approvals.unreadable()
    if found:
        more = f" ({len(found) - 1} more are none)" if len(found) > 1 else ""
        typer.echo(f"cape: warning: {found[0]}{more}", err=True)


def _say_next(here: SiteFolder, held: Sequence[Held], *, approved: bool) -> None:
    """Say what a steward can do now."""
    if approved:
        typer.echo(
            "Approved. Who asked has to submit it again, unless it waits (--wait). "
            f"`cape site refuse {held[0].study_hash[:12]}` takes it back."
        )
        return
    if not held:
        typer.echo("Nothing waits for approval.")
    else:
        typer.echo("Approve one with `cape site approve HASH`, or `cape site refuse HASH`; the name will do.")
    for word, known in (
        ("Approved", here.approvals.all_approved()),
        ("Refused", here.approvals.all_refused()),
    ):
        if known:
            typer.echo(
                f"{word}: {', '.join(f'{plain(each.name)} ({each.study_hash[:12]})' for each in known)}."
            )


def _told(here: SiteFolder, held: Held, quiet: bool) -> dict[str, Any]:
    """Show a study as this site sees it, and return the same as plain data."""
    policy = here.policy
    verdicts = preview(policy, here.ledger, held.study, held.coordinator)
    who = policy.who(held.coordinator) or fingerprint(held.coordinator)
    if not quiet:
        console = screen.console()
        console.print(
            f"\n[bold]{escape(plain(held.name))}[/bold] ({held.study_hash[:12]}), asked by {escape(who)}"
        )
        for line in _stated(held.study):
            console.print(escape(line), style="dim")
        console.print(_verdict_table(policy, verdicts))
        answered = [each for each in verdicts if each.refusal is None]
        whole, delta = sum((each.cost for each in answered), Amount()), policy.release.delta
        console.print(
            f"{len(answered)} of {len(verdicts)} would be answered: all together epsilon "
            f"{whole.epsilon(delta):.4g} at delta {delta:g} to this site's ledger."
        )
    return {"study": held.name, "hash": held.study_hash, "coordinator": who, "analyses": _plain(verdicts)}


def _stated(study: Mapping[str, Any]) -> list[str]:
    """Return what a study says of itself, in lines."""
    lines = [plain(str(study["description"]), 1000)] if study.get("description") else []
    sites = plain(", ".join(map(str, study.get("sites") or ())), 1000)
    epsilon, delta, colluding, scheme = (
        plain(str(study.get(name))) for name in ("epsilon", "delta", "colluding", "scheme")
    )
    return [
        *lines,
        f"It states epsilon {epsilon} at delta {delta}, {colluding} colluding, scheme {scheme}; "
        f"sites: {sites}.",
    ]


@dataclass(frozen=True)
class _Checked:
    """What was found out about policy and data."""

    policy: Policy
    problems: list[str]
    rows: int | None
    clamped: Mapping[str, int]
    coordinator: bytes | None
    ledger: Ledger


def _data(here: SiteFolder, policy: Policy) -> tuple[list[str], int | None, dict[str, int]]:
    """Return what is wrong, the rows, and how many cells lie outside their bounds."""
    problems, rows, clamped = [], None, {}
    try:
        here.identity  # noqa: B018  its file may be readable by others
        table = here.table(policy)
        table.check()
        rows, clamped = table.rows(), table.clamped()
        if rows < policy.min_rows:
            problems.append(f"there are {rows:,} rows, and min_rows asks for {policy.min_rows:,}")
    except CapeError as error:
        problems.append(str(error))
    if policy.expires < datetime.now(UTC).date():
        problems.append(f"the policy expired on {policy.expires}; nothing is answered")
    return problems, rows, clamped


def _key(policy: Policy, coordinator: str | None) -> bytes | None:
    if coordinator is None:
        return next(iter(policy.coordinators.values())) if len(policy.coordinators) == 1 else None
    if coordinator not in policy.coordinators:
        known = policy.coordinators
        told = hint(coordinator, known) if known else "; the policy has none"
        raise InvalidInput(f"--coordinator: no coordinator {coordinator!r}{told}")
    return policy.coordinators[coordinator]


def _try(study_file: Path, checked: _Checked) -> list[Verdict]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # the policy says what is enough here
        study = Study.load(study_file)
    return preview(checked.policy, checked.ledger, document(study), checked.coordinator)


def _plain(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    return [
        {
            "number": each.number,
            "kind": each.kind,
            "description": each.description,
            "mu": each.cost.mu,
            "allowed": each.refusal is None,
            "refusal": None if each.refusal is None else each.refusal.to_dict(),
        }
        for each in verdicts
    ]


def _checked_dict(here: SiteFolder, checked: _Checked, verdicts: list[Verdict] | None) -> dict[str, Any]:
    policy = checked.policy
    return {
        "site": policy.name,
        "problems": checked.problems,
        "rows": checked.rows,
        "outside_bounds": dict(checked.clamped),
        "expires": policy.expires.isoformat(),
        "coordinators": list(policy.coordinators),
        "peers": list(policy.peers),
        "waiting": [held.name for held in here.approvals.waiting()],
        "analyses": None if verdicts is None else _plain(verdicts),
    }


def _show_checked(
    console: Console, here: SiteFolder, checked: _Checked, verdicts: list[Verdict] | None
) -> None:
    policy = checked.policy
    console.print(
        f"\n[bold]{escape(policy.name)}[/bold]: policy until {policy.expires}, "
        f"{'answers by itself' if policy.approve == 'auto' else 'asks the steward first'}; trusts "
        f"{words.count(len(policy.coordinators), 'coordinator')}, {words.count(len(policy.peers), 'peer')}."
    )
    for name, known in (("coordinators", policy.coordinators), ("peers", policy.peers)):
        if not known:
            console.print(escape(f"No {name} yet: nothing can be answered. See `cape site trust --help`."))
    if checked.rows is not None:
        outside = {name: cells for name, cells in checked.clamped.items() if cells}
        told = ", ".join(f"{name} {words.count(cells, 'cell')}" for name, cells in outside.items())
        console.print(
            f"The table fits the schema: {checked.rows:,} rows. Outside their bounds, and moved to them: "
            f"{escape(told) or 'none'}.\n[dim]This is for your eyes only; nobody else is told.[/dim]"
        )
    waiting = here.approvals.waiting()
    if waiting:
        console.print(escape(f"Waiting for approval: {', '.join(plain(held.name) for held in waiting)}."))
    if verdicts is not None:
        console.print(_verdict_table(policy, verdicts))


def _verdict_table(policy: Policy, verdicts: list[Verdict]) -> Table:
    table = Table(title="What this site would say", title_justify="left")
    for title, justify in (("", "right"), ("analysis", "left"), ("mu", "right")):
        table.add_column(title, justify="right" if justify == "right" else "left")
    table.add_column(f"epsilon at {policy.release.delta:g}", justify="right")
    table.add_column("")
    for each in verdicts:
        table.add_row(
            str(each.number),
            escape(each.description or each.kind),
            f"{each.cost.mu:.4g}",
            f"{each.cost.epsilon(policy.release.delta):.4g}",
            _word(each.refusal),
        )
    return table


def _word(refusal: Refusal | None) -> str:
    return "allowed" if refusal is None else f"[red]refused[/red]: {escape(str(refusal))}"


def _runs(lines: list[Line]) -> list[list[Line]]:
    """Return the lines of each release together: an analysis may have many stages."""
    runs: dict[bytes, list[Line]] = {}
    for line in lines:
        runs.setdefault(line.run, []).append(line)
    return list(runs.values())


def _cost(lines: list[Line]) -> Amount:
    return sum((line.charged for line in lines), Amount())


def _ledger_dict(policy: Policy, book: Ledger, lines: list[Line]) -> dict[str, Any]:
    delta = policy.year.delta
    return {
        "site": policy.name,
        "delta": delta,
        "releases": [
            {
                "line": line.id,
                "at": line.at.isoformat(timespec="seconds"),
                "coordinator": policy.who(line.coordinator),
                "key": public_text(line.coordinator),
                "study": line.study,
                "study_hash": line.study_hash,
                "number": line.number,
                "kind": line.kind,
                "description": line.description,
                "scheme": line.scheme,
                "run": line.run.hex(),
                "stage": line.stage,
                "mu": line.charged.mu,
                "mu_squared": str(line.charged.mu_squared),
            }
            for line in lines
        ],
        "total": {"mu": book.spent().mu, "epsilon": book.total_epsilon(delta)},
    }


def _show_ledger(console: Console, policy: Policy, book: Ledger, lines: list[Line]) -> None:
    delta = policy.year.delta
    table = Table(title=escape(f"What {policy.name} has given"), title_justify="left")
    for title in ("when (UTC)", "who", "study", "what"):
        table.add_column(title)
    for title in ("stages", "mu", f"epsilon at {delta:g}"):
        table.add_column(title, justify="right")
    for run in _runs(lines):
        line, cost = run[0], _cost(run)
        table.add_row(
            f"{line.at:%Y-%m-%d %H:%M}",
            escape(policy.who(line.coordinator) or fingerprint(line.coordinator)),
            escape(plain(line.study)),
            escape(f"{line.number}. {line.description}"),
            str(len(run)),
            f"{cost.mu:.4g}",
            f"{cost.epsilon(delta):.4g}",
        )
    total = book.spent()
    table.add_section()
    table.add_row(
        "all together", "", "", "", str(len(lines)), f"{total.mu:.4g}", f"{total.epsilon(delta):.4g}"
    )
    console.print(table)
    year = max(datetime.now(UTC).year, lines[-1].at.year if lines else 0)
    for key in dict.fromkeys(line.coordinator for line in lines):
        spent = book.spent(key, year)
        who = policy.who(key) or fingerprint(key)
        console.print(
            escape(f"{who} in {year}: {_of(spent, policy.coordinator.epsilon, policy.coordinator.delta)}")
        )
    console.print(escape(f"All in {year}: {_of(book.spent(None, year), policy.year.epsilon, delta)}"))


def _of(spent: Amount, epsilon: float, delta: float) -> str:
    return f"epsilon {spent.epsilon(delta):.4g} of {epsilon:g} at delta {delta:g}"
