"""The rest of the package does without torch, and says so when it is missing."""

from __future__ import annotations

import subprocess
import sys


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_cape_does_not_import_torch():
    assert run("import sys, cape; print('torch' in sys.modules)") == "False\n"


def test_a_missing_torch_is_named():
    code = """
import sys
sys.modules["torch"] = None
from cape.core.errors import MissingExtra
try:
    import cape.torch
except MissingExtra as error:
    print(error)
"""
    assert "pip install 'cape-dp[torch]'" in run(code)


def test_inside_the_package_torch_is_torch():
    assert run("import torch, cape.torch.clipped as c; print(c.torch is torch)") == "True\n"
