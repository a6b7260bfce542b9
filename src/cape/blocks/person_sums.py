"""The spread of scores between persons: products of what all rows of a person add up to.

Claim. A person with at most k rows adds tt' for a vector t of integers with sum of t_i² <= 2^40, certainly,
and t is the sum of the person's scores over k up to half a step of 2^-20 an entry; and results are the same
integers for the same multiset of rows with the same persons, in whichever parts and order.
Reason. Scores are integers of length at most 2^20, so that what k of them add up to is at most k 2^20 long;
sums of up to 1000 of them are exact, in any order. `clip_rows` divides by k 2^20, rounds, and moves entries
toward 0 if rounding put the vector outside. Sums of products are exact by `cape.noise.exact_products`.
Nothing is refused by how many persons there are, which is private wherever rows of some do not count: four
bytes are held for each person and coefficient.
Tested in tests/unit/blocks/test_person_sums.py.
"""

from __future__ import annotations

import numpy as np

from cape.blocks.clip import clip_rows
from cape.blocks.parts import PART_ROWS, Pass
from cape.blocks.steps import ONE
from cape.core.arrays import Integers
from cape.core.errors import InvalidInput
from cape.noise import exact_products

__all__ = ["PersonProducts"]


class PersonProducts:
    """The sum over persons of tt', t being what scores of a person with at most so many rows add up to, over
    that number."""

    def __init__(self, width: int, rows: int, run: Pass) -> None:
        self._rows = rows
        self._total = run.total(width, width)
        self._persons = np.zeros((0, width), np.int32)

    def add(self, scores: Integers, persons: Integers | None) -> None:
        """Add scores of (rows, width), and whose each is."""
        if persons is None:
            raise InvalidInput("a spread between persons needs a schema with persons of several rows")
        most, width = int(persons.max(initial=-1)) + 1, scores.shape[1]
        if most > len(self._persons):
            more = np.zeros((max(most, 2 * len(self._persons)) - len(self._persons), width), np.int32)
            self._persons = np.concatenate([self._persons, more])
        np.add.at(self._persons, persons, scores.astype(np.int32))

    def result(self) -> Integers:
        """Return the sum of products."""
        for start in range(0, len(self._persons), PART_ROWS):
            sums = self._persons[start : start + PART_ROWS].astype(np.float64)
            steps = clip_rows(sums, self._rows * ONE, nearest=True)
            self._total.add(exact_products(np.ascontiguousarray(steps.T, np.float64)))
        return self._total.result()
