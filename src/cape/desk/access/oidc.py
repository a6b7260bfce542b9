"""Login by a provider of OpenID Connect, with the authorization code flow (authlib).

Claim. Only a person for whom the provider has issued an ID token to this desk, in answer to a login that this
browser began here in the last ten minutes, gets a session; the role follows from claims that the provider
states.
Reason. A login has a state, a nonce and a PKCE verifier of 256 bits each, all kept here, and counts once. A
cookie binds it to the browser: a link of somebody else's login is refused. The ID token's signature is
checked with the provider's keys by public-key algorithms only, and its issuer, audience, times and nonce.
Claims of the userinfo endpoint count if they are about the same subject.
Tested in tests/unit/desk/test_oidc.py, and with a real provider in tests/desk/test_oidc.py.

The cookie of a login that has begun is SameSite=Lax: the provider sends the browser back here, and a Strict
cookie would not come along. It is no session, and ends with the login.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cape.core.errors import CapeError
from cape.desk.access.people import Person
from cape.desk.access.provider import Provider, require_private
from cape.desk.app import Access, enter
from cape.desk.page import Page, render

__all__ = ["CALLBACK", "Logins", "pages"]

CALLBACK = "/login/callback"
_BEGIN = "/login/begin"
_ALGORITHMS = [
    *(f"{kind}{size}" for kind in ("RS", "PS", "ES") for size in (256, 384, 512)),
    "Ed25519",
    "EdDSA",
]
_LASTS = 600.0  # seconds from here to the provider and back
_MOST_BEGUN = 1000
_PATIENCE = 10.0
_LEEWAY = 60  # seconds by which clocks may differ
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint")


@dataclass(frozen=True)
class _Begun:
    nonce: str
    verifier: str
    browser: bytes
    until: float


class Logins:
    """Logins at one provider.

    Args:
        provider: which one.
        address: of this desk, as browsers reach it: https://desk.hospital.org.
        clock: seconds that never go back.
        transport: how the provider is reached, if not by the network.
    """

    def __init__(
        self,
        provider: Provider,
        address: str,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.provider, self._transport = provider, transport
        self._redirect = address.rstrip("/") + CALLBACK
        self._clock = clock
        self._begun: dict[str, _Begun] = {}
        self._lock = threading.Lock()
        self._settings: dict[str, Any] = {}
        self._keys: KeySet | None = None

    def begin(self, browser: str) -> str:
        """Return the address at the provider to which a browser must go."""
        settings = self._discover()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._lock:
            now = self._clock()
            for old in [key for key, begun in self._begun.items() if begun.until <= now]:
                del self._begun[old]
            while len(self._begun) >= _MOST_BEGUN:
                del self._begun[next(iter(self._begun))]
            self._begun[state] = _Begun(nonce, verifier, _hash(browser), now + _LASTS)
        with self._client() as client:
            address, _ = client.create_authorization_url(
                settings["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )
        return str(address)

    def began(self, state: str) -> bool:
        """Return whether a login with this state has begun here, and has not ended."""
        return state in self._begun

    def finish(self, state: str, code: str, browser: str) -> Person:
        """Return who has logged in, when the provider has sent the browser back."""
        with self._lock:
            begun = self._begun.pop(state, None)
        if begun is None or begun.until <= self._clock():
            raise CapeError("this login has ended, or did not begin here; log in again")
        if not hmac.compare_digest(begun.browser, _hash(browser)):
            raise CapeError("this login began in another browser; log in again")
        try:
            with self._client() as client:
                token = client.fetch_token(
                    self._discover()["token_endpoint"], code=code, code_verifier=begun.verifier
                )
                claims = self._claims(token, begun.nonce)
                return self.provider.person(self._more(client, claims))
        except CapeError:
            raise
        except OAuthError as error:
            raise CapeError(f"the provider refused the login{_code(error.error)}") from None
        except (JoseError, ValueError, LookupError, TypeError) as error:
            raise CapeError(
                f"the provider's answer is not valid ({type(error).__name__}); nobody was logged in"
            ) from None
        except httpx2.HTTPError as error:
            raise CapeError(f"the provider does not answer ({type(error).__name__}); try later") from None

    def _claims(self, token: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        """Return the claims of an ID token that was issued for this desk and this login."""
        text = token["id_token"]
        try:
            found = jwt.decode(text, self._key_set(), algorithms=_ALGORITHMS)
        except InvalidKeyIdError:  # the provider has new keys
            found = jwt.decode(text, self._key_set(fresh=True), algorithms=_ALGORITHMS)
        claims = CodeIDToken(
            found.claims,
            found.header,
            {
                "iss": {"essential": True, "value": self.provider.issuer},
                "aud": {"essential": True, "value": self.provider.client},
                "sub": {"essential": True},
            },
            {"nonce": nonce, "client_id": self.provider.client, "access_token": token.get("access_token")},
        )
        claims.validate(leeway=_LEEWAY)
        return dict(claims)

    def _more(self, client: OAuth2Client, claims: dict[str, Any]) -> dict[str, Any]:
        """Return the claims with those of the userinfo endpoint, where many providers put the address."""
        address = self._discover().get("userinfo_endpoint")
        if address is None or "access_token" not in (client.token or {}):
            return claims
        answer = client.get(address)
        answer.raise_for_status()
        told = answer.json()
        if not isinstance(told, dict) or told.get("sub") != claims["sub"]:
            raise ValueError("userinfo about another subject")
        return told | claims

    def _discover(self) -> dict[str, Any]:
        """Return the provider's settings; they are asked for once."""
        if not self._settings:
            told = self._fetch(self.provider.issuer.rstrip("/") + "/.well-known/openid-configuration")
            if told.get("issuer") != self.provider.issuer:
                raise CapeError("the provider gives itself another name than [provider] issuer")
            for name in _ENDPOINTS:
                if name in told or name != "userinfo_endpoint":
                    require_private(str(told.get(name, "")))
            self._settings = told
        return self._settings

    def _key_set(self, fresh: bool = False) -> KeySet:
        if self._keys is None or fresh:
            self._keys = KeySet.import_key_set(self._fetch(self._discover()["jwks_uri"]))
        return self._keys

    def _fetch(self, address: str) -> Any:
        try:
            with httpx2.Client(timeout=_PATIENCE, transport=self._transport) as client:
                answer = client.get(address)
            answer.raise_for_status()
            told = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise CapeError(
                f"the provider of logins does not answer ({type(error).__name__}); try again later"
            ) from None
        if not isinstance(told, dict):
            raise CapeError("the provider of logins answers with something else; is [provider] issuer right?")
        return told

    def _client(self) -> OAuth2Client:
        return OAuth2Client(
            self.provider.client,
            self.provider.secret,
            token_endpoint_auth_method="client_secret_basic" if self.provider.secret else "none",
            scope=" ".join(self.provider.scopes),
            redirect_uri=self._redirect,
            code_challenge_method="S256",
            timeout=_PATIENCE,
            transport=self._transport,
        )


def pages(logins: Logins) -> tuple[Page, ...]:
    """Return the pages of those who have not logged in."""

    def cookie(access: Access) -> str:
        return f"{access.cookie}-login"

    def login(request: Request) -> Response:
        return render(request, "login.html", provider=logins.provider.issuer)

    def begin(request: Request) -> Response:
        access: Access = request.app.state.access
        _limit(request, access)
        browser = secrets.token_urlsafe(32)
        response = RedirectResponse(logins.begin(browser), status_code=303)
        response.set_cookie(
            cookie(access),
            browser,
            max_age=int(_LASTS),
            httponly=True,
            secure=access.secure,
            samesite="lax",
            path="/",
        )
        return response

    def finish(request: Request) -> Response:
        access: Access = request.app.state.access
        asked = request.query_params
        if not logins.began(asked.get("state", "")):
            _limit(request, access)
        if "error" in asked:
            raise HTTPException(403, f"the provider refused the login{_code(asked['error'])}")
        try:
            person = logins.finish(
                asked.get("state", ""), asked.get("code", ""), request.cookies.get(cookie(access), "")
            )
        except CapeError as error:
            raise HTTPException(403, str(error)) from None
        response = enter(request, person)
        response.delete_cookie(cookie(access), path="/", secure=access.secure, httponly=True, samesite="lax")
        return response

    return Page("/login", login), Page(_BEGIN, begin), Page(CALLBACK, finish)


def _limit(request: Request, access: Access) -> None:
    address = request.client.host if request.client is not None else ""
    if not access.limits.logins.take(address):
        raise HTTPException(429, "too many attempts to log in; wait a minute")


def _code(error: Any) -> str:
    """Return a provider's code of an error, if it is one: anybody can write an address with another text."""
    return f" ({error})" if isinstance(error, str) and re.fullmatch(r"[a-z_]{1,60}", error) else ""


def _hash(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
