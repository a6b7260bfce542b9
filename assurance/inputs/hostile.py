"""Studies that are as dear to judge as their authors can make them: all columns, all categories, all limits.

Whoever asks may send them again and again, and pays only once an answer leaves. `edge.cost` measures what
each takes of a site before anybody has approved it; tests/unit/site/test_effort.py sends them too.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cape.analyses.registry import KINDS
from cape.engine.session import AnalysisSession, StageResult
from cape.secagg import Identity
from cape.site import Request, read
from cape.site.decide.request import VALID

__all__ = ["HOSTILE", "SCHEMA", "Hostile", "forged", "request"]

_NUMBERS = {f"n{i}": {"low": 0.0, "high": 100.0, "missing": True} for i in range(400)}
_ANSWERS = {f"t{i}": {"categories": ["no", "yes"], "missing": True} for i in range(400)}
_WARDS = {f"c{i}": {"categories": [f"v{j}" for j in range(200)], "missing": True} for i in range(20)}
_CODES = {f"b{i}": {"categories": [f"v{j}" for j in range(20_000)], "missing": True} for i in range(2)}
_MORE = {
    "stage": {"categories": ["a", "b", "c", "d"], "missing": True},
    "cost": {"low": 1.0, "high": 50.0, "missing": True},
}
SCHEMA: dict[str, Any] = _NUMBERS | _ANSWERS | _WARDS | _CODES | _MORE
"""The columns of all of them, as a study's document has them."""
_N, _T, _C = list(_NUMBERS), list(_ANSWERS), list(_WARDS)
_LONG_RULE = " or ".join(f"n{i % 400} > {i % 100}" for i in range(300))


@dataclass(frozen=True)
class Hostile:
    """A study with one analysis, and how many results of earlier stages a request for it makes up."""

    name: str
    analysis: Mapping[str, Any]
    results: int = 0
    noise: str = "gaussian"

    def study(self) -> dict[str, Any]:
        """Return the study's document."""
        pure = self.noise == "laplace"
        return {
            "name": self.name,
            "description": "",
            "scheme": "cape",
            "epsilon": 1.0,
            "delta": 0.0 if pure else 1e-6,
            "noise": self.noise,
            "colluding": 1,
            "min_sites": 3,
            "neighbours": "replace-one",
            "schema": SCHEMA,
            "sites": ["a", "b", "c"],
            "analyses": [{"share": 0.25, **self.analysis}],
        }


def request(
    hostile: Hostile, office: Identity, roster: Mapping[str, bytes], *, trial: bool = True
) -> Request:
    """Return a signed request; its grid is invalid, which a site finds last."""
    earlier = tuple(forged(hostile))
    issued = int(time.time())
    return Request(
        hostile.study(),
        1,
        tuple(roster.items()),
        os.urandom(16),
        len(earlier),
        len(earlier),
        1,
        earlier,
        ((0, 1),),
        64,
        office.public,
        issued,
        issued + VALID,
        trial=trial,
    ).signed(office)


def forged(hostile: Hostile) -> Iterator[StageResult]:
    """Yield results of stages that no site has answered, each as its stage would have released it."""
    if not hostile.results:
        return
    random = np.random.default_rng(0)
    session: AnalysisSession = read(hostile.study(), 1).session()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in range(hostile.results):
            size = session.calibrate()[0].size
            result = StageResult.of((random.normal(size=size) * 2**15).astype(np.int64), 3, 1000)
            yield result
            if place + 1 < hostile.results:
                session.tell(result)


def _of(kind: str, *given: Any, **options: Any) -> dict[str, Any]:
    """Return an analysis: its columns, if any, and its other keys."""
    return {"kind": kind} | ({"columns": given[0]} if given else {}) | options


def _all() -> Iterator[Hostile]:
    for clusters in (10, 50, 100, 200, 450, 1000):
        yield Hostile(f"{clusters} clusters on 2 columns", _of("k-means", _N[:2], clusters=clusters))
    for clusters in (2, 100, 1000):
        yield Hostile(f"{clusters} clusters on 400 columns", _of("k-means", _N, clusters=clusters))
    yield Hostile("2 clusters on 3,980 entries", _of("k-means", _C, clusters=2))
    yield Hostile("300 clusters, Laplace noise", _of("k-means", _N[:2], clusters=300), noise="laplace")
    yield Hostile("clusters of a forged summary", _of("k-means", _N[:3], clusters=40), 1)
    yield Hostile("halves of a forged summary", _of("k-means", _N[:60], clusters=20), 2)
    network = _of("neural-network", target="t0", features=_N[:3], hidden=[4], rows=1000)
    for steps, rate in ((60_000, 1.0), (60_000, 0.01), (60_000, 1e-4), (300, 1e-5), (2, 1e-3)):
        trained = network | {"sampling": rate, "epochs": max(1, round(steps * rate))}
        yield Hostile(f"{steps:,} steps over samples of {rate:g}", trained)
    yield Hostile("a network of 16 million parameters", network | {"hidden": [4000, 4000], "epochs": 2})
    yield Hostile("a network of 10,000 layers", network | {"hidden": [10] * 10_000, "epochs": 2})
    yield Hostile("a network after 2,000 results", network | {"epochs": 3000, "sampling": 1.0}, 2000)
    yield Hostile("tables of 3 of 100 columns", _of("tables", _T[:100], ways=3))
    yield Hostile("tables of 2 of 300 columns", _of("tables", _T[:300]))
    yield Hostile("tables of 8 of 20 columns", _of("tables", _T[:20], ways=8))
    yield Hostile("large tables", _of("tables", _C))
    for many, ways in ((12, 8), (16, 2), (16, 8), (40, 2), (250, 2)):
        weights = {name: 1.0 + place for place, name in enumerate(_T[:many])}
        weighted = _of("tables", _T[:many], ways=ways, workload=weights)
        yield Hostile(f"weighted tables of {ways} of {many} columns", weighted)
    pairs = [[a, b] for place, a in enumerate(_T[:60]) for b in _T[:place]]
    yield Hostile("a workload of 1,770 tables", _of("tables", _T[:60], workload=pairs))
    yield Hostile("synthetic data of 100 columns", _of("synthetic-data", _T[:100]), 2)
    yield Hostile("synthetic data of 100 numbers", _of("synthetic-data", _N[:100], bins=1000))
    for kind in ("mean", "proportion", "difference", "quantiles", "ecdf", "table-one"):
        columns = _T if kind == "proportion" else _N
        more = {"probs": [0.1, 0.5, 0.9]} if kind == "quantiles" else {}
        yield Hostile(f"{kind} in 20,000 groups", _of(kind, columns, by="b0", **more))
    yield Hostile("covariances in 200 groups", _of("covariance", _N, by="c0"))
    yield Hostile("histograms in 20,000 groups", _of("histogram", column="n0", bins=1000, by="b0"))
    yield Hostile("quantiles in 65,536 bins", _of("quantiles", _N, probs=[0.5], bins=65_536))
    yield Hostile("a table of 20,000 by 20,000", _of("contingency-table", ["b0", "b1"]))
    yield Hostile("a table of 2^26 cells", _of("contingency-table", _T[:26]))
    yield Hostile("a histogram of 2^20 bins", _of("histogram", column="n0", bins=1 << 20))
    yield Hostile("ranks in 20,000 groups", _of("rank-test", column="n0", by="b0", bins=4096))
    for kind in ("kaplan-meier", "log-rank"):
        curves = _of(kind, time="n0", event="t0", by="b0", bins=512)
        yield Hostile(f"{kind} of 20,000 groups", curves)
    for kind in ("covariance", "correlation", "pca"):
        yield Hostile(f"{kind} of 400 columns", _of(kind, _N))
    survival = {"time": "n0", "event": "t0", "features": _N[1:]}
    yield Hostile("Cox, 399 features, forged", _of("cox", **survival), 3)
    yield Hostile("Cox, 150 features, forged", _of("cox", **survival | {"features": _N[1:151]}), 2)
    yield Hostile("Weibull, 399 features, forged", _of("survival-regression", **survival), 3)
    yield Hostile("Weibull, 3,980 entries", _of("survival-regression", **survival | {"features": _C}))
    yield Hostile("Cox, 995 entries", _of("cox", **survival | {"features": _C[:5]}))
    yield Hostile("Cox in 8,192 cells", _of("cox", time="n0", event="t0", features=_N[1:9], strata=_T[1:5]))
    yield Hostile("second moments of 3,980 entries", _of("linear-regression", target="n0", features=_C))
    targets = {"binomial": "t0", "gamma": "cost", "multinomial": "stage", "ordinal": "stage"}
    for family in ("gaussian", "binomial", "poisson", "negative-binomial", "gamma", "multinomial", "ordinal"):
        for many, results in ((399, 5), (150, 3)):
            model = _of("glm", target=targets.get(family, "n0"), features=_N[1 : many + 1], family=family)
            yield Hostile(f"{family}, {many} features, forged", model, results)
    yield Hostile("logistic, 1,991 coefficients", _of("logistic-regression", target="t0", features=_C[:10]))
    yield Hostile("40,000 interactions", _of("glm", target="n0", features=["c0:c1"], family="gaussian"))
    yield Hostile("8,000,000 interactions", _of("glm", target="n0", features=["c0:c1:c2"], family="gaussian"))
    loss = _of("polynomial-loss", target="n0", features=_N[1:101], coefficients={"1": [0, -2], "4": [1]})
    yield Hostile("a loss of degree 4", loss)
    mixed = _of("mixed-model", target="n0", features=_N[1:], random=["intercept"])
    yield Hostile("a mixed model, 399 features, forged", mixed, 3)
    yield Hostile("a mixed model of 200 groups", mixed | {"features": _N[1:10], "by": "c0"}, 2)
    yield Hostile("a mixed model of 3,980 entries", mixed | {"features": _C})
    yield Hostile("means by a number", _of("mean", _N[2:], by="n1"))
    score = {"target": "t0", "link": "logit", "intercept": -1.0, "coefficients": dict.fromkeys(_N, 0.02)}
    yield Hostile("a score of 400 columns", _of("evaluate", model=score, threshold=0.3))
    yield Hostile("a long condition", _of("count", where=_LONG_RULE[:3900].rpartition(" or ")[0]))
    yield Hostile("a nested condition", _of("count", where="(" * 900 + "n0 > 1" + ")" * 900))


HOSTILE: tuple[Hostile, ...] = tuple(_all())
assert {hostile.analysis["kind"] for hostile in HOSTILE} <= set(KINDS)
