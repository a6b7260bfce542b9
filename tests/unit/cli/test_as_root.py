"""Root in a site's folder that belongs to another user, who may have put links into it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cape
from tests.world import World

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can work in folders of others")


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o755)
        world = World(Path(home) / "w")
        world.edit('approve = "auto"', 'approve = "ask"')
        assert world.code(world.request()) == "approval"
        (world.site.path / "site.log").unlink(missing_ok=True)
        for path in (world.site.path.parent, world.site.path, *world.site.path.rglob("*")):
            os.chown(path, 70_001, 70_002)
        yield world


def test_what_root_decides_belongs_to_the_sites_user(cape: Cape, world: World):
    done = cape("site", "approve", "lungs", "--site", world.site.path)
    assert (done.code, done.err) == (0, "")
    assert "of 'office' by 'root'" in (world.site.path / "site.log").read_text()
    for path in world.site.path.rglob("*"):
        assert path.stat().st_uid == 70_001, path


@pytest.mark.parametrize("name", ["approved", "site.log"])
def test_links_of_the_sites_user_lead_root_nowhere(cape: Cape, world: World, name: str):
    ours = world.site.path.parent.parent / "ours"
    ours.mkdir(mode=0o700)
    (world.site.path / name).symlink_to(ours)
    done = cape("site", "approve", "lungs", "--site", world.site.path)
    assert done.code != 0
    assert list(ours.iterdir()) == []


def test_root_runs_no_command_of_the_sites_user(cape: Cape, world: World):
    path = world.site.path / "site.toml"
    path.write_text(path.read_text() + '\n[notify]\ncommand = ["/bin/true"]\n')
    done = cape("site", "notify", "--site", world.site.path)
    assert done.code == 2
    assert "root would run it" in done.err


def test_root_serves_no_folder_of_another_user(cape: Cape, world: World):
    done = cape("site", "serve", "--site", world.site.path)
    assert done.code == 2
    assert "run this as that user" in done.err
