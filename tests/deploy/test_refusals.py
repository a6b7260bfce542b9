"""Each site decides by its own policy, and says why; nothing is spent on what is refused."""

from __future__ import annotations

import re
import subprocess
from datetime import date
from pathlib import Path

import pytest

from cape.coordinator import CoordinatorFolder, Record, Submission
from cape.core.errors import TooFewSites
from cape.flare.link import Network
from cape.secagg.keys import Identity
from cape.site.keyring import Card, public_text
from cape.study import Study
from tests.deploy.conftest import SITES, World, mean, until


@pytest.fixture
def policies(world: World):
    """Let a test change policies, and put them back."""
    before = {site: (world.here.site(site).path / "site.toml").read_text() for site in SITES}

    def change(site: str, pattern: str, new: str) -> None:
        path = world.here.site(site).path / "site.toml"
        text, count = re.subn(pattern, new, path.read_text(), count=1, flags=re.MULTILINE)
        assert count, pattern
        path.write_text(text)

    yield change
    for site, text in before.items():
        (world.here.site(site).path / "site.toml").write_text(text)


def test_each_reason_reaches_the_coordinator_and_nothing_is_spent(world: World, policies) -> None:
    """Expired policy, a peer with another key, an exhausted ledger, other bounds: all at once."""
    stranger = public_text(Identity().public)
    policies("a", r"^expires = .*$", f"expires = {date(2020, 1, 1)}")
    policies("b", r'^"?c"? = ".*"$', f'c = "{stranger}"')
    policies("c", r"^year = .*$", "year = {epsilon = 0.001, delta = 1e-6}")
    policies("d", r"^age = .*$", "age = [0, 100]")
    lines = {site: len(world.here.site(site).ledger.entries()) for site in SITES}
    done = world.submit(world.study("refused", mean(0.5)))
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert "a: refuses analysis 1 (expired: this site's policy has expired" in told
    assert "b: refuses analysis 1 (roster:" in told
    assert "c: refuses analysis 1 (budget:" in told
    assert "d: refuses analysis 1 (schema:" in told
    assert "0 of 4 sites would answer analysis 1, but min_sites requires 3" in told
    assert "Nothing was spent" in told
    assert {site: len(world.here.site(site).ledger.entries()) for site in SITES} == lines


def test_one_site_that_refuses_is_left_out_of_a_study_that_can_do_without_it(world: World, policies) -> None:
    policies("b", r"^analyses = .*$", 'analyses = ["count"]')
    done = world.submit(world.study("without", mean(0.5)))
    assert done.returncode == 0, done.stderr
    assert "b: refuses analysis 1 (analysis:" in done.stderr
    assert world.results("without")["analyses"][0]["participants"] == ["a", "c", "d"]


def test_a_held_study_waits_for_the_steward(world: World, policies) -> None:
    policies("a", r"^approve = .*$", 'approve = "ask"')
    study = world.study("held", mean(0.5))
    done = world.submit(study)
    assert done.returncode == 1
    assert "the study awaits approval by the steward of a" in done.stderr
    assert "Nothing was spent" in done.stderr
    steward = [*world.command(study)[:3], "site"]
    here = ["--site", str(world.here.site("a").path)]
    asked = subprocess.run([*steward, "ask", "held", "Why?", *here], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    assert "a: waits for its steward, who asks: Why?" in world.submit(study).stderr
    approved = subprocess.run([*steward, "approve", "held", *here], capture_output=True, text=True)
    assert approved.returncode == 0, approved.stderr
    again = world.submit(study)
    assert again.returncode == 0, again.stderr
    assert world.results("held")["analyses"][0]["participants"] == list(SITES)
    window = world.here.folder / "a.log"  # of `cape join`
    until(lambda: "analysis 1 of study 'held'" in window.read_text(), 20)
    said = [line for line in window.read_text().splitlines() if "study 'held'" in line]
    for line, ending in zip(
        said, ("waits for the steward", "asks: Why?", "was approved", "was answered"), strict=True
    ):
        assert line.endswith(ending)


def test_a_coordinator_that_asks_for_less_noise_is_refused_by_everyone(
    world: World, tmp_path, monkeypatch
) -> None:
    """It signs a request whose grid means less noise than the study's epsilon buys."""
    from cape.coordinator import submission as module

    study = Study.load(world.study("less", mean(0.5)))
    folder = CoordinatorFolder(world.here.coordinator)
    honest = module.make_request

    def forged(*arguments, **options):
        from dataclasses import replace

        request = honest(*arguments, **options)
        grid = tuple((bits, 2 * factor) for bits, factor in request.grid)
        return replace(request, grid=grid, signature=b"").signed(folder.identity)

    lines = {site: len(world.here.site(site).ledger.entries()) for site in SITES}
    with Network(folder.path, "less", SITES) as link, Record(tmp_path / "record.jsonl") as record:
        submission = Submission(study, folder, link, record)
        monkeypatch.setattr(module, "make_request", forged)
        with pytest.raises(TooFewSites, match=r"refused \(noise: "):
            submission.answer(study.analyses[0])
        assert submission.spent == 0
    assert {site: len(world.here.site(site).ledger.entries()) for site in SITES} == lines


def test_a_coordinator_whom_no_site_trusts_gets_nothing(world: World, tmp_path: Path) -> None:
    import shutil

    kit = tmp_path / "kit"  # all the certificates, and another key
    shutil.copytree(world.here.coordinator, kit)
    for name in ("identity.key", "sites.toml"):
        (kit / name).unlink()
    impostor = CoordinatorFolder.create(kit, "coordinator")
    for site in SITES:
        impostor.trust(Card(site, world.here.site(site).identity.public))
    command = world.command(world.study("impostor", mean(0.5)))
    command[command.index("--kit") + 1] = str(kit)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "this site does not trust this coordinator's key" in " ".join(done.stderr.split())


def test_two_studies_at_once_cannot_overdraw_one_ledger(world: World, policies) -> None:
    """Site b has a budget for one of them; both are asked at the same time, and need all four sites."""
    ledger = world.here.site("b").ledger
    before = ledger.spent()
    from cape.privacy import gaussian

    allowed = (float(before.mu_squared) + 1.5 * gaussian.mu(1.0, 1e-6) ** 2 * 0.5) ** 0.5
    epsilon = gaussian.epsilon(1e-5, allowed)
    policies("b", r"^year = .*$", f"year = {{epsilon = {epsilon!r}, delta = 1e-5}}")
    studies = [world.study(name, mean(0.5), min_sites=4) for name in ("first", "second")]
    running = [
        subprocess.Popen(world.command(study), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for study in studies
    ]
    said = [process.communicate(timeout=120)[1] for process in running]
    assert sorted(process.returncode for process in running) == [0, 1], said
    assert any("budget:" in each for each in said)
    assert float(ledger.spent().mu_squared) <= allowed**2
