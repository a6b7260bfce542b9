from __future__ import annotations

import subprocess
from pathlib import Path

from assurance.page import page, write
from assurance.results import Result, commit, load, save, worst


def test_the_page_is_made_of_the_files(tmp_path: Path):
    save("fuzz", [Result("bad input", "pass", "python -m assurance fuzz", {"inputs": 100000})], tmp_path)
    save("supply", [Result("known vulnerabilities", "skip", "x", {}, ["Not checked: no network"])], tmp_path)
    (tmp_path / "assurance-privacy.md").write_text("# Empirical\n\n## What must hold\n\n![x](audit.svg)\n")
    (tmp_path / "audit.png").write_bytes(b"picture")
    text = page(tmp_path)
    assert "| bad input | passed | inputs 100,000 |" in text
    assert "**not checked**" in text
    assert "| date | commit | command |" in text
    assert f"| {commit()} |" in text
    assert "within 8 standard deviations" in " ".join(text.split())
    assert "the check empties that list" in " ".join(text.split())
    assert "no network" in text
    assert "### What must hold" in text
    assert "![x](img/audit.png)" in text
    assert (
        write(tmp_path, tmp_path / "docs" / "page.md").parent / "img" / "audit.png"
    ).read_bytes() == b"picture"
    assert "Not run yet: `python -m assurance soak`." in text


def test_results_survive_the_file_and_the_worst_counts(tmp_path: Path):
    results = [Result("a", "pass", "x"), Result("b", "skip", "x"), Result("c", "fail", "x")]
    assert [each["name"] for each in load(save("p", results, tmp_path))] == ["a", "b", "c"]
    assert worst(results) == "fail"
    assert worst(results[:2]) == "skip"
    assert worst([]) == "skip"


def test_a_row_of_old_that_names_no_commit_says_so(tmp_path: Path):
    (tmp_path / "soak.json").write_text('[{"name": "soak", "verdict": "pass", "date": "2026-01-01"}]')
    assert "| soak | passed |  | 2026-01-01 | unknown |" in page(tmp_path)


def test_the_commit_is_that_of_the_tree_with_or_without_changes(tmp_path: Path):
    assert commit(tmp_path) == "unknown"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert commit(tmp_path) == "unknown"
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "file").write_text("a")
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    named = commit(tmp_path)
    assert len(named) >= 7
    assert named.isalnum()
    assert commit(tmp_path / "inside") == "unknown", "ours in somebody else's repository"
    (tmp_path / "inside" / "file").write_text("b")
    assert commit(tmp_path) == f"{named} + changes"


def test_a_result_has_its_commit_in_the_file(tmp_path: Path):
    (row,) = load(save("p", [Result("a", "pass", "x")], tmp_path))
    assert row["commit"] == commit()
    assert row["date"]
