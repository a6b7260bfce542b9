"""Sends notices: what happens at a site, by a command, by mail and to a webhook, outside the daemon.

Claim. A notice holds the site's name and one event (`cape.site.admin.events`): nothing of the data. Every
way gets each notice at least once, if it works again within about a minute; one that does not delays no
other way. No redirect is followed, and no secret is sent in the clear, except on this machine.
Reason. The process that runs this has no row, no key and no policy of its own: it asks the daemon over the
administrative socket for events and for [notify], which holds no secret; which command is run, which server
gets which secret, is settled when it starts (`pinned`). Each way has its own thread and
queue. Requests to a webhook are signed with HMAC-SHA256 of time and body, so that whoever gets one can check
who sent it, and when.
Tested in tests/unit/site/test_notices.py, against a mail server and a web server on loopback.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import queue
import smtplib
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from cape.core import check
from cape.core.errors import CapeError, InvalidInput
from cape.site.admin import Client, Desk
from cape.site.admin.data import Event
from cape.site.notify import Mail, Notify, Webhook, pinned

__all__ = ["Notice", "Notifier", "send"]

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds between tries of one notice
_WAIT = 5.0  # seconds that the daemon may hold a question for events
_SLOW = 20.0  # seconds for one try
_AGAIN = 5.0  # seconds until the daemon is asked again, if it is not there
_MOST = 1000  # notices that wait for one way
Say = Callable[[str], None]
Reach = Callable[[], AbstractContextManager[Client | Desk]]


@dataclass(frozen=True)
class Notice:
    """One event of one site."""

    site: str
    event: Event

    def to_dict(self) -> dict[str, Any]:
        """Return it as commands and webhooks get it."""
        event = self.event
        return {
            "site": self.site,
            "kind": event.kind,
            "time": event.time,
            "study": event.study,
            "hash": event.hash,
            "coordinator": event.coordinator,
            "sentence": event.sentence,
            "number": event.number,
        }

    @property
    def subject(self) -> str:
        """The subject of a mail."""
        return check.plain(f"{self.site}: {self.event.sentence}", 180)

    @property
    def text(self) -> str:
        """The text of a mail."""
        event = self.event
        lines = [f"Site {self.site}, {event.time}: {event.sentence}."]
        if event.study:
            lines.append(f"Study: {event.study}\nHash: {event.hash}")
        if event.coordinator:
            lines.append(f"Asked by: {event.coordinator}")
        if event.kind == "waiting":
            lines.append(f"Decide on the desk, or with: cape site inbox, cape site approve {event.hash[:12]}")
        return "\n".join(lines) + "\n"


def send(way: str, notify: Notify, notice: Notice, environment: Mapping[str, str] | None = None) -> None:
    """Send a notice one way, once; raise `CapeError` if that failed."""
    given = os.environ if environment is None else environment
    try:
        if way == "command" and notify.command is not None:
            _run(notify.command, notice)
        elif way == "smtp" and notify.smtp is not None:
            _mail(notify.smtp, notice, given)
        elif way == "webhook" and notify.webhook is not None:
            _post(notify.webhook, notice, given)
    except (OSError, smtplib.SMTPException, subprocess.SubprocessError, ValueError) as error:
        if isinstance(error, CapeError):
            raise
        raise CapeError(f"{way}: {type(error).__name__}: {check.plain(str(error), 200)}") from None


def _run(command: list[str], notice: Notice) -> None:
    done = subprocess.run(
        command,
        input=json.dumps(notice.to_dict()) + "\n",
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=_SLOW,
        check=False,
    )
    if done.returncode:
        raise CapeError(f"command: it ended with status {done.returncode}")


def _secret(name: str, environment: Mapping[str, str]) -> str:
    found = environment.get(name)
    if not found:
        raise InvalidInput(f"the variable {name}, which [notify] names, is not set where notices are sent")
    return found


def _plain(subject: str) -> str:
    """Return a subject in which nothing is decoded: who asks chooses the name of a study."""
    return subject.replace("=?", "= ?")


def _mail(mail: Mail, notice: Notice, environment: Mapping[str, str]) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = (
        mail.sender,
        ", ".join(mail.to),
        _plain(notice.subject),
    )
    message.set_content(notice.text)
    context = ssl.create_default_context()
    server: smtplib.SMTP
    if mail.tls == "tls":
        server = smtplib.SMTP_SSL(mail.host, mail.port, timeout=_SLOW, context=context)
    else:
        server = smtplib.SMTP(mail.host, mail.port, timeout=_SLOW)
    with server:
        if mail.tls == "starttls":
            server.starttls(context=context)
        if mail.user is not None and mail.password_env is not None:
            server.login(mail.user, _secret(mail.password_env, environment))
        server.send_message(message)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(webhook: Webhook, notice: Notice, environment: Mapping[str, str]) -> None:
    body = json.dumps(notice.to_dict()).encode()
    at = str(int(time.time()))
    secret = _secret(webhook.secret_env, environment).encode()
    signature = hmac.new(secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-Cape-Timestamp": at,
        "X-Cape-Signature": f"sha256={signature}",
    }
    request = urllib.request.Request(webhook.url, body, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirect)
    with opener.open(request, timeout=_SLOW) as answer:
        answer.read(1 << 16)


@dataclass
class _Way:
    """One way, with a queue and a thread of its own."""

    name: str
    say: Say
    pauses: tuple[float, ...]
    stop: threading.Event
    waiting: queue.Queue[tuple[Notify, Notice] | None] = field(default_factory=lambda: queue.Queue(_MOST))

    def run(self) -> None:
        while (item := self.waiting.get()) is not None:
            self._try(*item)

    def _try(self, notify: Notify, notice: Notice) -> None:
        """Send a notice, again after each pause if that fails; give up after the last."""
        for pause in (*self.pauses, None):
            try:
                return send(self.name, notify, notice)
            except CapeError as error:
                said = f"a notice could not be sent by {check.plain(str(error), 300)}"
                if pause is None or self.stop.is_set():
                    return self.say(f"{said}; it is given up: {notice.subject}")
                self.say(f"{said}; trying again in {pause:g} s")
                self.stop.wait(pause)


class Notifier:
    """Follows the events of a site, and sends notices of them until it is stopped.

    It begins with a notice for each study that waits: nobody may have been told.

    >>> Notifier(lambda: Client("our-site/admin.sock"), say=print).follow(stop)

    Args:
        reach: connects to the site.
        say: called with a line for each notice, and for each that failed.
        pauses: seconds between the tries of one notice.
    """

    def __init__(self, reach: Reach, say: Say, pauses: tuple[float, ...] = _PAUSES) -> None:
        self._reach, self._say, self._pauses = reach, say, pauses
        self._first: Notify | None = None

    def follow(self, stop: threading.Event) -> None:
        """Send notices until `stop` is set; then finish what can be sent at once."""
        ways = {name: _Way(name, self._say, self._pauses, stop) for name in ("command", "smtp", "webhook")}
        threads = [threading.Thread(target=way.run, daemon=True) for way in ways.values()]
        for thread in threads:
            thread.start()
        last: int | None = None
        while not stop.is_set():
            try:
                with self._reach() as desk:
                    last = self._listen(desk, last, ways, stop)
            except CapeError as error:
                self._say(f"the site's daemon does not answer ({error}); asking again")
                stop.wait(_AGAIN)
        for way in ways.values():
            way.waiting.put(None)
        for thread in threads:
            thread.join(_SLOW)

    def _listen(
        self, desk: Client | Desk, last: int | None, ways: Mapping[str, _Way], stop: threading.Event
    ) -> int | None:
        """Pass events on, and return the number of the last; None while it is unknown."""
        site = desk.mine().name
        if last is None:
            last = desk.status().last_event
            for study in desk.inbox().of("waiting"):
                said = f"study {study.study!r} ({study.hash[:12]}) waits for approval"
                first = Event(last, study.since, "waiting", study.study, study.who, said, study.hash)
                self._pass_on(self._settings(desk), Notice(site, first), ways)
        while not stop.is_set():
            events = desk.events(last, _WAIT)
            settings = self._settings(desk) if events else None
            for event in events:
                last = event.number
                if settings is not None:
                    self._pass_on(settings, Notice(site, event), ways)
        return last

    def _settings(self, desk: Client | Desk) -> Notify:
        """Return the policy's [notify], with the command, the servers and the variables that it had at the
        start.

        Whoever may edit the policy through the socket could otherwise run any program as this user, or have
        any variable of its environment sent to a server of theirs.
        """
        told = desk.notify()
        first = self._first = self._first or told
        found = pinned(told, first)
        if found != told:
            self._say("[notify] names another command or server; start `cape site notify` again to use it")
        return found

    def _pass_on(self, notify: Notify, notice: Notice, ways: Mapping[str, _Way]) -> None:
        if notice.event.kind not in notify.about:
            return
        for name in notify.ways:
            try:
                ways[name].waiting.put_nowait((notify, notice))
                self._say(f"notice by {name}: {notice.subject}")
            except queue.Full:
                self._say(f"too many notices wait for {name}; this one is given up: {notice.subject}")
