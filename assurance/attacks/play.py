"""The protocol under attack: an aggregator, a coordinator and a colluding site that lie, against real sites.

Claim. Whatever they try, a site refuses it, or its ledger has a line for every vector that left it, at the
price of the noise that is on it; and nobody learns a sum over fewer honest sites than its policy demands, or
two sums for one price. A sum that an honest aggregator believes in is right.
Reason. docs/secagg.md and docs/deployment.md say why, attack by attack.
Tested here: each attack plays with `cape.site.SiteEndpoint`, the same code that runs at a site, and a
referee looks at ledgers and vectors (`assurance.attacks.verdict`). tests/unit/assured/test_attacks.py takes
defences away, for every attack those that hold it off, and it wins.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from assurance.attacks import ATTACKS, Attack, Verdict, World, judge
from assurance.results import Result

__all__ = ["play", "verdict_on"]

_MEMORY = "/dev/shm"  # where a sync of a ledger costs nothing; what is there is thrown away


def play(watch: Callable[[str], None] = lambda name: None) -> list[Result]:
    """Play every attack, each against sites of its own; `watch` is told the name of each that begins."""
    found = []
    for attack in ATTACKS:
        watch(attack.name)
        verdict = verdict_on(attack)
        said = "pass" if verdict.holds else "fail"
        found.append(Result(attack.name, said, "python -m assurance attacks", {"outcome": str(verdict)}))
    return found


def verdict_on(attack: Attack) -> Verdict:
    """Play one attack against new sites, and return what came of it."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        world = World(Path(folder))
        attack(world)
        return judge(world)
