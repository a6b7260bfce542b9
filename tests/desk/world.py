"""A consortium as people set it up: each party runs `cape` commands, in a folder and processes of its own.

An aggregator, three hospitals with a daemon, a link and a desk each, and a coordinator with a desk. Keys are
made by `cape site init` and `cape deploy export-key`, and trusted on the pages of the desks. Where root runs
the tests, daemon, link and desk of a hospital are three users, as the units of a kit have it, and nobody is
allowed what only a rehearsal is; elsewhere they are one.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars

from cape.cli import main
from cape.core.errors import CapeError
from cape.flare.link import status
from cape.flare.rehearsal import Processes, daemon_of, free_port
from tests.deploy.users import DAEMON, DESK, LINK, as_user, own, possible

SITES = ("cleveland", "hungary", "zurich")
SCHEMA: dict[str, Any] = {
    "age": {"low": 18, "high": 90, "unit": "years"},
    "chol": {"low": 100, "high": 400, "unit": "mg/dl"},
    "sex": ["female", "male"],
    "disease": ["no", "yes"],
}
COORDINATOR = "coordinator"
_LINK = re.compile(r"https?://\S+")
_UP = 90.0  # seconds in which a process must say that it is up


class World(Processes):
    """The folders and processes of all parties.

    Args:
        folder: an empty one with a short path, since sockets lie in it.
        environment: additional variables for the processes.
    """

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        super().__init__(folder, environment)
        self.kits = folder / "kits"
        self.kit = self.kits / COORDINATOR
        self.links: dict[str, str] = {}
        self.apart = possible()
        folder.chmod(0o711)
        self.cards = {name: folder / f"{name}.card" for name in (*SITES, COORDINATOR)}

    def make_kits(self) -> None:
        """Make the kits, and the coordinator's key."""
        server = ("--server", "localhost", "--port", free_port())
        cape("deploy", "init", "--sites", ",".join(SITES), *server, "--out", self.kits)
        card = cape("deploy", "export-key", "--kit", self.kit, "--name", "trial office")
        self.cards[COORDINATOR].write_text(card)

    def init_site(self, name: str) -> None:
        """Make a site's folder with `cape site init`, its rows, and a policy that its steward wrote."""
        folder = self.site(name)
        cape("site", "init", folder, "--name", name)
        rows(SITES.index(name)).write_csv(folder / "data.csv")
        path = folder / "site.toml"
        path.write_text(policy(path.read_text()))
        self.cards[name].write_text(cape("site", "export-key", "--site", folder))
        for place in (self.link_socket(name).parent, self.admin_socket(name).parent, self.desk_folder(name)):
            place.mkdir(parents=True)
        if self.apart:
            self._give(name)

    def _give(self, name: str) -> None:
        """Give each of a site's users what is its own, as the units and the README of a kit do."""
        for place in ("sites", "kits", "kits/sites", "run", "desks"):
            (self.folder / place).chmod(0o711)
        own(self.site(name), DAEMON)
        own(self.kits / "sites" / name, LINK)
        own(self.desk_folder(name), DESK, DESK)
        for socket, group in ((self.link_socket(name), LINK), (self.admin_socket(name), DESK)):
            own(socket.parent, DAEMON, group)
            socket.parent.chmod(0o2750)

    def link_socket(self, name: str) -> Path:
        """Return where a site's daemon and link meet."""
        return self.folder / "run" / f"{name}-link" / "s"

    def admin_socket(self, name: str) -> Path:
        """Return where a site's daemon and desk meet."""
        return self.folder / "run" / f"{name}-admin" / "s"

    def desk_folder(self, name: str) -> Path:
        """Return a desk's own folder."""
        return self.folder / "desks" / name

    def site(self, name: str) -> Path:
        """Return a site's folder."""
        return self.folder / "sites" / name

    def start(self) -> None:
        """Start all processes; those that need no other at the same time."""
        self.serve()
        for name in SITES:
            self.start_daemon(name)
        for name in SITES:
            until(self.admin_socket(name).exists, f"the daemon of {name}")
            self.join(name)
            self.start_desk(name)
        self.start_desk(COORDINATOR)
        for name in (*SITES, COORDINATOR):
            self.links[name] = self._link(name)

    def serve(self) -> None:
        """Start the aggregator."""
        self.launch("aggregator", ["serve", str(self.kits / "aggregator")])

    def start_daemon(self, name: str) -> None:
        """Start a site's daemon, without a network if it is a user of its own."""
        if (ended := self.processes.pop(daemon_of(name), None)) is not None:
            ended.wait()
        command = ["site", "serve", "--site", str(self.site(name))]
        command += ["--link", str(self.link_socket(name)), "--admin", str(self.admin_socket(name))]
        if self.apart:
            self.launch(daemon_of(name), [*command, "--desk", str(DESK)], as_user(DAEMON, network=False))
        else:
            self.launch(daemon_of(name), [*command, "--desk", str(os.getuid()), "--link-may-read-rows"])

    def join(self, name: str) -> None:
        """Start a site's link."""
        command = ["join", str(self.kits / "sites" / name), "--link", str(self.link_socket(name))]
        self.launch(name, command, as_user(LINK) if self.apart else ())

    def start_desk(self, name: str) -> None:
        """Start the desk of a site or of the coordinator."""
        before: Sequence[str] = ()
        if name == COORDINATOR:
            who = ["--coordinator", "--kit", str(self.kit)]
        else:
            who = ["--socket", str(self.admin_socket(name))]
            who += [] if self.apart else ["--desk-may-read-rows"]
            before = as_user(DESK, group=DESK) if self.apart else ()
        command = ["desk", *who, "--port", "0", "--state", str(self.desk_folder(name))]
        self.launch(desk_of(name), command, before)

    def _link(self, name: str) -> str:
        """Return the login link that a desk printed, once it has."""
        log = self.log(desk_of(name))
        until(lambda: _LINK.search(log.read_text()) or not self.runs(desk_of(name)), f"the desk of {name}")
        found = _LINK.search(log.read_text())
        assert found is not None, log.read_text()
        return found[0]

    def link(self, name: str, person: str, role: str) -> str:
        """Return a link that logs another person in at a desk, as `cape desk link` prints it."""
        state = self.desk_folder(name)
        return cape("desk", "link", "--name", person, "--role", role, "--state", state).strip()

    def origin(self, name: str) -> str:
        """Return the address of a desk."""
        return "/".join(self.links[name].split("/")[:3])

    def wait(self, names: Sequence[str] = SITES) -> None:
        """Wait until these sites are connected to the aggregator."""

        def there() -> bool:
            try:
                return set(names) <= set(status(self.kit).sites)
            except CapeError:
                return False

        until(there, f"a connection of {', '.join(names)}")

    def submissions(self, study: str) -> list[Path]:
        """Return the folders of what was submitted from the coordinator's desk under this name."""
        return sorted(self.folder.glob(f"desks/{COORDINATOR}/**/submissions/*-{study}"))


def cape(*arguments: object) -> str:
    """Run a command in this process, where that suffices; return what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["cape", *map(str, arguments)]),
        mock.patch.object(warnings, "showwarning"),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            status: object = 0
        except SystemExit as left:
            status = left.code or 0
    assert status == 0, f"cape {' '.join(map(str, arguments))} ended with {status}: {err.getvalue()}"
    return out.getvalue()


def desk_of(name: str) -> str:
    """Return the name of a desk among the processes."""
    return f"{name} (desk)"


def rows(seed: int) -> polars.DataFrame:
    """Return made-up patients: heart disease is more frequent with age and cholesterol."""
    rng = np.random.default_rng(seed)
    count = 300 + 80 * seed
    age = rng.normal(56, 11, count).clip(19, 89).round()
    chol = rng.normal(160 + 1.3 * age, 40).clip(101, 399).round()
    risk = 1 / (1 + np.exp(-(age - 56) / 9 - (chol - 235) / 60))
    return polars.DataFrame(
        {
            "age": age,
            "chol": chol,
            "sex": rng.choice(["female", "male"], count),
            "disease": np.where(rng.uniform(size=count) < risk, "yes", "no"),
        }
    )


def policy(text: str) -> str:
    """Return the policy of `cape site init` with these columns, and a budget for several studies."""
    begin, end = text.index("[schema]"), text.index("# If a person may have")
    columns = "\n".join(f"{name} = {_toml(column)}" for name, column in SCHEMA.items())
    text = f"{text[:begin]}[schema]\n{columns}\n\n{text[end:]}"
    for old, new in (
        ("colluding = 1\n", "colluding = 0\n"),
        ("coordinator = {epsilon = 1.0", "coordinator = {epsilon = 4.0"),
        ("year = {epsilon = 2.0", "year = {epsilon = 6.0"),
        ("total = {epsilon = 4.0", "total = {epsilon = 12.0"),
    ):
        assert old in text, f"the policy has no {old!r}"
        text = text.replace(old, new)
    return text


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {json.dumps(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def study(name: str, *, epsilon: float = 0.8, analyses: str = "") -> str:
    """Return a study file for these sites, none of which is assumed to collude with the aggregator."""
    columns = "\n".join(f"{column} = {_toml(value)}" for column, value in SCHEMA.items())
    sites = "\n".join(f"{site} = {{}}" for site in SITES)
    return (
        f'[study]\nname = "{name}"\ndescription = "{DESCRIPTION}"\n\n'
        f"[privacy]\nepsilon = {epsilon}\ndelta = 1e-6\ncolluding = 0\n\n"
        f"[schema]\n{columns}\n\n[sites]\n{sites}\n\n{analyses or ANALYSES}"
    )


DESCRIPTION = "Cholesterol and heart disease in three cardiology departments"
ANALYSES = """\
[[analysis]]
kind = "mean"
columns = ["age", "chol"]
share = 0.3

[[analysis]]
kind = "histogram"
column = "age"
bins = 8
share = 0.3

[[analysis]]
kind = "proportion"
columns = ["disease"]
share = 0.3
"""


def until(what: Callable[[], Any], awaited: str, seconds: float = _UP) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"{awaited} did not come within {seconds:.0f} seconds"
        time.sleep(0.05)
