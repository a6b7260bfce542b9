"""`cape check`: everything that is wrong with the rows of a study's sites, for those who hold them."""

from __future__ import annotations

from typing import Annotated

import typer

from cape.cli.options import AsJson, StudyFile

__all__ = ["check"]


def check(
    study_file: StudyFile,
    site: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Check this site only.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List everything that is wrong with the rows of a study's sites, at once. Nothing is spent or sent.

    What it prints is for those who hold the rows: it contains exact counts and cells. The exit status is 1 if
    a run would fail.

    Example: [bold]cape check study.toml[/bold]

    Example: [bold]cape check study.toml --site cleveland[/bold]
    """
    from cape.cli.check_action import check as act

    act(study_file, site=site, as_json=as_json)
