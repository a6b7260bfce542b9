"""The desk: how soon it is up, and how long a page takes at a site with a long ledger."""

from __future__ import annotations

import http.client
import http.cookiejar
import os
import re
import resource
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Result, Skip, bench

ENTRIES = 100_000
STAGES = 10  # of each release
STARTS, VISITS = 5, 15
SCHEMA = {"age": [18, 90], "chol": [100, 400], "sex": ["female", "male"]}
_LINK = re.compile(r"https?://\S+")
_PATIENCE = 60.0


@bench("desk.start")
def start() -> Result:
    """Seconds from the command `cape desk` to the first page that a browser gets from it."""
    _require()
    with TemporaryDirectory(prefix="cape-") as name, _daemon(_site(Path(name))) as site:
        times, busy = [], []
        for _ in range(STARTS):
            began, before = time.perf_counter(), _cpu()
            with _desk(site) as link:
                _Browser(link)
                times.append(time.perf_counter() - began)
            busy.append(_cpu() - before)
    detail = {"slowest": round(max(times), 3), "cpu": round(statistics.median(busy), 3)}
    return Result(statistics.median(times), 2.0, "lower", unit="s", detail=detail)


@bench("desk.page")
def page() -> Result:
    """Seconds for the slowest page, at its median: a study waits, and the ledger has 100,000 lines."""
    _require()
    with TemporaryDirectory(prefix="cape-") as name:
        site = _site(Path(name))
        study_hash = _hold(site)
        began = time.perf_counter()
        _fill(site, study_hash)
        filled = time.perf_counter() - began
        with _daemon(site), _desk(site) as link:
            browser = _Browser(link)
            pages = {
                "inbox": "/inbox",
                "study": f"/study/{study_hash}",
                "ledger": "/ledger",
                "ledger, filtered": f"/ledger?study={study_hash[:12]}",
            }
            first = {title: _seconds(browser, path) for title, path in pages.items()}
            times = {
                title: statistics.median(_seconds(browser, path) for _ in range(VISITS))
                for title, path in pages.items()
            }
    detail: dict[str, Any] = {title: round(each, 4) for title, each in times.items()}
    detail |= {"first visit": {title: round(each, 4) for title, each in first.items()}}
    detail |= {"lines": ENTRIES, "seconds to fill": round(filled, 1)}
    return Result(max(times.values()), 0.1, "lower", unit="s", detail=detail)


def _require() -> None:
    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "jinja2")):
        raise Skip("install the desk first: pip install -e '.[desk]'")


def _site(folder: Path) -> Any:
    """Return the folder of a site with rows and a policy that asks."""
    from cape.site import SiteFolder
    from cape.site.template import plain_policy

    site = SiteFolder.create(folder / "site", "cleveland")
    rows = "\n".join(f"{20 + i % 60},{110 + i % 280},{('female', 'male')[i % 2]}" for i in range(1000))
    (site.path / "rows.csv").write_text(f"age,chol,sex\n{rows}\n")
    policy = plain_policy(
        "cleveland", SCHEMA, ["mean", "histogram", "count"], approve="ask", epsilon=(1.0, 500.0, 1000.0)
    )
    (site.path / "site.toml").write_text(policy)
    return site


def _hold(site: Any) -> str:
    """Let a study of a trusted coordinator wait; return its hash."""
    from cape.secagg import Identity, Roster
    from cape.site import make_request, read
    from cape.site.keyring import Card
    from tests.world import document

    office, others = Identity(), {name: Identity() for name in ("hungary", "zurich")}
    site.trust(Card("office", office.public, "coordinator"), coordinator=True)
    for name, identity in others.items():
        site.trust(Card(name, identity.public, "site"), coordinator=False)
    study = document(
        name="heart",
        schema={
            "age": {"low": 18.0, "high": 90.0, "missing": True},
            "chol": {"low": 100.0, "high": 400.0, "missing": True},
            "sex": {"categories": ["female", "male"], "missing": True},
        },
        sites=["cleveland", *others],
        analyses=[
            {"kind": "mean", "columns": ["age", "chol"], "share": 0.3},
            {"kind": "histogram", "column": "age", "bins": 10, "share": 0.3},
            {"kind": "count", "share": 0.3},
        ],
    )
    keys = {"cleveland": site.identity.public} | {name: each.public for name, each in others.items()}
    request = make_request(
        study, 1, read(study, 1).session(), roster=Roster.of(keys), run=os.urandom(16), identity=office
    )
    assert site.approvals.hold(request)
    return str(request.study_hash)


def _fill(site: Any, study_hash: str) -> None:
    """Write a ledger as long as many years of studies would: signed and chained, in one transaction."""
    from cape.privacy.accounting import Amount
    from cape.site.ledger.ledger import _insert
    from cape.site.ledger.lines import Entry

    policy, book, identity = site.policy, site.ledger, site.identity
    (coordinator,) = policy.coordinators.values()
    begin = datetime.now(UTC) - timedelta(days=3000)
    step = timedelta(days=2999) / ENTRIES
    with book._writing() as db:
        for line in range(ENTRIES):
            release, stage = divmod(line, STAGES)
            number = release % 3 + 1
            study = "heart" if release % 1000 == 0 else f"study {release // 3}"
            entry = Entry(
                coordinator,
                study,
                study_hash if study == "heart" else f"{release // 3:064x}",
                number,
                ("mean", "histogram", "count")[number - 1],
                ("mean of age and chol", "histogram of age", "count")[number - 1],
                "cape",
                release.to_bytes(16, "big"),
                stage,
                release.to_bytes(32, "big"),
                Amount(Fraction(1, 10**6)),
            )
            _insert(db, entry, entry.cost, begin + line * step, book.id, identity)


@contextmanager
def _daemon(site: Any) -> Iterator[Any]:
    """Run the site's daemon; yield the site."""
    link = site.path.parent / "link.sock"
    command = ["site", "serve", "--site", str(site.path), "--link", str(link), "--desk", str(os.getuid())]
    with _running(command, site.path.parent / "daemon.log") as log:
        _until((site.path / "admin.sock").exists, log)
        yield site


@contextmanager
def _desk(site: Any) -> Iterator[str]:
    """Run the desk; yield the login link as soon as it is printed."""
    log = site.path.parent / "desk.log"
    log.unlink(missing_ok=True)
    place = ["--site", str(site.path), "--desk-may-read-rows", "--state", str(site.path.parent / "desk")]
    command = ["desk", *place, "--port", "0"]
    with _running(command, log):
        _until(lambda: _LINK.search(log.read_text()) is not None, log)
        found = _LINK.search(log.read_text())
        assert found is not None
        yield found[0]


def _cpu() -> float:
    """Return the CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[Path]:
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cape", *command],
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""},  # compiled, as it is once installed
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


def _until(what: Any, log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while not what():
        if time.monotonic() > end:
            raise RuntimeError(log.read_text()[-2000:])
        time.sleep(0.005)


class _Browser:
    """Follows the login link, and keeps the session."""

    def __init__(self, link: str) -> None:
        self._origin = "/".join(link.split("/")[:3])
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(jar)
        self._get(link)

    def get(self, path: str) -> str:
        return self._get(self._origin + path)

    def _get(self, url: str) -> str:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                with self._opener.open(url, timeout=_PATIENCE) as answer:
                    return answer.read().decode()  # type: ignore[no-any-return]
            except (urllib.error.URLError, http.client.HTTPException) as error:
                if isinstance(error, urllib.error.HTTPError) or time.monotonic() > end:
                    raise
                time.sleep(0.005)  # not yet listening


def _seconds(browser: _Browser, path: str) -> float:
    began = time.perf_counter()
    text = browser.get(path)
    took = time.perf_counter() - began
    assert "<h1" in text, path
    return took
