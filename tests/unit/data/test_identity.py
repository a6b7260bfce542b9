"""Two sites with the same rows are found, however their paths are spelt."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cape
from cape.core.errors import InvalidInput
from cape.data.identity import found, overlap
from cape.data.sources import identity_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "b.csv", "[a].csv"):
        (tmp_path / "data" / name).write_text("age\n50\n")
    (tmp_path / "soft.csv").symlink_to(tmp_path / "data" / "a.csv")
    os.link(tmp_path / "data" / "a.csv", tmp_path / "hard.csv")
    (tmp_path / "linked").symlink_to(tmp_path / "data")
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.execute("CREATE TABLE t (age)")
    (tmp_path / "same.db").symlink_to(tmp_path / "rows.db")
    connection.close()
    return tmp_path


SAME = [
    "data/../data/a.csv",
    "./data//a.csv",
    "~/data/a.csv",
    "soft.csv",
    "hard.csv",
    "linked/a.csv",
    "data/?.csv",
    "data/*.csv",
    "data/[ab].csv",
    "**/a.csv",
    Path("data/a.csv"),
    cape.Csv("hard.csv", separator=";"),
    cape.Csv("data/*.csv", encoding="latin-1"),
]


def consortium(first: Any, second: Any) -> cape.Consortium:
    return cape.Consortium(
        {"one": first, "two": second}, cape.Schema(age=(0, 99)), cape.Budget(1, 1e-6), colluding=0
    )


@pytest.mark.parametrize("path", SAME, ids=str)
def test_the_same_file_is_found_however_its_path_is_spelt(path: Any, folder: Path) -> None:
    for first, second in (("data/a.csv", path), (path, folder / "data" / "a.csv")):
        with pytest.raises(InvalidInput, match="sites one and two read the same file"):
            consortium(first, second)


def test_a_pattern_of_one_letter_is_the_file_that_it_matches(folder: Path) -> None:
    (folder / "data" / "[a].csv").unlink()
    with pytest.raises(InvalidInput, match="read the same file"):
        consortium("data/a.csv", "data/[a].csv")


@pytest.mark.filterwarnings("ignore::cape.PrivacyLeakWarning")
def test_other_rows_are_no_twins(folder: Path) -> None:
    consortium("data/a.csv", "data/b.csv")
    consortium("data/a.csv", "data/[a].csv")  # there is a file of that name
    consortium("none.csv", "other.csv")  # neither is there yet
    frame = pl.DataFrame({"age": [50]})
    consortium(frame, frame)  # nobody can say where its rows are from


def test_a_database_is_known_by_its_file_and_the_query(folder: Path) -> None:
    def asked(query: str, uri: str) -> cape.Database:
        return cape.Database(query, uri)

    first = asked("SELECT age FROM t", "sqlite:///rows.db")
    for uri in (f"sqlite:///{folder}/rows.db", "sqlite:///same.db", "sqlite:///./rows.db"):
        with pytest.raises(InvalidInput, match="sites one and two ask the same query"):
            consortium(first, asked("SELECT  age FROM t ;", uri))
    assert not overlap(
        {"one": identity_of(first), "two": identity_of(asked("SELECT 1", "sqlite:///rows.db"))}
    )
    away = [asked("SELECT 1", f"postgresql://{host}/db") for host in ("here", "there")]
    assert not overlap({str(i): identity_of(each) for i, each in enumerate(away)})
    assert overlap({"one": identity_of(away[0]), "two": identity_of(away[0])}) == ("one", "two", True)


@pytest.mark.parametrize("path", ["data/[a].csv", "hard.csv", "linked/a.csv", "data/*.csv", "~/data/a.csv"])
def test_a_study_finds_the_same_file(path: str, folder: Path) -> None:
    (folder / "data" / "[a].csv").unlink()
    (folder / "study.toml").write_text(
        f'[study]\nname = "s"\n[privacy]\nepsilon = 1\ndelta = 1e-6\ncolluding = 0\n[schema]\nage = [0, 99]\n'
        f'[sites]\none = "data/a.csv"\ntwo = "{path}"\n[[analysis]]\nkind = "mean"\ncolumns = ["age"]\n'
    )
    with pytest.raises(InvalidInput, match=r"\[sites\] one and two read the same file"):
        cape.Study.load(folder / "study.toml")


def test_files_of_a_pattern_are_in_order_and_without_folders(folder: Path) -> None:
    (folder / "data" / "c.csv").mkdir()
    assert [Path(name).name for name in found("data/*.csv")] == ["[a].csv", "a.csv", "b.csv"]
    assert found("data/[a].csv") == ["data/[a].csv"]
    assert found("none*.csv") == []
