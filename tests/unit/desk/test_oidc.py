"""Login by OpenID Connect with a provider that lies: what is believed, and what is not."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from cape.core.errors import CapeError, InvalidInput
from cape.desk.access.oidc import Logins
from cape.desk.access.people import Person
from cape.desk.access.provider import Provider
from tests.unit.desk.clock import Clock

ISSUER = "https://login.h.org"
KEY = RSAKey.generate_key(2048, {"kid": "1"})
OTHER = RSAKey.generate_key(2048, {"kid": "1"})
PROVIDER = Provider(
    ISSUER,
    "cape-desk",
    "secret",
    ("openid", "email"),
    "email",
    {
        "viewer": {"groups": frozenset({"staff"})},
        "steward": {"groups": frozenset({"stewards"})},
        "admin": {"email": frozenset({"ana@h.org"})},
    },
)
ANA = {"email": "ana@h.org", "email_verified": True}


class Fake:
    """A provider whose answers a test can bend."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.sign: Callable[[dict[str, Any]], str] = lambda claims: jwt.encode(
            {"alg": "RS256", "kid": "1"}, claims, KEY
        )
        self.settings: dict[str, Any] = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/auth",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
            "userinfo_endpoint": f"{ISSUER}/me",
        }
        self.userinfo: dict[str, Any] = {"sub": "1"} | ANA
        self.nonce = ""
        self.sent: dict[str, list[str]] = {}

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path == "/.well-known/openid-configuration":
            return httpx2.Response(200, json=self.settings)
        if path == "/keys":
            return httpx2.Response(200, json={"keys": [KEY.as_dict(private=False)]})
        if path == "/token":
            self.sent = parse_qs(request.content.decode())
            now = int(time.time())
            claims = {"iss": ISSUER, "aud": "cape-desk", "sub": "1", "iat": now, "exp": now + 300}
            token = self.sign(claims | {"nonce": self.nonce} | self.claims)
            return httpx2.Response(200, json={"id_token": token, "access_token": "t", "token_type": "Bearer"})
        assert path == "/me"
        assert request.headers["authorization"] == "Bearer t"
        return httpx2.Response(200, json=self.userinfo)


@pytest.fixture
def fake() -> Fake:
    return Fake()


def logins(fake: Fake, provider: Provider = PROVIDER, clock: Callable[[], float] = time.monotonic) -> Logins:
    return Logins(provider, "https://desk.h.org", clock, httpx2.MockTransport(fake))


def login(fake: Fake, **more: Any) -> Person:
    """Go through a login."""
    here = logins(fake, **more)
    asked = parse_qs(urlsplit(here.begin("browser")).query)
    fake.nonce = asked["nonce"][0]
    return here.finish(asked["state"][0], "code", "browser")


def test_a_verified_address_is_a_person_with_the_highest_of_the_roles(fake: Fake):
    assert login(fake) == Person("ana@h.org", "admin")
    fake.userinfo = {"sub": "1", "email": "bo@h.org", "email_verified": True, "groups": ["staff", "stewards"]}
    assert login(fake) == Person("bo@h.org", "steward")
    fake.userinfo["groups"] = "staff"
    assert login(fake) == Person("bo@h.org", "viewer")


def test_the_provider_is_asked_for_a_code_with_pkce(fake: Fake):
    asked = parse_qs(urlsplit(logins(fake).begin("browser")).query)
    assert asked["response_type"] == ["code"]
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["redirect_uri"] == ["https://desk.h.org/login/callback"]
    login(fake)
    assert len(fake.sent["code_verifier"][0]) >= 43


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.org"},
        {"aud": "another"},
        {"aud": "another", "azp": "cape-desk"},
        {"aud": ["another", "cape-desk"]},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1},
        {"iat": 4102444800},
        {"sub": None},
    ],
    ids=str,
)
def test_a_token_for_somebody_else_is_refused(fake: Fake, claims: dict[str, Any]):
    fake.claims = claims
    with pytest.raises(CapeError, match="not valid"):
        login(fake)


def signed_by_another(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "1"}, claims, OTHER)


def unsigned(claims: dict[str, Any]) -> str:
    def part(told: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(told).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part(claims)}."


def signed_with_what_is_public(claims: dict[str, Any]) -> str:
    """The old trick: the provider's public key as the secret of a symmetric algorithm."""
    text = unsigned(claims).rstrip(".").split(".")[1]
    head = unsigned({"alg": "HS256", "kid": "1"}).split(".")[1]
    code = hmac.digest(KEY.as_pem(private=False), f"{head}.{text}".encode(), "sha256")
    return f"{head}.{text}.{base64.urlsafe_b64encode(code).rstrip(b'=').decode()}"


def signed_with_a_secret(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key("secret" * 8))


@pytest.mark.parametrize(
    "sign",
    [
        signed_by_another,
        unsigned,
        signed_with_a_secret,
        signed_with_what_is_public,
        lambda claims: "x.y.z",
        lambda claims: "",
    ],
    ids=["another key", "none", "secret", "public", "noise", "empty"],
)
def test_a_token_that_the_providers_keys_did_not_sign_is_refused(
    fake: Fake, sign: Callable[[dict[str, Any]], str]
):
    fake.sign = sign
    with pytest.raises(CapeError, match="not valid"):
        login(fake)


@pytest.mark.parametrize(
    ("userinfo", "why"),
    [
        ({"sub": "2"} | ANA, "not valid"),
        (ANA, "not valid"),
        ({"sub": "1", "email": "ana@h.org"}, "verified"),
        ({"sub": "1", "email": "ana@h.org", "email_verified": "true"}, "verified"),
        ({"sub": "1", "email": "joe@h.org", "email_verified": True, "groups": ["admin"]}, "no role"),
        ({"sub": "1", "email": "a\nb", "email_verified": True}, "name"),
    ],
)
def test_claims_about_others_or_unverified_ones_do_not_count(fake: Fake, userinfo: dict[str, Any], why: str):
    fake.userinfo = userinfo
    with pytest.raises(CapeError, match=why):
        login(fake)


def test_what_the_id_token_says_comes_before_userinfo(fake: Fake):
    fake.claims = {"email": "joe@h.org", "email_verified": True}
    with pytest.raises(CapeError, match=r"no role to joe@h\.org"):
        login(fake)


def test_a_login_counts_once_in_its_browser_and_for_ten_minutes(fake: Fake):
    clock = Clock()
    here = logins(fake, clock=clock)

    def begin() -> str:
        asked = parse_qs(urlsplit(here.begin("browser")).query)
        fake.nonce = asked["nonce"][0]
        return asked["state"][0]

    with pytest.raises(CapeError, match="another browser"):
        here.finish(begin(), "code", "")
    state = begin()
    here.finish(state, "code", "browser")
    with pytest.raises(CapeError, match="has ended"):
        here.finish(state, "code", "browser")
    state = begin()
    clock.now += 600
    with pytest.raises(CapeError, match="has ended"):
        here.finish(state, "code", "browser")
    with pytest.raises(CapeError, match="has ended"):
        here.finish("", "", "")


def test_many_logins_that_nobody_ends_take_bounded_space(fake: Fake):
    here = logins(fake)
    first = parse_qs(urlsplit(here.begin("browser")).query)["state"][0]
    for _ in range(1000):
        here.begin("browser")
    assert not here.began(first)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"issuer": "https://evil.org"}, "another name"),
        ({"token_endpoint": "http://login.h.org/token"}, "https"),
        ({"jwks_uri": "file:///etc/passwd"}, "https"),
        ({"authorization_endpoint": None}, "https"),
    ],
)
def test_settings_that_are_not_of_this_provider_or_not_private_are_refused(
    fake: Fake, change: dict[str, Any], why: str
):
    fake.settings |= change
    with pytest.raises(CapeError, match=why):
        logins(fake).begin("browser")


FILE = """
[provider]
issuer = "https://login.h.org"
client = "cape-desk"
[roles.admin]
email = ["ana@h.org"]
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("https:", "http:", r"\[provider\] issuer: must be an address that starts with https://"),
        ("client", "clinet", "unknown key 'clinet'"),
        ("[roles.admin]", "[roles.owner]", "owner"),
        ('["ana@h.org"]', "[]", "must be a list"),
        ('["ana@h.org"]', '"ana@h.org"', "must be a list"),
        ('[roles.admin]\nemail = ["ana@h.org"]', "[roles]", "gives no role to anybody"),
        ('client = "cape-desk"', 'client = "x"\nscopes = ["email"]', '"openid"'),
        ('client = "cape-desk"', 'client = "x"\nsecret_env = "NO_SUCH"', "NO_SUCH is not set"),
        ('client = "cape-desk"', 'client = "x"\nsecret_file = "none"', "no secret of a client"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, old: str, new: str, why: str):
    path = tmp_path / "login.toml"
    path.write_text(FILE)
    assert Provider.load(path).roles["admin"] == {"email": frozenset({"ana@h.org"})}
    path.write_text(FILE.replace(old, new))
    with pytest.raises(InvalidInput, match=why):
        Provider.load(path)
