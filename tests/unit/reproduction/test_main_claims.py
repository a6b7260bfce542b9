from __future__ import annotations

import re

import pytest

from reproduction.main_claims import MAIN_CLAIMS, Judged, table
from tests.checkout import ROOT

PAGE = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
HOLDS = {"Holds": True, "Does not hold": False, "Open": None}
ROWS = re.findall(
    r"^\| \[([\w-]+)\]\(#[\w-]+\) \| (.*?) \| (Holds|Does not hold|Open) \|$", PAGE, re.MULTILINE
)
CLAIMS = [Judged(figure, says, HOLDS[verdict]) for figure, says, verdict in ROWS]


def test_the_page_begins_with_the_ten_main_claims_judged_by_its_own_124():
    assert (len(MAIN_CLAIMS), len(CLAIMS)) == (10, 124)
    assert "\n".join(table(CLAIMS)) in PAGE
    assert PAGE.index("## The ten main claims") < PAGE.index("## All claims")


def test_every_pattern_finds_a_claim():
    for main in MAIN_CLAIMS:
        for figure, begins in main.tested:
            found = [c for c in CLAIMS if c.figure == figure and re.match(begins, c.says)]
            assert found, (main.says, begins)


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ([True, True], "**Holds**"),
        ([False, False], "**Does not hold**"),
        ([True, False], "**In part**"),
        ([True, None], "**In part**"),
        ([True, True, False], "**Holds mostly**"),
        ([True, False, False], "**Mostly does not**"),
        ([None, False], "**Mostly does not**"),
    ],
)
def test_a_verdict_is_that_of_its_parts_together(holds, verdict):
    parts = [Judged("figure-6", "The gain", each) for each in holds]
    (line,) = (line for line in table(parts) if line.startswith("| 2 "))
    assert verdict in line


def test_a_guarantee_that_fails_once_does_not_hold():
    parts = [Judged("figure-5", "The algorithm guarantees", each) for each in (True, True, False)]
    (line,) = (line for line in table(parts) if line.startswith("| 3 "))
    assert "**Does not hold**" in line
    assert "2 hold, 1 does not" in line


def test_a_figure_that_was_not_drawn_says_so():
    assert all("Not drawn" in line for line in list(table([]))[2:])
