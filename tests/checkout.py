"""What lies in the checkout: which files a run has left there, and which of them hold a secret.

The conftest.py beside pyproject.toml asks the first of every suite, so only Python itself is imported here.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT = 10
"""The status of a run that left files: no test failed, so not 1, with which a mutant counts as killed."""
CACHES = (
    ".git",
    ".venv*",
    "__pycache__",
    "*.egg-info",
    ".pytest_cache",
    ".hypothesis",
    ".mypy_cache",
    ".ruff_cache",
    ".coverage*",
)
PRODUCTS = ("dist", "build", "site", "paper", "assurance-out", ".cache", "browser-out")  # of make, at the top
SUFFIXES = (".key", ".p8", ".pk8", ".p12", ".pfx", ".jks", ".keystore")
SECRETS = {
    "a private key of CAPE": rb"cape-private-ed25519:[0-9a-fA-F]{64}",
    "a private key in PEM": rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "a private key as JWK": rb'"d"\s*:\s*"[A-Za-z0-9_-]{40,}"',
    "a token": rb"\b(?:gh[opsru]_\w{36}|github_pat_\w{60}|glpat-[\w-]{20}|pypi-AgEI[\w-]{50}"
    rb"|AKIA[0-9A-Z]{16}|xox[abprs]-[\w-]{20})",
}


def listing(root: Path = ROOT) -> frozenset[str]:
    """Return the files and folders of a checkout, without caches and what `make` builds."""
    found = set()
    for folder, folders, files in os.walk(root):
        above = "" if folder == str(root) else f"{os.path.relpath(folder, root)}/"
        folders[:] = [name for name in folders if not _made(above, name)]
        found |= {above + name for name in (*folders, *files) if not _made(above, name)}
    return frozenset(found)


def _made(above: str, name: str) -> bool:
    return any(fnmatch(name, cache) for cache in CACHES) or (not above and name in PRODUCTS)


def new(before: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return what was not there before; of a new folder, the folder alone."""
    found = listing(root) - frozenset(before)
    return sorted(name for name in found if os.path.dirname(name) not in found)


def versioned(root: Path = ROOT) -> list[str]:
    """Return the files that git has, or would take; all of them where it knows nothing of this folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        said = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        said = b""
    names = os.fsdecode(said).split("\0")
    if "pyproject.toml" not in names:  # unpacked from an archive, perhaps below another checkout
        names = sorted(listing(root))
    return [name for name in names if (root / name).is_file()]


def secret(path: Path) -> str | None:
    """Return what kind of secret a file holds, None if it holds none."""
    data = path.read_bytes()
    for kind, pattern in SECRETS.items():
        if re.search(pattern, data):
            return kind
    return f"a file of keys, *{path.suffix}" if path.suffix in SUFFIXES else None
