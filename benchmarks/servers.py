"""Servers of one's own: PostgreSQL and MariaDB in a folder, on a socket, stopped by their own process id.

Debian's packages postgresql and mariadb-server have the programs; neither starts as root, so that as root
they run as the packages' own users.
"""

from __future__ import annotations

import getpass
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Missing", "mariadb", "postgres"]

_PATIENCE = 60.0


class Missing(Exception):
    """A program is not on this machine; the text says how to get it."""


def _program(name: str, package: str) -> str:
    places = [f"/usr/lib/postgresql/*/bin/{name}", f"/usr/sbin/{name}", f"/usr/bin/{name}"]
    found = [path for place in places for path in sorted(glob.glob(place))] or [shutil.which(name) or ""]
    if not found[0]:
        raise Missing(f"{name} is not installed: apt-get install {package}")
    return found[-1] if "postgresql" in found[-1] else found[0]


def _identity(user: str) -> tuple[str, dict[str, Any]]:
    """Return as whom a server runs, and what makes a process that."""
    if os.geteuid() != 0:
        return getpass.getuser(), {}
    entry = pwd.getpwnam(user)
    return user, {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@contextmanager
def _folder(user: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="cape-", dir="/tmp"))  # a socket's path must be short
    if os.geteuid() == 0:
        shutil.chown(folder, user)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(
    command: list[str], folder: Path, ready: Callable[[], Any], identity: dict[str, Any]
) -> Iterator[None]:
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **identity)
    try:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                ready()
                break
            except Exception:
                if server.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((folder / "log").read_text()[-2000:]) from None
                time.sleep(0.1)
        yield
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextmanager
def postgres(*settings: str) -> Iterator[str]:
    """Start PostgreSQL, and yield the URI of an empty database."""
    import psycopg

    initdb, program = _program("initdb", "postgresql"), _program("postgres", "postgresql")
    user, identity = _identity("postgres")
    with _folder(user) as folder:
        made = [initdb, "-D", f"{folder}/data", "-U", "cape", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
        subprocess.run([*made, "--no-sync"], check=True, capture_output=True, cwd=folder, **identity)
        command = [program, "-D", f"{folder}/data", "-k", str(folder), "-c", "listen_addresses="]
        for setting in ("fsync=off", *settings):
            command += ["-c", setting]
        uri = f"postgresql://cape@/postgres?host={folder}"
        with _running(command, folder, lambda: psycopg.connect(uri).close(), identity):
            yield uri


@contextmanager
def mariadb() -> Iterator[str]:
    """Start MariaDB, and yield the URI of an empty database."""
    import pymysql

    install, program = (
        _program("mariadb-install-db", "mariadb-server"),
        _program("mariadbd", "mariadb-server"),
    )
    user, identity = _identity("mysql")
    with _folder(user) as folder:
        data = ["--no-defaults", f"--datadir={folder}/data"]
        made = [install, *data, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(made, check=True, capture_output=True, cwd=folder, **identity)
        socket = f"{folder}/s"
        command = [program, *data, f"--socket={socket}", "--skip-networking", f"--pid-file={folder}/pid"]
        command += ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=256M"]

        def ready() -> None:
            os.stat(socket)  # the driver leaves a socket open if there is no server
            with closing(pymysql.connect(unix_socket=socket, user="root")) as connection:
                connection.cursor().execute("CREATE DATABASE IF NOT EXISTS cape")

        with _running(command, folder, ready, identity):
            yield f"mariadb://root@localhost/cape?unix_socket={socket}"
