"""One deployment on loopback for all tests here: real processes, mutual TLS, four sites."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from cape.flare.rehearsal import Rehearsal, daemon_of

SITES = ("a", "b", "c", "d")
SCHEMA = {"age": [20, 80], "chol": [100, 400], "sex": ["female", "male"]}
KINDS = ["mean", "count", "histogram", "linear-regression", "k-means"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let NVFLARE warn: an error in one of its threads would leave it without a connection."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("default"))


@dataclass
class World:
    """The deployment, and how a coordinator uses it."""

    here: Rehearsal
    folder: Path
    tables: dict[str, Path]

    def study(
        self,
        name: str,
        analyses: str,
        *,
        epsilon: float = 1.0,
        min_sites: int = 3,
        delta: float | None = 1e-6,
        **schema: Any,
    ) -> Path:
        """Write a study; sites in it have paths, so that `cape run` can run it too."""
        pair = f"epsilon = {epsilon}\n" + ("" if delta is None else f"delta = {delta}\n")
        columns = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {**SCHEMA, **schema}.items())
        sites = "\n".join(f'{site} = "{path}"' for site, path in self.tables.items())
        path = self.folder / f"{name}.toml"
        path.write_text(
            f'[study]\nname = "{name}"\n[privacy]\n{pair}colluding = 1\n'
            f"min_sites = {min_sites}\n[schema]\n{columns}\n[sites]\n{sites}\n{analyses}"
        )
        return path

    def submit(self, study: Path, *options: str, out: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run `cape submit` to its end."""
        return subprocess.run(
            self.command(study, *options, out=out), capture_output=True, text=True, timeout=180
        )

    def command(self, study: Path, *options: str, out: str | None = None) -> list[str]:
        """Return the command line of a submission."""
        results = self.folder / (out or study.stem)
        kit = str(self.here.coordinator)
        return [
            sys.executable,
            "-m",
            "cape",
            "submit",
            str(study),
            "--kit",
            kit,
            "--out",
            str(results),
            *options,
        ]

    def results(self, name: str) -> dict[str, Any]:
        """Return what was written."""
        return json.loads((self.folder / name / "results.json").read_text())

    def back(self) -> None:
        """Wait until everybody is connected."""
        self.here.wait(SITES)


def people(seed: int, rows: int) -> polars.DataFrame:
    """Return made-up rows that fit the schema."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(25, 75, rows)
    chol = np.clip(150 + 2 * age + rng.normal(0, 20, rows), 100, 400)
    return polars.DataFrame({"age": age, "chol": chol, "sex": rng.choice(["female", "male"], rows)})


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Start everything, and take it down at the end."""
    folder = tmp_path_factory.mktemp("deploy")
    tables = {}
    for number, site in enumerate(SITES):
        tables[site] = folder / f"{site}.csv"
        people(number, 400 + 100 * number).write_csv(tables[site])
    crash = str(Path(__file__).parent / "crash")
    path = os.pathsep.join(filter(None, [crash, os.environ.get("PYTHONPATH")]))
    with Rehearsal(
        folder / "deployment",
        tables,
        SCHEMA,
        analyses=KINDS,
        budget=(60.0, 1e-5),
        environment={"PYTHONPATH": path},
    ) as here:
        yield World(here, folder, tables)


@pytest.fixture(autouse=True)
def _everybody_is_there(world: World) -> None:
    for site in SITES:
        (world.here.site(site).path / "crash").unlink(missing_ok=True)
    here = world.here
    for who in ("aggregator", *SITES):  # a test that failed halfway takes no other with it
        if not here.runs(who):
            here.serve() if who == "aggregator" else here.join(who)
        if who in SITES and not here.runs(daemon_of(who)):
            here.start_daemon(who)
    world.back()


def mean(share: float) -> str:
    """Return an analysis of a study."""
    return f'[[analysis]]\nkind = "mean"\ncolumns = ["age", "chol"]\nshare = {share}\n'


def until(what: Any, seconds: float = 60.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
