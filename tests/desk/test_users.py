"""The users of a site: daemon, link and desk are three, and only the daemon can read rows, key and ledger."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cape.flare.rehearsal import daemon_of
from tests.deploy.users import DAEMON, DESK, LINK, as_user
from tests.desk.world import SITES, World, desk_of

FILES = ("data.csv", "identity.key", "ledger.sqlite", "site.toml")


@pytest.fixture(autouse=True)
def _apart(world: World) -> None:
    if not world.apart:
        pytest.skip("only root can start processes of other users")


def test_each_process_is_a_user_of_its_own(world: World) -> None:
    for site in SITES:
        for name, user in ((daemon_of(site), DAEMON), (site, LINK), (desk_of(site), DESK)):
            status = Path(f"/proc/{world.processes[name].pid}/status").read_text()
            assert f"Uid:\t{user}\t{user}\t{user}\t{user}" in status, name


@pytest.mark.parametrize("user", [LINK, DESK])
def test_link_and_desk_cannot_open_what_the_daemon_holds(world: World, user: int) -> None:
    paths = [str(world.site("hungary") / name) for name in FILES]
    tried = subprocess.run([*as_user(user, group=user), "cat", *paths], capture_output=True, text=True)
    assert tried.stdout == ""
    assert tried.stderr.count("Permission denied") == len(FILES)
    own = subprocess.run([*as_user(DAEMON), "head", "-c1", *paths], capture_output=True, text=True)
    assert own.returncode == 0, "the files are there"
