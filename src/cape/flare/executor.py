"""The site's process: it hands what comes to `cape.steward.Member`, and says that it is alive."""

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

from cape.errors import CapeError
from cape.flare.names import ALIVE, BEAT, CALL, SITE
from cape.flare.orphan import Parent
from cape.steward import SiteFolder
from cape.steward.member import Member

__all__ = ["Site"]


class Site(Executor):
    """One site in one job. It takes no argument from the job: all it goes by is the site's own folder.

    The folder is named by the environment of the site's own process (`cape join`), never by the job, which
    the aggregator could have written.
    """

    def __init__(self) -> None:
        super().__init__()
        self._over = threading.Event()
        self._member: Member | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin and end with the job."""
        if event_type == EventType.START_RUN:
            self._begin(fl_ctx)
        elif event_type == EventType.END_RUN:
            self._over.set()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort: Signal) -> Shareable:
        """Answer no task: everything goes through messages that are pushed."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _begin(self, fl_ctx: FLContext) -> None:
        try:
            self._member = Member(SiteFolder(os.environ.get(SITE, "")))
        except CapeError as error:  # no folder: the aggregator sees a site that does not come up
            self.log_error(fl_ctx, f"the site's folder cannot be used: {error}", fire_event=False)
            return
        engine: Any = fl_ctx.get_engine()
        engine.register_aux_message_handler(CALL, self._handle)
        threading.Thread(target=self._beat, args=(engine,), name="cape-alive", daemon=True).start()

    def _handle(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        data = request.get("data")
        if self._member is None or not isinstance(data, (bytes, bytearray, memoryview)):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        reply = make_reply(ReturnCode.OK)
        reply["data"] = self._member.handle(bytes(data))
        return reply

    def _beat(self, engine: Any) -> None:
        parent = Parent()
        while not self._over.is_set():
            parent.require()
            with engine.new_context() as context:
                engine.fire_and_forget_aux_request(
                    topic=ALIVE, request=Shareable(), fl_ctx=context, optional=True
                )
            self._over.wait(BEAT)
