"""The checkout holds no key, and a run of tests, of examples or of the demo leaves no file in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from cape.coordinator import CoordinatorFolder
from cape.site import SiteFolder
from cape.site.admin.backup import backup
from tests.checkout import LEFT, PRODUCTS, ROOT, listing, new, secret, versioned

ALLOWED = {
    # the folder of a site of version 0.1.0, whose ledger this key has signed; void, as SECURITY.md says
    "tests/unit/site/site_of_0_1_0/identity.key",
}


def test_no_file_holds_a_secret_but_the_fixtures_that_are_named():
    names = versioned()
    assert {"pyproject.toml", "src/cape/site/keyring.py", "tests/unit/test_checkout.py"} <= set(names)
    assert {name for name in names if secret(ROOT / name)} == ALLOWED


def test_every_key_that_is_allowed_is_void():
    told = (ROOT / "SECURITY.md").read_text()
    for name in ALLOWED:
        assert f"`{Path(name).parent}`" in told


def of_a_site(folder: Path) -> Path:
    return SiteFolder.create(folder / "site").path / "identity.key"


def of_a_coordinator(folder: Path) -> Path:
    return CoordinatorFolder.create(folder / "office").path / "identity.key"


def in_a_backup(folder: Path) -> Path:
    backup(SiteFolder.create(folder / "site"), folder / "site.tar")
    return folder / "site.tar"


def pem(make: Callable[[], object], how: PrivateFormat, password: bytes = b"") -> Callable[[Path], Path]:
    """A key of TLS, such as kits have."""

    def write(folder: Path) -> Path:
        locked = BestAvailableEncryption(password) if password else NoEncryption()
        path = folder / "server.crt"
        path.write_bytes(b"a line before\n" + make().private_bytes(Encoding.PEM, how, locked))  # type: ignore[attr-defined]
        return path

    return write


def written(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "notes.txt").write_text(text)
        return folder / "notes.txt"

    return write


def curve() -> object:
    return ec.generate_private_key(ec.SECP256R1())


def long() -> object:
    return rsa.generate_private_key(65537, 2048)


SECRETS = {
    "a site's": of_a_site,
    "a coordinator's": of_a_coordinator,
    "a site's, in a backup": in_a_backup,
    "PKCS 8": pem(ed25519.Ed25519PrivateKey.generate, PrivateFormat.PKCS8),
    "PKCS 8, encrypted": pem(ed25519.Ed25519PrivateKey.generate, PrivateFormat.PKCS8, b"password"),
    "RSA": pem(long, PrivateFormat.TraditionalOpenSSL),
    "a curve": pem(curve, PrivateFormat.TraditionalOpenSSL),
    "OpenSSH": pem(ed25519.Ed25519PrivateKey.generate, PrivateFormat.OpenSSH),
    "PGP": written("-----BEGIN PGP PRIVATE KEY " + "BLOCK-----"),
    "JWK": written('{"kty": "OKP", "d"' + f': "{"a" * 43}"}}'),
    "GitHub's token": written("token = ghp" + "_" + "a" * 36),
    "Amazon's": written("AK" + "IA" + "A" * 16),
}


@pytest.mark.parametrize("write", SECRETS.values(), ids=SECRETS)
def test_a_secret_is_seen_whatever_its_file_is_called(tmp_path: Path, write: Callable[[Path], Path]):
    path = write(tmp_path)
    assert secret(path)
    assert secret(path.rename(tmp_path / "README.md"))


@pytest.mark.parametrize("name", ["client.key", "site.p12"])
def test_a_file_of_keys_is_seen_whatever_is_in_it(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(bytes(range(256)))
    assert secret(tmp_path / name)


def test_a_public_key_is_no_secret(tmp_path: Path):
    card = tmp_path / "office.card"
    card.write_text(CoordinatorFolder.create(tmp_path / "office").card.to_text())
    assert secret(card) is None


def test_a_planted_key_is_found_with_git_and_without(tmp_path: Path):
    (tmp_path / "pyproject.toml").touch()
    key = SiteFolder.create(tmp_path / "our site").path / "identity.key"

    def found() -> set[str]:
        return {name for name in versioned(tmp_path) if secret(tmp_path / name)}

    assert found() == {"our site/identity.key"}
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    assert found() == {"our site/identity.key"}, "before it is added"
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert found() == {"our site/identity.key"}
    key.unlink()
    assert not found()


def test_what_is_new_is_named_and_caches_are_not(tmp_path: Path):
    (tmp_path / "old").mkdir()
    before = listing(tmp_path)
    for name in ("old/file", "office/deep/identity.key", "old/site/x", "top", "old/__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in (*PRODUCTS, ".venv-flare", ".pytest_cache"):
        (tmp_path / name).mkdir()
    assert new(before, tmp_path) == ["office", "old/file", "old/site", "top"]


TESTS = """
from pathlib import Path


def test_that_writes(tmp_path):
    (tmp_path / "there").touch()
    Path("{place}").touch()


def test_other():
    assert {other}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout of its own, with the conftest.py of this one."""
    made = tmp_path / "project"
    (made / "tests").mkdir(parents=True)
    (made / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    shutil.copy(ROOT / "conftest.py", made)
    for name in ("__init__.py", "checkout.py"):
        shutil.copy(ROOT / "tests" / name, made / "tests")
    return made


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest there, without plugins that are not named."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "how", [[], ["-p", "xdist.plugin", "-n", "2"]], ids=["in one process", "in two processes"]
)
def test_a_run_that_leaves_a_file_fails_and_names_it(project: Path, how: list[str]):
    (project / "test_it.py").write_text(TESTS.format(place="ledger.sqlite", other=True))
    (project / "before.txt").touch()
    done = run(project, *how)
    assert done.returncode == LEFT, done.stdout
    assert "2 passed" in done.stdout
    assert "  ledger.sqlite\n" in done.stdout
    assert "before.txt" not in done.stdout
    again = run(project, *how)
    assert again.returncode == 0, "nothing is new any more"


def test_a_run_that_fails_and_leaves_a_file_has_the_status_of_failed_tests(project: Path):
    (project / "test_it.py").write_text(TESTS.format(place="office", other=False))
    done = run(project)
    assert done.returncode == 1, done.stdout
    assert "  office\n" in done.stdout


def test_examples_of_docstrings_write_into_a_temporary_folder(project: Path):
    (project / "package.py").write_text(
        'def sketch():\n    """\n    >>> open("ledger.sqlite", "w").close()\n    """\n'
    )
    done = run(project, "--doctest-modules", "package.py")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert not (project / "ledger.sqlite").exists()
