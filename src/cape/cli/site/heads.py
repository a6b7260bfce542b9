"""`cape site settle` and `cape site verify`: a ledger compared with what its site has signed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from cape.app import words
from cape.cli import screen
from cape.cli.options import AsJson
from cape.cli.site.reach import Folder, Socket, reach
from cape.core import check
from cape.core.errors import InvalidInput
from cape.core.files import as_owner
from cape.privacy.accounting import Amount, Basis
from cape.site.folder import SiteFolder
from cape.site.keyring import Card
from cape.site.ledger.export import verify_export
from cape.site.ledger.gaps import Gap
from cape.site.ledger.heads import read_heads
from cape.site.ledger.verify import Verified
from cape.site.ledger.verify import verify as check_ledger

__all__ = ["settle", "verify"]

_HERE = Path()


def settle(
    folder: Annotated[Path, typer.Option("--site", metavar="DIR", help="The site's folder.")] = _HERE,
    heads: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="More heads: a coordinator's heads.jsonl.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Charge what is missing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show signed lines that the ledger lacks, as after a restored backup; --yes charges them.

    A site answers nothing while there is a gap. Look for the newer ledger first: putting it back closes the
    gap. A charge cannot be undone. Approved studies wait again: decisions may have been lost with the lines.

    Example: [bold]cape site settle --site our-site[/bold]
    """
    shown = [head for _, head in read_heads(heads)] if heads is not None else []
    with as_owner(folder):
        here = SiteFolder(folder)
        ledger, own = here.ledger, here.identity.public
        for head in shown:
            ledger.show(head, own)
        gaps = ledger.gaps()
        written, waiting = here.settle() if yes and gaps else (0, 0)
        if written:
            what = f"{words.count(len(gaps), 'gap')} of the ledger in {words.count(written, 'line')}"
            here.log(f"settled {what}; approvals that ended: {waiting}")
    if as_json:
        plain = [_plain(gap) for gap in gaps]
        screen.print_json({"gaps": plain, "settled": bool(yes), "lines": written, "waiting": waiting})
    else:
        _show(gaps, written, waiting)
    if gaps and not yes:
        raise typer.Exit(1)


def verify(
    ledger: Annotated[
        Path | None,
        typer.Argument(metavar="[LEDGER]", help="A ledger.sqlite, or a copy of one.", show_default=False),
    ] = None,
    card: Annotated[
        list[Path] | None,
        typer.Option("--card", metavar="FILE", help="The site's card; repeat it for earlier keys."),
    ] = None,
    exported: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="An export of a ledger.", show_default=False),
    ] = None,
    heads: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Heads that a coordinator kept: heads.jsonl.", show_default=False),
    ] = None,
    folder: Folder = None,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Check a ledger: chain, signatures, times and totals, and heads if given.

    Anybody can check a copy of a ledger (LEDGER), or a signed export of one (--export), with the site's card.
    Without either, the site checks its own.

    The exit status is 0 if the ledger is valid, 1 if not, 2 if it cannot be checked.

    Example: [bold]cape site verify ledger.sqlite --card cleveland.card --heads heads.jsonl[/bold]

    Example: [bold]cape site verify --export ledger.json --card cleveland.card[/bold]

    Example: [bold]cape site verify --site our-site[/bold]
    """
    if ledger is not None and exported is not None:
        raise InvalidInput("give LEDGER or --export, not both")
    if ledger is None and exported is None:
        return _verify_own(folder, socket, as_json)
    if not card:
        raise InvalidInput("--card is missing: `cape site export-key` prints the site's card")
    keys = [Card.load(each).key for each in card]
    kept = [head for _, head in read_heads(heads)] if heads is not None else []
    if exported is not None:
        told, found = verify_export(exported, keys, kept)
        if not as_json:
            typer.echo(f"Exported by {check.plain(told.site)} at {check.plain(told.at)}.")
    else:
        assert ledger is not None
        found = check_ledger(ledger, keys, kept)
    if as_json:
        screen.print_json(_verified_dict(found, compared=heads is not None))
    else:
        _show_verified(found, compared=heads is not None)
    if found.problems:
        typer.echo(f"cape: {found.problems[0]}", err=True)
        raise typer.Exit(1)


def _verify_own(folder: Path | None, socket: Path | None, as_json: bool) -> None:
    """Let a site check its own ledger."""
    with reach(folder, socket) as desk:
        told = desk.verify()
    if as_json:
        screen.print_json(msgspec.to_builtins(told))
    elif told.ok:
        typer.echo(f"Ledger {told.ledger[:12]}: {words.count(told.lines, 'line')}. Nothing is wrong in it.")
    if not told.ok:
        more = f" ({len(told.problems) - 1} more)" if len(told.problems) > 1 else ""
        typer.echo(f"cape: {told.problems[0]}{more}", err=True)
        raise typer.Exit(1)


def _amount(basis: Basis, amount: Amount) -> dict[str, Any]:
    return {
        **asdict(basis),
        "mu": amount.mu,
        "mu_squared": str(amount.mu_squared),
        "epsilon": str(amount.pure),
        "extra": str(amount.extra),
    }


def _plain(gap: Gap) -> dict[str, Any]:
    return {
        "ledger": gap.head.ledger.hex(),
        "signed": gap.head.lines,
        "common": gap.common,
        "missing": [_amount(basis, amount) for basis, amount in gap.missing.items()],
    }


def _show(gaps: list[Gap], written: int, waiting: int) -> None:
    if not gaps:
        typer.echo("Nothing that this site has signed is known to be missing in its ledger.")
        return
    for gap in gaps:
        lost = ", ".join(_words(basis, amount) for basis, amount in gap.missing.items())
        typer.echo(
            f"This site has signed {words.count(gap.head.lines, 'line')} (ledger "
            f"{gap.head.ledger.hex()[:12]}); its ledger is known to hold {gap.common} of them. Missing: "
            f"{lost or 'nothing that costs'}."
        )
    if written:
        typer.echo(f"Settled: charged in {words.count(written, 'line')}. The site answers again.")
        if waiting:
            typer.echo(f"Studies that wait for approval again: {waiting}; a used approval may be lost.")
        typer.echo("A refusal that is newer than the backup may be lost, too: refuse such studies again.")
    else:
        typer.echo(
            "If the newer ledger still exists, put it back. If it is lost, --yes charges what is missing; "
            "until then the site answers nothing."
        )


def _words(basis: Basis, amount: Amount) -> str:
    pure = f", epsilon {float(amount.pure):.4g}" if amount.pure else ""
    return f"mu {amount.mu:.4g}{pure} ({basis.adjacency}, by {basis.unit})"


def _verified_dict(found: Verified, *, compared: bool) -> dict[str, Any]:
    return {
        "ledger": found.ledger.hex(),
        "lines": found.lines,
        "first": None if found.first is None else found.first.isoformat(timespec="seconds"),
        "last": None if found.last is None else found.last.isoformat(timespec="seconds"),
        "totals": [_amount(basis, amount) for basis, amount in found.totals.items()],
        "heads": found.heads if compared else None,
        "problems": found.problems,
    }


def _show_verified(found: Verified, *, compared: bool) -> None:
    console = screen.console()
    when = f", {found.first:%Y-%m-%d} to {found.last:%Y-%m-%d}" if found.first and found.last else ""
    console.print(f"Ledger {found.ledger.hex()[:12]}: {words.count(found.lines, 'line')}{when}.")
    if found.totals:
        table = Table(title="All lines together", title_justify="left")
        for title in ("adjacency", "protects", "mu", "epsilon (pure)"):
            table.add_column(title)
        for basis, amount in found.totals.items():
            protects = basis.unit if basis.unit == "row" else f"{basis.unit} ({basis.rows} x {basis.sites})"
            table.add_row(basis.adjacency, protects, f"{amount.mu:.4g}", f"{float(amount.pure):.4g}")
        console.print(table)
    for problem in found.problems:
        console.print(f"[red]wrong[/red]: {escape(problem)}.")
    if not found.problems:
        heads = f", and {words.count(found.heads, 'head')} on its chain" if compared else ""
        console.print(f"Chain, signatures, times and totals are valid{heads}.")
    if not compared:
        console.print("No heads were compared: a tail that was cut off would not be detected.", style="dim")
