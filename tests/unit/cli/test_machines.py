"""Commands for studies across machines, where NVFLARE is not installed: `make test-deploy` has the rest."""

from __future__ import annotations

import importlib.util

import pytest

from tests.unit.cli.conftest import Cape


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
def test_a_missing_engine_is_said_with_what_to_install(cape: Cape, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cape(*command)
    assert done.code == 1
    assert "pip install 'cape-dp[flare]'" in done.err
    assert len(done.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["serve", "join", "submit", "status", "deploy"])
def test_each_command_has_help_with_an_example(cape: Cape, command):
    done = cape(command, "--help")
    assert done.code == 0
    if command != "deploy":
        assert f"Example: cape {command}" in " ".join(done.out.split())
