"""A study over four sites gives what `cape run` gives on the same files, up to noise; ledgers say so."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time

import psutil
import pytest

from cape import Study
from cape.flare.job import write_job
from cape.flare.link import connect, status
from tests.deploy.conftest import SITES, World, mean, until

ANALYSES = (
    mean(0.25)
    + '[[analysis]]\nkind = "histogram"\ncolumn = "age"\nbins = 6\nshare = 0.25\n'
    + '[[analysis]]\nkind = "linear-regression"\ntarget = "chol"\nfeatures = ["age"]\nshare = 0.25\n'
    + '[[analysis]]\nkind = "k-means"\ncolumns = ["age", "chol"]\nclusters = 2\nshare = 0.25\n'
)


def test_it_agrees_with_cape_run_up_to_noise(world: World) -> None:
    study = world.study("agree", ANALYSES, epsilon=8.0)
    spent = {site: world.here.site(site).ledger.spent().mu_squared for site in SITES}
    done = world.submit(study)
    assert done.returncode == 0, done.stderr
    command = [sys.executable, "-m", "cape", "run", str(study), "--scheme", "none", "--json"]
    exact = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["analyses"]
    found = world.results("agree")["analyses"]
    kinds = ["mean", "histogram", "linear-regression", "k-means"]
    assert [each["analysis"]["kind"] for each in found] == kinds
    compared = 0
    for released, truth in zip(found, exact, strict=True):
        assert released["participants"] == list(SITES)
        assert released["rows"] == truth["rows"] == sum(400 + 100 * i for i in range(4))
        if released["analysis"]["kind"] == "k-means":
            continue  # centres may change places
        for ours, theirs in zip(released["estimates"], truth["estimates"], strict=True):
            assert ours["value"] == pytest.approx(theirs["value"], abs=6 * ours["privacy_error"])
            compared += 1
    assert compared >= 10
    assert (world.folder / "agree" / "report.html").stat().st_size > 10_000
    mu = Study.load(study).budget.mu
    for site in SITES:
        paid = world.here.site(site).ledger.spent().mu_squared - spent[site]
        assert float(paid) == pytest.approx(mu**2, rel=1e-9)


def test_a_study_without_delta_is_paid_in_epsilon(world: World) -> None:
    study = world.study("pure", mean(1.0), delta=None)
    spent = {site: world.here.site(site).ledger.spent().pure for site in SITES}
    done = world.submit(study)
    assert done.returncode == 0, done.stderr
    (found,) = world.results("pure")["analyses"]
    assert found["guarantee"]["pure"]
    assert found["guarantee"]["epsilon"] == 1.0
    for site in SITES:
        assert world.here.site(site).ledger.spent().pure - spent[site] == 1


def test_status_says_who_is_there(world: World) -> None:
    command = [sys.executable, "-m", "cape", "status", str(world.here.coordinator), "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    assert found["sites"] == [{"name": site, "connected": True, "pinned": True} for site in SITES]


def test_nobody_can_send_code_or_name_other_classes(world: World, tmp_path) -> None:
    """What a coordinator's certificate allows beyond `cape submit`: nothing that runs at a site."""
    session = connect(world.here.coordinator)
    try:
        with_code = write_job(tmp_path / "code", "code", SITES)
        (with_code / "cape" / "custom").mkdir()
        (with_code / "cape" / "custom" / "mine.py").write_text("raise SystemExit\n")
        other = write_job(tmp_path / "other", "other", SITES)
        path = other / "cape" / "config" / "config_fed_client.json"
        path.write_text(
            path.read_text().replace("cape.flare.executor.Site", "nvflare.app_common.np.np_trainer.NPTrainer")
        )
        number = session.submit_job(str(with_code))
        until(
            lambda: "server: BYOC not permitted" in session.get_job_meta(number).get("job_deploy_detail", [])
        )
        number = session.submit_job(str(other))
        refused = "a: refused by the site: the app is not configured as a job of cape"
        until(lambda: refused in session.get_job_meta(number).get("job_deploy_detail", []))
        with contextlib.suppress(Exception):
            assert "class_allow_list" not in session.cat_target("a", file="local/resources.json")
        with contextlib.suppress(Exception):  # the aggregator passes it on, and the site refuses
            session.shutdown("client", ["a"], wait=False)
        time.sleep(5)
        assert "a" in status(world.here.coordinator).sites
        assert psutil.pid_exists(world.here.processes["a"].pid)
    finally:
        session.close()
