from __future__ import annotations

import json
from pathlib import Path

from assurance.page import page
from assurance.results import Result, load, save, worst


def test_the_page_is_made_of_the_files(tmp_path: Path):
    save("fuzz", [Result("bad input", "pass", "python -m assurance fuzz", {"inputs": 100000})], tmp_path)
    save("supply", [Result("known vulnerabilities", "skip", "x", {}, ["Not checked: no network"])], tmp_path)
    audit = [{"name": "cape, mean", "verdict": "pass", "claim": 1.0, "bound": 0.9}]
    (tmp_path / "audit.json").write_text(json.dumps(audit))
    text = page(tmp_path)
    assert "| bad input | passed | inputs 100,000 |" in text
    assert "**not checked**" in text
    assert "no network" in text
    assert "| cape, mean | passed | claim 1, bound 0.9 |" in text
    assert "Not run yet: `python -m assurance soak`." in text


def test_results_survive_the_file_and_the_worst_counts(tmp_path: Path):
    results = [Result("a", "pass", "x"), Result("b", "skip", "x"), Result("c", "fail", "x")]
    assert [each["name"] for each in load(save("p", results, tmp_path))] == ["a", "b", "c"]
    assert worst(results) == "fail"
    assert worst(results[:2]) == "skip"
    assert worst([]) == "skip"
