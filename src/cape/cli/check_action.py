"""What `cape check` does: imported when it is run, and not where options are listed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from cape.app.words import listed
from cape.cli import screen
from cape.core.check import hint
from cape.core.errors import InvalidInput
from cape.data import troubles
from cape.data.survey import survey
from cape.data.surveyed import Survey
from cape.show.numbers import count
from cape.study import Study

__all__ = ["check", "show"]


def check(study_file: Path, *, site: str | None, as_json: bool) -> None:
    """Carry out `cape check`."""
    study = Study.load(study_file)
    names = _chosen(study, site)
    found = []
    with screen.progress(len(names)) as steps:
        for name in names:
            steps.start(f"reading {name}")
            found.append(survey(name, study.sites[name].source(), study.setting.schema))
            steps.done()
    failing = [each.site for each in found if each.fails()]
    if as_json:
        screen.print_json({"fails": bool(failing), "sites": [msgspec.to_builtins(each) for each in found]})
    else:
        console = screen.console()
        for each in found:
            show(console, each)
        for name in study.sites:
            if study.sites[name].elsewhere:
                console.print(Text(f"{name}: its rows are elsewhere; `cape site check` checks them there.\n"))
    if failing:
        typer.echo(f"cape: a run would fail at {', '.join(failing)}", err=True)
        raise typer.Exit(1)


def _chosen(study: Study, site: str | None) -> list[str]:
    here = [name for name, place in study.sites.items() if not place.elsewhere]
    if site is None and here:
        return here
    if site is not None and site not in study.sites:
        raise InvalidInput(f"--site: no site {site!r} in the study{hint(site, study.sites)}")
    if site is None or site not in here:
        who = "any site" if site is None else f"site {site!r}"
        raise InvalidInput(
            f"the study does not say where the rows of {who} are; give a path in [sites], or run `cape site "
            "check` at the site"
        )
    return [site]


def show(console: Console, found: Survey) -> None:
    """Print what a survey found: what would end a run, what counts otherwise, what is missing."""
    head = Text(found.site, style="bold")
    read = f"{count(found.rows, 'row')}, {count(len(found.columns), 'column')} of the study"
    head.append(f": {read if found.columns else 'not read'}", style="not bold")
    console.print(head)
    ends, other = troubles.stops(found), troubles.warnings(found)
    if ends:
        ending = "The site could not answer:" if found.lenient else "A run would stop at:"
        console.print(Text(ending, style="red"))
        console.print(Text(listed(ends, console.width)))
    if other:
        console.print(Text("Read differently from what the file says:", style="yellow"))
        console.print(Text(listed(other, console.width)))
    absent = troubles.missing(found)
    if absent:
        console.print(Text(f"Missing cells: {absent}.", style="dim"))
    keys = troubles.remedy(found)
    if keys:
        console.print(Text("Add what is right of this to the site's entry in [sites]:"))
        console.print(Text(f"  {keys}", style="bold"), soft_wrap=True)  # to be copied
    if not ends and not other:
        console.print(Text("Every cell fits the schema.", style="green"))
    console.print()
