"""The aggregator's process: takes calls from the coordinator and runs their protocol rounds with the sites.

It has no key. The coordinator signs each request and each site checks it, so the aggregator can drop or delay
a request but not change it; and what sites send is masked, or has its own noise already.

A call may take long, so the coordinator submits it and polls for the answer. Each poll waits here for a
moment, so that an answer leaves as soon as it exists.
"""

from __future__ import annotations

import base64
import os
import queue
import threading
import time
from typing import Any

import msgspec
from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import new_cell_message

from cape.coordinator import Event, Relay
from cape.flare.channel import Alive, AuxChannel
from cape.flare.names import ALIVE, BEAT, COMMAND, IDLE
from cape.flare.orphan import exit_without

__all__ = ["Aggregator"]

_MOMENT = 2.0  # seconds that a poll waits here; NVFLARE's own limit is 5
_MOST_EVENTS = 10_000
_KEPT = 4  # answers kept for a coordinator that polls again because a reply was lost


class Aggregator(Controller):
    """One study's job. It takes no argument from the job: how long it waits is fixed here."""

    def __init__(self) -> None:
        super().__init__()
        self._alive = Alive()
        self._calls: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._changed = threading.Condition()
        self._answers: dict[str, bytes | None] = {}  # ticket -> the answer, once there is one
        self._events: list[Event] = []
        self._forgotten = 0  # events that were discarded
        self._closed = False
        self._heard = time.monotonic()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Listen to the sites and to the coordinator."""
        engine: Any = fl_ctx.get_engine()
        self._channel = AuxChannel(engine, self._alive)
        self._relay = Relay(self._channel, self._note)
        # Not a handler of auxiliary messages: that would only see who the sender claims to be.
        engine.get_cell().register_request_cb(
            channel=CellChannel.AUX_COMMUNICATION, topic=ALIVE, cb=self._sign_of_life
        )
        self._job = str(fl_ctx.get_job_id())
        engine.register_app_command(COMMAND, self._command)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Stop waiting for answers."""
        self._channel.close()

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run one call after the other, until the coordinator ends the job or stops polling."""
        threading.Thread(target=self._watch_parent, name="cape-parent", daemon=True).start()
        while not (abort_signal.triggered or self._closed):
            try:
                ticket, data = self._calls.get(timeout=0.2)
            except queue.Empty:
                if time.monotonic() - self._heard > IDLE:
                    self.log_warning(
                        fl_ctx, "the coordinator has stopped polling; the job ends", fire_event=False
                    )
                    return
                continue
            answer = self._relay.call(data)
            with self._changed:
                self._answers[ticket] = answer
                self._changed.notify_all()

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Ignore it: there are no tasks."""

    def _watch_parent(self) -> None:
        parent = os.getppid()
        while True:
            exit_without(parent)
            time.sleep(BEAT)

    def _sign_of_life(self, request: Message) -> Message:
        """Record a heartbeat by the origin of the message, which nobody can forge (`cape.flare.limits`)."""
        site, _, job = str(request.get_header(MessageHeaderKey.ORIGIN)).partition(".")
        if job == self._job:
            self._alive.heard(site)
        return new_cell_message({}, None)

    def _note(self, event: Event) -> None:
        with self._changed:
            self._events.append(event)
            if len(self._events) > 2 * _MOST_EVENTS:
                self._forgotten += len(self._events) - _MOST_EVENTS
                del self._events[:-_MOST_EVENTS]

    def _command(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
        """Accept a call, or return its answer if there is one. `data` may hold anything."""
        self._heard = time.monotonic()
        told = data if isinstance(data, dict) else {}
        ticket, seen = str(told.get("ticket", "")), told.get("seen", 0)
        if told.get("close"):
            self._closed = True
        with self._changed:
            if "call" in told and ticket not in self._answers:
                self._calls.put((ticket, base64.b64decode(told["call"])))
                self._answers[ticket] = None
                for old in list(self._answers)[:-_KEPT]:
                    del self._answers[old]
            if ticket in self._answers:
                self._changed.wait_for(lambda: self._answers.get(ticket) is not None, timeout=_MOMENT)
            answer = self._answers.get(ticket)
            after = max(0, seen - self._forgotten) if isinstance(seen, int) else 0
            events, until = self._events[after:], self._forgotten + len(self._events)
        return {
            "sites": self._alive.sites,
            "known": ticket in self._answers,
            "events": msgspec.to_builtins(events),
            "seen": until,
            "answer": None if answer is None else base64.b64encode(answer).decode("ascii"),
        }
