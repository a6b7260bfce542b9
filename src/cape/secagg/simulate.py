"""A whole run in one process, for one sum: a session of one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from cape.core.errors import InvalidInput
from cape.noise import SecureStream
from cape.noise.ring import Ring
from cape.secagg.drive import only, silent_from
from cape.secagg.messages import ROUNDS, SETUP_ROUNDS, STEP_ROUNDS
from cape.secagg.observer import Observer
from cape.secagg.parameters import Choices
from cape.secagg.session import Session
from cape.secagg.site import require_vector
from cape.secagg.traffic import Hook, Outcome, Progress

__all__ = ["simulate"]


def simulate(
    vectors: Sequence[NDArray[np.int64]] | Mapping[str, NDArray[np.int64]],
    *,
    drop: Mapping[str, Iterable[str]] | None = None,
    hook: Hook | None = None,
    progress: Progress | None = None,
    observer: Observer | None = None,
    stream: SecureStream | None = None,
    **choices: Unpack[Choices],
) -> Outcome:
    """Add up vectors with secure aggregation, all sites and the aggregator in this process.

    Args:
        vectors: each site's integers (int64), by name, or in a row: the sites are then "0000", "0001", ...
        drop: round -> sites that are silent from that round on. Rounds are "advertise", "share",
            "mask", "consistency" and "unmask"; {"mask": ["b"]} is b dropping after it shared.
        hook: gets all messages of a round in one direction and returns those that arrive, in order: it may
            drop, repeat, reorder or change messages, or return them in a later round.
        progress: called with the round, the answers so far and how many are expected.
        observer: sees the machines and the messages that they receive.
        stream: the source of all secrets; give one with a key for a reproducible run.
        **choices: bits, colluding, dropping, lying, threshold, neighbours: see `Parameters.agree`.

    Raises:
        TooFewSites: fewer than the threshold were left. Messages that a machine refused on the way
            are in the error's notes.
    """
    named = _named(vectors)
    length, ring = _length(named), Ring(choices.get("bits", 64))
    for vector in named.values():  # before the first message, and not after the setup
        require_vector(vector, length, ring)
    silent_from(drop or {}, named, ROUNDS)
    session = Session(
        list(named),
        length,
        1,
        drop=only(drop, SETUP_ROUNDS),
        hook=hook,
        progress=progress,
        observer=observer,
        stream=stream,
        **choices,
    )
    return session.setup.with_step(session.step(named, drop=only(drop, STEP_ROUNDS)))


def _named(
    vectors: Sequence[NDArray[np.int64]] | Mapping[str, NDArray[np.int64]],
) -> dict[str, NDArray[np.int64]]:
    if isinstance(vectors, Mapping):
        return dict(vectors)
    return {f"{number:04d}": vector for number, vector in enumerate(vectors)}


def _length(named: Mapping[str, NDArray[np.int64]]) -> int:
    if len(named) < 2:
        raise InvalidInput("secure aggregation needs at least 2 sites: the sum of one is its vector")
    first = next(iter(named.values()))
    if not isinstance(first, np.ndarray) or first.ndim != 1:
        raise InvalidInput("vectors must be one-dimensional arrays of int64")
    return int(first.shape[0])
