"""No code and no deletion at a site, by an administrator's certificate with any other site or the aggregator.

The attacks V1 and V2: each of them succeeds if the site's client runs NVFLARE with less of a guard.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.conftest import World, mean
from tests.deploy.forged import attack, files, signed_app

OTHERS = ["a", "b", "c"]
JOBS = ["site", "local", "startup", "transfer", "../x", "", ".", "0" * 36]


@pytest.fixture
def valuables(world: World) -> Iterator[Path]:
    """What somebody may have put where an attacker would like to delete: in the kit, and next to it."""
    kit = world.here.kit("a")
    for folder in (kit / "site", kit.parent / "x"):
        folder.mkdir()
        (folder / "ledger.sqlite").write_text("what was spent")
    yield kit
    for folder in (kit / "site", kit.parent / "x"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("attacker", ["d", "aggregator"])
def test_code_in_an_app_never_runs_at_another_site_however_the_start_is_timed(
    world: World, tmp_path: Path, attacker: str
) -> None:
    """The app has thousands of files, so that judging it takes long; the job is started all the while.

    Which of its files a site that has judged deletes first depends on names: so three sites are tried.
    """
    ran = tmp_path / "ran"
    app = signed_app(world, tmp_path, code=f"open({str(ran)!r}, 'a').write('here')\n", junk=6000)
    job = str(uuid.uuid4())
    told = attack(world, attacker, "race", targets=OTHERS, job=job, app=str(app), seconds=15.0)
    time.sleep(1.0)
    assert not ran.exists(), told
    for site in OTHERS:
        assert not (world.here.kit(site) / job).exists()
        if attacker == "aggregator":  # a site answers it, and says why
            assert told[site] == "refused by the site: the app is not a zip of at most 262144 bytes"
        else:
            assert told[site] == "None"


@pytest.mark.parametrize("attacker", ["d", "aggregator"])
def test_an_app_under_a_job_id_that_is_no_uuid_deletes_nothing(
    world: World, tmp_path: Path, valuables: Path, attacker: str
) -> None:
    app = signed_app(world, tmp_path)
    before = files(valuables.parent)
    told = attack(world, attacker, "deploy", target="a", jobs=JOBS, app=str(app))
    after = files(valuables.parent)
    assert not [path for path in before if path not in after]
    expected = "None" if attacker == "d" else "refused by the site: a job's id must be a UUID"
    assert told == [expected] * len(JOBS)


def test_the_app_of_a_study_is_taken_from_the_aggregator_alone(world: World, tmp_path: Path) -> None:
    """The same app that others cannot bring: so what was refused was refused for what it was."""
    app, job = signed_app(world, tmp_path), str(uuid.uuid4())
    assert attack(world, "aggregator", "deploy", target="a", jobs=[job], app=str(app)) == [
        "deployed cape to a"
    ]
    assert attack(world, "d", "deploy", target="a", jobs=[str(uuid.uuid4())], app=str(app)) == ["None"]
    shutil.rmtree(world.here.kit("a") / job)


def test_a_site_cannot_speak_in_the_name_of_the_aggregator(
    world: World, tmp_path: Path, valuables: Path
) -> None:
    """Not even with the token of an earlier registration, whose origin NVFLARE's server does not check."""
    app, job = signed_app(world, tmp_path), str(uuid.uuid4())
    old = attack(world, "d", "token")
    world.here.kill("d", again=True)
    world.back()
    for token in (None, old):
        for origin in ("server", f"server.{uuid.uuid4()}"):
            attack(world, "d", "deploy", target="a", jobs=[job], app=str(app), origin=origin, token=token)
    assert not (valuables / job).exists()
    study = world.study("after-forgery", mean(1.0), epsilon=2.0)
    done = world.submit(study)
    assert done.returncode == 0, done.stderr
