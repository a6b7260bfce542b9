"""Whatever stands in a study's expression, it is on the list and in order, or it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assurance.inputs.expressions import SCHEMA, Expressions
from cape.core.errors import InvalidInput
from cape.data.expressions import parse


@pytest.mark.parametrize("count", [pytest.param(300), pytest.param(20_000, marks=pytest.mark.slow(50))])
def test_random_texts_are_in_order_or_refused(count: int, tmp_path: Path) -> None:
    surface, taken = Expressions(tmp_path), 0
    for number in range(count):
        text = surface.make(np.random.default_rng([21, number]))
        try:
            surface.feed(text)
            taken += 1
        except InvalidInput as error:
            message = str(error)
            assert message.isprintable(), text
            assert len(message) < 400, text
    assert count * 0.15 < taken < count * 0.85


@pytest.mark.parametrize(
    "text",
    [
        "date(" * 40 + "seen" + ")" * 40,
        '"date"(' * 40 + "seen" + ")" * 40,
        "date date " * 40 + "'2020-01-01'",
    ],
)
def test_what_takes_the_parser_exponential_time_never_reaches_it(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse(text, SCHEMA)
