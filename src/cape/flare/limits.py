"""Limits on what one site can use of the aggregator: enough for its own study, without starving the others.

Claim. Whatever a site with a valid certificate, or anybody without one, sends, studies of the other sites
continue; and no site can impersonate another, or send it messages.
Reason. A connection is identified by its certificate. For each name there is a limit on connections, on
frames processed at once, on frames a second and on the size of a frame; whoever reaches it waits or is
disconnected, and nobody else. A connection that does not finish its handshakes in time is closed. A message
must name as its origin the party whose certificate made the connection (NVFLARE 2.9 binds it to a token, but
not to one that has been replaced, nor to an administrator's), and a site's messages are delivered to the
aggregator only.
Not claimed: protection against more packets than the machine or its network can take.
Tested in tests/deploy/test_edge_flood.py and test_edge_code.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import time
from collections import Counter, defaultdict
from typing import Any

from cape.core.errors import CapeError

__all__ = ["limit"]

_CONNECTIONS = 32  # of one name: a client, and one for each of its jobs
_PENDING = 512  # connections that are not yet a websocket, of all names together
_IN_WORK = 24  # frames of one name that are processed at once; NVFLARE has 100 threads for all
_A_SECOND = 400  # frames of one name; ours come in pieces of 1 MiB
_BURST = 800
_FRAME = 1 << 26  # bytes of a frame
_HANDSHAKE = 10.0  # seconds for TLS, and again for the request that opens the websocket
_PING = 20.0  # seconds after which a silent connection is pinged
_FILES = 8192
_DEADLY = "submit_update"  # the result of a task, which our jobs do not have; a malformed one ends NVFLARE's
_log = logging.getLogger(__name__)


def limit() -> None:
    """Set the limits in an aggregator's process, before NVFLARE starts in it."""
    from aiohttp.web_protocol import RequestHandler
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell
    from nvflare.fuel.f3.drivers.aio_http_driver import AioHttpDriver
    from nvflare.fuel.f3.sfm.conn_manager import ConnManager

    for owner, name in (
        (CoreCell, "_process_received_msg"),
        (AioHttpDriver, "listen"),
        (AioHttpDriver, "_websocket_handler"),
        (AioHttpDriver, "_read_loop"),
        (ConnManager, "process_frame_task"),
        (RequestHandler, "connection_made"),
        (RequestHandler, "connection_lost"),
    ):
        if not hasattr(owner, name):
            raise CapeError(f"this version of NVFLARE has no {owner.__name__}.{name}; install cape-dp[flare]")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    _bind_origins(CoreCell)
    _limit_connections(AioHttpDriver, RequestHandler)
    _limit_frames(AioHttpDriver, ConnManager)


def _bind_origins(cell: Any) -> None:
    """Drop messages whose origin is not the neighbour that sent them, and messages to another site."""
    receive = cell._process_received_msg

    def received(self: Any, endpoint: Any, connection: Any, message: Any) -> Any:
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
        from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

        if _DEADLY in (message.get_header(MessageHeaderKey.TOPIC), message.get_header(StreamHeaderKey.TOPIC)):
            return None
        neighbour = endpoint.name.partition(".")[0]
        origin = str(message.get_header(MessageHeaderKey.ORIGIN)).partition(".")[0]
        destination = str(message.get_header(MessageHeaderKey.DESTINATION)).partition(".")[0]
        if connection is None or (origin == neighbour and "server" in (origin, destination)):
            return receive(self, endpoint, connection, message)
        return None

    cell._process_received_msg = received


class _Pace:
    """Limits frames to so many a second, after a burst."""

    def __init__(self) -> None:
        self._left, self._last = float(_BURST), time.monotonic()

    async def step(self) -> None:
        """Wait until one more frame may be processed."""
        now = time.monotonic()
        self._left = min(_BURST, self._left + (now - self._last) * _A_SECOND) - 1
        self._last = now
        if self._left < 0:
            await asyncio.sleep(-self._left / _A_SECOND)


# Connections, by the names in their certificates; used in the thread of the event loop alone.
_connections: Counter[str] = Counter()
_handlers: dict[Any, tuple[str, Any]] = {}
_pending: dict[Any, asyncio.TimerHandle] = {}
_slots: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_IN_WORK))
_paces: defaultdict[str, _Pace] = defaultdict(_Pace)


def _limit_connections(driver: Any, handler: Any) -> None:
    """Limit the connections of a name, and the time that a connection may take to become a websocket."""
    from aiohttp import web

    made, lost = handler.connection_made, handler.connection_lost

    def connection_made(self: Any, transport: Any) -> None:
        made(self, transport)
        name = _name(transport)
        _connections[name] += 1
        _handlers[self] = (name, transport)  # the handler may release its transport before it ends
        if _connections[name] > _CONNECTIONS or len(_pending) >= _PENDING:
            transport.abort()
            return
        _pending[transport] = asyncio.get_running_loop().call_later(_HANDSHAKE, transport.abort)

    def connection_lost(self: Any, error: BaseException | None) -> None:
        name, transport = _handlers.pop(self, ("", None))
        if transport is not None:
            _settle(transport)
            _connections[name] -= 1
        lost(self, error)

    def listen(self: Any, connector: Any) -> None:
        from nvflare.fuel.f3.drivers import net_utils
        from nvflare.fuel.f3.drivers.aio_http_driver import WS_PATH
        from nvflare.fuel.f3.drivers.driver_params import DriverParams

        self.connector = connector
        self.ssl_context = net_utils.get_ssl_context(connector.params, True)
        host, port = (connector.params.get(key.value) for key in (DriverParams.HOST, DriverParams.PORT))
        self.app = web.Application(client_max_size=1 << 16)
        self.app.router.add_get(f"/{WS_PATH}", self._websocket_handler)

        async def serve() -> None:
            self.runner = web.AppRunner(self.app, access_log=None, keepalive_timeout=_HANDSHAKE)
            await self.runner.setup()
            server = await asyncio.get_running_loop().create_server(
                self.runner.server,
                host,
                port,
                ssl=self.ssl_context,
                ssl_handshake_timeout=_HANDSHAKE if self.ssl_context else None,
                backlog=_PENDING,
            )
            try:
                await self.stop_event
            finally:
                server.close()

        self.aio_context.run_coro(serve()).result()

    async def websocket_handler(self: Any, request: Any) -> Any:
        socket = web.WebSocketResponse(max_msg_size=_FRAME, heartbeat=_PING)
        await socket.prepare(request)
        if request.transport is not None:
            _settle(request.transport)
        await self._connection_handler(socket)
        return socket

    handler.connection_made, handler.connection_lost = connection_made, connection_lost
    driver.listen, driver._websocket_handler = listen, websocket_handler


def _settle(transport: Any) -> None:
    timer = _pending.pop(transport, None)
    if timer is not None:
        timer.cancel()


def _name(transport: Any) -> str:
    """Return the common name of a connection's certificate."""
    certificate = transport.get_extra_info("peercert") or {}
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def _limit_frames(driver: Any, manager: Any) -> None:
    """Read a frame from a connection only when its name has a free slot."""
    import aiohttp

    work = manager.process_frame_task

    async def read_loop(connection: Any) -> None:
        name = str(connection.get_conn_properties().get("peer_cn", ""))
        slots, pace = _slots[name], _paces[name]
        loop = asyncio.get_running_loop()
        connection.done = lambda: loop.call_soon_threadsafe(slots.release)
        async for message in connection.websocket:
            if connection.closing or message.type != aiohttp.WSMsgType.BINARY:
                break
            await pace.step()
            await slots.acquire()
            connection.process_frame(message.data)

    def process_frame_task(self: Any, sfm_conn: Any, frame: Any) -> None:
        try:
            work(self, sfm_conn, frame)
        finally:
            done = getattr(sfm_conn.conn, "done", None)
            if done is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended with the process
                    done()

    driver._read_loop = staticmethod(read_loop)
    manager.process_frame_task = process_frame_task
