"""`cape deploy demo`: a study across real processes on this machine, from setup to results and teardown."""

from __future__ import annotations

import tempfile
import tomllib
import warnings
from pathlib import Path
from typing import Annotated

import typer

from cape.app.folder import ResultsFolder, writable
from cape.cli import screen
from cape.cli.demo.data import at_sites
from cape.cli.options import AsJson
from cape.cli.output import finish
from cape.core.errors import InvalidInput
from cape.flare.kits import require_flare

__all__ = ["demo"]

_SITES = {"north": 110, "east": 120, "south": 140, "west": 199}
_STUDY = """\
[study]
name = "demo"
description = "Cell nuclei of 569 patients at four hospitals"

[privacy]
epsilon = 3.0
delta = 1e-6
colluding = 1
min_sites = 3

[schema]
radius = [5, 30]
texture = [5, 40]
perimeter = [30, 200]
diagnosis = ["malignant", "benign"]

[sites]          # each site knows where its rows are
north = {}
east = {}
south = {}
west = {}

[[analysis]]
kind = "mean"
columns = ["radius", "texture", "perimeter"]
share = 0.2

[[analysis]]
kind = "count"
share = 0.1
where = {diagnosis = "malignant"}

[[analysis]]
kind = "histogram"
column = "radius"
bins = 10
share = 0.2

[[analysis]]
kind = "quantiles"
columns = ["perimeter"]
share = 0.5
"""


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep kits, sites, logs and results here; default: a temporary folder."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Deploy an aggregator and four sites on this machine, run a study over them, and stop all of it.

    Real processes, mutual TLS, pinned keys, policies and ledgers, as in a deployment, over the loopback.

    Example: [bold]cape deploy demo --out demo[/bold]
    """
    require_flare()
    if out is None:
        out = Path(tempfile.mkdtemp(prefix="cape-deploy-"))  # it stays, since the report in it is named
    if out.exists() and any(out.iterdir()):
        raise InvalidInput(f"--out: {out} is not empty, and nothing is overwritten: choose another folder")
    writable(out)
    _play(out, as_json)
    typer.echo(f"Everything is in {out}; try `cape site ledger --site {out}/sites/north`.", err=True)


def _play(folder: Path, as_json: bool) -> None:
    from cape.cli.submit_action import Terms, run_study
    from cape.coordinator import CoordinatorFolder
    from cape.flare.rehearsal import Rehearsal
    from cape.study import Study

    path = folder / "study.toml"
    path.write_text(_STUDY, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = Study.load(path)
    with screen.progress(2) as steps:
        steps.start("making kits, keys, policies and data")
        kinds = [entry.analysis.kind for entry in study.analyses]
        here = Rehearsal(
            folder, _tables(folder), tomllib.loads(_STUDY)["schema"], analyses=kinds, budget=(3.0, 1e-6)
        )
        steps.done()
        steps.start("starting an aggregator and four sites")
        try:
            here.start()
            steps.done()
        except BaseException:
            here.stop()
            raise
    with ResultsFolder.find(folder / "results", study, study.scheme, "submit") as kept:
        try:
            found = run_study(study, CoordinatorFolder(here.coordinator), kept, Terms())
        finally:
            here.stop()
        finish(found, kept, as_json)


def _tables(folder: Path) -> dict[str, Path]:
    """Write each hospital's rows as a file of its own."""
    (folder / "data").mkdir()
    found = {}
    for site, table in at_sites(_SITES).items():
        found[site] = folder / "data" / f"{site}.csv"
        table.write_csv(found[site])
    return found
