"""How a desk starts: as a command, with its own folder, links and notices; and what it says if it cannot."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import typer

from cape.cli.commands import app as commands
from cape.core.errors import CapeError, InvalidInput, MissingExtra
from cape.desk import start
from cape.desk.access.links import Links
from cape.desk.access.people import Person
from cape.desk.access.trail import Trail
from cape.desk.server import Address, listen
from cape.desk.start import RUNNING, Running, find
from cape.site.admin import SOCKET, Client, serve
from tests.world import World

COMMAND = typer.main.get_command(commands)


def cape(*arguments: object) -> tuple[int, str]:
    """Run `cape desk` in this process; return its status and what it printed."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        left = COMMAND.main(["desk", *map(str, arguments)], standalone_mode=False)
    return int(left or 0), out.getvalue()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "w")
    with serve(world.site.path / SOCKET, world.site, desk=os.geteuid()):
        yield world


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Desks that would run now; none does."""
    found: list[object] = []
    monkeypatch.setattr("cape.desk.start.run", lambda app, address, listening: found.append((app, address)))
    return found


def test_a_desk_prints_its_link_and_takes_others_while_it_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    home, said = tmp_path / "state", list[str]()

    def run(app: object, address: Address, listening: object) -> None:
        status, printed = cape("link", "--name", "bo", "--role", "steward", "--state", home)
        said.append(printed)
        assert status == 0
        assert Links(home).take(printed.strip().rsplit("/", 1)[1]) == Person("bo", "steward")

    monkeypatch.setattr("cape.desk.start.run", run)
    socket = world.site.path / SOCKET
    status, printed = cape("--socket", socket, "--state", home, "--port", 0, "--desk-may-read-rows")
    assert status == 0
    assert "Desk of a, until Ctrl-C. Open: http://127.0.0.1:" in printed
    assert "Stopped. Trail of decisions: 0 lines" in printed
    assert said[0].startswith("http://127.0.0.1:")
    with pytest.raises(InvalidInput, match="no desk runs with the folder"):
        cape("link", "--name", "bo", "--state", home)


def test_the_coordinators_desk_needs_its_kit(tmp_path: Path):
    for options in (("--coordinator",), ("--kit", tmp_path), ("--coordinator", "--kit", "k", "--site", "s")):
        with pytest.raises(InvalidInput, match="needs --coordinator and --kit"):
            cape(*options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "give the administrative socket"),
        (("--site", "x", "--socket", "y"), "not both"),
        (("--site", "nowhere"), "no process answers"),
        (("--site", "x", "--host", "0.0.0.0"), "needs TLS"),
        (("--site", "x", "--cert", "c"), "two files"),
        (("--site", "x", "--url", "http://desk.org"), "--url must be"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    options: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("CAPE_ADMIN", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CapeError, match=why):
        cape(*options)


def test_a_user_who_can_read_rows_needs_to_say_so(world: World, tmp_path: Path, started: list[object]):
    with pytest.raises(InvalidInput, match="--desk-may-read-rows"):
        cape("--site", world.site.path, "--state", tmp_path / "s")
    assert not started


def test_a_user_whom_the_daemon_does_not_know_as_the_desk_is_told_so(tmp_path: Path):
    world = World(tmp_path / "w")
    with (
        serve(world.site.path / SOCKET, world.site, desk=70_001),
        pytest.raises(InvalidInput, match="cape site serve --desk USER"),
    ):
        cape("--site", world.site.path, "--desk-may-read-rows")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'cape-dp\[desk\]'"):
        cape("--site", "x")


def test_two_desks_do_not_share_a_folder(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home = tmp_path / "state"
    place = start.of_site(world.site.path / SOCKET, may_read_rows=True)

    def run(*_: object) -> None:
        with pytest.raises(InvalidInput, match="another desk runs with the folder"):
            start.serve(place, Address("127.0.0.1", 0), home, say=lambda line: None)

    monkeypatch.setattr("cape.desk.start.run", run)
    start.serve(place, Address("127.0.0.1", 0), home, say=lambda line: None)
    assert not (home / RUNNING).exists()


def test_a_link_is_for_a_known_role_and_a_desk_that_takes_them(tmp_path: Path):
    with pytest.raises(InvalidInput, match="unknown role 'owner'"):
        cape("link", "--name", "x", "--role", "owner", "--state", tmp_path)
    (tmp_path / RUNNING).write_text(json.dumps({"url": "https://d", "links": False}))
    assert find(tmp_path) == Running("https://d", links=False)
    with pytest.raises(InvalidInput, match="takes no links"):
        cape("link", "--name", "x", "--state", tmp_path)


def test_the_only_desk_that_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    with pytest.raises(InvalidInput, match="desks that run: none"):
        cape("link", "--name", "x")
    for name in ("a", "b"):
        home = tmp_path / "cape-desk" / name
        home.mkdir(parents=True)
        (home / RUNNING).write_text(json.dumps({"url": f"http://{name}", "links": True}))
        if name == "a":
            assert cape("link", "--name", "x")[1].startswith("http://a/login/link/")
    with pytest.raises(InvalidInput, match=r"desks that run: .*a, .*b"):
        cape("link", "--name", "x")


def test_the_trail_is_checked_and_printed(tmp_path: Path):
    with pytest.raises(InvalidInput, match="there is no trail"):
        cape("trail", "--state", tmp_path)
    trail = Trail(tmp_path / "trail.jsonl")
    trail.write(Person("ana", "steward"), "POST /inbox/approve", {"study": "heart\x1b[31m"})
    trail.write(Person("ana", "steward"), "POST /inbox/approve", of=1, outcome="done")
    status, printed = cape("trail", "--state", tmp_path)
    assert status == 0
    assert "ana (steward) POST /inbox/approve study='heart\\x1b[31m'" in printed
    assert "done (line 1)" in printed
    assert "\x1b" not in printed
    assert f"2 lines, head {trail.head[:16]}" in printed
    assert len(json.loads(cape("trail", "--json", "--state", tmp_path)[1])["lines"]) == 2
    text = trail.path.read_text()
    trail.path.write_text(text.replace("heart", "lungs"))
    assert cape("trail", "--state", tmp_path)[0] == 1


@pytest.mark.parametrize(
    ("notify", "left"),
    [
        ('command = ["/bin/true"]', ()),
        ('webhook = {url = "https://h.org", secret_env = "CAPE_NOTIFY_HOOK"}', ("webhook",)),
        ('smtp = {host = "h.org", from = "a@h.org", to = ["a@h.org"]}', ("smtp",)),
    ],
)
def test_notices_of_the_desk_run_no_command(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notify: str, left: tuple[str, ...]
):
    """Whoever may edit the policy at the desk must not get a program to run as its user."""
    world.edit("[coordinators]", f"[notify]\n{notify}\n[coordinators]")
    passed, seen = threading.Event(), list[tuple[str, ...]]()

    class Notifier:
        def __init__(self, reach: Callable[[], Client], say: object) -> None:
            self.reach = reach

        def follow(self, stop: threading.Event) -> None:
            with self.reach() as desk:
                seen.append(desk.notify().ways)
                assert desk.mine().name == "a"
            passed.set()

    monkeypatch.setattr("cape.site.admin.notices.Notifier", Notifier)
    monkeypatch.setattr("cape.desk.start.run", lambda *_: passed.wait(10))
    place = start.of_site(world.site.path / SOCKET, may_read_rows=True)
    with Client(world.site.path / SOCKET) as plain:
        assert plain.notify().ways == (notify.partition(" ")[0],)
    start.serve(place, Address("127.0.0.1", 0), tmp_path / "s", notices=True, say=lambda line: None)
    assert seen == [left]


def test_a_port_in_use_leaves_nothing_behind(world: World, tmp_path: Path):
    place = start.of_site(world.site.path / SOCKET, may_read_rows=True)
    with listen("127.0.0.1", 0) as taken, pytest.raises(InvalidInput, match="try --port 0"):
        start.serve(place, Address("127.0.0.1", taken.getsockname()[1]), tmp_path / "s")
    assert not (tmp_path / "s" / RUNNING).exists()
