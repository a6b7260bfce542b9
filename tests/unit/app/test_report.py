from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from cape.show import Bars, HeatMap, Intervals, Mark, svg
from cape.stats.estimates import Estimate
from tests.unit.cli.conftest import SECRET

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Balanced(HTMLParser):
    """Checks that every tag is closed, and remembers attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture
def page(cape, study) -> str:
    done = cape("run", study, "--out", study.parent / "out")
    assert done.code == 0, done.err
    return (study.parent / "out" / "report.html").read_text()


def test_the_report_loads_nothing_from_elsewhere(page):
    assert not re.search(r"https?://|url\(|@import|<script|<link|<img|<iframe", page)
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    assert not {name for name, _ in parser.attributes} & {"src", "srcset", "data"}
    links = [value for name, value in parser.attributes if name == "href"]
    assert links
    assert all(
        value.startswith(("#", "data:text/csv;base64,", "data:image/svg+xml;base64,")) for value in links
    )


def test_the_report_says_what_a_board_asks(page):
    parser = Balanced()
    parser.feed(page)
    text = " ".join(" ".join(parser.text).split())
    for words in (
        "lungs & <hearts>",
        "three clinics",
        "What is guaranteed to each person",
        "epsilon = 2 at delta = 1e-06",
        "they would be right at most",
        "the aggregator and 1 of the 3 sites together",
        "One row is one person: nobody has several, at one site or at several.",
        "Mean of age and weight",
        "95% interval",
        "mean (SD)",
        "Test of independence",
        "100% is spent, 0% is left",
        "18 to 90",
        "the words NA, N/A, #N/A, NaN, null, ., in any case, stand for a missing cell",
    ):
        assert words in text, words
    assert (
        page.count('wide-plot" viewBox') == 2 + 2 + 1 + 1
    )  # means; Table One: age and sex; histogram; cells
    assert page.count('narrow-plot" viewBox') == 6


def test_no_cell_of_a_table_is_in_it(page, study):
    assert str(SECRET) not in page
    assert "data/a.csv" not in page  # nor where the tables are
    assert str(study.parent) not in page


def test_an_axis_has_round_ticks_and_keeps_values_inside():
    axis = svg.Axis(0.0, 1.0, 100, 200)
    assert axis.ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert axis.at(0.5) == 150
    assert axis.at(7.0) == 200
    assert svg.around([3.0, 3.0], 0, 1).low < 3 < svg.around([3.0, 3.0], 0, 1).high


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-9, 1e12])
def test_plots_hold_what_is_extreme(value):
    estimates = [Estimate("x<y", value, 0.0, 0.0), Estimate("b", value, 1.0, 2.0, (value - 1, float("inf")))]
    marks = tuple(map(Mark.of, estimates))
    ratios = tuple(mark.exponential() for mark in marks)
    for drawn in map(
        svg.draw,
        (
            Intervals(marks, "t" * 99),
            Intervals(ratios, line=1.0, log=True),
            Bars(marks),
            HeatMap(("r",), ("x<y", "b"), (marks,)),
        ),
    ):
        assert "nan" not in drawn
        assert "inf" not in drawn
        assert "x<y" not in drawn
        parser = Balanced()
        parser.feed(drawn)
        assert not parser.open
