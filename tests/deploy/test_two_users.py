"""The setup that kits prescribe: the daemon as one user without a network, the link as another.

Real processes, real users (by number: none has to exist), a network namespace for each daemon. What the link
could do if somebody ran code in it is tried with the link's own rights.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cape.flare.rehearsal import Rehearsal, daemon_of
from tests.deploy.conftest import SCHEMA, people
from tests.deploy.users import DAEMON, LINK, as_user, own, possible

NAMES = ("u", "v", "w")

pytestmark = pytest.mark.skipif(not possible(), reason="only root can start processes of other users")


@pytest.fixture(autouse=True)
def _everybody_is_there() -> None:
    """The deployment of the other tests is not needed here."""


class TwoUsers(Rehearsal):
    """A rehearsal in which each site has two users, as its kit's README says."""

    def launch(self, who: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        if who == "aggregator":
            return super().launch(who, arguments)
        is_daemon = who.endswith("(daemon)")
        if is_daemon:
            arguments = [each for each in arguments if each != "--link-may-read-rows"]
        return super().launch(
            who, arguments, before=as_user(DAEMON if is_daemon else LINK, network=not is_daemon)
        )


@pytest.fixture(scope="module")
def here() -> Any:
    with tempfile.TemporaryDirectory(prefix="cape-two-") as name:  # pytest's own folders are closed to others
        yield from deployed(Path(name))


def deployed(folder: Path) -> Any:
    """Set everything up as the kit's README says, with numbers for users."""
    folder.chmod(0o711)
    tables = {name: folder / "rows" / f"{name}.csv" for name in NAMES}
    (folder / "rows").mkdir()
    for number, path in enumerate(tables.values()):
        people(number, 400).write_csv(path)
    here = TwoUsers(folder / "d", tables, SCHEMA, analyses=["mean"], budget=(9.0, 1e-5))
    (folder / "d").chmod(0o711)
    (folder / "d" / "kits").chmod(0o711)
    (folder / "d" / "kits" / "sites").chmod(0o711)
    (folder / "d" / "sites").chmod(0o711)
    for name in NAMES:
        own(here.site(name).path, DAEMON)
        own(here.kit(name), LINK)
    own(folder / "rows", DAEMON)
    own(here.sockets, DAEMON)
    here.sockets.chmod(0o750)
    with here:
        yield here


def test_a_study_runs_and_the_daemons_have_no_network(here: TwoUsers, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    columns = "\n".join(f"{key} = {json.dumps(value)}" for key, value in SCHEMA.items())
    sites = "\n".join(f"{name} = {{}}" for name in NAMES)
    study.write_text(
        '[study]\nname = "two"\n[privacy]\nepsilon = 4\ndelta = 1e-6\ncolluding = 1\n'
        f"[schema]\n{columns}\n[sites]\n{sites}\n"
        '[[analysis]]\nkind = "mean"\ncolumns = ["age"]\nshare = 0.5\n'
    )
    command = [sys.executable, "-m", "cape", "submit", str(study), "--kit", str(here.coordinator)]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "results.json").read_text())["analyses"][0]
    assert found["participants"] == list(NAMES)
    for name in NAMES:
        pid = here.processes[daemon_of(name)].pid
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"Uid:\t{DAEMON}\t{DAEMON}\t{DAEMON}" in status
        cards = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
        assert [card.split(":")[0].strip() for card in cards] == ["lo"]  # and that one is down
        assert len(Path(f"/proc/{pid}/net/route").read_text().splitlines()) <= 1  # a heading at most


@pytest.mark.parametrize("file", ["identity.key", "site.toml", "ledger.sqlite", "admin.sock"])
def test_code_in_the_link_cannot_read_change_or_delete_what_is_the_sites(here: TwoUsers, file: str) -> None:
    path = here.site("u").path / file
    for code in (
        f"open({str(path)!r}, 'rb').read()",
        f"open({str(path)!r}, 'ab')",
        f"__import__('os').unlink({str(path)!r})",
        f"__import__('shutil').rmtree({str(path.parent)!r})",
    ):
        tried = as_link(code)
        assert "PermissionError" in tried.stderr, tried.stderr
    assert "PermissionError" in as_link(f"open({str(here.folder.parent / 'rows' / 'u.csv')!r})").stderr
    assert (here.site("u").path / "ledger.sqlite").is_file()


def test_code_in_the_link_cannot_look_into_the_daemon(here: TwoUsers) -> None:
    pid = here.processes[daemon_of("u")].pid
    for what in ("mem", "environ", "maps"):
        assert "PermissionError" in as_link(f"open('/proc/{pid}/{what}', 'rb').read()").stderr
    assert "PermissionError" in as_link(f"__import__('os').kill({pid}, 9)").stderr
    assert here.runs(daemon_of("u"))


def test_code_in_the_link_gets_refusals_from_the_daemon_and_nothing_else(here: TwoUsers) -> None:
    """It may speak to the socket, as it must; what it makes up is refused in a sentence."""
    place = here.sockets / "u.sock"
    code = (
        "from cape.core.unix import Client; from cape.site import wire\n"
        f"with Client({str(place)!r}) as client:\n"
        "    for message in (wire.Ask(1, b'x'), wire.Review(2, (b'y',)), wire.Carry(3, bytes(16), b'z')):\n"
        "        print(client.call(wire.pack(message)))\n"
    )
    tried = as_link(code)
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.count("refused") == 3


def test_a_link_of_the_daemons_user_or_of_root_is_turned_away(here: TwoUsers) -> None:
    code = f"from cape.core.unix import Client; Client({str(here.sockets / 'u.sock')!r}).call(b'')"
    for uid in (DAEMON, 0):
        command = [sys.executable, "-c", code]
        tried = subprocess.run([*as_user(uid), *command], capture_output=True, text=True)
        assert tried.returncode == 1, "closed before, while or after it asks"
        assert "cape.core.errors.CapeError: the socket" in tried.stderr, tried.stderr
    assert "turned a link away" in (here.site("u").path / "site.log").read_text()


def as_link(code: str) -> subprocess.CompletedProcess[str]:
    """Run code with the rights of the link."""
    return subprocess.run([*as_user(LINK), sys.executable, "-c", code], capture_output=True, text=True)
