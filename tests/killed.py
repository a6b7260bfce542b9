"""Ends a process at each step of its work: before and after every call of some functions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["killed_at_every_step"]

Named = tuple[Any, str]
"""A function: where it is, and its name there."""


def killed_at_every_step(calls: Sequence[Named], work: Callable[[], object]) -> Iterator[int]:
    """Do a piece of work in a fork that ends itself at one step, then at the next, until it reaches its end.

    Yields the number of the step each time the fork has ended itself.
    """
    step = 0
    while _killed(calls, work, step):
        yield step
        step += 1


def _killed(calls: Sequence[Named], work: Callable[[], object], step: int) -> bool:
    with warnings.catch_warnings():  # of threads that the fork does not have: the work needs none
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            _end_at(calls, step)
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), "the work failed"
    return status == 9


def _end_at(calls: Sequence[Named], step: int) -> None:
    left = [step]

    def count() -> None:
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)  # nothing is flushed or closed, as after SIGKILL

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            count()
            told = call(*arguments, **options)
            count()
            return told

        return called

    for where, name in calls:
        setattr(where, name, counted(getattr(where, name)))
