"""Print what the package needs with extras, one requirement a line: `python image/needs.py flare desk`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    more = [need for name in sys.argv[1:] for need in project["optional-dependencies"].get(name, ())]
    print("\n".join([*project["dependencies"], *more]))
