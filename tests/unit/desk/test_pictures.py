"""Pictures and words of the desk: what is spent, what a study adds, and where an allowance ends."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from xml.etree import ElementTree

import pytest

from cape.desk.site import pictures, words
from cape.privacy import Budget
from cape.site import Amount
from cape.site.admin.data import Limit

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def widths(svg: str) -> dict[str, float]:
    ElementTree.fromstring(svg)
    return {name: float(width) for name, width in re.findall(r'class="(\w+)"[^>]*width="([\d.]+)"', svg)}


def test_a_bar_is_divided_as_the_budget_is():
    found = widths(pictures.meter(0.5, 1.0, 2.0, "half"))
    assert found == {"room": 600.0, "had": 150.0, "adds": 150.0}


def test_what_exceeds_the_allowance_is_marked_and_the_bar_stays_finite():
    found = widths(pictures.meter(1.0, 3.0, 2.0, "over"))
    assert (found["had"], found["adds"], found["over"]) == (200.0, 200.0, 200.0)
    assert 'class="limit"' in pictures.meter(1.0, 3.0, 2.0, "over")
    assert widths(pictures.meter(0.0, math.inf, 2.0, "no delta left"))["over"] == 300.0


def test_names_in_a_picture_are_escaped():
    assert "<b>" not in pictures.meter(0.0, 0.0, 1.0, "<b>office</b>")
    assert "<b>" not in pictures.running([(NOW, 0.5)], 1.0, "<b>", "<b>")


def test_the_running_total_is_a_step_curve_below_its_limit():
    svg = str(pictures.running([(NOW + timedelta(days=n), n / 4) for n in range(4)], 1.0, "allowed", "total"))
    wide, narrow = svg.split("</svg>")[:2]
    (line,) = re.findall(r'class="line" d="([^"]*)"', wide)
    heights = [float(each) for each in re.findall(r"V([\d.]+)", line)]
    assert heights == sorted(heights, reverse=True)
    (limit,) = re.findall(r'class="limit" d="M[\d.]+ ([\d.]+)H', wide)
    assert float(limit) < min(heights)
    assert "narrow-plot" in narrow
    for each in (wide, narrow):
        ElementTree.fromstring(each + "</svg>")
    assert pictures.running([], 1.0, "allowed", "nothing") == ""


def test_the_chain_is_green_up_to_the_line_that_broke():
    assert widths(pictures.chain(10, None)) == {"sound": 600.0}
    found = widths(pictures.chain(10, 4))
    assert found == {"sound": 180.0, "room": 420.0}
    assert "line 4 of 10" in pictures.chain(10, 4)
    widths(pictures.chain(0, 1))


@pytest.mark.parametrize(
    ("share", "told"), [(0.5, "50.0%"), (0.5388, "53.9%"), (0.53801, "53.9%"), (1.0, "100.0%")]
)
def test_what_is_at_most_is_rounded_up(share: float, told: str):
    assert words.at_most(share) == told


@pytest.mark.parametrize(
    ("epsilon", "told"), [(1.0, "strong"), (3.0, "moderate"), (8.0, "weak"), (20.0, "hardly any")]
)
def test_protection_is_called_what_the_documentation_calls_it(epsilon: float, told: str):
    spent = Amount(Fraction(Budget(epsilon, 1e-6).mu) ** 2)
    assert words.strength(spent.bet) == f"{told} protection"
    assert words.strength(Amount(pure=Fraction(3)).bet) == "hardly any protection"


def test_limits_are_told_with_what_is_left():
    (plain, over) = words.allowances(
        (Limit("All ever", 2.0, 1e-6, 0.5, 0.5), Limit("All in 2026", 1.0, 1e-6, 0.5, 1.5))
    )
    assert plain.words == "epsilon 0.5 of 2 spent; 1.5 left"
    assert over.words == "epsilon 0.5 of 1 spent, 1.5 after it: more than allowed"
    assert (plain.exceeded, over.exceeded) == (False, True)
