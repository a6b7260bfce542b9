"""The desk as a process: where it may listen, under which names, and how it starts and ends."""

from __future__ import annotations

import datetime
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cape.core.errors import InvalidInput
from cape.desk.server import Address, Log, listen, state_folder
from cape.site.admin import SOCKET, serve
from tests.world import World


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert, private


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "desk.hospital.org", ""])
def test_off_loopback_it_needs_tls(host: str, pair: tuple[Path, Path]):
    with pytest.raises(InvalidInput, match="needs TLS: give --cert and --key"):
        Address(host, 8011).check()
    with pytest.raises(InvalidInput, match="needs TLS"):
        Address(host, 8011, url="https://desk.hospital.org").check()
    Address(host, 8011, *pair).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "localhost", "::1"])
def test_on_loopback_it_does_not(host: str):
    Address(host, 8011).check()


def test_a_certificate_needs_its_key(pair: tuple[Path, Path], tmp_path: Path):
    cert, key = pair
    with pytest.raises(InvalidInput, match="two files"):
        Address("127.0.0.1", 8011, cert).check()
    with pytest.raises(InvalidInput, match="no pair of PEM files"):
        Address("127.0.0.1", 8011, key, cert).check()
    with pytest.raises(InvalidInput, match="No such file"):
        Address("127.0.0.1", 8011, cert, tmp_path / "none").check()


@pytest.mark.parametrize(
    "url",
    [
        "http://desk.hospital.org",
        "desk.hospital.org",
        "https://",
        "https://desk.hospital.org/path",
        "https://desk.hospital.org?x",
        "https://[::",
        "ftp://localhost",
    ],
)
def test_the_address_behind_a_proxy_is_one_of_tls_without_a_path(url: str):
    with pytest.raises(InvalidInput, match="--url must be"):
        Address("127.0.0.1", 8011, url=url).check()


def test_names_under_which_it_answers():
    here = Address("127.0.0.1", 8011)
    assert here.hosts == {"127.0.0.1:8011", "localhost:8011", "[::1]:8011"}
    assert here.base == "http://127.0.0.1:8011"
    assert (here.secure, here.cookie) == (False, "cape-desk-8011")
    behind = Address("127.0.0.1", 8011, url="https://Desk.hospital.org/")
    behind.check()
    assert "desk.hospital.org" in behind.hosts
    assert behind.base == "https://Desk.hospital.org"
    assert (behind.secure, behind.cookie) == (True, "__Host-cape-desk")
    away = Address("192.0.2.1", 443, Path("c"), Path("k"))
    assert away.hosts == {"192.0.2.1"}
    assert away.base == "https://192.0.2.1"


def test_a_port_that_is_taken_is_a_sentence():
    with listen("127.0.0.1", 0) as taken, pytest.raises(InvalidInput, match="try --port 0"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(InvalidInput, match="cannot listen"):
        listen("no.such.host.invalid", 1)


def test_the_folder_of_its_own_is_closed_to_others(tmp_path: Path):
    path = state_folder(tmp_path / "a" / "b")
    assert path.stat().st_mode & 0o777 == 0o700
    path.chmod(0o750)
    with pytest.raises(InvalidInput, match="chmod 700"):
        state_folder(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be made"):
        state_folder(tmp_path / "file")


def test_its_log_has_one_line_for_each_thing_and_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cape.desk.server._MOST_LOG", 1000)
    log = Log(tmp_path / "desk.log")
    log("one\ntwo\x1b[31m")
    (line,) = (tmp_path / "desk.log").read_text().splitlines()
    assert "one\\ntwo\\x1b[31m" in line
    for _ in range(30):
        log("x" * 100)
    assert (tmp_path / "desk.log").stat().st_size < 1200
    assert (tmp_path / "desk.log.1").exists()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "w")
    with serve(world.site.path / SOCKET, world.site, desk=os.geteuid()):
        yield world


@contextmanager
def running(world: World, *options: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield `cape desk` as a process, and the link that it printed."""
    command = [sys.executable, "-m", "cape", "desk", "--site", world.site.path, "--port", "0"]
    state = ("--state", world.folder / "state", "--desk-may-read-rows")
    with subprocess.Popen(
        [*map(str, command), *map(str, state), *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert "Open: " in first
            yield process, first.split("Open: ")[1].strip()
        finally:
            process.kill()


@pytest.mark.slow(25)
def test_a_desk_from_its_start_to_its_end(world: World):
    with running(world) as (process, link):
        base = link.partition("/login")[0]
        with httpx.Client() as browser:
            assert "local (admin)" in browser.get(link).text
            assert browser.get(base + "/policy").status_code == 200
            assert "server" not in browser.get(base + "/login").headers
            huge = browser.get(base + "/policy", headers={"x": "y" * 20_000})
            assert huge.status_code == 431
            assert browser.get(base + "/login", headers={"host": "evil.org"}).status_code == 421
        host, port = base.rpartition("/")[2].split(":")
        with socket.create_connection((host, int(port)), timeout=40) as silent:
            began = time.monotonic()
            silent.sendall(b"GET /login HTTP/1.1\r\n")
            assert silent.recv(1) == b"", "a request that never comes ends the connection"
            assert time.monotonic() - began < 30
        for late in (b"GET /log", b"POST /inbox/approve HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\na"):
            with socket.create_connection((host, int(port)), timeout=40) as slow:
                slow.sendall(f"GET /login HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                assert slow.recv(1 << 16).startswith(b"HTTP/1.1 200")
                slow.sendall(late)
                while slow.recv(1 << 16):  # an answer, perhaps, and then the end
                    pass
        with socket.create_connection((host, int(port)), timeout=40) as both:
            first = f"GET /login HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
            both.sendall(
                first + first.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\na")
            )
            while both.recv(1 << 16):
                pass
        other = subprocess.run(
            list(map(str, process.args)),  # type: ignore[arg-type]
            capture_output=True,
            text=True,
        )
        assert other.returncode == 2
        assert "another desk runs with the folder" in other.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stdout is not None
        assert "Stopped. Trail of decisions: 1 line" in process.stdout.read()


@pytest.mark.slow(8)
def test_a_desk_by_tls(world: World, pair: tuple[Path, Path]):
    cert, key = pair
    with running(world, "--host", "localhost", "--cert", cert, "--key", key) as (_, link):
        assert link.startswith("https://localhost:")
        trusted = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(verify=trusted) as browser:
            entered = browser.get(link)
            assert entered.status_code == 200
            cookie = entered.headers["set-cookie"]
            assert cookie.startswith("__Host-cape-desk=")
            assert "Secure" in cookie
            assert "max-age" in entered.headers["strict-transport-security"]
            assert browser.get(link.partition("/login")[0] + "/policy").status_code == 200
            with pytest.raises(httpx.HTTPError):
                browser.get(link.replace("https:", "http:"))
