"""What a site agrees to: an offer that costs nothing, and a grant that is in the ledger and answers once.

Claim. When a `Grant` exists, the ledger holds it, synced; and it is answered at most once.
Reason. Only `Offer.reserve` makes one, after the ledger has written it in one transaction with its limits.
Two vectors of one grant would be two noisy answers for one price, so the first vector uses the grant up.
Why two steps. The first rounds of secure aggregation do not depend on data: a site takes part in them with an
offer, and pays right before its masked vector leaves. A site that refuses or is lost early costs the others
nothing.
Tested in tests/unit/site/test_decide.py, test_endpoint.py and test_kills.py.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from polars.exceptions import PanicException

from cape.blocks.table import Table
from cape.core.errors import BudgetExceeded, CapeError, Refused
from cape.data import Schema
from cape.engine.calibration import Calibration
from cape.engine.contribution import contribution
from cape.engine.query import Query
from cape.engine.schemes import Parties
from cape.engine.schemes.scheme import Int64
from cape.noise import SecureStream
from cape.privacy.accounting import Incomparable
from cape.secagg.parameters import Parameters
from cape.site.decide.codes import Code, Denied, Refusal
from cape.site.decide.request import Request
from cape.site.ledger.gaps import Unsettled
from cape.site.ledger.ledger import Amount, Answers, Entry, Ledger, Limit

__all__ = ["SOMETHING", "Grant", "Log", "Offer", "answer", "denying", "guarded", "story"]

Log = Callable[[str], None]
SOMETHING = "something went wrong at this site; its steward can find it in the log"
_T = TypeVar("_T")


class _Once:
    """A token that can be used once, by one thread of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = False

    def use(self) -> None:
        """Use it; raise `Refused` the second time."""
        with self._lock:
            if self._used:
                raise Refused("a grant answers once; a second vector needs a new request and a new payment")
            self._used = True

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Grant cannot be copied or pickled: the copy would answer again")


@dataclass(frozen=True, eq=False)
class Agreed:
    """All that a site needs to compute its vector, derived by its own code.

    Attributes:
        query: the sums; calibration: their grid and noise; local_std: noise per unit of sensitivity.
        parties: how many sites may collude or be lost.
        schema: the study's columns, and which rows count.
        rows: the site's number of rows, where that is public, else None.
        parameters: the session of secure aggregation as this site computes it; None where there is none.
    """

    request: Request
    query: Query
    calibration: Calibration
    local_std: float
    parties: Parties
    schema: Schema
    rows: int | None
    parameters: Parameters | None

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self.calibration.size


@dataclass(frozen=True, eq=False)
class Grant(Agreed):
    """A release that a site has agreed to and paid for.

    Attributes:
        number: the line of the ledger.
        paid: what the ledger was charged for this stage, or for its run.
    """

    number: int
    paid: Amount
    once: _Once = field(default_factory=_Once, repr=False)


@dataclass(frozen=True, eq=False)
class Offer(Agreed):
    """A release that a site would agree to: fully checked, not paid for, not in the ledger.

    Attributes:
        whole: what all stages of the run together cost.
        approved: whether policy and steward allow it now, after the answers that other runs got meanwhile.
    """

    whole: Amount
    entry: Entry = field(repr=False)
    ledger: Ledger = field(repr=False)
    limits: tuple[Limit, ...] = field(repr=False)
    approved: Callable[[Answers], bool] = field(repr=False)
    who: str = field(repr=False)
    log: Log = field(repr=False)

    def reserve(self) -> Grant | Refusal:
        """Write the ledger, synced, and then return the grant, or return a refusal. Never raises."""
        return guarded(self._reserve, self.who, self.log)

    def _reserve(self) -> Grant:
        if self.request.trial:
            raise Denied(Code.REQUEST, "the request is a trial: it was signed for review only")
        with denying():
            number = self.ledger.reserve(self.entry, self.limits, self.approved)
        self.log(f"granted {self.who}: line {number} of the ledger, {self.request.study_hash[:16]}")
        agreed = {name: getattr(self, name) for name in Agreed.__dataclass_fields__}
        return Grant(**agreed, number=number, paid=self.entry.cost + self.entry.once)


def answer(grant: Grant, table: Table, stream: SecureStream | None = None) -> Int64:
    """Return a site's contribution: its exact sums on the grid, plus its own noise. Once for each grant.

    With scheme "cape" this vector goes into secure aggregation (`grant.parameters`); with "conventional" its
    noise alone protects it.
    """
    grant.once.use()
    own = (stream or SecureStream()).fork(f"release {grant.number}")
    return contribution(
        table.of(grant.schema),
        grant.query,
        grant.calibration,
        sample=own.fork("sample"),
        noise=own.fork("noise"),
    )


@contextmanager
def denying() -> Iterator[None]:
    """Turn errors of the ledger and of the list of nonces into refusals."""
    try:
        yield
    except BudgetExceeded as error:
        raise Denied(Code.BUDGET, str(error)) from None
    except (Incomparable, Unsettled) as error:
        raise Denied(Code.LEDGER, str(error)) from None
    except Refused as error:
        raise Denied(Code.RUN, str(error)) from None


def guarded(work: Callable[[], _T], who: str, log: Log) -> _T | Refusal:
    """Return the result, or a refusal; the details go to the log."""
    try:
        return work()
    except Denied as denied:
        verb = "held" if denied.code is Code.APPROVAL else "refused"
        detail = f" [{denied.detail}]" if denied.detail else ""
        log(f"{verb} {who}: {denied.code}: {denied.sentence}{detail}")
        return denied.refusal
    except (
        Exception,
        PanicException,
    ) as error:  # no stack trace leaves; the log omits the text of foreign errors
        log(f"failed {who}: {story(error)}")
        return Refusal(Code.SITE, SOMETHING)


def story(error: BaseException) -> str:
    """Return the type and place of an error; without the text of foreign errors, which may quote cells."""
    text = str(error) if isinstance(error, CapeError) else ""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__} {text} at {where}"
