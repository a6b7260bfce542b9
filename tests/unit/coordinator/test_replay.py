"""What is made of released numbers is the same whenever it is made: a record can be read again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from cape.analyses import KINDS
from cape.engine.schemes import Cost
from cape.engine.session import StageResult
from cape.site import read
from tests.checkout import ROOT

EXAMPLES = {kind: analysis.example for kind, analysis in KINDS.items()}


def study() -> dict[str, Any]:
    return {
        "name": "all",
        "description": "",
        "scheme": "cape",
        "epsilon": 8.0,
        "delta": 1e-6,
        "noise": "gaussian",
        "colluding": 1,
        "min_sites": 3,
        "neighbours": "replace-one",
        "schema": {"age": [18, 90], "chol": [100, 400], "sex": ["female", "male"], "disease": ["no", "yes"]},
        "sites": ["a", "b", "c", "d"],
        "analyses": [
            {"kind": kind, **example, "share": 1 / (1 + len(EXAMPLES))} for kind, example in EXAMPLES.items()
        ],
    }


def made_of_released_numbers() -> dict[str, str]:
    """A digest of what each kind makes of the same made-up totals."""
    found = {}
    for number, kind in enumerate(EXAMPLES, 1):
        asked = read(study(), number)
        talk, draw = asked.session(), np.random.default_rng(number)
        told: list[object] = []
        while not talk.done:
            calibration, _ = talk.calibrate()
            told.append([[step.bits, step.factor] for step in calibration.steps])
            sizes = np.concatenate(
                [np.full(s.array.size, s.size) for s in calibration.steps] or [np.zeros(0)]
            )
            total = (draw.uniform(100, 900, calibration.size) / sizes).astype(np.int64)
            talk.tell(StageResult.of(total, 4, 2000))
        release = talk.release(study()["sites"], Cost(0, 0, 0, 0.0))
        told.append([(e.label, e.value, e.sampling, e.privacy, e.interval(0.9)) for e in release.estimates])
        model = getattr(release.model, "to_dict", None)
        told.append(repr(model()) if model else None)
        found[kind] = sha256(repr(told).encode()).hexdigest()
    return found


@pytest.mark.slow(2.8)
def test_every_kind_can_be_read_again_in_another_process():
    assert set(EXAMPLES) == set(KINDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = made_of_released_numbers()
    code = (
        "import json, warnings; warnings.simplefilter('ignore')\n"
        "from tests.unit.coordinator.test_replay import made_of_released_numbers as f\n"
        "print(json.dumps(f()))"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(there.stdout) == here
