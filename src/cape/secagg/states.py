"""Every transition of both machines, in one table, and nothing else.

A machine calls `following` before it does any work; a transition that is not in the table is refused, and
the state stays. `site` and `aggregator` check the contents of messages.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from cape.core.errors import Refused
from cape.secagg import messages as m

__all__ = ["TRANSITIONS", "AggregatorState", "Cue", "SiteState", "following"]


class SiteState(Enum):
    """What a site has done: in the setup, then in the current step."""

    NEW = "not started"
    ADVERTISED = "advertised its keys"
    SHARED = "shared its secrets"
    BEGUN = "been given a vector, and no key shares of others yet"
    READY = "been given a vector"
    MASKED = "sent its masked vector"
    AGREED = "signed the list of survivors"
    DONE = "revealed its shares"


class AggregatorState(Enum):
    """What the aggregator waits for."""

    ADVERTISE = "advertisements"
    SHARE = "shares"
    READY = "nothing: the next step has to start"
    MASK = "masked vectors"
    CONSISTENCY = "consents"
    UNMASK = "key shares to unmask with"
    DONE = "nothing: the last step's sum is known"
    FAILED = "nothing: the run has failed"


class Cue(Enum):
    """Triggers that are not messages."""

    START = "start"
    BEGIN = "the start of a step"
    CLOSED = "every site has answered or is gone"
    ENDED = "every site has answered or is gone, in the last step"
    LOST = "too few sites are left in a step, or the key shares they revealed are wrong"
    FAILED = "the same in the setup or in the last step"


State = SiteState | AggregatorState
Trigger = type | Cue

_S, _A = SiteState, AggregatorState

TRANSITIONS: MappingProxyType[tuple[State, Trigger], State] = MappingProxyType(
    {
        (_S.NEW, Cue.START): _S.ADVERTISED,
        (_S.ADVERTISED, m.Adverts): _S.SHARED,
        # Steps only go forward, and the site counts them; from any state, since it may miss the end of one.
        (_S.SHARED, Cue.BEGIN): _S.BEGUN,
        (_S.BEGUN, Cue.BEGIN): _S.BEGUN,
        (_S.READY, Cue.BEGIN): _S.READY,
        (_S.MASKED, Cue.BEGIN): _S.READY,
        (_S.AGREED, Cue.BEGIN): _S.READY,
        (_S.DONE, Cue.BEGIN): _S.READY,
        (_S.BEGUN, m.Delivery): _S.MASKED,
        (_S.READY, m.Delivery): _S.MASKED,  # again, to a site whose first answer was lost
        (_S.READY, m.Begin): _S.MASKED,
        (_S.MASKED, m.Survivors): _S.AGREED,
        (_S.AGREED, m.Consents): _S.DONE,
        #
        (_A.ADVERTISE, m.Advert): _A.ADVERTISE,
        (_A.ADVERTISE, Cue.CLOSED): _A.SHARE,
        (_A.ADVERTISE, Cue.FAILED): _A.FAILED,
        (_A.SHARE, m.Shares): _A.SHARE,
        (_A.SHARE, Cue.CLOSED): _A.READY,
        (_A.SHARE, Cue.FAILED): _A.FAILED,
        (_A.READY, Cue.BEGIN): _A.MASK,
        (_A.MASK, Cue.BEGIN): _A.MASK,  # a driver may abandon a step
        (_A.CONSISTENCY, Cue.BEGIN): _A.MASK,
        (_A.UNMASK, Cue.BEGIN): _A.MASK,
        (_A.MASK, m.Masked): _A.MASK,
        (_A.MASK, Cue.CLOSED): _A.CONSISTENCY,
        (_A.MASK, Cue.LOST): _A.READY,
        (_A.MASK, Cue.FAILED): _A.FAILED,
        (_A.CONSISTENCY, m.Consent): _A.CONSISTENCY,
        (_A.CONSISTENCY, Cue.CLOSED): _A.UNMASK,
        (_A.CONSISTENCY, Cue.LOST): _A.READY,
        (_A.CONSISTENCY, Cue.FAILED): _A.FAILED,
        (_A.UNMASK, m.Reveal): _A.UNMASK,
        (_A.UNMASK, Cue.CLOSED): _A.READY,
        (_A.UNMASK, Cue.ENDED): _A.DONE,
        (_A.UNMASK, Cue.LOST): _A.READY,
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
        raise Refused(f"{what} is refused: this site has {state.value}, and answers each message once")
    raise Refused(f"{what} is refused: the aggregator now waits for {state.value}")
