"""The image that IT departments get: what is in it, and its four processes at work together."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cape import __version__
from tests.image.conftest import HERE, OUT, USERS, Image

ROLES = {
    "site": ("site", "serve"),
    "link": ("join",),
    "desk": ("desk",),
    "aggregator": ("serve",),
}


@pytest.mark.parametrize("role", ROLES)
def test_each_process_starts_as_its_user_on_a_read_only_root(image: Image, role: str) -> None:
    done = image.run(role, *ROLES[role], "--help")
    assert done.returncode == 0, done.stderr
    assert "Example" in done.stdout
    script = (
        "id -un; for place in / /opt/cape /usr/local/bin /run/cape /var/lib/cape-desk; do "
        "touch $place/x 2>/dev/null && echo wrote $place; done; grep Cap /proc/self/status; "
        "grep NoNewPrivs /proc/self/status; grep -c : /proc/net/dev"
    )
    said = image.run(role, "sh", "-c", script, entry=False).stdout.split("\n")
    assert said[0] == f"cape-{role}"
    assert not [line for line in said if line.startswith("wrote")]
    assert {line.split()[1] for line in said if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in said
    assert said[-2] == "1", "loopback is all of its network"


def test_it_says_what_it_is_and_runs_as_nobody_by_default(image: Image) -> None:
    config = image.config
    assert config["User"] == "65534:65534"
    assert config["Entrypoint"] == ["cape"]
    assert config["Healthcheck"]["Test"] == ["CMD", "cape-health"]
    labels = {name.rpartition(".")[2]: value for name, value in config["Labels"].items()}
    assert (labels["version"], labels["licenses"]) == (__version__, "Apache-2.0")
    assert re.fullmatch("[0-9a-f]{40}|unknown", labels["revision"])


def test_nothing_in_it_can_become_another_user(image: Image) -> None:
    raised, open_to_all = [], []
    for folder, folders, names in os.walk(image.root):
        for name in (*folders, *names):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                raised.append(path)
            plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
            if plain and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                open_to_all.append(path)
    assert (raised, open_to_all) == ([], [])
    for name, owner, mode in (("cape", (10001, 10002), 0o750), ("cape-admin", (10001, 10003), 0o2750)):
        found = (image.root / "run" / name).stat()
        assert ((found.st_uid, found.st_gid), stat.S_IMODE(found.st_mode)) == (owner, mode)


def test_its_bill_of_materials_lists_all_of_it(image: Image) -> None:
    bill = json.loads((OUT / "sbom.cdx.json").read_text())
    assert json.loads((image.root / "usr/share/cape/sbom.cdx.json").read_text()) == bill
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == (
        "cape-dp",
        __version__,
    )
    listed = {(each["name"].lower(), each["version"]) for each in bill["components"]}
    code = (
        "import importlib.metadata as m, json; "
        "print(json.dumps([(each.name, each.version) for each in m.distributions()]))"
    )
    told = image.run("site", "/opt/cape/bin/python", "-c", code, entry=False)
    python = {(name.lower(), version) for name, version in json.loads(told.stdout)}
    form = "${Package}\\t${Version}\\n"
    debian = image.run("site", "dpkg-query", "--show", "--showformat", form, entry=False).stdout
    assert listed == python | {tuple(line.split("\t")) for line in debian.splitlines()}
    assert len(python) > 40
    assert ("python3", "3.11.2-1+b1") in listed or any(name == "python3" for name, _ in listed)
    assert all("purl" in each for each in bill["components"] if each["name"] != "cape-dp")


def test_its_versions_are_those_that_tests_ran_with(image: Image) -> None:
    """What constraints.txt pins."""
    pinned = dict(
        line.lower().replace("_", "-").split("==")
        for line in (HERE / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    bill = json.loads((OUT / "sbom.cdx.json").read_text())
    python = {
        each["name"].lower().replace("_", "-"): each["version"]
        for each in bill["components"]
        if each.get("purl", "").startswith("pkg:pypi/")
    }
    other = {
        name: (version, pinned[name])
        for name, version in python.items()
        if pinned.get(name, version) != version
    }
    unpinned = {name for name in python if name not in pinned} - {"cape-dp"}
    assert (other, unpinned) == ({}, set())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Containers:
    """Containers that run until the test ends."""

    def __init__(self, image: Image, folder: Path) -> None:
        self.image, self.folder = image, folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._options: dict[str, dict[str, Any]] = {}

    def start(self, role: str, *arguments: object, health: str, **options: Any) -> None:
        self._options[role] = {**options, "environment": {"CAPE_HEALTH": health}}
        with open(self.folder / f"{role}.log", "wb") as log:
            command = self.image.command(role, *arguments, **self._options[role])
            self.running[role] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def healthy(self, role: str) -> bool:
        """Run the image's health check as an engine does: as the container's user, with its settings."""
        return (
            self.image.run(
                role, *self.image.config["Healthcheck"]["Test"][1:], entry=False, **self._options[role]
            ).returncode
            == 0
        )

    def wait(self, role: str, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not self.healthy(role):
            ended = self.running[role].poll()
            assert ended is None, f"{role} ended with {ended}: {self.log(role)}"
            assert time.monotonic() < until, f"{role} is not healthy: {self.log(role)}"
            time.sleep(0.3)

    def log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text(errors="replace")[-3000:]

    def stop(self, role: str) -> None:
        process = self.running.pop(role)
        process.terminate()
        process.wait(20)


@pytest.fixture
def containers(image: Image, tmp_path: Path) -> Iterator[Containers]:
    made = Containers(image, tmp_path)
    yield made
    for role in list(made.running):
        made.stop(role)


def volume(path: Path, owner: tuple[int, int], mode: int = 0o700) -> Path:
    """Make a folder as an engine makes a volume: with the owner and mode of the image's folder."""
    path.mkdir(exist_ok=True)
    for each in (path, *path.rglob("*")):
        os.chown(each, *owner)
    path.chmod(mode)
    return path


def test_daemon_link_desk_and_aggregator_run_from_it(
    image: Image, containers: Containers, tmp_path: Path
) -> None:
    """With the folders, sockets and networks of the compose files in the kits."""
    port, desk_port = free_port(), free_port()
    work = volume(tmp_path / "work", USERS["aggregator"])
    made = image.run(
        "aggregator",
        *("deploy", "init", "--sites", "a,b", "--server", "localhost", "--port", port, "--out", "/kit/kits"),
        volumes={"/kit": work},
    )
    assert made.returncode == 0, made.stderr
    kit = volume(work / "kits" / "sites" / "a", USERS["link"])
    site = volume(tmp_path / "site", USERS["site"])
    sockets = volume(tmp_path / "socket", USERS["site"], 0o750)
    admin = volume(tmp_path / "admin", (USERS["site"][0], USERS["desk"][1]), 0o2750)
    home = volume(tmp_path / "desk", USERS["desk"])
    shutil.rmtree(site)
    site.mkdir()
    volume(site, USERS["site"])
    done = image.run("site", "site", "init", "/site", "--name", "a", volumes={"/site": site})
    assert done.returncode == 0, done.stderr

    containers.start(
        "aggregator",
        *("serve", "/kit"),
        volumes={"/kit": work / "kits" / "aggregator"},
        network=True,
        health=f"listens {port}",
    )
    containers.start(
        "site",
        *("site", "serve", "--site", "/site", "--link", "/run/cape/link.sock"),
        *("--admin", "/run/cape-admin/admin.sock", "--desk", "cape-desk"),
        volumes={"/site": site, "/run/cape": sockets, "/run/cape-admin": admin},
        health="answers /run/cape-admin/admin.sock",
    )
    containers.wait("site")
    containers.start(
        "desk",
        *(
            "desk",
            "--socket",
            "/run/cape-admin/admin.sock",
            "--port",
            desk_port,
            "--state",
            "/var/lib/cape-desk",
        ),
        volumes={"/run/cape-admin": admin, "/var/lib/cape-desk": home},
        network=True,
        health=f"listens {desk_port}",
    )
    containers.wait("aggregator")
    containers.start(
        "link",
        *("join", "/kit", "--link", "/run/cape/link.sock"),
        volumes={"/kit": kit, "/run/cape": sockets},
        network=True,
        health=f"connected {port}",
    )
    for role in ROLES:
        containers.wait(role)
    assert "The daemon of site a answers at /run/cape/link.sock" in containers.log("link")
    status = image.run(
        "site", "site", "status", "--socket", "/run/cape-admin/admin.sock", volumes={"/run/cape-admin": admin}
    )
    assert status.returncode == 0, status.stderr
    for stranger in ("link", "aggregator"):
        refused = image.run(
            stranger,
            "site",
            "status",
            "--socket",
            "/run/cape-admin/admin.sock",
            volumes={"/run/cape-admin": admin},
        )
        assert refused.returncode == 1, "only the desk's group enters the folder of the stewards' socket"
    containers.stop("site")
    assert not containers.healthy("site")
