"""The paper's figures and table, drawn again: what it says, what is measured, and what holds.

A figure is a module of `cape.paper.figures`; `reproduce` computes, draws, and writes what was found.
"""

from cape.paper.figure import Cell, Claim, Figure, Row
from cape.paper.reference import Reference
from cape.paper.registry import find, names
from cape.paper.runner import Done, missing, reproduce
from cape.paper.seeds import FIRST_SEED, seeds

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
