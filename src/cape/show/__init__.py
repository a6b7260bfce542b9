"""How results look: tables, figures and sentences as plain data, and what draws them in a terminal, a
notebook, HTML, SVG, matplotlib, CSV and JSON.

Not here: any analysis. A renderer knows none, so a new analysis needs no renderer; whole reports and
certificates are in `app`.

An analysis or a model describes what it shows with the classes of this package.
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
