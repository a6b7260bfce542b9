"""Surfaces with a fault each: the fuzzer has to find it, and to name the input."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from assurance.inputs import Surface
from cape.core.errors import InvalidInput

BAD = 5


class Planted(Surface):
    secrets = ("s3cr3t",)

    def make(self, random: np.random.Generator) -> int:
        self.number = getattr(self, "number", -1) + 1  # numbers go up by one in a process
        return int(random.integers(100))

    def feed(self, given: int) -> None:
        self.fault(given)

    def fault(self, given: int) -> None:
        raise InvalidInput("no")


class Raising(Planted):
    def fault(self, given: int) -> None:
        if given < 10:
            raise KeyError("no")


class Telling(Planted):
    def fault(self, given: int) -> None:
        if given < 10:
            try:
                raise ValueError("the cell is s3cr3t")
            except ValueError:
                raise InvalidInput("a cell is wrong") from None


class Printing(Planted):
    def fault(self, given: int) -> None:
        if given < 10:
            print("s3cr3t", file=sys.stderr)


class Talking(Planted):
    def fault(self, given: int) -> None:
        if given < 10:
            raise InvalidInput("one\ntwo\nthree")


class Hanging(Planted):
    def fault(self, given: int) -> None:
        if given < 10:
            time.sleep(60)


class Dying(Planted):
    def fault(self, given: int) -> None:
        if given < 10:
            os.kill(os.getpid(), 11)


class Growing(Planted):
    def fault(self, given: int) -> None:
        if given < 10:
            np.ones(1 << 28).sum()  # 2 GB, for a moment
