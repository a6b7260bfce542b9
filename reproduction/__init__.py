"""The paper's figures and table, drawn again: what it says, what is measured, and what holds.

A figure is a module of `reproduction.figures`; `reproduce` computes, draws, and writes what was found.
"""

from reproduction.figure import Cell, Claim, Figure, Row
from reproduction.reference import Reference
from reproduction.registry import find, names
from reproduction.runner import Done, missing, reproduce
from reproduction.seeds import FIRST_SEED, seeds

__all__ = [
    "FIRST_SEED",
    "Cell",
    "Claim",
    "Done",
    "Figure",
    "Reference",
    "Row",
    "find",
    "missing",
    "names",
    "reproduce",
    "seeds",
]
