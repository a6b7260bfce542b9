"""Secure aggregation: the protocol by which the aggregator learns the sum of the sites' vectors and nothing
else, also when sites drop out; keys, masks, key shares, and surplus noise, which is removed from the sum.

Not here: input and output. Bytes between machines are carried by `coordinator`, `site` and `flare`.

`simulate` drives the machines `Site` and `Aggregator` in one process for one sum, and a `Session` for many
with keys agreed once. docs/secagg.md has the threat model.
"""

from cape.secagg.aggregator import Aggregator
from cape.secagg.drive import drive
from cape.secagg.events import Closed, Event, Finished, Send
from cape.secagg.keys import Identity, Roster, Verifier
from cape.secagg.messages import ROUNDS
from cape.secagg.neighbours import Neighbourhood, automatic
from cape.secagg.observer import Observer
from cape.secagg.parameters import Parameters
from cape.secagg.session import Session
from cape.secagg.simulate import simulate
from cape.secagg.site import Site
from cape.secagg.states import TRANSITIONS, AggregatorState, SiteState
from cape.secagg.surplus import LaplaceSurplus, Surplus, SurplusKey
from cape.secagg.threshold import smallest_threshold
from cape.secagg.traffic import AGGREGATOR, Outcome, Setup, Traffic, Wire
from cape.secagg.zero_sum import ZeroSumNoise, ZeroSumSite, zero_sum_gaussian

__all__ = [
    "AGGREGATOR",
    "ROUNDS",
    "TRANSITIONS",
    "Aggregator",
    "AggregatorState",
    "Closed",
    "Event",
    "Finished",
    "Identity",
    "LaplaceSurplus",
    "Neighbourhood",
    "Observer",
    "Outcome",
    "Parameters",
    "Roster",
    "Send",
    "Session",
    "Setup",
    "Site",
    "SiteState",
    "Surplus",
    "SurplusKey",
    "Traffic",
    "Verifier",
    "Wire",
    "ZeroSumNoise",
    "ZeroSumSite",
    "automatic",
    "drive",
    "simulate",
    "smallest_threshold",
    "zero_sum_gaussian",
]
