"""Sessions of analyses with several stages, kept at a site so that a request needs only the last result."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict

from cape.engine.session import AnalysisSession
from cape.errors import CapeError, InvalidInput
from cape.steward.codes import Code, Denied
from cape.steward.request import Request
from cape.study.document import ParsedAnalysis

__all__ = ["Sessions"]

_MOST = 32


class Sessions:
    """Analysis sessions by run, each at the stage that was asked last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, AnalysisSession] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, request: Request, asked: ParsedAnalysis) -> AnalysisSession:
        """Return the session at the request's stage, calibrated, from released numbers."""
        with self._lock:
            session = self._kept.pop(request.plan, None)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about the quality of answers: not this site's concern
                    session = self._forward(session, request, asked)
                    session.calibrate()
            except InvalidInput as error:  # about the request's own numbers
                raise Denied(Code.REQUEST, f"the study is invalid: {error}") from None
            except CapeError:
                raise
            except Exception as error:
                kind = type(error).__name__
            else:
                if not request.trial and len(asked.stages) > 1:
                    self._kept[request.plan] = session
                while len(self._kept) > _MOST:
                    self._kept.popitem(last=False)
                return session
        raise Denied(Code.REQUEST, "the results of earlier stages lead to no further question", kind)

    def _forward(
        self, session: AnalysisSession | None, request: Request, asked: ParsedAnalysis
    ) -> AnalysisSession:
        start = request.stage - len(request.earlier)
        if session is None or not start <= session.stage <= request.stage:
            if start > 0:
                sentence = "this site lacks the results of earlier stages; send all of them with the request"
                raise Denied(Code.HISTORY, sentence)
            session = asked.session()
        for result in request.earlier[session.stage - start :]:
            session.tell(result)
            if session.done:
                raise Denied(Code.HISTORY, "the analysis is over before this stage")
        return session
