"""Studies from a browser name no files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import cape
from cape.core.errors import InvalidInput
from cape.site.admin import Desk
from cape.study.named_files import refuse_named_files
from tests.world import World

STUDY = """
[study]
name = "lungs"
[privacy]
epsilon = 1
delta = 1e-6
[schema]
age = {{low = 18, high = 90}}
ill = ["no", "yes"]
[sites]
a = {{}}
b = {{}}
c = {{}}
[[analysis]]
kind = "evaluate"
share = 0.5
model = "{model}"
"""


@pytest.mark.parametrize(
    ("analysis", "key"),
    [
        ({"model": "/etc/passwd"}, "model"),
        ({"of": [{"model": "model.json"}]}, "model"),
        ({"checkpoint": "x"}, "checkpoint"),
    ],
)
def test_a_file_is_found_at_any_depth(analysis: dict[str, object], key: str):
    with pytest.raises(InvalidInput, match=rf"\[\[analysis\]\] 2: {key} names a file"):
        refuse_named_files({"analysis": [{"kind": "count"}, analysis]})
    refuse_named_files({"analysis": [{"kind": "count", "model": {"coefficients": {}}}]})


def test_a_check_at_the_desk_opens_none(tmp_path: Path):
    world = World(tmp_path / "w")
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", "/etc/shadow"):
        with pytest.raises(InvalidInput, match="model names a file, which the desk does not open"):
            Desk(world.site).check(STUDY.format(model=path))


def test_a_model_is_read_from_a_file_of_limited_size(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(InvalidInput, match="it is not a file"):
            cape.model_from_json(path)
    with open(tmp_path / "large.json", "wb") as file:
        file.truncate(1 << 26)
    with pytest.raises(InvalidInput, match="larger than 32 MB"):
        cape.model_from_json(tmp_path / "large.json")
    with pytest.raises(InvalidInput, match="cannot be read"):
        cape.model_from_json(tmp_path / "none.json")


SOURCES = """
[study]
name = "lungs"
[privacy]
epsilon = 1
delta = 1e-6
[schema]
age = {{low = 18, high = 90}}
[sites]
{sites}
[[analysis]]
kind = "mean"
columns = ["age"]
"""


def test_a_check_of_a_study_looks_for_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two sites that name the same file would be refused, which would say that it is there."""
    world = World(tmp_path / "w")
    desk = Desk(world.site)
    told = desk.check(SOURCES.format(sites="a = {}\nb = {}\nc = {}"))

    def looked(*_: object) -> None:
        raise AssertionError("it looked for a file")

    monkeypatch.setattr("cape.study.sites.of_files", looked)
    monkeypatch.setattr("cape.data.identity.glob.glob", looked)
    folder = world.site.path
    for sites in (
        f'a = "{folder}/rows*"\nb = "{folder}/rows**"\nc = "/**/zz*"',
        f'a = {{path = "{folder}/rows.csv", separator = ";"}}\nb = {{path = "{folder}/rows.csv"}}\nc = {{}}',
        'a = {query = "SELECT 1", connection = "sqlite:////etc/x"}\nb = {}\nc = "data.csv"',
    ):
        assert desk.check(SOURCES.format(sites=sites)) == told
    with pytest.raises(InvalidInput, match=r"\[sites\] a"):
        desk.check(SOURCES.format(sites="a = 5\nb = {}\nc = {}"))
