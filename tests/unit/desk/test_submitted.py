"""Submissions of the coordinator's desk: real processes, and a desk that may be started again at any time."""

from __future__ import annotations

import json
import os
import signal
from html import unescape
from pathlib import Path

import pytest

from cape.app.folder import RECORD
from cape.coordinator import Record
from cape.core.errors import CapeError, InvalidInput
from cape.desk.coordinator.submitted import Submitted
from tests.unit.desk.office import TEXT, Office, office, until
from tests.world import SECRET

__all__ = ["office"]
SLOW = "2.5"  # seconds that a round takes


def submit(office: Office, text: str = TEXT, *, slow: str = "", wait: str = "0") -> Submitted:
    """Submit a study through the page; `slow` makes its process take its time."""
    if slow:
        create = Submitted.create

        def slowly(*arguments, **more):  # type: ignore[no-untyped-def]
            made = create(*arguments, **more)
            (made.folder / "slow").write_text(slow)
            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Submitted, "create", slowly)
            found = office.visitor().submit("/submissions", text=text, wait=wait)
    else:
        found = office.visitor().submit("/submissions", text=text, wait=wait)
    assert found.status_code == 303, found.text
    return office.state.submission(found.headers["location"].rpartition("/")[2])


def spoken(office: Office, submission: Submitted) -> str:
    """What the page of a submission says; nothing on it is a cell, a path or a stack trace."""
    viewer = office.visitor("viewer")
    page = viewer.get(f"/submissions/{submission.id}").text
    for secret in (str(SECRET), str(office.world.folder), "rows.csv", "Traceback", 'File "'):
        assert secret not in page
    return unescape(viewer.words(f"/submissions/{submission.id}"))


@pytest.mark.slow(6)
def test_a_study_is_submitted_answered_and_shown(office: Office):
    submission = submit(office)
    assert submission.running
    until(lambda: not submission.running)
    office.restart()
    submission = office.state.submission(submission.id)
    assert submission.state == "finished", submission.output
    words = spoken(office, submission)
    for said in (
        "It is finished: 2 of 2 analyses answered.",
        "75% of the study's budget (epsilon = 8, delta = 1e-06) is spent: epsilon so far",
        "took part in",
        "1. Mean of age and weight",
        "Numbers of analysis 2 (CSV)",
        "Submitted",
        "by ana",
    ):
        assert said.lower() in words.lower(), said
    assert "Resume" not in words
    viewer, path = office.visitor("viewer"), f"/submissions/{submission.id}"
    report = viewer.get(f"{path}/report")
    assert "sandbox allow-downloads" in report.headers["content-security-policy"]
    assert "script" not in report.headers["content-security-policy"]
    assert report.content == (submission.folder / "results" / "report.html").read_bytes()
    results = json.loads(viewer.get(f"{path}/files/results.json").text)
    table = viewer.get(f"{path}/analysis-1.csv")
    assert table.text.splitlines()[0].startswith("label,value,low,high")
    assert str(results["analyses"][0]["estimates"][0]["value"]) in table.text
    assert viewer.get(f"{path}/study.toml").text == TEXT
    assert "conventional" in viewer.words(f"{path}/study")
    assert viewer.get(f"{path}/files/record.jsonl").status_code == 400
    assert viewer.get(f"{path}/files/..%2fstudy.toml").status_code == 404
    assert viewer.submit(f"{path}/cancel").status_code == 403
    with pytest.raises(CapeError, match="not running"):
        submission.cancel()
    assert "2 of 2" in viewer.words("/")
    copied = office.visitor().submit(f"{path}/copy")
    assert copied.headers["location"] == "/drafts/lungs-hearts"
    assert office.state.draft("lungs-hearts") == TEXT


@pytest.mark.slow(12)
def test_a_submission_outlives_the_desk_is_cancelled_and_resumed(office: Office):
    submission = submit(office, slow=SLOW)
    until(lambda: submission.record.begun)
    with pytest.raises(InvalidInput, match="in use by another desk"):
        office.open()
    office.restart()
    submission = office.state.submission(submission.id)
    assert submission.state == "running"
    until(lambda: "analysis 1 is being answered" in spoken(office, submission))
    with pytest.raises(CapeError, match="submitted already"):
        submission.start()
    found = office.visitor().submit(f"/submissions/{submission.id}/cancel")
    assert found.status_code == 303
    until(lambda: not submission.running)
    assert submission.state == "cancelled", submission.output
    words = spoken(office, submission)
    assert "It was cancelled: 0 of 2 analyses answered." in words
    assert "Resume the submission" in office.visitor().words(f"/submissions/{submission.id}")
    (submission.folder / "slow").unlink()
    office.visitor().submit(f"/submissions/{submission.id}/start")
    until(lambda: not submission.running)
    assert submission.state == "finished", submission.output
    with Record(submission.folder / "results" / RECORD) as record:
        assert sum(attempt.finished for attempt in record.attempts) == 2
    assert float(submission.spent) in (0.75, 1.0), "what was cut off counts if a vector may have left a site"


@pytest.mark.slow(8)
def test_a_process_that_is_killed_is_said_to_be_and_can_be_resumed(office: Office):
    submission = submit(office, slow=SLOW)
    until(lambda: submission.record.begun)
    os.kill(int((submission.folder / "running").read_text()), signal.SIGKILL)
    until(lambda: not submission.running)
    assert submission.state == "stopped"
    words = spoken(office, submission)
    assert "Its process was ended from outside: 0 of 2 analyses answered." in words
    assert "resuming settles what it cost" in words
    assert "25% of the study's budget" in words, "a stage whose fate is unknown counts as spent"


@pytest.mark.slow(6)
def test_who_was_lost_is_shown(office: Office, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CAPE_TEST_SILENT", json.dumps({"c": "mask"}))
    submission = submit(office)
    until(lambda: not submission.running)
    assert submission.state == "finished", submission.output
    words = spoken(office, submission)
    assert "was lost in analyses 1, 2 (in round 'mask')" in words
    assert "answered a, b, d c" in words, "who took part, and who was dropped"


@pytest.mark.slow(6)
def test_who_refuses_is_shown_with_the_reason(office: Office):
    for site in ("a", "b"):
        office.world.edit('"histogram", ', "", site)
    submission = submit(office)
    until(lambda: not submission.running)
    assert submission.state == "failed"
    words = spoken(office, submission)
    assert "2 of 4 sites would answer analysis 2, but min_sites requires 3." in words
    assert "refused analysis 2 (analysis: this site does not answer analyses of kind" in words
    assert "Nothing was spent" in words


@pytest.mark.slow(8)
def test_a_study_that_waits_for_a_steward_says_so_and_can_be_cancelled(office: Office):
    office.world.edit('approve = "auto"', 'approve = "ask"', "a")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what runs in the background
    try:
        submission = submit(office, wait="600")
    finally:
        signal.signal(signal.SIGINT, before)
    until(lambda: submission.state == "waiting")
    assert "waits for its steward" in spoken(office, submission)
    office.visitor().submit(f"/submissions/{submission.id}/cancel")
    until(lambda: not submission.running)
    assert submission.state == "cancelled"
    assert "Nothing is spent" in spoken(office, submission)
    assert "Submit again" in office.visitor().words(f"/submissions/{submission.id}")


@pytest.mark.slow(5)
def test_events_say_that_something_changed(office: Office):
    submission = submit(office)
    with office.visitor("viewer").stream("GET", f"/submissions/{submission.id}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("data: "):
                told = json.loads(line.removeprefix("data: "))
                assert told["kind"] == "submission"
                assert "analyses answered" in told["sentence"]
                break
    until(lambda: not submission.running)


def test_what_is_no_submission_is_ignored(office: Office):
    (office.work / "submissions" / "notes").mkdir()
    (office.work / "submissions" / ".half").mkdir()
    assert office.state.submissions() == []
    for name in ("notes", "nothing", "..", "."):
        with pytest.raises(InvalidInput, match="there is no submission"):
            office.state.submission(name)


def test_a_half_made_folder_is_no_submission(office: Office, monkeypatch: pytest.MonkeyPatch):
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="space"):
        office.state.submit(TEXT, "ana")
    assert office.state.submissions() == []


def test_a_damaged_record_is_said_and_keeps_no_other_submission_from_view(
    office: Office, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Submitted, "start", lambda self: None)
    first, second = (office.state.submit(TEXT, "ana") for _ in range(2))
    assert (first.id, second.id) == (first.id, f"{first.id}-2")
    (first.folder / "results").mkdir()
    with Record(first.folder / "results" / RECORD) as record:
        record.of("hash", "lungs")
        record.begin(1, bytes(16))
    lines = (first.folder / "results" / RECORD).read_bytes()
    (first.folder / "results" / RECORD).write_bytes(lines.replace(b"begun", b"begum"))
    words = spoken(office, first)
    assert "The record of this submission is damaged" in words
    assert "It is not known what was spent." in words
    assert "Resume" not in office.visitor().words(f"/submissions/{first.id}")
    assert "Submit again" in office.visitor().words(f"/submissions/{second.id}")
    assert office.visitor().words("/").count("0 of 2") == 2


def test_a_submission_whose_study_is_read_no_more_is_still_shown(
    office: Office, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Submitted, "start", lambda self: None)
    made = office.state.submit(TEXT, "ana")
    (made.folder / "study.toml").write_text(TEXT.replace('kind = "mean"', 'kind = "gone"'))
    words = spoken(office, made)
    assert "It is not known what was spent." in words
    assert "1. Mean of age and weight" in words
