"""A job's process ends when the process that started it is gone: nothing must go on unseen."""

from __future__ import annotations

import os

__all__ = ["Parent"]


class Parent:
    """The process that started this one.

    (Linux can send a signal instead, but does so when the *thread* that started the child ends, and NVFLARE
    starts jobs from threads that do.)
    """

    def __init__(self) -> None:
        self._pid = os.getppid()

    def require(self) -> None:
        """End this process at once if its parent is gone. What is in the ledger stays there."""
        if os.getppid() != self._pid:
            os._exit(1)
