"""Figures by matplotlib: every kind of panel is drawn from the same data as on a page."""

from __future__ import annotations

import polars as pl
import pytest

from cape import Budget, Consortium, Mean, Schema
from cape.show import Bars, Curves, Figure, Forest, HeatMap, Intervals, Line, Mark, Shown, Table
from cape.stats.estimates import Estimate

MARKS = tuple(Mark.of(Estimate(name, value, 0.2, 0.3)) for name, value in (("a", 1.0), ("b", 2.5)))
PANELS = [
    Intervals(MARKS, "title", "axis", line=0.0),
    Intervals(tuple(mark.exponential() for mark in MARKS), line=1.0, log=True),
    Forest(MARKS, (0.4, 0.6), MARKS[:1], line=0.0),
    Bars(MARKS, "axis"),
    Line((0.0, 1.0), MARKS, "x", "y", diagonal=True),
    Curves((0.0, 1.0), (("one", MARKS), ("two", MARKS)), "x", "y", (0.0, 3.0), steps=True),
    HeatMap(("r",), ("a", "b"), (MARKS,)),
]


class Drawn(Shown):
    def __init__(self, *panels):
        self.panels = panels

    def tables(self):
        return [Table(("", "value"), (("a", "1"), ("heading",), ("b", "2")))]

    def to_dict(self):
        return {}

    def figures(self):
        return [Figure(self.panels, "caption")] if self.panels else []


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: type(panel).__name__)
def test_every_panel_is_drawn(panel, tmp_path):
    drawn = Drawn(panel).plot()
    drawn.savefig(tmp_path / "figure.svg")
    assert len(drawn.axes) == 1
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_a_panel_can_be_drawn_where_one_wants_it():
    from matplotlib.figure import Figure as Canvas

    ax = Canvas().subplots()
    assert Drawn(PANELS[0]).plot(ax) is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert ax.get_title(loc="left") == "title"


def test_what_has_no_figure_says_so():
    with pytest.raises(ValueError, match="nothing to draw"):
        Drawn().plot()


def test_numbers_and_tables_become_frames():
    assert Drawn().to_polars().to_dict(as_series=False) == {"name": ["a", "b"], "value": ["1", "2"]}
    rows = pl.DataFrame({"age": [20.0, 40.0, 60.0] * 20})
    consortium = Consortium(
        dict.fromkeys("abc", rows), Schema(age=(0, 100)), budget=Budget(1.0, 1e-6), colluding=1
    )
    release = consortium.release(Mean("age"), 0.5)
    frame = release.to_polars()
    assert frame.columns[:4] == ["label", "value", "low", "high"]
    assert frame["value"][0] == release.value
    assert release.to_pandas()["low"][0] == release.interval()[0]
