"""The trail of decisions: what is in it, that changes are found, and what a killed process leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cape.core.errors import CapeError, InvalidInput
from cape.desk.access.people import Person
from cape.desk.access.trail import Trail, check
from tests.unit.desk.test_app import PAGES
from tests.unit.desk.visitor import Visitor, desk

ANA = Person("ana@h.org", "steward")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    trail = Trail(tmp_path / "trail.jsonl")
    for number in range(5):
        assert trail.write(ANA, "POST /inbox/approve", {"study": f"s{number}", "csrf": "x"}) == number + 1
    return trail.path


def test_it_goes_on_where_it_ended(path: Path):
    assert check(path).wrong is None
    trail = Trail(path)
    assert trail.write(ANA, "login") == 6
    found = check(path)
    assert (found.lines, found.head, found.wrong) == (6, trail.head, None)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("how", ["change", "remove", "insert", "swap"])
def test_a_changed_line_is_found(path: Path, how: str, number: int):
    lines = path.read_text().splitlines()
    if how == "change":
        lines[number] = lines[number].replace(f"s{number}", "sx")
    elif how == "remove":
        del lines[number]
    elif how == "insert":
        lines.insert(number, lines[number])
    else:
        lines[number], lines[number + 1] = lines[number + 1], lines[number]
    path.write_text("\n".join(lines) + "\n")
    wrong = check(path).wrong
    assert wrong is not None
    assert number < wrong <= number + 2
    with pytest.raises(InvalidInput, match=f"line {wrong} is wrong"):
        Trail(path)


def test_part_of_a_line_is_cut_off(path: Path):
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (1, 10, len(lines[4]) - 1):
        path.write_bytes(b"".join(lines[:4]) + lines[4][:cut])
        trail = Trail(path)
        assert trail.lines == 4
        trail.write(ANA, "login")
        assert check(path).wrong is None


def test_secrets_and_long_texts_are_not_in_it(tmp_path: Path):
    trail = Trail(tmp_path / "trail.jsonl")
    fields = {
        "csrf": "tokentoken",
        "password": "hunter2",
        "client_secret": "hunter2",
        "source": "postgres://me:hunter2@db/x",
        "text": "hunter2 " * 100,
        "reason": "no ethics vote",
    }
    trail.write(ANA, "POST /policy", fields)
    text = trail.path.read_text()
    assert "hunter2" not in text
    assert "tokentoken" not in text
    assert json.loads(text)["fields"]["text"] == "(800 characters)"
    assert json.loads(text)["fields"]["reason"] == "no ethics vote"


def test_every_form_leaves_two_lines_with_its_outcome(tmp_path: Path):
    ana = Visitor(desk(PAGES, tmp_path), "steward", "ana@h.org")
    ana.submit("/decide", study="heart")
    ana.submit("/decide", wrong="1")
    ana.submit("/decide", broken="1")
    ana.get("/read")
    lines = [json.loads(line) for line in (tmp_path / "trail.jsonl").read_text().splitlines()]
    assert [line.get("outcome") for line in lines] == [None, "done", None, "refused", None, "failed"]
    assert {(line["person"], line["role"], line["what"]) for line in lines} == {
        ("ana@h.org", "steward", "POST /decide")
    }
    assert lines[0]["fields"] == {"study": "heart"}
    assert [line["of"] for line in lines[1::2]] == [1, 3, 5]


def test_what_cannot_be_written_down_is_not_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ana = Visitor(desk(PAGES, tmp_path), "steward")
    (tmp_path / "trail.jsonl").unlink(missing_ok=True)
    (tmp_path / "trail.jsonl").mkdir()
    done = ana.submit("/decide", study="heart")
    assert done.status_code == 409
    assert "nothing was decided" in done.text
    with pytest.raises(CapeError, match="Is a directory"):
        Trail(tmp_path / "trail.jsonl")


def test_a_form_without_the_right_role_or_token_leaves_none(tmp_path: Path):
    app = desk(PAGES, tmp_path)
    assert Visitor(app, "viewer").submit("/decide", study="heart").status_code == 403
    assert Visitor(app, "steward").post("/decide", data={"study": "heart"}).status_code == 403
    assert not (tmp_path / "trail.jsonl").exists()


def test_what_a_full_disk_left_of_a_line_is_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch):
    trail = Trail(path)
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(CapeError, match=r"No space left on device.*nothing was decided"):
            trail.write(ANA, "POST /inbox/approve")
    assert path.read_bytes() == before
    trail.write(ANA, "login")
    assert check(path).wrong is None


def test_junk_in_a_form_does_not_hide_what_is_decided(path: Path):
    trail = Trail(path)
    junk = {f"a{number}": "x" for number in range(40)}
    trail.write(ANA, "POST /inbox/approve", junk | {"study": "s9", "how": "always"})
    (kept,) = [json.loads(line)["fields"] for line in path.read_text().splitlines()[-1:]]
    assert (kept["study"], kept["how"]) == ("s9", "always")
    assert len(kept["and 22 more"]) == 64
