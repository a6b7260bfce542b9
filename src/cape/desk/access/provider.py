"""The file that says which provider of OpenID Connect logs people in, and who has which role.

[provider]
issuer = "https://login.hospital.org/realms/staff"
client = "cape-desk"
secret_env = "CAPE_DESK_SECRET"      # or secret_file = "/etc/cape/desk-secret"; leave it out for none
scopes = ["openid", "email"]
name = "email"                       # the claim that names a person in the logs

[roles.admin]
email = ["ana@hospital.org"]
[roles.steward]
groups = ["data-stewards"]           # any claim of the provider: one of its values must be listed
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from cape.core import documents
from cape.core.documents import Text
from cape.core.errors import CapeError, InvalidInput
from cape.desk.access.people import ROLES, Person, Role, require_name

__all__ = ["Provider", "is_loopback", "require_private"]


class _Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    issuer: Text
    client: Text
    secret_env: Text | None = None
    secret_file: Text | None = None
    scopes: Annotated[list[Text], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["openid", "email"]
    )
    name: Text = "email"


class _Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    viewer: dict[str, Any] = {}
    steward: dict[str, Any] = {}
    admin: dict[str, Any] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    provider: _Provider
    roles: _Roles


@dataclass(frozen=True)
class Provider:
    """A provider, this desk's registration there, and the roles of its people.

    Attributes:
        issuer: the provider's name, the start of the address of its settings.
        client, secret: this desk's registration there.
        scopes: what is asked for.
        name: the claim that names a person. People must not be able to choose it: four-eyes approval counts
            names.
        roles: for each role, the values of claims that give it.
    """

    issuer: str
    client: str
    secret: str | None
    scopes: tuple[str, ...]
    name: str
    roles: Mapping[Role, Mapping[str, frozenset[str]]]

    @classmethod
    def load(cls, path: Path) -> Provider:
        """Read the file; raise `InvalidInput` that names the key if anything in it is invalid."""
        text = documents.read(path, "file of a provider", "see `cape desk --help`")
        with documents.at(str(path)):
            file = documents.decode(documents.parse(path, text), _File, file=True)
            told = file.provider
            with documents.at("[provider] issuer"):
                require_private(told.issuer)
            if "openid" not in told.scopes:
                raise InvalidInput('[provider] scopes must contain "openid"')
            roles: dict[Role, Mapping[str, frozenset[str]]] = {
                role: {
                    claim: _listed(role, claim, given) for claim, given in getattr(file.roles, role).items()
                }
                for role in ROLES
            }
            if not any(roles.values()):
                raise InvalidInput("[roles] gives no role to anybody, so nobody could log in")
            secret = _secret(told, path.parent)
        return cls(told.issuer, told.client, secret, tuple(told.scopes), told.name, roles)

    def person(self, claims: Mapping[str, Any]) -> Person:
        """Return the person of whom the provider says this, with the highest of the roles.

        An address counts only if the provider says that it has verified it: at some, people choose their own.
        """
        claims = dict(claims)
        if claims.get("email_verified") is not True:
            claims.pop("email", None)
        name = claims.get(self.name)
        if not isinstance(name, str):
            more = "; has it verified your e-mail address?" if self.name == "email" else ""
            raise CapeError(f"the provider does not say your {self.name!r}, so you cannot log in{more}")
        require_name(name)
        for role in reversed(ROLES):
            if any(_values(claims.get(claim)) & listed for claim, listed in self.roles[role].items()):
                return Person(name, role)
        raise CapeError(f"this desk gives no role to {name}; its operator can, in [roles]")


def is_loopback(host: str) -> bool:
    """Return whether a name is always this machine."""
    return host in ("127.0.0.1", "localhost", "::1")


def require_private(address: str) -> str:
    """Return an address; raise unless it is one of TLS, or of this machine."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        host, parts = "", urlsplit("")
    if host and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
        return address
    raise InvalidInput(f"must be an address that starts with https://, not {documents.shown(address)}")


def _listed(role: Role, claim: str, given: Any) -> frozenset[str]:
    if not given or not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise InvalidInput(f'[roles.{role}] {claim} must be a list of texts, as in {claim} = ["ana@h.org"]')
    return frozenset(given)


def _values(told: Any) -> frozenset[str]:
    """Return the values of a claim: one text, or a list of them."""
    given = told if isinstance(told, list) else [told]
    return frozenset(value for value in given if isinstance(value, str))


def _secret(told: _Provider, folder: Path) -> str | None:
    if told.secret_env is not None and told.secret_file is not None:
        raise InvalidInput("[provider]: give secret_env or secret_file, not both")
    if told.secret_env is not None:
        found = os.environ.get(told.secret_env)
        if not found:
            raise InvalidInput(f"[provider] secret_env: the variable {told.secret_env} is not set")
        return found
    if told.secret_file is not None:
        return documents.read(folder / told.secret_file, "secret of a client", "see [provider]").strip()
    return None
