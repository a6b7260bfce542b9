"""`cape submit`: a study across machines, from the coordinator's desk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli.options import AsJson, StudyFile

__all__ = ["submit"]


def submit(
    study_file: StudyFile,
    kit: Annotated[Path, typer.Option(metavar="DIR", help="The coordinator's kit.")] = Path(),
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where results.json, report.html and the record go.")
    ] = Path("results"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume after the last finished analysis.")
    ] = False,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for stewards to approve the study.")
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Run a study at sites on machines of their own. The paths in the study file are not used.

    Sites review the whole study before anything is asked of their rows. Each site decides by its own policy
    and pays from its own ledger.

    Example: [bold]cape submit study.toml --kit kits/coordinator --out results[/bold]

    Example: [bold]cape submit study.toml --kit kits/coordinator --out results --resume[/bold]
    """
    from cape.cli.submit_action import submit as act

    act(study_file, kit=kit, out=out, resume=resume, wait=wait, as_json=as_json)
