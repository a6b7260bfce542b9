"""Start-up kits: one folder for each party, made by NVFLARE's provisioning with our policy on top.

Whoever makes the kits also makes the certificates, and could make one more for themselves. That is why sites
pin each other's and the coordinator's Ed25519 keys, which each party makes itself and which never pass
through here.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cape.core.errors import CapeError, InvalidInput
from cape.flare.compose import aggregator_compose, site_compose
from cape.flare.readme import aggregator_text, coordinator_text, overview, site_text
from cape.flare.settings import AUTHORIZATION, aggregator_resources, site_resources
from cape.flare.units import aggregator_unit, desk_unit, link_unit, site_unit

__all__ = [
    "ADMIN",
    "AGGREGATOR",
    "COORDINATOR",
    "PORT",
    "SITES",
    "make_kits",
    "require_coordinator",
    "require_flare",
]

PORT = 8102
ADMIN = "coordinator@cape.study"  # NVFLARE wants an e-mail address; nothing is ever sent there
AGGREGATOR, COORDINATOR, SITES, AUTHORITY = "aggregator", "coordinator", "sites", "authority"
_PROJECT = "cape"
_BOOLEANS = {
    "yes",
    "true",
    "t",
    "y",
    "no",
    "false",
    "f",
    "n",
    "0",
    "1",
}  # NVFLARE reads these names as booleans
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9-]{1,63})*\Z")


def require_coordinator(kit: Path) -> None:
    """Raise unless a folder is the coordinator's kit."""
    if not (kit / "startup" / "fed_admin.json").is_file():
        raise InvalidInput(
            f"{kit} is not a coordinator's kit: it has no startup/fed_admin.json (see `cape deploy init`)"
        )


def require_flare() -> None:
    """Raise an error that says what to install."""
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise CapeError(
            "studies across machines need NVFLARE; install it with: pip install 'cape-dp[flare]'"
        ) from None


def make_kits(folder: Path, sites: Sequence[str], server: str, port: int = PORT) -> dict[str, Path]:
    """Make the kits of the aggregator, the coordinator and every site in a new folder; return who has which.

    Args:
        folder: must not be there, or be empty.
        sites: their names, as in the study file.
        server: the name under which sites reach the aggregator.
        port: where it listens, for sites and coordinator alike.
    """
    _check(folder, sites, server, port)
    require_flare()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".provision-", dir=folder) as made:
        try:
            _provision(Path(made), sites, server, port)
        except Exception as error:
            raise CapeError(f"NVFLARE could not make the kits: {error}") from None
        return _lay_out(folder, Path(made) / _PROJECT, sites, server, port)


def _check(folder: Path, sites: Sequence[str], server: str, port: int) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} already exists; nothing is overwritten: choose another folder")
    if len(sites) < 2:
        raise InvalidInput("--sites must name at least two sites, as in --sites a,b,c")
    for name in sites:
        if not _NAME.match(name):
            raise InvalidInput(f"a site's name must have letters, digits, '.', '_' or '-' only, not {name!r}")
        if name.lower() in _BOOLEANS or _is_number(name):
            raise InvalidInput(f"a site's name must not read as a number or as yes or no, as {name!r} does")
    if len({name.lower() for name in sites}) < len(sites):
        raise InvalidInput("sites must have different names")
    if not _HOST.match(server) or server in sites:
        raise InvalidInput(f"--server must be the name of a machine, as in cape.example.org, not {server!r}")
    if not 0 < port < 65536:
        raise InvalidInput(f"--port must be a port, 1 to 65535, not {port}")


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _provision(folder: Path, sites: Sequence[str], server: str, port: int) -> None:
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    people: list[dict[str, Any]] = [
        {"name": server, "type": "server", "org": _PROJECT, "fed_learn_port": port},
        *({"name": name, "type": "client", "org": _PROJECT} for name in sites),
        {"name": ADMIN, "type": "admin", "org": _PROJECT, "role": "project_admin"},
    ]
    static = {"config_folder": "config"}
    described = {
        "api_version": 3,
        "name": _PROJECT,
        "description": "CAPE",
        "participants": people,
        "gen_scripts": False,
        "builders": [
            {
                "path": "nvflare.lighter.impl.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {"path": "nvflare.lighter.impl.static_file.StaticFileBuilder", "args": static},
            {"path": "nvflare.lighter.impl.cert.CertBuilder", "args": {"root_valid_days": 3650}},
            {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
        ],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        Provisioner(str(folder), prepare_builders(described)).provision(prepare_project(described))


def _lay_out(folder: Path, made: Path, sites: Sequence[str], server: str, port: int) -> dict[str, Path]:
    produced = made / "prod_00"
    places = {server: folder / AGGREGATOR, ADMIN: folder / COORDINATOR}
    places |= {name: folder / SITES / name for name in sites}
    for name, place in places.items():
        place.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.move(produced / name, place)
        _tidy(place)
    shutil.move(made / "state", folder / AUTHORITY)
    aggregator = places.pop(server)
    coordinator = places.pop(ADMIN)
    _write(aggregator / "local" / "resources.json", aggregator_resources(Path("/")))  # filled in by serve
    _write(aggregator / "local" / "authorization.json", AUTHORIZATION)
    _write_all(aggregator, _aggregator_files(server, port))
    (coordinator / "README.md").write_text(coordinator_text(server, port, sites), encoding="utf-8")
    for name, place in places.items():
        _write(place / "local" / "resources.json", site_resources())
        _write(place / "local" / "authorization.json", AUTHORIZATION)
        _write_all(place, _site_files(name, server, port))
    (folder / "README.md").write_text(overview(server, port, sites), encoding="utf-8")
    _private(folder)
    return {AGGREGATOR: aggregator, COORDINATOR: coordinator, **places}


def _aggregator_files(server: str, port: int) -> dict[str, str]:
    """Return the files of the aggregator's kit besides NVFLARE's."""
    return {
        "README.md": aggregator_text(server, port),
        "compose.yaml": aggregator_compose(port),
        "systemd/cape-aggregator.service": aggregator_unit(),
    }


def _site_files(name: str, server: str, port: int) -> dict[str, str]:
    """Return the files of a site's kit besides NVFLARE's."""
    return {
        "README.md": site_text(name, server, port),
        "compose.yaml": site_compose(name, port),
        f"systemd/cape-site-{name}.service": site_unit(name),
        f"systemd/cape-link-{name}.service": link_unit(name),
        f"systemd/cape-desk-{name}.service": desk_unit(name),
    }


def _write_all(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _tidy(kit: Path) -> None:
    """Remove NVFLARE's scripts and texts, which nobody should use: `cape` starts the kits."""
    startup, local = kit / "startup", kit / "local"
    for old in [*startup.glob("*.sh"), *startup.glob("*.ipynb"), *startup.glob("readme.txt")]:
        old.unlink()
    for old in [*kit.glob("readme.txt"), *local.glob("*.sample"), *local.glob("*.default")]:
        if old.name != "log_config.json.default":
            old.unlink()


def _private(folder: Path) -> None:
    """Let the owner alone read keys and certificates."""
    for path in folder.rglob("*"):
        os.chmod(path, 0o700 if path.is_dir() else 0o600)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
