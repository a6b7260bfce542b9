"""The image that `make image` has built, and how its processes run: read-only and without rights.

No engine of containers is needed: bubblewrap gives a process the image's files as its root.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cape import __version__

HERE = Path(__file__).parents[1]
OUT = Path(os.environ.get("CAPE_IMAGE", HERE / "build" / "image"))
USERS = {"site": (10001, 10002), "link": (10002, 10002), "desk": (10003, 10003), "aggregator": (10004, 10004)}
RIGHTS = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")  # to become the user, who has none of them


@dataclass(frozen=True)
class Image:
    """The image's files, and its settings."""

    root: Path
    config: Mapping[str, Any]

    def command(
        self,
        role: str,
        *arguments: object,
        volumes: Mapping[str, Path] | None = None,
        network: bool = False,
        environment: Mapping[str, str] | None = None,
        entry: bool = True,
    ) -> list[str]:
        """Return the command line of a container: the image's entry point, or a program in it."""
        user, group = USERS[role]
        settings = dict(each.split("=", 1) for each in self.config["Env"]) | {"HOME": "/tmp"}
        binds = [["--bind", str(place), inside] for inside, place in (volumes or {}).items()]
        return [
            "bwrap",
            *("--ro-bind", str(self.root), "/", "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"),
            *("--ro-bind", "/etc/hosts", "/etc/hosts"),  # as engines do
            *(part for bind in binds for part in bind),
            *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--clearenv"),
            *(() if network else ("--unshare-net",)),
            *(part for right in RIGHTS for part in ("--cap-add", right)),
            *(p for k, v in {**settings, **(environment or {})}.items() for p in ("--setenv", k, v)),
            *(
                "--chdir",
                self.config["WorkingDir"],
                "--",
                "setpriv",
                "--reuid",
                str(user),
                "--regid",
                str(group),
            ),
            *("--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
            *(self.config["Entrypoint"] if entry else ()),
            *map(str, arguments),
        ]

    def run(self, role: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a container to its end."""
        return subprocess.run(
            self.command(role, *arguments, **options), capture_output=True, text=True, timeout=120
        )


def buildah(*arguments: str) -> str:
    """Run buildah on the storage of the build."""
    driver = os.environ.get("STORAGE_DRIVER", "overlay")
    storage = ["--root", str(OUT / "storage"), "--runroot", str(OUT / "run"), "--storage-driver", driver]
    return subprocess.run(
        ["buildah", *storage, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """Take the image that `make image` has built."""
    assert (OUT / "cape-dp.tar").is_file(), f"there is no image in {OUT}: run `make image`"
    name = f"localhost/cape-dp:{__version__}"
    inspected = json.loads(buildah("inspect", "--type", "image", name))
    box = buildah("from", "--pull-never", name)
    try:
        yield Image(Path(buildah("mount", box)), inspected["Docker"]["config"])
    finally:
        buildah("rm", box)
