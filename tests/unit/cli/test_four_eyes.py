"""What the command line says where several persons must approve."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Cape
from tests.world import World


def test_check_warns_that_four_eyes_count_names(cape: Cape, tmp_path: Path):
    world = World(tmp_path / "w")
    assert "counts names" not in cape("site", "check", "--site", world.site.path).out
    world.edit('approve = "auto"', 'approve = "ask"\napprovals = 2')
    done = cape("site", "check", "--site", world.site.path)
    assert done.code == 0
    assert "approvals = 2 counts names" in " ".join(done.out.split())
