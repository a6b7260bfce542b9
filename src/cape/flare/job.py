"""The job that is handed to NVFLARE: two classes by their names, no code and no arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cape.flare.settings import CLASSES

__all__ = ["write_job"]


def write_job(folder: Path, name: str, sites: Sequence[str]) -> Path:
    """Write the job of a study into a folder that is not there yet, and return it."""
    aggregator, site = CLASSES
    config = folder / "cape" / "config"
    config.mkdir(parents=True)
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": 1,  # who has to be there is ours to decide: see `min_sites`
        "deploy_map": {"cape": ["server", *sites]},
    }
    _write(folder / "meta.json", meta)
    server: dict[str, Any] = {
        "format_version": 2,
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [],
        "workflows": [{"id": "cape", "path": aggregator, "args": {}}],
    }
    client: dict[str, Any] = {
        "format_version": 2,
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [],
        "executors": [{"tasks": ["cape"], "executor": {"path": site, "args": {}}}],
    }
    _write(config / "config_fed_server.json", server)
    _write(config / "config_fed_client.json", client)
    return folder


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
