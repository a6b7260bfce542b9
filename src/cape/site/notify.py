"""The [notify] section of a policy: to whom notices of a site go. `cape site notify` sends them.

Claim. A policy holds no secret of a mail server or a webhook: it names the variables of the environment that
hold them, in the process that sends. No other variable can be named: whoever edits the policy could have it
sent to a server of theirs.
Reason. Names of such variables begin with CAPE_NOTIFY_.
Tested in tests/unit/site/test_notices.py.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from cape.core.errors import InvalidInput

__all__ = ["NOBODY", "Kind", "Mail", "Notify", "Webhook", "pinned"]

Kind = Literal["waiting", "approved", "refused", "asked", "answered", "spent-80", "policy", "key"]
"""What a notice is about."""

_Text = Annotated[str, Meta(min_length=1, max_length=400, pattern=r"\A[^\r\n\x00]+\Z")]
_Variable = Annotated[
    str,
    Meta(
        max_length=100,
        pattern=r"\ACAPE_NOTIFY_[A-Za-z0-9_]+\Z",
        description="must be the name of a variable that starts with CAPE_NOTIFY_",
    ),
]
_Address = Annotated[
    str,
    Meta(
        max_length=320,
        pattern=r"\A[!-?A-~]+@[!-?A-~]+\Z",
        description='must be an address such as "steward@clinic.org"',
    ),
]
_ALL: tuple[Kind, ...] = ("waiting", "answered", "refused", "spent-80")


class Mail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mail server, and who gets notices from whom.

    Attributes:
        tls: "starttls" (default), "tls" from the first byte, or "none" for a server on this machine.
        user, password_env: to log in; the password is in this variable of the environment.
    """

    host: _Text
    port: Annotated[int, Meta(ge=1, le=65535)] = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    sender: _Address = msgspec.field(name="from")
    to: Annotated[list[_Address], Meta(min_length=1, max_length=50)]
    user: _Text | None = None
    password_env: _Variable | None = None


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that gets each notice as JSON by POST, signed with the secret in a variable."""

    url: _Text
    secret_env: _Variable


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where notices go: a command, mail and a webhook; and of what."""

    command: Annotated[list[_Text], Meta(min_length=1, max_length=50)] | None = None
    smtp: Mail | None = None
    webhook: Webhook | None = None
    about: Annotated[list[Kind], Meta(min_length=1)] = msgspec.field(default_factory=lambda: list(_ALL))

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways in which notices go out."""
        return tuple(name for name in ("command", "smtp", "webhook") if getattr(self, name) is not None)

    def check(self) -> None:
        """Raise `InvalidInput` for what cannot work, or would send a secret or a notice in the clear."""
        if self.command is not None and not self.command[0].startswith("/"):
            raise InvalidInput('command must start with an absolute path, as in ["/usr/local/bin/hook"]')
        mail = self.smtp
        if mail is not None:
            if (mail.user is None) != (mail.password_env is None):
                raise InvalidInput("smtp: user and password_env go together")
            if mail.tls == "none" and not _on_this_machine(mail.host):
                raise InvalidInput(
                    'smtp: tls = "none" is for a server on this machine; write tls = "starttls" or "tls"'
                )
        if self.webhook is not None:
            _check_url(self.webhook.url)


NOBODY = Notify()


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInput('webhook: url must be an address such as "https://clinic.org/hook"')
    if "@" in parts.netloc:
        raise InvalidInput("webhook: url must not hold a password; requests are signed with secret_env")
    if parts.scheme == "http" and not _on_this_machine(host):
        raise InvalidInput("webhook: url must start with https://, unless it is on this machine")


def _on_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def pinned(told: Notify, first: Notify) -> Notify:
    """Return settings that send nothing elsewhere than the first did; ways may end, and recipients change."""
    replace = msgspec.structs.replace
    mail = told.smtp
    if mail is not None:
        mail = None if first.smtp is None else replace(first.smtp, to=mail.to, sender=mail.sender)
    return replace(
        told,
        command=None if told.command is None else first.command,
        smtp=mail,
        webhook=None if told.webhook is None else first.webhook,
    )
