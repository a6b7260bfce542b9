"""Sessions of analyses with several stages, kept at a site so that a request needs only the last result.

Claim. Computing one session delays no request of another run.
Reason. The lock guards the list alone. A session is taken off the list, moved on by one thread and put back:
a second request for the same run that comes meanwhile finds none, and begins anew from the results that it
holds, or is told to send all of them.
Tested in tests/unit/site/test_effort.py.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict

from cape.core.errors import CapeError, InvalidInput
from cape.engine.session import AnalysisSession
from cape.site.decide.codes import Code, Denied
from cape.site.decide.request import Request
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
            session = None if request.trial else self._kept.pop(request.plan, None)
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
                self._keep(request.plan, session)
            return session
        raise Denied(Code.REQUEST, "the results of earlier stages lead to no further question", kind)

    def sizes(self, request: Request) -> list[int]:
        """Return the size of each result that `at` would have to take in."""
        with self._lock:
            session = None if request.trial else self._kept.get(request.plan)
            known = 0 if session is None else session.stage
        start = request.stage - len(request.earlier)
        results = request.earlier[known - start if start <= known <= request.stage else 0 :]
        return [len(result.total) // 8 for result in results]

    def _keep(self, plan: bytes, session: AnalysisSession) -> None:
        with self._lock:
            self._kept[plan] = session
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)

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
