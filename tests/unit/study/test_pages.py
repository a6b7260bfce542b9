"""What the pages show of Python and of study files is run."""

from __future__ import annotations

import re

import pytest
from scipy.special import ndtr, ndtri

import cape
from cape.privacy import gaussian, laplace
from cape.show.numbers import at_most
from tests.checkout import ROOT

START = """
[study]
name = "page"
[privacy]
epsilon = 1.0
delta = 1e-6
colluding = 1
[schema]
age = {low = 18, high = 90, missing = false}
weight = [30, 200]
sex = {categories = ["female", "male"], missing = false}
ill = ["no", "yes"]
[sites]
a = "a.csv"
b = "b.csv"
"""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
ELSEWHERE = ("import torch", "cape.torch", "examples/heart/data", "import datasets")  # needs what is not here


@pytest.mark.one_in(4, seconds=0.4)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_python_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = [block for block in blocks(page, "python") if not any(word in block for word in ELSEWHERE)]
    exec(compile("\n".join(found), page, "exec"), {})


def test_every_call_in_the_table_of_analyses_is_one():
    rows = re.findall(r"^\| (`[A-Z][^|]*) \|", (ROOT / "docs/analyses.md").read_text(), re.MULTILINE)
    calls = [call for row in rows for call in re.findall(r"`([^`]+)`", row) if "Sum.of" not in call]
    assert len(calls) >= 14
    for call in calls:
        eval(call, vars(cape) | {name: getattr(cape, name) for name in cape.__all__})


def test_the_page_of_analyses_has_every_kind_as_a_study_file_says_it(tmp_path):
    described = blocks("docs/analyses.md", "toml")[-1]
    path = tmp_path / "study.toml"
    path.write_text(START + described)
    kinds = [entry.analysis.kind for entry in cape.Study.load(path).analyses]
    from cape.analyses import KINDS

    assert kinds == list(KINDS)


def test_the_table_for_ethics_boards_is_computed():
    text = (ROOT / "docs/ethics.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+)% \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for epsilon, won in rows:
        assert f"{won}%" == at_most(laplace.bet(gaussian.mu(float(epsilon), 1e-6)))


def test_the_table_of_bets_is_computed():
    text = (ROOT / "docs/choosing-epsilon.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+)% \| ([\d.]+)% \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for epsilon, *found in rows:
        mu = gaussian.mu(float(epsilon), 1e-6)
        assert float(found[0]) == pytest.approx(mu, abs=5.1e-5)
        assert f"{found[1]}%" == at_most(laplace.bet(mu))
        assert float(found[2]) == pytest.approx(100 * ndtr(ndtri(0.05) + mu), abs=0.051)
    told = at_most(laplace.bet(gaussian.mu(1.0, 1e-6)))
    assert f"up to {at_most(laplace.bet(0.0, [1]))} of cases, against {told} with Gaussian noise" in text


def test_a_bet_is_the_same_on_every_page():
    told = {epsilon: at_most(laplace.bet(gaussian.mu(epsilon, 1e-6))) for epsilon in (1.0, 3.0)}
    assert f"won in at most {told[1.0]} of cases" in (ROOT / "docs/patients.md").read_text()
    text = (ROOT / "docs/assumptions.md").read_text()
    assert f"That is {told[1.0]} for epsilon = 1" in text
    assert f"and {told[3.0]} for epsilon = 3" in text


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80
