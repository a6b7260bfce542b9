"""`python -m assurance.mutants.imported PLACE [PYTEST ARGUMENTS]`: pytest, if packages come from PLACE.

Else a suite would be run on other code than was edited, and every mutant would survive, or none.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

ELSEWHERE = 90


def main(place: str, arguments: list[str]) -> int:
    """Return pytest's status, or `ELSEWHERE`."""
    for package in (path.parent.name for path in Path(place).glob("*/__init__.py")):
        spec = find_spec(package)
        if spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(place):
            return ELSEWHERE
    import pytest

    return int(pytest.main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
