"""Every transition of both machines, in one table, and nothing else.

A machine asks `following` before it does any work; whatever is not in the table is refused, and
the state stays. What a message must hold to be accepted is in `site` and `aggregator`.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from cape.errors import Refused
from cape.secagg import messages as m

__all__ = ["TRANSITIONS", "AggregatorState", "Cue", "SiteState", "following"]


class SiteState(Enum):
    """What a site has done."""

    NEW = "not started"
    ADVERTISED = "advertised its keys"
    SHARED = "shared its secrets"
    MASKED = "sent its masked vector"
    AGREED = "signed the list of survivors"
    DONE = "revealed its shares"


class AggregatorState(Enum):
    """What the aggregator waits for."""

    ADVERTISE = "advertisements"
    SHARE = "shares"
    MASK = "masked vectors"
    CONSISTENCY = "consents"
    UNMASK = "shares to unmask with"
    DONE = "nothing: the sum is known"
    FAILED = "nothing: the run has failed"


class Cue(Enum):
    """What moves a machine and is not a message."""

    START = "start"
    CLOSED = "every site has answered or is gone"
    FAILED = "too few sites are left, or what they revealed does not fit"


State = SiteState | AggregatorState
Trigger = type | Cue

_S, _A = SiteState, AggregatorState

TRANSITIONS: MappingProxyType[tuple[State, Trigger], State] = MappingProxyType(
    {
        (_S.NEW, Cue.START): _S.ADVERTISED,
        (_S.ADVERTISED, m.Adverts): _S.SHARED,
        (_S.SHARED, m.Delivery): _S.MASKED,
        (_S.MASKED, m.Survivors): _S.AGREED,
        (_S.AGREED, m.Consents): _S.DONE,
        #
        (_A.ADVERTISE, m.Advert): _A.ADVERTISE,
        (_A.ADVERTISE, Cue.CLOSED): _A.SHARE,
        (_A.ADVERTISE, Cue.FAILED): _A.FAILED,
        (_A.SHARE, m.Shares): _A.SHARE,
        (_A.SHARE, Cue.CLOSED): _A.MASK,
        (_A.SHARE, Cue.FAILED): _A.FAILED,
        (_A.MASK, m.Masked): _A.MASK,
        (_A.MASK, Cue.CLOSED): _A.CONSISTENCY,
        (_A.MASK, Cue.FAILED): _A.FAILED,
        (_A.CONSISTENCY, m.Consent): _A.CONSISTENCY,
        (_A.CONSISTENCY, Cue.CLOSED): _A.UNMASK,
        (_A.CONSISTENCY, Cue.FAILED): _A.FAILED,
        (_A.UNMASK, m.Reveal): _A.UNMASK,
        (_A.UNMASK, Cue.CLOSED): _A.DONE,
        (_A.UNMASK, Cue.FAILED): _A.FAILED,
    }
)


def following(state: State, trigger: Trigger) -> State:
    """Return the state after a trigger, or raise `Refused`."""
    try:
        return TRANSITIONS[state, trigger]
    except KeyError:
        pass
    what = trigger.value if isinstance(trigger, Cue) else f"a message {trigger.__name__!r}"
    if isinstance(state, SiteState):
        raise Refused(f"{what} is refused: this site has {state.value}, and answers nothing twice")
    raise Refused(f"{what} is refused: the aggregator now waits for {state.value}")
