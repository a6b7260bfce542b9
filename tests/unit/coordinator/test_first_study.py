"""The study that docs/deployment.md tells one to submit, at three sites as `cape site init` makes them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import polars
import pytest

from cape.coordinator import CoordinatorFolder, Record, Relay, Submission
from cape.site import SiteFolder
from cape.site.endpoint import SiteEndpoint
from cape.site.persons import Person
from cape.study import Study
from tests.channel import LocalChannel
from tests.checkout import ROOT

PAGE = ROOT / "docs" / "deployment.md"
NAMES = ("cleveland", "hungary", "zurich")


def page_study() -> str:
    """Return the study file on the page."""
    found = [
        text for text in re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "[study]" in text
    ]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def deployed(tmp_path):
    office = CoordinatorFolder.create(tmp_path / "office")
    sites = {name: SiteFolder.create(tmp_path / name, name) for name in NAMES}
    rng = np.random.default_rng(3)
    for name, site in sites.items():
        rows = polars.DataFrame({"age": rng.uniform(30, 80, 300), "sex": rng.choice(["female", "male"], 300)})
        rows.write_csv(site.path / "data.csv")  # what a new policy names
        site.trust(office.card, coordinator=True)
        office.trust(site.card)
        for other, peer in sites.items():
            if other != name:
                site.trust(peer.card, coordinator=False)
    return office, sites


def submitted(deployed, folder: Path, text: str) -> tuple[Study, Submission]:
    office, sites = deployed
    path = folder / "study.toml"
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = Study.load(path)
    relay = Relay(LocalChannel({name: SiteEndpoint(site) for name, site in sites.items()}))
    return study, Submission(study, office, relay, Record(folder / "record.jsonl"))


def test_it_is_answered_once_the_stewards_have_approved_it(deployed, tmp_path):
    study, submission = submitted(deployed, tmp_path, page_study())
    assert all(report.held for report in submission.check().values())  # a new policy asks its steward
    for site in deployed[1].values():
        site.approvals.approve(site.approvals.find("first"), Person("ana"))
    reports = submission.check()
    assert all(report.ready for report in reports.values()), [str(report) for report in reports.values()]
    for entry in study.analyses:
        assert submission.answer(entry).participants == NAMES


def test_without_the_line_about_collusion_the_refusal_says_what_to_write_where(deployed, tmp_path):
    text = re.sub(r"^colluding = 1.*\n", "", page_study(), flags=re.MULTILINE)
    assert text != page_study()
    _, submission = submitted(deployed, tmp_path, text)
    for report in submission.check().values():
        assert "colluding = 1" in str(report)
        assert "[privacy]" in str(report)
