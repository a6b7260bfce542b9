"""Answers that noise can give: every analysis must make something of any of them, once it is paid for.

Tables of one person, of equal or collinear rows; budgets from far too small to far too large; and
noise that is steered to where formulas break: none at all, far in the tails, all of one sign, a total of 0,
or the opposite of the truth. Then everything is asked for that a reader gets to see.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from assurance.inputs import studies
from assurance.inputs.bend import pick, to_toml
from assurance.inputs.surface import PaidForNothing, Surface
from cape.app.report import page
from cape.app.results import Results, answered
from cape.core.errors import CapeError
from cape.engine.consortium import Consortium
from cape.engine.schemes import Outcome, Task
from cape.engine.schemes.messages import Pooled
from cape.noise import SecureStream
from cape.show.html import fragment
from cape.show.plain import to_json
from cape.show.terminal import as_text
from cape.study import Study

__all__ = ["Answers", "Steered"]

_WAYS = ("none", "small", "large", "tail", "one sign", "zero", "opposite", "shrunk", "as it is")
_ROWS = ("one", "equal", "two kinds", "collinear", "random", "missing")
_NUMBERS = {"age": (18.0, 90.0), "weight": (40.0, 140.0)}
_WORDS: dict[str, list[Any]] = {"sex": ["female", "male"], "ill": ["no", "yes"], "visits": [0, 1, 2]}


class Steered(Pooled):
    """A curator whose noise goes where we want it. The noise of a real one can go there too."""

    def __init__(self, way: str, seed: int) -> None:
        self._way, self._random = way, np.random.default_rng(seed)
        self.asked = False

    def run(self, task: Task) -> Outcome:
        """Add up, then put other noise in the place of that which was drawn."""
        self.asked = True
        outcome = super().run(task)
        exact = sum(task.vectors[name] for name in outcome.participants)
        total = self._steer(np.asarray(exact, np.float64), outcome)
        most = 2.0**52  # of the steps that a ring of 64 bits has room for
        return replace(outcome, total=np.clip(total, -most, most).round().astype(np.int64))

    def _steer(self, exact: NDArray[np.float64], outcome: Outcome) -> NDArray[np.float64]:
        normal = self._random.standard_normal(exact.size) * outcome.noise
        ways: dict[str, NDArray[np.float64]] = {
            "none": exact,
            "small": exact + normal * 1e-6,
            "large": exact + normal * 20,
            "tail": exact + 6 * outcome.noise * np.sign(normal),
            "one sign": exact + np.abs(normal) * self._random.choice([-4, 4]),
            "zero": exact * 0,
            "opposite": -exact,
            "shrunk": exact * self._random.random(),
            "as it is": outcome.total.astype(np.float64),
        }
        return ways[self._way]


class Answers(Surface):
    """One analysis on a small table, from its query to its report."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._file = folder / "answers.toml"

    def make(self, random: np.random.Generator) -> dict[str, Any]:
        """Choose an analysis, a budget, a kind of table and a kind of noise."""
        document = studies.document(random)
        analysis = {key: value for key, value in document["analysis"][0].items() if key != "share"}
        if analysis["kind"] == "neural-network" and random.random() < 0.5:
            analysis = {key: value for key, value in analysis.items() if key not in ("sampling", "rows")}
        return {
            "analysis": analysis,
            "epsilon": float(10 ** random.uniform(-3, 3)),
            "neighbours": document["privacy"]["neighbours"],
            "rows": pick(random, list(_ROWS)),
            "noise": pick(random, list(_WAYS)),
            "seed": int(random.integers(1 << 31)),
        }

    def feed(self, given: dict[str, Any]) -> None:
        """Release it, and write down and show all that there is."""
        sites = ("a", "b", "c")
        document = studies.document(np.random.default_rng(0)) | {"analysis": [given["analysis"]]}
        document["sites"] = {site: {} for site in sites}
        document["privacy"] = {
            "epsilon": given["epsilon"],
            "delta": 1e-6,
            "noise": "gaussian",
            "scheme": "pooled",
            "neighbours": given["neighbours"],
        }
        self._file.write_text(to_toml(document), encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = Study.load(self._file)
            random = np.random.default_rng(given["seed"])
            scheme = Steered(given["noise"], given["seed"])
            consortium = Consortium(
                {site: _table(given["rows"], random) for site in sites},
                study.setting.schema,
                study.budget,
                scheme=scheme,
                neighbours=given["neighbours"],
                stream=SecureStream(given["seed"].to_bytes(32, "big")),
            )
            entry = study.analyses[0]
            release = partial(consortium.release, entry.analysis, entry.share)
            results = Results(study, "pooled", consortium.budget)
            try:
                results.answered.append(answered(entry, release))
                self._look(results)
            except CapeError as error:
                if scheme.asked:
                    raise PaidForNothing(str(error)) from error
                raise

    def _look(self, results: Results) -> None:
        each = results.answered[0]
        to_json(results.to_dict())
        page(results)
        for width in (60, 100):
            as_text(each.release, width)
        fragment(each.release)
        for estimate in each.release.estimates:
            assert math.isfinite(estimate.value), f"{estimate.label} is {estimate.value}"
            assert min(estimate.sampling, estimate.privacy) >= 0, f"{estimate.label} has an error below 0"
            for level in (0.5, 0.95, 0.999):
                low, high = estimate.interval(level)
                assert low <= high, f"an interval from {low} to {high}"


def _table(kind: str, random: np.random.Generator) -> pl.DataFrame:
    count = 1 if kind == "one" else int(random.integers(2, 40))
    place = random.random(1 if kind == "equal" else count)
    if kind == "two kinds":
        place = np.sign(place - 0.5) / 2 + 0.5
    columns: dict[str, Any] = {}
    for name, (low, high) in _NUMBERS.items():
        where = place if kind in ("equal", "collinear", "two kinds") else random.random(count)
        columns[name] = np.broadcast_to(low + (high - low) * where, count)
    for name, values in _WORDS.items():
        where = place if kind in ("equal", "collinear", "two kinds") else random.random(count)
        picked = np.minimum((where * len(values)).astype(int), len(values) - 1)
        columns[name] = [values[number] for number in np.broadcast_to(picked, count)]
    frame = pl.DataFrame(columns, schema={**dict.fromkeys(_NUMBERS, pl.Float64), **_words()})
    if kind == "missing":  # where the schema says that it may be
        gone = pl.Series(random.random(count) < 0.7)
        frame = frame.with_columns(
            pl.when(gone).then(None).otherwise(pl.col(name)).alias(name) for name in ("age", "sex", "ill")
        )
    return frame


def _words() -> dict[str, Any]:
    return {name: pl.String if isinstance(values[0], str) else pl.Int64 for name, values in _WORDS.items()}
