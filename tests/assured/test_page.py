from __future__ import annotations

from pathlib import Path

from assurance.page import page, write
from assurance.results import Result, load, save, worst


def test_the_page_is_made_of_the_files(tmp_path: Path):
    save("fuzz", [Result("bad input", "pass", "python -m assurance fuzz", {"inputs": 100000})], tmp_path)
    save("supply", [Result("known vulnerabilities", "skip", "x", {}, ["Not checked: no network"])], tmp_path)
    (tmp_path / "assurance-privacy.md").write_text("# Empirical\n\n## What must hold\n\n![x](audit.svg)\n")
    (tmp_path / "audit.png").write_bytes(b"picture")
    text = page(tmp_path)
    assert "| bad input | passed | inputs 100,000 |" in text
    assert "**not checked**" in text
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
