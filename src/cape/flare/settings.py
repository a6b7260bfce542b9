"""What an NVFLARE process may do at a site and at the aggregator: the configuration that we add to its kits.

Unlike NVFLARE's defaults: a job may name only our classes, nobody may bring code, run shell commands or
restart a process remotely, no file or log leaves a site, and a lost client is noticed within seconds. NVFLARE
falls back on its defaults where a file is missing; so each file is written in full.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cape.core.unix import MOST_BYTES

__all__ = ["AUTHORIZATION", "CLASSES", "ENVIRONMENT", "aggregator_resources", "site_resources"]

CLASSES = ["cape.flare.controller.Aggregator", "cape.flare.executor.Site"]
"""The classes that a job may name. They take no arguments."""

ENVIRONMENT = {
    "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "0",  # otherwise a finished job may be reported as abnormal
    "NVFLARE_STREAMING_MAX_BLOB_SIZE": str(MOST_BYTES + (1 << 20)),  # otherwise a message may have 4 GiB
}

AUTHORIZATION: dict[str, Any] = {
    "format_version": "1.0",
    "permissions": {
        "project_admin": {
            "submit_job": "any",
            "manage_job": "any",
            "view": "any",
            "clone_job": "none",
            "download_job": "none",
            "operate": "none",
            "shell_commands": "none",
            "byoc": "none",
            "app_command": "any",  # how the coordinator sends calls to its job
        }
    },
}

_HEARTBEAT = 20  # seconds without one after which NVFLARE counts a client as dead; its default is 600


def site_resources() -> dict[str, Any]:
    """Return `local/resources.json` of a site."""
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": CLASSES,
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            {
                "id": "resource_manager",
                "path": "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                "args": {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0},
            },
            {
                "id": "resource_consumer",
                "path": "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
                "args": {},
            },
            {"id": "process_launcher", "path": "cape.flare.launcher.Launcher", "args": {}},
        ],
    }


def aggregator_resources(store: Path) -> dict[str, Any]:
    """Return `local/resources.json` of the aggregator; `store` is an absolute path in its own kit."""
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": CLASSES,
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 1000,
                "heart_beat_timeout": _HEARTBEAT,
                "download_job_url": "http://download.invalid/",
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": storage,
                    "args": {"root_dir": str(store / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": {"max_jobs": 8, "min_schedule_interval": 0.5},
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": str(store / "jobs"), "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": storage},
            {
                "id": "process_launcher",
                "path": "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher",
                "args": {},
            },
        ],
    }
