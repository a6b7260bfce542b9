"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "StudyFile"]

StudyFile = Annotated[
    Path, typer.Argument(metavar="STUDY", help="The study file (TOML).", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
