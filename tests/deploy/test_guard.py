"""What reaches a site's NVFLARE process directly, past `cape`."""

from __future__ import annotations

import shutil
import threading
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.private.admin_defs import Message, ok_reply
from nvflare.private.defs import RequestHeader

from cape.flare.guard import Jobs, _may_speak, is_job_id
from cape.flare.job import write_job
from cape.flare.launcher import environment
from cape.flare.link import connect
from tests.deploy.conftest import SITES, World, until
from tests.deploy.forged import attack, certificate


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


UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


class _Processor:
    """Stands for one of NVFLARE's, and waits until it may end."""

    def __init__(self) -> None:
        self.began, self.may_end, self.calls = threading.Event(), threading.Event(), 0

    def process(self, request: Message, engine: Any) -> Message:
        self.calls += 1
        self.began.set()
        assert self.may_end.wait(10)
        return ok_reply()


class DeployProcessor(_Processor):
    pass


class StartJobProcessor(_Processor):
    pass


class AbortAppProcessor(_Processor):
    pass


def _request(job: object, **headers: object) -> Message:
    request = Message("x", b"")
    request.set_header(RequestHeader.JOB_ID, job)
    for key, value in {"JOB_META": {"job_id": job}, "APP_NAME": "cape", **headers}.items():
        request.set_header(getattr(RequestHeader, key), value)
    return request


@pytest.fixture
def app(tmp_path: Path) -> bytes:
    return zip_directory_to_bytes(str(write_job(tmp_path / "job", "job", SITES) / "cape"), "")


def test_a_job_is_started_once_and_only_after_its_app_was_taken(app: bytes) -> None:
    jobs, deploy, start = Jobs(), DeployProcessor(), StartJobProcessor()
    jobs.check(deploy)
    jobs.check(start)
    start.may_end.set()
    job, engine = str(uuid.uuid4()), SimpleNamespace(get_all_job_ids=list)
    bringing = _request(job)
    bringing.body = app

    def told() -> str:
        return str(start.process(_request(job), engine).body)

    refused = "refused by the site: no app of this job has passed the check"
    assert told() == refused
    thread = threading.Thread(target=lambda: deploy.process(bringing, engine))
    thread.start()
    assert deploy.began.wait(10)
    assert told() == refused  # while it is being written
    again = deploy.process(bringing, engine).body
    assert again == "refused by the site: the job is already being deployed or running"
    deploy.may_end.set()
    thread.join()
    assert told() == "ok"
    assert told() == refused
    assert (deploy.calls, start.calls) == (1, 1)
    runs = SimpleNamespace(get_all_job_ids=lambda: [job])
    assert "already being deployed or running" in str(deploy.process(bringing, runs).body)


@pytest.mark.parametrize(
    "job", ["site", "", None, 7, "../x", f"{UUID}\n", UUID.upper(), UUID.replace("-", "")]
)
def test_no_handler_sees_a_job_id_that_is_no_uuid(app: bytes, job: object) -> None:
    assert not is_job_id(job)
    for processor in (DeployProcessor(), StartJobProcessor(), AbortAppProcessor()):
        Jobs().check(processor)
        request = _request(job)
        request.body = app
        told = processor.process(request, SimpleNamespace(get_all_job_ids=list))
        assert told.body == "refused by the site: a job's id must be a UUID"
        assert processor.calls == 0


def test_what_is_said_of_a_job_must_be_about_it_and_small(app: bytes) -> None:
    job = str(uuid.uuid4())
    for meta in (
        None,
        {},
        {"job_id": "x"},
        {"job_id": job, "x": "x" * (1 << 20)},
        {"job_id": job, "x": set()},
    ):
        deploy = DeployProcessor()
        Jobs().check(deploy)
        request = _request(job, JOB_META=meta)
        request.body = app
        told = deploy.process(request, SimpleNamespace(get_all_job_ids=list))
        assert str(told.body).startswith("refused by the site: ")
        assert deploy.calls == 0


def test_a_cell_takes_messages_of_the_aggregator_and_of_its_own_job() -> None:
    job = str(uuid.uuid4())
    for own in ("a", f"a.{job}"):
        assert _may_speak(own, "server", "server", dialled=True)
        assert _may_speak(own, f"server.{job}", "server", dialled=True)
        assert not _may_speak(own, "server", "server", dialled=False)  # somebody on this machine
        assert not _may_speak(own, "server", "b", dialled=True)
        for origin in ("b", f"b.{job}", "server.x", "serverx", "admin@x", "", None, 7):
            assert not _may_speak(own, origin, "server", dialled=True)
        assert not _may_speak(own, "a", "server", dialled=True)
    assert _may_speak("a", f"a.{job}", f"a.{job}", dialled=False)
    assert _may_speak(f"a.{job}", "a", "a", dialled=True)
    assert _may_speak(f"a.{job}", f"server.{job}", "a", dialled=True)


def test_a_worker_gets_what_is_named_of_the_environment_and_no_more() -> None:
    own = {"PATH": "p", "CAPE_LINK": "s", "PYTHONPATH": "x", "https_proxy": "h", "LC_ALL": "C"}
    dropped = {"AWS_SECRET_ACCESS_KEY": "k", "PYTHONSTARTUP": "x", "PYTHONHOME": "x", "LD_PRELOAD": "x"}
    assert environment({**own, **dropped}) == own
