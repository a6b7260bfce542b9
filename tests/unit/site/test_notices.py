"""Notices by command, mail and webhook: against servers on loopback, with retries that end."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from cape.core.errors import CapeError, InvalidInput
from cape.site import SiteFolder
from cape.site.admin import SOCKET, Client, Desk, serve
from cape.site.admin.data import Event
from cape.site.admin.notices import Notice, Notifier, pinned, send
from cape.site.notify import Notify
from tests.world import SECRET, World

EVENT = Event(5, "2026-01-02T03:04:05+00:00", "waiting", "lungs", "office", "study 'lungs' waits", "ab" * 32)
NOTICE = Notice("cleveland", EVENT)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "w")
    world.edit('approve = "auto"', 'approve = "ask"')
    return world


class Web:
    """A web server that keeps what it gets, and fails as often as it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.failures, self.location = 0, ""
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if web.location:
                    self.send_response(302)
                    self.send_header("Location", web.location)
                elif web.failures:
                    web.failures -= 1
                    self.send_response(503)
                else:
                    web.got.append((dict(self.headers), body))
                    self.send_response(204)
                self.end_headers()

            def do_GET(self) -> None:
                web.got.append((dict(self.headers), b""))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.server.shutdown()
    web.server.server_close()


class Mails:
    """The messages that a mail server took."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        self.taken.append(envelope)
        return "250 OK"


@contextmanager
def mail_server(**more: Any) -> Iterator[tuple[Mails, int]]:
    from aiosmtpd.controller import Controller
    from aiosmtpd.smtp import AuthResult

    def login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        right = (data.login, data.password) == (b"cape", b"geheim")
        return AuthResult(success=right, handled=False)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mails = Mails()
    controller = Controller(mails, "127.0.0.1", port, authenticator=login, auth_require_tls=False, **more)
    controller.start()
    try:
        yield mails, port
    finally:
        controller.stop()


@pytest.fixture
def mails() -> Iterator[tuple[Mails, int]]:
    with mail_server() as found:
        yield found


def certificate(folder: Path) -> Path:
    """A key and a certificate for localhost that it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(7).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = made.add_extension(names, critical=False)
    path = folder / "server.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return path


def settings(**given: Any) -> Notify:
    told = msgspec.convert(given, Notify)
    told.check()
    return told


def test_a_webhook_gets_the_notice_signed(web: Web):
    notify = settings(webhook={"url": web.url, "secret_env": "CAPE_NOTIFY_HOOK"})
    send("webhook", notify, NOTICE, {"CAPE_NOTIFY_HOOK": "secret"})
    ((headers, body),) = web.got
    assert json.loads(body) == NOTICE.to_dict()
    signed = headers["X-Cape-Timestamp"].encode() + b"." + body
    expected = hmac.new(b"secret", signed, hashlib.sha256).hexdigest()
    assert headers["X-Cape-Signature"] == f"sha256={expected}"
    assert abs(int(headers["X-Cape-Timestamp"]) - time.time()) < 60


def test_a_webhook_is_not_redirected_and_needs_its_secret(web: Web):
    notify = settings(webhook={"url": web.url, "secret_env": "CAPE_NOTIFY_HOOK"})
    with pytest.raises(CapeError, match="the variable CAPE_NOTIFY_HOOK"):
        send("webhook", notify, NOTICE, {})
    web.location = web.url.replace("/hook", "/elsewhere")
    with pytest.raises(CapeError, match="webhook: HTTPError"):
        send("webhook", notify, NOTICE, {"CAPE_NOTIFY_HOOK": "secret"})
    assert web.got == []


def test_a_mail_is_taken_by_a_mail_server(mails: tuple[Mails, int]):
    taken, port = mails
    mail = {"host": "127.0.0.1", "port": port, "tls": "none", "from": "cape@a.org"}
    mail |= {"to": ["x@a.org", "y@a.org"]}
    send("smtp", settings(smtp=mail), NOTICE, {})
    (one,) = taken.taken
    assert (one.mail_from, one.rcpt_tos) == ("cape@a.org", ["x@a.org", "y@a.org"])
    text = one.content.decode()
    assert "Subject: cleveland: study 'lungs' waits" in text
    assert "cape site approve abababababab" in text
    login = mail | {"user": "cape", "password_env": "CAPE_NOTIFY_WORD"}
    send("smtp", settings(smtp=login), NOTICE, {"CAPE_NOTIFY_WORD": "geheim"})
    with pytest.raises(CapeError, match="SMTPAuthenticationError"):
        send("smtp", settings(smtp=login), NOTICE, {"CAPE_NOTIFY_WORD": "wrong"})
    with pytest.raises(CapeError, match="SMTPNotSupportedError"):
        send("smtp", settings(smtp=mail | {"tls": "starttls"}), NOTICE, {})
    assert len(taken.taken) == 2, "nothing goes out in the clear because a server has no TLS"


def test_a_mail_goes_only_to_a_server_whose_certificate_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pem = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with mail_server(tls_context=context) as (taken, port):
        notify = settings(smtp={"host": "localhost", "port": port, "from": "cape@a.org", "to": ["x@a.org"]})
        with pytest.raises(CapeError, match="smtp: SSLCertVerificationError"):
            send("smtp", notify, NOTICE, {})
        assert taken.taken == []
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        send("smtp", notify, NOTICE, {})
        assert len(taken.taken) == 1


def test_a_command_gets_the_notice_on_its_input(tmp_path: Path):
    out = tmp_path / "out"
    send("command", settings(command=["/bin/sh", "-c", f"cat > {out}"]), NOTICE)
    assert json.loads(out.read_text()) == NOTICE.to_dict()
    with pytest.raises(CapeError, match="command: it ended with status 3"):
        send("command", settings(command=["/bin/sh", "-c", "exit 3"]), NOTICE)
    with pytest.raises(CapeError, match="command: FileNotFoundError"):
        send("command", settings(command=["/no/such/command"]), NOTICE)


HOOK = {"url": "https://a.org/x", "secret_env": "CAPE_NOTIFY_HOOK"}
MAIL = {
    "host": "mail.a.org",
    "from": "a@b",
    "to": ["c@d"],
    "user": "x",
    "password_env": "CAPE_NOTIFY_PASSWORD",
}


@pytest.mark.parametrize(
    "given",
    [
        {"command": ["hook"]},
        {"smtp": {"host": "mail.a.org", "tls": "none", "from": "a@b", "to": ["c@d"]}},
        {"smtp": {"host": "127.evil.org", "tls": "none", "from": "a@b", "to": ["c@d"]}},
        {"smtp": {"host": "mail.a.org", "from": "a@b", "to": ["c@d"], "user": "x"}},
        {"webhook": {"url": "http://a.org/x", "secret_env": "CAPE_NOTIFY_X"}},
        {"webhook": {"url": "https://user:word@a.org/x", "secret_env": "CAPE_NOTIFY_X"}},
        {"webhook": {"url": "file:///etc/passwd", "secret_env": "CAPE_NOTIFY_X"}},
        {"webhook": {"url": "https://[", "secret_env": "CAPE_NOTIFY_X"}},
    ],
)
def test_settings_that_would_leak_or_fail_are_refused(given: dict[str, Any]):
    with pytest.raises(InvalidInput):
        settings(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"smtp": {"host": "m", "from": "a@b\r\nBcc: x@y", "to": ["c@d"]}},
        {"smtp": {"host": "m", "from": "a@b", "to": []}},
        {"about": ["rows"]},
        {"webhook": {"url": "https://a.org", "secret_env": "CLINIC_DB"}},
        {"webhook": {"url": "https://a.org", "secret_env": "CAPE_NOTIFY_"}},
        {"smtp": {"host": "m", "from": "a@b", "to": ["c@d"], "user": "x", "password_env": "HOME"}},
        {"webhook": {"url": "https://a.org", "secret": "x"}},
    ],
)
def test_settings_of_another_shape_are_refused(given: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError):
        settings(**given)


def test_a_policy_names_the_key_that_is_wrong(world: World):
    text = (world.site.path / "site.toml").read_text()
    (world.site.path / "site.toml").write_text(text + '\n[notify]\ncommand = ["hook"]\n')
    with pytest.raises(InvalidInput, match=r"\[notify\]: command must start with an absolute path"):
        world.site.policy  # noqa: B018


def follow(world: World, web: Web, more: str = "", pauses: tuple[float, ...] = (0.01,) * 3) -> Any:
    """Run a notifier against a site's daemon."""
    path = world.site.path / "site.toml"
    hook = f'webhook = {{url = "{web.url}", secret_env = "CAPE_NOTIFY_TEST"}}'
    path.write_text(f"{path.read_text()}\n[notify]\n{hook}\n{more}\n")
    said: list[str] = []
    stop = threading.Event()
    notifier = Notifier(lambda: Client(world.site.path / SOCKET), said.append, pauses)
    thread = threading.Thread(target=notifier.follow, args=(stop,))
    return said, stop, thread


def wait_for(what: Any) -> None:
    until = time.monotonic() + 20
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_notifier_tells_what_waits_and_what_happens_and_tries_again(
    world: World, web: Web, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CAPE_NOTIFY_TEST", "secret")
    monkeypatch.setattr("cape.site.admin.notices._WAIT", 0.2)
    assert world.code(world.request()) == "approval"
    said, stop, thread = follow(world, web, 'command = ["/bin/false"]')
    web.failures = 2
    with (
        serve(world.site.path / SOCKET, SiteFolder(world.site.path)),
        Client(world.site.path / SOCKET) as desk,
    ):
        thread.start()
        wait_for(lambda: len(web.got) == 1)
        wait_for(lambda: any("given up" in line for line in said))
        desk.approve("lungs", reason="a reason")
        world.granted(world.request())
        desk.refuse("lungs")
        wait_for(lambda: len(web.got) == 3)
        stop.set()
        thread.join(20)
    told = [json.loads(body) for _, body in web.got]
    assert [each["kind"] for each in told] == ["waiting", "answered", "refused"], "approvals are not in about"
    for each in told:
        assert (each["site"], each["study"], each["coordinator"]) == ("a", "lungs", "office")
        assert str(SECRET) not in json.dumps(each)
        assert "reason" not in json.dumps(each)
    assert sum("trying again" in line and "webhook" in line for line in said) == 2
    assert any("command: it ended with status 1" in line for line in said)


def test_a_notifier_waits_for_a_daemon_that_is_not_there(
    world: World, web: Web, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CAPE_NOTIFY_TEST", "secret")
    monkeypatch.setattr("cape.site.admin.notices._WAIT", 0.2)
    monkeypatch.setattr("cape.site.admin.notices._AGAIN", 0.02)
    said, stop, thread = follow(world, web)
    thread.start()
    wait_for(lambda: any("does not answer" in line for line in said))
    assert world.code(world.request()) == "approval"
    with serve(world.site.path / SOCKET, SiteFolder(world.site.path)):
        wait_for(lambda: len(web.got) == 1)
        stop.set()
        thread.join(20)
    assert Desk(world.site).notify().ways == ("webhook",)


@pytest.mark.slow(12)
def test_real_processes_tell_of_a_study_that_waits(world: World, tmp_path: Path):
    out, link = tmp_path / "out", tmp_path / "run" / "link.sock"
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ncat >> {out}\n")
    hook.chmod(0o700)
    path = world.site.path / "site.toml"
    path.write_text(f'{path.read_text()}\n[notify]\ncommand = ["{hook}"]\n')
    site = ["--site", str(world.site.path)]
    started = []

    def start(*typed: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cape", "site", *typed]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    def told() -> list[str]:
        return [json.loads(line)["kind"] for line in out.read_text().splitlines()] if out.exists() else []

    try:
        start("serve", *site, "--link", str(link), "--link-may-read-rows")
        wait_for((world.site.path / SOCKET).exists)
        notifier = start("notify", *site)
        assert "Notices of site a go out by command" in notifier.stdout.readline()
        time.sleep(1)
        assert world.code(world.request()) == "approval"  # in this process: the daemon finds the file
        wait_for(lambda: told() == ["waiting"])
        with Client(world.site.path / SOCKET) as desk:
            desk.refuse("lungs")
        wait_for(lambda: told() == ["waiting", "refused"])
        notifier.terminate()
        assert notifier.wait(20) == 0
    finally:
        for process in started:
            process.terminate()
            process.wait(20)
            process.stdout.close()


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        ({"command": ["/bin/a"]}, {"command": ["/bin/b"]}, {"command": ["/bin/a"]}),
        ({}, {"command": ["/bin/b"]}, {}),
        ({"command": ["/bin/a"]}, {}, {}),
        ({"webhook": HOOK}, {"webhook": HOOK | {"secret_env": "CAPE_NOTIFY_OTHER"}}, {"webhook": HOOK}),
        ({"webhook": HOOK}, {"webhook": HOOK | {"url": "https://evil.org"}}, {"webhook": HOOK}),
        ({}, {"webhook": HOOK}, {}),
        ({"smtp": MAIL}, {"smtp": MAIL | {"host": "127.0.0.1", "tls": "none"}}, {"smtp": MAIL}),
        ({"smtp": MAIL}, {"smtp": MAIL | {"password_env": "CAPE_NOTIFY_OTHER"}}, {"smtp": MAIL}),
        ({"smtp": MAIL}, {"smtp": MAIL | {"to": ["e@f"]}}, {"smtp": MAIL | {"to": ["e@f"]}}),
    ],
)
def test_secrets_go_only_where_they_went_at_the_start(
    first: dict[str, Any], then: dict[str, Any], kept: dict[str, Any]
):
    """A policy that is edited at the desk must not have the sender's variables sent elsewhere."""
    assert pinned(settings(**then), settings(**first)) == settings(**kept)
