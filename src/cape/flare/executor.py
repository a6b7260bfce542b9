"""The site's end of the network: it carries bytes to the socket of the site's daemon, and sends heartbeats.

Nothing is decided, read or kept here. This process has no row, no key and no ledger: an attacker who controls
it can send messages to the daemon, as anybody on the network can, and nothing more.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from cape.core.errors import CapeError
from cape.core.unix import Client
from cape.flare.names import ALIVE, BEAT, CALL, GONE, LINK, PATIENCE
from cape.flare.orphan import exit_without

__all__ = ["Site"]


class Site(Executor):
    """One site in one job. It takes no argument from the job: `cape join` says where the daemon is."""

    def __init__(self) -> None:
        super().__init__()
        self._over = threading.Event()
        self._daemon = _Daemon(os.environ.get(LINK, ""))

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin and end with the job."""
        if event_type == EventType.START_RUN:
            engine: Any = fl_ctx.get_engine()
            engine.register_aux_message_handler(CALL, self._handle)
            threading.Thread(target=self._beat, args=(engine,), name="cape-alive", daemon=True).start()
        elif event_type == EventType.END_RUN:
            self._over.set()
            self._daemon.close()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort: Signal) -> Shareable:
        """Refuse every task: everything goes through messages that are pushed."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _handle(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        data = request.get("data")
        if not isinstance(data, (bytes, bytearray, memoryview)) or not data:
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        try:
            answer = self._daemon.call(data)
        except CapeError as error:  # the aggregator sees a site that does not answer
            self.log_error(fl_ctx, str(error), fire_event=False)
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        reply = make_reply(ReturnCode.OK)
        reply["data"] = answer
        return reply

    def _beat(self, engine: Any) -> None:
        """Send heartbeats while the daemon answers."""
        parent = os.getppid()
        while not self._over.is_set():
            exit_without(parent)
            if self._daemon.is_there():
                with engine.new_context() as context:
                    engine.fire_and_forget_aux_request(
                        topic=ALIVE, request=Shareable(), fl_ctx=context, optional=True
                    )
            self._over.wait(BEAT)


class _Daemon:
    """The site's daemon behind its socket: connected when it is needed, and again after a restart."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[Client] = []
        self._ping: Client | None = None
        self._lock = threading.Lock()

    def call(self, data: bytes | bytearray | memoryview) -> bytearray:
        """Return the daemon's answer. Each thread has its own connection and waits for no other."""
        client = self._connected()
        try:
            answer = client.call(data)
        except CapeError:  # not sent again: the daemon may have acted on it
            client.close()
            raise
        with self._lock:
            self._idle.append(client)
        return answer

    def _connected(self) -> Client:
        with self._lock:
            while self._idle:
                client = self._idle.pop()
                if client.open:
                    return client
                client.close()
        return Client(self._path, timeout=PATIENCE)

    def is_there(self) -> bool:
        """Return whether the daemon answers an empty frame."""
        try:
            if self._ping is None:
                self._ping = Client(self._path, timeout=GONE)
            self._ping.call(b"")
        except CapeError:
            if self._ping is not None:
                self._ping.close()
            self._ping = None
            return False
        return True

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            for client in self._idle:
                client.close()
            self._idle.clear()
