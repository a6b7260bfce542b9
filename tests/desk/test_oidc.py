"""Login by a real provider of OpenID Connect: npm's oidc-provider, and `cape desk` as a process."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
import pytest

from cape.site.admin import SOCKET
from tests.checkout import ROOT
from tests.world import World

VERSION = "9.13.3"
NODE = ROOT / ".cache" / f"oidc-provider-{VERSION}"

LOGIN = """
[provider]
issuer = "{issuer}"
client = "cape-desk"
secret_env = "DESK_SECRET"
scopes = ["openid", "email", "groups"]
[roles.admin]
email = ["ana@h.org"]
[roles.steward]
groups = ["data-stewards"]
"""


@dataclass(frozen=True)
class Places:
    issuer: str
    desk: str
    state: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Read what a process prints until it says some words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    pytest.fail(f"the process ended before it said {words!r}")


@pytest.fixture(scope="session")
def provider_package() -> Path:
    """oidc-provider, fetched from npm once."""
    if not (NODE / "node_modules" / "oidc-provider").is_dir():
        NODE.mkdir(parents=True, exist_ok=True)
        (NODE / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", f"oidc-provider@{VERSION}"]
        subprocess.run(command, cwd=NODE, check=True, capture_output=True)
    return NODE


@pytest.fixture(scope="module")
def places(provider_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("oidc")
    world, port, secret = World(folder / "w"), free_port(), secrets.token_urlsafe(32)
    issuer, desk = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{port}"
    script = provider_package / "provider.mjs"
    shutil.copy(Path(__file__).with_name("provider.mjs"), script)
    (folder / "login.toml").write_text(LOGIN.format(issuer=issuer))
    environment = os.environ | {"DESK_SECRET": secret, "NODE_NO_WARNINGS": "1"}
    cape, site = [sys.executable, "-m", "cape"], world.site.path
    commands = [
        (["node", str(script), issuer.rsplit(":")[-1], f"{desk}/login/callback", secret], "listens"),
        (
            [
                *(*cape, "site", "serve", "--site", str(site), "--link", str(folder / "link.sock")),
                *("--desk", str(os.geteuid())),
            ],
            "waits",
        ),
        (
            [
                *(*cape, "desk", "--socket", str(site / SOCKET), "--port", str(port), "--desk-may-read-rows"),
                *("--oidc", str(folder / "login.toml"), "--state", str(folder / "state")),
            ],
            "Open",
        ),
    ]
    with ExitStack() as running:
        for command, words in commands:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
            running.enter_context(process)
            running.callback(process.terminate)
            wait_for(process, words)
        yield Places(issuer, desk, folder / "state")


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30) as client:
        yield client


def at_provider(browser: httpx.Client, desk: str, name: str, begin: str = "/login/begin") -> str:
    """Log in at the provider as a person would; return the address to which it sends the browser."""
    asked = browser.get(desk + begin)
    assert asked.status_code == 303, asked.text
    address = asked.headers["location"]
    for _ in range(12):
        found = browser.get(address)
        while found.status_code == 200:
            action = re.search(r'<form[^>]*action="([^"]+)"', found.text)
            assert action is not None, found.text
            prompt = re.search(r'name="prompt" value="(\w+)"', found.text)
            assert prompt is not None
            sent = {"prompt": prompt[1], "login": name, "password": "any"}
            found = browser.post(action[1], data=sent)
        address = str(httpx.URL(address).join(found.headers["location"]))
        if address.startswith(desk):
            return address
    raise AssertionError("the provider never sends the browser back")


def test_who_logs_in_gets_the_role_of_the_file(places: Places, browser: httpx.Client):
    assert browser.get(places.desk + "/").headers["location"] == "/login"
    assert "/login/begin" in browser.get(places.desk + "/login").text
    entered = browser.get(at_provider(browser, places.desk, "ana"))
    assert entered.status_code == 200, entered.text
    assert "ana@h.org (admin)" in entered.text
    assert browser.get(places.desk + "/policy").status_code == 200


def test_a_group_gives_a_role_too(places: Places, browser: httpx.Client):
    assert "bo@h.org (steward)" in browser.get(at_provider(browser, places.desk, "bo")).text


@pytest.mark.parametrize(
    ("name", "why"), [("eve", "verified your e-mail address"), ("joe", "gives no role to joe@h.org")]
)
def test_who_is_not_listed_or_only_claims_an_address_stays_outside(
    places: Places, browser: httpx.Client, name: str, why: str
):
    refused = browser.get(at_provider(browser, places.desk, name))
    assert refused.status_code == 403
    assert why in refused.text
    assert browser.get(places.desk + "/policy").status_code == 303


def test_an_answer_counts_once_and_in_the_browser_that_asked(places: Places, browser: httpx.Client):
    answer = at_provider(browser, places.desk, "ana")
    with httpx.Client(timeout=30) as other:
        refused = other.get(answer)
        assert refused.status_code == 403
        assert "began in another browser" in refused.text
    assert browser.get(answer).status_code == 403, "it was used up"
    assert browser.get(places.desk + "/policy").status_code == 303


def test_a_code_of_another_login_is_refused(places: Places, browser: httpx.Client):
    with httpx.Client(timeout=30) as other:
        code = parse_qs(urlsplit(at_provider(other, places.desk, "ana")).query)["code"][0]
    begun = browser.get(places.desk + "/login/begin").headers["location"]
    state = parse_qs(urlsplit(begun).query)["state"][0]
    refused = browser.get(f"{places.desk}/login/callback", params={"state": state, "code": code})
    assert refused.status_code == 403, "its PKCE verifier is another one"
    assert "invalid_grant" in refused.text


def test_the_providers_refusal_is_said_and_nothing_else_of_the_address(places: Places, browser: httpx.Client):
    for error, shown in (("access_denied", True), ("<b>call 555-1234</b>", False)):
        refused = browser.get(f"{places.desk}/login/callback", params={"error": error})
        assert refused.status_code == 403
        assert (error in refused.text) == shown


def test_the_cookie_of_a_login_is_lax_and_that_of_a_session_strict(places: Places, browser: httpx.Client):
    begun = browser.get(places.desk + "/login/begin").headers["set-cookie"]
    assert "SameSite=lax" in begun
    entered = browser.get(at_provider(browser, places.desk, "ana")).headers.get_list("set-cookie")
    (session,) = [each for each in entered if "-login" not in each]
    assert "SameSite=strict" in session
    assert "HttpOnly" in session


def test_no_link_logs_in_beside_the_provider(places: Places, browser: httpx.Client):
    command = [sys.executable, "-m", "cape", "desk", "link", "--name", "x", "--state", str(places.state)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "takes no links" in done.stderr
    assert browser.get(places.desk + "/login/link/x").status_code == 404


def test_logging_out_ends_the_session_here(places: Places, browser: httpx.Client):
    browser.get(at_provider(browser, places.desk, "ana"))
    page = browser.get(places.desk + "/policy").text
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    browser.post(places.desk + "/logout", data={"csrf": token[1]})
    assert browser.get(places.desk + "/policy").status_code == 303


def test_logins_are_limited(places: Places):
    with httpx.Client(timeout=30) as client:
        found = [client.get(places.desk + "/login/callback").status_code for _ in range(40)]
    assert found[-1] == 429
