"""What one site can take of the aggregator: so much that its own study runs, not what others need.

Claim. Whatever a site with a valid certificate sends, and whoever has none, studies of the other sites go on;
and no site speaks in the name of another, or to another.
Reason. A connection is known by its certificate. For each name there is a bound on connections, on frames in
work at once, on frames a second and on the size of a frame; who reaches it waits or is cut off, and nobody
else. A connection that does not finish its handshakes in time is closed. A message must name as its origin
the party whose certificate made the connection (NVFLARE 2.9 binds it to a token, but not to one that has been
replaced, nor to an administrator's), and what comes from a site goes to the aggregator or nowhere.
Not claimed: anything against more packets than the machine or its network can take.
Tested in tests_deploy/test_edge_flood.py and test_edge_code.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import time
from collections import Counter
from typing import Any

from cape.errors import CapeError

__all__ = ["limit"]

_CONNECTIONS = 32  # of one name: a client, and one for each of its jobs
_STRANGERS = 512  # connections without a websocket, of all names together
_IN_WORK = 24  # frames of one name that are worked on at once; NVFLARE has 100 threads for all
_A_SECOND = 400  # frames of one name; ours come in pieces of 1 MiB
_BURST = 800
_FRAME = 1 << 26  # bytes of a frame
_HANDSHAKE = 10.0  # seconds for TLS, and again for the request that opens the websocket
_PING = 20.0  # seconds after which a connection that says nothing is asked whether it is there
_FILES = 8192
_DEADLY = "submit_update"  # the result of a task, which our jobs do not have; NVFLARE's ends if it is bent
_log = logging.getLogger(__name__)


def limit() -> None:
    """Set the bounds, in the process of an aggregator, before NVFLARE starts in it."""
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
    _watch_the_door(AioHttpDriver, RequestHandler)
    _share_the_work(AioHttpDriver, ConnManager)


def _bind_origins(cell: Any) -> None:
    """Drop what names another origin than the neighbour that sent it, and what is for another site."""
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


class _Guests:
    """Who is connected, by the names in their certificates; used in the thread of the event loop alone."""

    def __init__(self) -> None:
        self.connections: Counter[str] = Counter()
        self.handlers: dict[Any, tuple[str, Any]] = {}
        self.strangers: dict[Any, asyncio.TimerHandle] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._paces: dict[str, _Pace] = {}

    def slots(self, name: str) -> asyncio.Semaphore:
        """Return what bounds the frames of one name that are worked on."""
        return self._slots.setdefault(name, asyncio.Semaphore(_IN_WORK))

    def pace(self, name: str) -> _Pace:
        """Return what bounds the frames of one name in a second."""
        return self._paces.setdefault(name, _Pace())


class _Pace:
    """So many frames a second, and a burst."""

    def __init__(self) -> None:
        self._left, self._last = float(_BURST), time.monotonic()

    async def step(self) -> None:
        """Wait until one more may come."""
        now = time.monotonic()
        self._left = min(_BURST, self._left + (now - self._last) * _A_SECOND) - 1
        self._last = now
        if self._left < 0:
            await asyncio.sleep(-self._left / _A_SECOND)


_guests = _Guests()


def _watch_the_door(driver: Any, handler: Any) -> None:
    """Bound connections by name, and the time that one may take to become a websocket."""
    from aiohttp import web

    made, lost = handler.connection_made, handler.connection_lost

    def connection_made(self: Any, transport: Any) -> None:
        made(self, transport)
        name = _name(transport)
        _guests.connections[name] += 1
        _guests.handlers[self] = (name, transport)  # the handler may let go of its transport before its end
        if _guests.connections[name] > _CONNECTIONS or len(_guests.strangers) >= _STRANGERS:
            transport.abort()
            return
        _guests.strangers[transport] = asyncio.get_running_loop().call_later(_HANDSHAKE, transport.abort)

    def connection_lost(self: Any, error: BaseException | None) -> None:
        name, transport = _guests.handlers.pop(self, ("", None))
        if transport is not None:
            _known(transport)
            _guests.connections[name] -= 1
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
                backlog=_STRANGERS,
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
            _known(request.transport)
        await self._connection_handler(socket)
        return socket

    handler.connection_made, handler.connection_lost = connection_made, connection_lost
    driver.listen, driver._websocket_handler = listen, websocket_handler


def _known(transport: Any) -> None:
    timer = _guests.strangers.pop(transport, None)
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


def _share_the_work(driver: Any, manager: Any) -> None:
    """Take a frame of a connection only when there is room for one more of its name."""
    import aiohttp

    work = manager.process_frame_task

    async def read_loop(connection: Any) -> None:
        name = str(connection.get_conn_properties().get("peer_cn", ""))
        slots, pace = _guests.slots(name), _guests.pace(name)
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
