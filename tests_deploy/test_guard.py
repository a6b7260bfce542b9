"""What reaches a site's NVFLARE process directly, past `cape`."""

from __future__ import annotations

import shutil
from pathlib import Path

from cape.flare.job import write_job
from cape.flare.link import connect
from tests_deploy.conftest import SITES, World, until
from tests_deploy.forged import attack, certificate


def test_a_site_cannot_read_a_file_at_another_site(world: World) -> None:
    """Without the guard it can: NVFLARE's client runs `head` for whoever does not ask it to check rights."""
    command = f"head -n 3 {world.tables['a']}"
    assert attack(world, "b", "shell", target="a", command=command) == "None"
    assert attack(world, "aggregator", "shell", target="a", command=command) == "invalid_request"


def test_the_maker_of_certificates_cannot_send_code_or_commands(world: World, tmp_path: Path) -> None:
    """It makes itself an administrator with the role that NVFLARE allows everything."""
    kit = tmp_path / "kit"
    shutil.copytree(world.here.coordinator, kit)
    certificate(world, kit / "startup")
    job = write_job(tmp_path / "job", "job", SITES)
    (job / "cape" / "custom").mkdir()
    stolen = tmp_path / "stolen"
    (job / "cape" / "custom" / "mine.py").write_text(f"open({str(stolen)!r}, 'w').write('here')\n")
    config = job / "cape" / "config" / "config_fed_client.json"
    config.write_text(config.read_text().replace("cape.flare.executor.Site", "mine.Mine"))
    session = connect(kit)
    try:
        told = session._do_command("ls a local", enforce_meta=False)
        assert "invalid_request" in str(told["data"])
        number = session.submit_job(str(job))
        until(lambda: session.get_job_meta(number)["status"].startswith("FINISHED"))
        meta = session.get_job_meta(number)
    finally:
        session.close()
    assert meta["submitter_role"] == "super"
    for site in SITES:
        assert (
            f"{site}: refused by the site: the app has other files than a job of cape"
            in meta["job_deploy_detail"]
        )
    assert not stolen.exists()
