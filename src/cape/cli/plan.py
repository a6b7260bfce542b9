"""`cape plan`: what a study costs in privacy and gives in accuracy, before any row is read."""

from __future__ import annotations

from cape.cli.options import AsJson, StudyFile

__all__ = ["plan"]


def plan(study_file: StudyFile, as_json: AsJson = False) -> None:
    """Show noise, expected error and guarantee of every analysis, beside other schemes. Reads no data.

    Example: [bold]cape plan study.toml[/bold]
    """
    from cape.cli.plan_action import plan as act

    act(study_file, as_json=as_json)
