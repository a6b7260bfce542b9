"""`cape run`: the whole study in one process, on the files that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli.options import AsJson, StudyFile

__all__ = ["run"]

# `SECAGG_ROUNDS` of `cape.engine.schemes`, which a list of options does without; a test compares them.
_ROUNDS = ("advertise", "share", "mask", "consistency", "unmask")


def run(
    study_file: StudyFile,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep results.json and report.html in it.")
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Run the study again in a new folder; costs the budget again."),
    ] = False,
    scheme: Annotated[
        str | None, typer.Option(metavar="NAME", help="The noise scheme, if not the study's.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE@ROUND",
            help="Rehearse the loss of a site from a round on. Repeatable. Rounds of cape: "
            f"{', '.join(_ROUNDS)}.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="N|KIND", help="Run the analyses of this number or kind only. Repeatable."),
    ] = None,
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse", help="Run it on made-up rows from the schema alone: reads no site, spends nothing."
        ),
    ] = False,
) -> None:
    """Answer every analysis of a study, on the files that it names.

    With --out, each result is written as soon as it is released, and the folder belongs to the study: a run
    that was interrupted is resumed with the missing analyses, and what it spent stays spent. --again draws
    fresh noise for all of it in a folder DIR-2; publishing both costs two budgets.

    Example: [bold]cape run study.toml --out results[/bold]

    With --rehearse the rows are made up as `cape synth` does; each rehearsal has a folder of its own, and no
    run counts what it would have cost.

    Example: [bold]cape run study.toml --drop hungary@mask --only mean[/bold]

    Example: [bold]cape run --rehearse study.toml --out rehearsal[/bold]
    """
    from cape.cli.run_action import run as act

    act(
        study_file,
        as_json=as_json,
        out=out,
        again=again,
        scheme=scheme,
        drop=drop,
        only=only,
        rehearse=rehearse,
    )
