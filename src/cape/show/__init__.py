"""How results are shown: tables, figures and sentences, for a terminal, a notebook, a report and JSON.

An analysis or a model says what it has to show, in the classes of this package. What draws them is here too,
and knows no analysis: one that is added later adds no renderer.
"""

from cape.show.figures import Bars, Figure, HeatMap, Intervals, Line, Mark
from cape.show.shown import Shown
from cape.show.tables import Table

__all__ = ["Bars", "Figure", "HeatMap", "Intervals", "Line", "Mark", "Shown", "Table"]
