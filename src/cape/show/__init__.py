"""How results are shown: tables, figures and sentences, for a terminal, a notebook, a report and JSON.

An analysis or a model describes what it shows with the classes of this package. The renderers are here too
and know no analysis, so a new analysis needs no renderer of its own.
"""

from cape.show.figures import Bars, Curves, Figure, Forest, HeatMap, Intervals, Line, Mark
from cape.show.shown import Framed, Shown
from cape.show.tables import Table

__all__ = [
    "Bars",
    "Curves",
    "Figure",
    "Forest",
    "Framed",
    "HeatMap",
    "Intervals",
    "Line",
    "Mark",
    "Shown",
    "Table",
]
