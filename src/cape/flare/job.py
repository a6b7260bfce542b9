"""The job that NVFLARE runs, two classes by their names, and the check that an app is exactly that job.

Claim. Of a message that brings an app, nothing reaches a site's disk unless the app is the one that
`write_job` writes: these files, with this content, and NVFLARE's signatures of them.
Reason. The zip is checked in memory. Its size, the number of its entries, their names and the sizes that
they claim are bounded before anything is inflated; then the contents of its files are compared with ours.
Tested in tests/unit/flare/test_job.py, and against running sites in tests/deploy/test_edge_code.py.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cape.core.errors import InvalidInput
from cape.flare.settings import CLASSES

__all__ = ["APP", "require_ours", "write_job"]

APP = "cape"
"""The one app of a job, for the aggregator and for every site."""

_EMPTY: dict[str, Any] = {
    "format_version": 2,
    "task_data_filters": [],
    "task_result_filters": [],
    "components": [],
}
_CONFIGS = {
    "config/config_fed_server.json": {**_EMPTY, "workflows": [{"id": APP, "path": CLASSES[0], "args": {}}]},
    "config/config_fed_client.json": {
        **_EMPTY,
        "executors": [{"tasks": [APP], "executor": {"path": CLASSES[1], "args": {}}}],
    },
}
_SIGNATURES = {
    f"{folder}{name}" for folder in ("", "config/") for name in (".__nvfl_sig.json", ".__nvfl_submitter.crt")
}
_NAMES = {"config/", *_CONFIGS, *_SIGNATURES}
_MOST_BYTES = 1 << 18  # of the zip, and of all that is in it


def write_job(folder: Path, name: str, sites: Sequence[str]) -> Path:
    """Write the job of a study into a folder that is not there yet, and return it."""
    (folder / APP / "config").mkdir(parents=True)
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": 1,  # cape decides which sites are needed: see `min_sites`
        "deploy_map": {APP: ["server", *sites]},
    }
    _write(folder / "meta.json", meta)
    for path, content in _CONFIGS.items():
        _write(folder / APP / path, content)
    return folder


def require_ours(data: object) -> None:
    """Raise unless bytes are the zip of an app that `write_job` has written."""
    if not isinstance(data, (bytes, bytearray, memoryview)) or len(data) > _MOST_BYTES:
        raise InvalidInput(f"the app is not a zip of at most {_MOST_BYTES} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            entries = packed.infolist()
            names = [entry.filename for entry in entries]
            if len(names) > len(_NAMES) or not set(_CONFIGS) <= set(names) <= _NAMES:
                raise InvalidInput("the app has other files than a job of cape")
            if len(names) != len(set(names)):
                raise InvalidInput("the app has two files of one name")
            if sum(entry.file_size for entry in entries) > _MOST_BYTES:
                raise InvalidInput(f"the app has more than {_MOST_BYTES} bytes")
            if {entry.compress_type for entry in entries} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise InvalidInput("the app is packed in a way that NVFLARE does not use")
            found = {path: json.loads(packed.open(path).read(_MOST_BYTES)) for path in _CONFIGS}
    except InvalidInput:
        raise
    except Exception:  # zipfile and json raise a dozen kinds for malformed bytes
        raise InvalidInput("the app is not a readable zip of JSON files") from None
    if found != _CONFIGS:
        raise InvalidInput("the app is not configured as a job of cape")


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
