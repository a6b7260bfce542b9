"""What is in the kits, and what people are told who use them wrongly. No deployment is started here."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
import yaml

from cape import __version__
from cape.cli import main
from cape.core.errors import InvalidInput
from cape.flare import process
from cape.flare.kits import make_kits
from cape.flare.process import _alone, _require_free
from cape.site import SiteFolder
from cape.site.daemon import Daemon
from tests.checkout import ROOT, secret


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def cape(*arguments: object) -> Done:
    """Run the command in this process: nothing that it is asked here starts another."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["cape", *map(str, arguments)]),
        mock.patch.object(warnings, "showwarning"),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            status = 0
        except SystemExit as left:
            status = int(left.code or 0)
    return Done(status, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "kits"
    made = cape("deploy", "init", "--sites", "a,b,c", "--server", "localhost", "--port", 1, "--out", folder)
    assert made.returncode == 0, made.stderr
    assert not list(folder.rglob("identity.key"))  # keys are made at each place, not by whoever makes kits
    return folder


@pytest.fixture(autouse=True)
def _everybody_is_there() -> None:
    """No deployment is needed here."""


def test_each_party_has_a_kit_with_a_readme(kits: Path) -> None:
    for kit in ("aggregator", "coordinator", "sites/a", "sites/b", "sites/c"):
        assert "cape" in (kits / kit / "README.md").read_text()
    text = (kits / "sites" / "b" / "README.md").read_text()
    for command in (
        "cape site init /var/lib/cape/b --name b",
        "cape site serve --site /var/lib/cape/b",
        "cape join /var/lib/cape-link/b",
        "b.card",
    ):
        assert command in text
    assert "authority/" in (kits / "README.md").read_text()


def test_each_process_of_a_site_has_a_user_of_its_own(kits: Path) -> None:
    """The daemon has no network, link and desk not the site's folder, the desk loopback alone."""
    systemd = kits / "sites" / "b" / "systemd"
    daemon, link, desk = (_options(systemd / f"cape-{who}-b.service") for who in ("site", "link", "desk"))
    assert [each["User"] for each in (daemon, link, desk)] == ["cape-site", "cape-link", "cape-desk"]
    assert daemon["PrivateNetwork"] == "yes"
    assert daemon["RestrictAddressFamilies"] == "AF_UNIX"
    assert "--desk cape-desk" in (systemd / "cape-site-b.service").read_text()
    assert "-g cape-desk -m 2750 /run/cape-admin/b" in daemon["ExecStartPre"]
    assert link["InaccessiblePaths"].split() == ["/var/lib/cape", "-/var/lib/cape-desk", "-/run/cape-admin"]
    assert desk["InaccessiblePaths"].split() == ["/var/lib/cape", "-/var/lib/cape-link", "-/run/cape"]
    assert (desk["IPAddressDeny"], desk["IPAddressAllow"]) == ("any", "localhost")
    assert "--host" not in desk["ExecStart"], "loopback is the default of the desk"


def test_each_process_of_a_site_has_a_container_of_its_own(kits: Path) -> None:
    file = yaml.safe_load((kits / "sites" / "b" / "compose.yaml").read_text())
    site, link, desk = (file["services"][who] for who in ("site", "link", "desk"))
    (aggregator,) = yaml.safe_load((kits / "aggregator" / "compose.yaml").read_text())["services"].values()
    users = [each["user"].split(":")[0] for each in (site, link, desk, aggregator)]
    assert users == ["10001", "10002", "10003", "10004"]
    assert site["network_mode"] == "none"
    where = {who: [each.split(":")[0] for each in one["volumes"]] for who, one in file["services"].items()}
    assert where["site"] == ["/var/lib/cape/b", "socket", "admin"]
    assert where["link"] == [".", "socket"]
    assert where["desk"] == ["desk", "admin"]
    assert "--host" not in desk["command"], "the desk listens on loopback"
    for each in (site, link, desk, aggregator):
        assert each["image"] == f"cape-dp:{__version__}"
        assert (each["read_only"], each["cap_drop"]) == (True, ["ALL"])
        assert each["security_opt"] == ["no-new-privileges:true"]
        assert each["environment"]["CAPE_HEALTH"].split()[0] in ("answers", "connected", "listens")
    assert aggregator["ports"] == ["1:1"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_takes_the_units_and_finds_little_exposed(kits: Path) -> None:
    units = [*(kits / "sites" / "b" / "systemd").iterdir(), *(kits / "aggregator" / "systemd").iterdir()]
    assert len(units) == 4
    found = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    for unit in units:
        analysed = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]
        assert subprocess.run(analysed, capture_output=True).returncode == 0, f"{unit.name}: more than 2.0"


def test_the_images_health_check_sees_who_listens(tmp_path: Path) -> None:
    """`cape-health`, as the image runs it."""

    def healthy(what: str) -> int:
        health = ROOT / "image" / "health.py"
        environment = {**os.environ, "CAPE_HEALTH": what}
        return subprocess.run([sys.executable, health], env=environment, stdout=subprocess.DEVNULL).returncode

    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as daemon:
        port = server.getsockname()[1]
        assert (healthy(f"listens {port}"), healthy(f"connected {port}")) == (0, 1)
        with socket.create_connection(("127.0.0.1", port)):
            assert healthy(f"connected {port}") == 0
        daemon.bind(str(tmp_path / "admin.sock"))
        assert healthy(f"answers {tmp_path / 'admin.sock'}") == 1
        daemon.listen()
        assert healthy(f"answers {tmp_path / 'admin.sock'}") == 0
    assert healthy(f"listens {port}") == 1
    assert healthy("") == healthy("sleeps 3") == 2


def _options(unit: Path) -> dict[str, str]:
    lines = [line for line in unit.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_only_the_owner_can_read_a_kit(kits: Path) -> None:
    for path in kits.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_the_keys_of_a_kit_would_be_seen_in_the_checkout_under_any_name(kits: Path, tmp_path: Path) -> None:
    keys = [path for path in kits.rglob("*.key") if path.is_file()]
    assert len(keys) >= 5  # the aggregator's, the coordinator's and three sites'
    for key in keys:
        assert secret(Path(shutil.copy(key, tmp_path / "notes.txt"))) is not None, key


@pytest.mark.parametrize("kit", ["aggregator", "sites/a"])
def test_nobody_may_bring_code_or_run_commands(kits: Path, kit: str) -> None:
    local = kits / kit / "local"
    allowed = json.loads((local / "authorization.json").read_text())["permissions"]
    assert set(allowed) == {"project_admin"}
    for right in ("byoc", "shell_commands", "operate", "download_job", "clone_job"):
        assert allowed["project_admin"][right] == "none"
    resources = json.loads((local / "resources.json").read_text())
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["class_allow_list"] == ["cape.flare.controller.Aggregator", "cape.flare.executor.Site"]
    assert "/tmp/" not in json.dumps(resources)


def test_no_log_of_a_site_is_streamed(kits: Path) -> None:
    resources = json.loads((kits / "sites" / "a" / "local" / "resources.json").read_text())
    assert resources["allow_log_streaming"] is False
    assert "streamer" not in json.dumps(resources).lower()


def test_the_coordinators_key_is_made_at_its_desk(kits: Path) -> None:
    assert "is not a coordinator's kit" in cape("deploy", "export-key", "--kit", kits / "sites" / "a").stderr
    assert "has no coordinator's key yet" in cape("status", kits / "coordinator").stderr
    made = cape("deploy", "export-key", "--kit", kits / "coordinator", "--name", "office")
    assert made.returncode == 0
    assert "Made the coordinator's key" in made.stderr
    again = cape("deploy", "export-key", "--kit", kits / "coordinator")
    assert (again.stdout, again.stderr) == (made.stdout, "")
    assert [path.relative_to(kits).parts[0] for path in kits.rglob("identity.key")] == ["coordinator"]


@pytest.mark.parametrize(
    ("sites", "server", "says"),
    [
        ("a", "localhost", "at least two sites"),
        ("a,b,a", "localhost", "different names"),
        ("a,b c", "localhost", "letters, digits"),
        ("a,../b", "localhost", "letters, digits"),
        ("x,y", "localhost", "must not read as a number or as yes or no"),
        ("a,12", "localhost", "must not read as a number or as yes or no"),
        ("a,b", "not a host", "the name of a machine"),
        ("a,b", "a", "the name of a machine"),
    ],
)
def test_wrong_names_are_refused_in_a_sentence(tmp_path: Path, sites: str, server: str, says: str) -> None:
    done = cape("deploy", "init", "--sites", sites, "--server", server, "--out", tmp_path / "kits")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "kits").exists()


def test_nothing_is_overwritten(kits: Path) -> None:
    done = cape("deploy", "init", "--sites", "a,b", "--server", "localhost", "--out", kits)
    assert done.returncode == 2
    assert "nothing is overwritten" in done.stderr


def test_an_address_serves_as_a_servers_name(tmp_path: Path) -> None:
    made = make_kits(tmp_path / "kits", ["a", "b"], "10.0.0.7")
    told = json.loads((made["a"] / "startup" / "fed_client.json").read_text())
    assert told["servers"][0]["service"]["target"] == "10.0.0.7:8102"


def test_a_site_joins_with_its_own_kit_only(kits: Path, tmp_path: Path) -> None:
    folder, place = SiteFolder.create(tmp_path / "b", "b"), tmp_path / "link.sock"
    with Daemon(folder, place, link_may_read_rows=True):
        done = cape("join", kits / "sites" / "a", "--link", place)
        assert done.returncode == 2
        assert "the kit is for site 'a'" in done.stderr
        assert "is 'b'" in done.stderr
    assert "is not a site's kit" in cape("join", kits / "aggregator", "--link", place).stderr
    assert "is not an aggregator's kit" in cape("serve", kits / "sites" / "a").stderr


def test_without_an_aggregator_the_coordinator_is_told(kits: Path, tmp_path: Path) -> None:
    done = cape("status", kits / "coordinator")
    assert done.returncode == 1
    assert "is `cape serve` running there?" in done.stderr
    study = tmp_path / "study.toml"
    study.write_text(
        '[study]\nname = "s"\n[privacy]\nepsilon = 1\ndelta = 1e-6\ncolluding = 1\n[schema]\nage = [0, 100]\n'
        '[sites]\na = {}\nb = {}\nc = {}\n[[analysis]]\nkind = "mean"\ncolumns = ["age"]\n'
    )
    done = cape("submit", study, "--kit", kits / "coordinator", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "no key of 'a', 'b', 'c'" in done.stderr
    assert "cape deploy trust FILE" in done.stderr
    for name in "abc":
        site = SiteFolder.create(tmp_path / "sites" / name, name)
        (tmp_path / f"{name}.card").write_text(site.card.to_text())
    cards = [tmp_path / f"{name}.card" for name in "abc"]
    assert cape("deploy", "trust", *cards, "--kit", kits / "coordinator").returncode == 0
    done = cape("submit", study, "--kit", kits / "coordinator", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "Nothing was spent" in done.stderr
    assert "is `cape serve` running there?" in done.stderr


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port {port} cannot be used: Address already in use"):
            _require_free(port, seconds=0.3)
    _require_free(port)


def test_a_site_says_that_no_aggregator_answers(kits: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(process, "_LATE", 1.0)
    heard = []

    def say(text: str) -> None:
        heard.append(text)
        if text.startswith("No aggregator"):
            os.kill(os.getpid(), signal.SIGTERM)  # as whoever ends it does

    process.join(kits / "sites" / "a", tmp_path, say)
    assert heard[1:] == [
        "No aggregator has answered at localhost:1 for 1 seconds; cape keeps trying.",
        "Stopped.",
    ]


def test_a_kit_runs_once_at_a_time(kits: Path) -> None:
    with _alone(kits / "aggregator"):
        done = cape("serve", kits / "aggregator")
    assert done.returncode == 2
    assert "is in use: another `cape serve` or `cape join` runs with it" in done.stderr
