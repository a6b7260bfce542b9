"""Policies: `site.toml` with a value, a key or a section bent, or its bytes."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from assurance.inputs.studies import PASSWORD, written
from assurance.inputs.surface import Surface
from cape.site.decide.policy import Policy

__all__ = ["Policies", "policy"]

_KEY = "ed25519:" + "1f" * 32
_OTHER = "ed25519:" + "2e" * 32
_PRIVATE = "7c" * 32


def policy() -> dict[str, Any]:
    """Return a policy that is right."""
    return {
        "site": {
            "name": "a",
            "data": {"query": "SELECT * FROM p", "connection": f"postgresql://u:{PASSWORD}@h/d"},
            "expires": datetime.date(2999, 12, 31),
            "approve": "ask",
            "approvals": 2,
            "expected_rows": 1000,
        },
        "schema": {"age": [18, 90], "sex": ["female", "male"]},
        "allow": {
            "analyses": ["mean", "count"],
            "columns": ["age"],
            "schemes": ["cape"],
            "adjacency": ["add-remove"],
        },
        "protect": {"min_rows": 100, "other_honest": 1, "colluding": 1},
        "budget": {
            "release": {"epsilon": 1.0, "delta": 1e-6},
            "coordinator": {"epsilon": 1.0, "delta": 1e-6},
            "year": {"epsilon": 2.0, "delta": 1e-6},
            "total": {"epsilon": 4.0, "delta": 1e-6},
        },
        "notify": {
            "command": ["/bin/hook"],
            "smtp": {
                "host": "mail.a.org",
                "port": 587,
                "tls": "starttls",
                "from": "c@a.org",
                "to": ["s@a.org"],
            },
            "webhook": {"url": "https://a.org/hook", "secret_env": "CAPE_NOTIFY_HOOK"},
            "about": ["waiting", "spent-80"],
        },
        "coordinators": {"office": _KEY},
        "peers": {"b": _OTHER},
    }


class Policies(Surface):
    """`Policy.load`, and what the ledger is told of it."""

    secrets = (PASSWORD, _PRIVATE)

    def make(self, random: np.random.Generator) -> bytes:
        """Bend a policy; now and then somebody pastes a private key."""
        right = policy()
        if random.random() < 0.1:
            right["peers"]["b"] = f"cape-private-ed25519:{_PRIVATE}"
        return written(random, right)

    def feed(self, given: bytes) -> None:
        """Load it and compute its limits."""
        path = self.folder / "site.toml"
        path.write_bytes(given)
        read = Policy.load(path)
        _ = read.limits, str(read.release), read.who(b"x")
