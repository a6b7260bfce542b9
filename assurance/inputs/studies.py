"""Study files: right ones with a value, a key or a section bent, and right ones with their bytes bent."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from assurance.inputs.bend import bend, bend_bytes, pick, to_toml
from assurance.inputs.surface import Surface
from cape.analyses.registry import keys_of
from cape.study import Study

__all__ = ["PASSWORD", "Studies", "document", "written"]

PASSWORD = "canary-" + "pw81c2"

ANALYSES: list[dict[str, Any]] = [
    {"kind": "count", "where": {"sex": "female"}},
    {"kind": "sum", "columns": ["weight"]},
    {"kind": "mean", "columns": ["age", "weight"]},
    {"kind": "variance", "columns": ["age"]},
    {"kind": "standard-deviation", "columns": ["age"]},
    {"kind": "covariance", "columns": ["age", "weight"]},
    {"kind": "correlation", "columns": ["age", "weight"]},
    {"kind": "histogram", "column": "age", "bins": 6},
    {"kind": "histogram", "column": "age", "edges": [18, 40, 60, 90]},
    {"kind": "contingency-table", "columns": ["sex", "ill"]},
    {"kind": "tables", "columns": ["age", "sex", "ill"], "ways": 3, "edges": {"age": [18, 40, 90]}},
    {"kind": "tables", "columns": ["sex", "ill"], "workload": {"sex": 2.0}, "bins": 4},
    {"kind": "proportion", "columns": ["ill"], "by": "sex"},
    {"kind": "association", "columns": ["sex", "ill"], "trend": True},
    {"kind": "difference", "columns": ["weight"], "by": "ill"},
    {"kind": "rank-test", "column": "weight", "by": "ill", "bins": 4},
    {"kind": "correlation-test", "columns": ["age", "weight"]},
    {"kind": "correlation-test", "columns": ["age", "weight"], "method": "spearman", "bins": 4},
    {"kind": "mean", "columns": ["age", "weight"], "by": "sex"},
    {"kind": "kaplan-meier", "time": "weight", "event": "ill", "by": "sex", "edges": [60, 80, 100]},
    {"kind": "log-rank", "time": "weight", "event": "ill", "by": "sex", "weighting": "peto", "bins": 4},
    {"kind": "cox", "time": "weight", "event": "ill", "features": ["age"], "strata": ["sex"], "bins": 4},
    {"kind": "survival-regression", "time": "weight", "event": "ill", "features": ["age"], "rounds": 2},
    {"kind": "ecdf", "columns": ["age"], "bins": 16},
    {"kind": "quantiles", "columns": ["age"], "probs": [0.25, 0.5], "bins": 16},
    {"kind": "table-one", "columns": ["age", "sex"], "by": "ill", "bins": 16},
    {"kind": "linear-regression", "target": "weight", "features": ["age", "sex"], "ridge": 0.1, "norm": 1.0},
    {"kind": "logistic-regression", "target": "ill", "features": ["age"], "rounds": 3, "intercept": True},
    {
        "kind": "glm",
        "target": "weight",
        "features": ["age", "sex"],
        "family": "gamma",
        "link": "log",
        "rounds": 3,
    },
    {
        "kind": "polynomial-loss",
        "target": "weight",
        "features": ["age"],
        "coefficients": {"1": [0, -2], "2": [1]},
    },
    {
        "kind": "synthetic-data",
        "columns": ["age", "sex", "ill"],
        "bins": 4,
        "impossible": [{"sex": "male", "ill": "yes"}],
    },
    {
        "kind": "evaluate",
        "model": {"target": "ill", "link": "logit", "intercept": -1.0, "coefficients": {"age": 0.02}},
        "threshold": 0.3,
    },
    {"kind": "heterogeneity", "of": {"kind": "difference", "columns": ["weight"], "by": "ill"}, "by": "site"},
    {"kind": "mixed-model", "target": "weight", "features": ["age", "sex"], "random": ["intercept", "age"]},
    {"kind": "pca", "columns": ["age", "weight"], "components": 1, "center": True},
    {"kind": "k-means", "columns": ["age", "weight"], "clusters": 3, "steps": 4, "seed": 1},
    {
        "kind": "neural-network",
        "target": "ill",
        "features": ["age", "sex"],
        "hidden": [4],
        "epochs": 2,
        "sampling": 0.1,
        "clip": 1.0,
        "rate": 0.1,
        "rows": 1000,
    },
]


def document(random: np.random.Generator) -> dict[str, Any]:
    """Return a study that is right."""
    chosen = [dict(pick(random, ANALYSES)) for _ in range(int(random.integers(1, 4)))]
    for each in chosen:
        if random.random() < 0.5:
            each["share"] = pick(random, [0.1, 0.25, 0.3])
    data = f"postgresql://reader:{PASSWORD}@db/patients"
    sites: dict[str, Any] = {
        "a": "data/a.csv",
        "b": {"path": "data/b.csv", "null_values": ["?"], "separator": ";"},
        "c": {"query": "SELECT * FROM patients", "connection": data},
        "d": {"path": "data/d.csv", "columns": ["age", "weight", "sex", "ill"], "has_header": False},
    }
    return {
        "study": {"name": "lungs", "description": "three clinics"},
        "privacy": {
            "epsilon": 2.0,
            "delta": 1e-6,
            "noise": pick(random, ["gaussian", "auto"]),
            "colluding": 1,
            "min_sites": 3,
            "scheme": pick(random, ["cape", "cape-gaussian", "conventional", "local", "pooled", "none"]),
            "neighbours": pick(random, ["replace-one", "add-remove"]),
        },
        "schema": {
            "age": [18, 90],
            "weight": {"low": 40, "high": 140, "missing": False},
            "sex": ["female", "male"],
            "ill": ["no", "yes"],
            "visits": {"categories": [0, 1, 2], "missing": False},
        },
        "sites": sites,
        "analysis": chosen,
    }


def written(random: np.random.Generator, right: dict[str, Any]) -> bytes:
    """Return a bent document as a file: its tree bent, or its bytes, or both."""
    way = random.random()
    if way < 0.7:
        for _ in range(int(random.choice([1, 1, 1, 2, 3]))):
            filled = [name for name in right if right[name]]
            if not filled:  # nothing is left to bend
                break
            if random.random() < 0.9:  # mostly inside a section
                name = pick(random, filled)
                right = right | {name: bend(right[name], random)}
            else:
                bent = bend(right, random)
                right = bent if isinstance(bent, dict) and any(bent.values()) else right
    data = to_toml(_hidden(right)).encode("utf-8", "surrogatepass")
    return data if way < 0.65 else bend_bytes(data, random, other=data)


def _hidden(value: Any, *path: str) -> Any:
    """Return a document whose password stands where a password belongs, and nowhere else."""
    if isinstance(value, dict):
        return {key: _hidden(each, *path, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each, *path) for each in value]
    belongs = path[2:3] == ("connection",) and (path[0] == "sites" or path[:2] == ("site", "data"))
    return "moved" if isinstance(value, str) and PASSWORD in value and not belongs else value


class Studies(Surface):
    """`Study.load`, then the plan of each analysis: what `cape plan` does, without the screen."""

    secrets = (PASSWORD,)

    def make(self, random: np.random.Generator) -> bytes:
        """Bend a study; now and then a key of an analysis that the base does not have."""
        right = document(random)
        if random.random() < 0.4:
            each = pick(random, right["analysis"])
            each[pick(random, keys_of(each["kind"]))] = bend(1, random)
        return written(random, right)

    def feed(self, given: bytes) -> None:
        """Load it, tell what everyone may know, and plan."""
        path = self.folder / "study.toml"
        path.write_bytes(given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = Study.load(path)
            study.to_dict()
            for entry in study.analyses[:2]:
                study.plan(entry)
