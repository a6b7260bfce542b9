"""What the desk takes for a study: what the command line takes, without files."""

from __future__ import annotations

import builtins
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.analyses.registry import KINDS
from cape.core.errors import InvalidInput
from cape.data.troubles import toml
from cape.desk.coordinator.study import make_plan, parse
from cape.site.decide.policy import SCHEMES
from cape.study import Study
from cape.study.document import document, hash_of
from tests.slices import examples
from tests.unit.desk.office import TEXT

LINES = TEXT.splitlines()
WORDS = (
    "age",
    "sex",
    "mean",
    "histogram",
    "median",
    "0",
    "-1",
    "2.5",
    '"x"',
    "[1, 2]",
    "{}",
    "true",
    "1e400",
)
MORE = (
    'scheme = "none"',
    'scheme = "conventional"',
    'noise = "auto"',
    'neighbours = "add-remove"',
    'where = "age > 30"',
    'by = "sex"',
    "missing = false",
    '[person]\nid = "p"\nrows = 2',
    '[derive]\nold = {sql = "age > 65", categories = ["no", "yes"]}',
    '[[analysis]]\nkind = "count"',
    "[[analysis]]",
)


@st.composite
def bent(draw: st.DrawFn) -> str:
    """A study with a few lines left out, repeated, changed in one word, or added."""
    lines = list(LINES)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(("leave out", "repeat", "change", "add"))):
            case "leave out":
                del lines[place]
            case "repeat":
                lines.insert(place, lines[place])
            case "change":
                parts = re.findall(r'"[^"]*"|[\w.]+|\W', lines[place]) or [""]
                parts[draw(st.integers(0, len(parts) - 1))] = draw(st.sampled_from(WORDS))
                lines[place] = "".join(parts)
            case _:
                lines.insert(place, draw(st.sampled_from(MORE)))
    return "\n".join(lines) + "\n"


@examples(300)
@given(bent())
def test_whatever_the_desk_accepts_the_command_line_accepts(text: str):
    try:
        here = parse(text)
    except InvalidInput:
        here = None
    try:
        there = Study.parse(text, Path("study.toml"))
    except InvalidInput:
        there = None
    if here is None:
        assert there is None or there.scheme not in SCHEMES or _names_a_file(there)
    else:
        assert there is not None
        assert hash_of(document(here)) == hash_of(document(there))


def _names_a_file(study: Study) -> bool:
    return any(not site.elsewhere for site in study.sites.values())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_file_is_opened_whatever_an_argument_says(kind: str, monkeypatch: pytest.MonkeyPatch):
    def opened(*arguments: Any, **more: Any) -> Any:
        if "secret" in str(arguments):
            raise AssertionError(f"{arguments[0]} was opened")
        return real(*arguments, **more)

    real = builtins.open
    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr(os, "open", lambda *arguments, **more: opened(*arguments, **more))
    head = TEXT[: TEXT.index("[[analysis]]")]
    for key in (*KINDS[kind].example, "model", "checkpoint", "formula", "where", "of"):
        for path in ("/tmp/secret.json", ["/tmp/secret.json"], {"model": "/tmp/secret.json"}):
            given = KINDS[kind].example | {key: path}
            lines = "".join(f"{name} = {toml(value)}\n" for name, value in given.items())
            with pytest.raises(InvalidInput):
                make_plan(parse(f'{head}[[analysis]]\nkind = "{kind}"\n{lines}'))
