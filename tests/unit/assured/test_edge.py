"""The list of attacks names tests that are there."""

from __future__ import annotations

import re

import pytest

from assurance.edge import ATTACKS
from assurance.results import ROOT


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_every_attack_names_tests_that_are_there(attack):
    assert attack.tests
    for test in attack.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text()
        assert re.search(rf"^def {name or 'test_'}", text, re.MULTILINE)
        assert file.startswith("tests/deploy/") == attack.deployed


def test_each_hole_that_was_found_is_tried_again():
    told = " ".join(attack.name for attack in ATTACKS)
    assert {f"V{number}" for number in range(1, 9)} <= set(re.findall(r"V\d", told))
