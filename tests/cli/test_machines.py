"""Commands for studies across machines, where NVFLARE is not installed: `make test-deploy` has the rest."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest


@pytest.mark.skipif(importlib.util.find_spec("nvflare") is not None, reason="NVFLARE is installed here")
@pytest.mark.parametrize(
    "command",
    [
        ["serve", "."],
        ["join", "."],
        ["deploy", "demo"],
        ["deploy", "init", "--sites", "a,b", "--server", "localhost", "--out", "kits"],
    ],
)
def test_a_missing_engine_is_said_with_what_to_install(command, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "cape", *command], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "pip install 'cape-dp[flare]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["serve", "join", "submit", "status", "deploy"])
def test_each_command_has_help_with_an_example(command):
    done = subprocess.run([sys.executable, "-m", "cape", command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    if command != "deploy":
        assert f"Example: cape {command}" in " ".join(done.stdout.split())
