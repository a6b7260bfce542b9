"""The rows of the audit: which games are played, how often, and the outcome that each must have.

The number of runs follows from the required power: the bound must come within 15% of the claim, in mu and
in the corresponding epsilon. With 2,800 runs per table a mechanism with mu = 3 gives a bound of 0.94 +-
0.016 times that, and 0.92 +- 0.020 times its epsilon, at the error of one test of the whole table: below
0.85 once in 3,000 times. `--fast` plays 700, gets 0.85 +- 0.037 of epsilon, and requires 0.7. A mu of 3 is
more than a study should spend, but there a given number of runs shows most. Noise scales with the budget by
one factor, which the claims themselves and the noise scale at (1, 1e-6) check.

Rows with sampling are played at mu = 2, with a rate of 0.4 and 5 steps. They need not come near their
claim: the best possible test with unlimited runs shows 0.87 of it (`cape.audit.sampled` says why), and 600
runs per table show 0.65 +- 0.04. Without sampling the same noise would have mu = 4.9, so if no sample is
drawn, 80 runs per table show more than 2 in all but five of a thousand audits. These rows need the extra
`accounting` and are skipped if it is not installed.

Bugs are planted by the project's tests and not here: tests/unit/audit/test_planted.py.

Rows of deployed sites (`cape.audit.deployed`) take at least ten times as long: a run has a folder, a policy
and a ledger. The other rows test what they share, calibration and sums; these have enough runs to detect
wrong noise, or noise that others know.

Every row can flag something: an adversary who is always right would exceed its claim. And every row must see
something: its ratio has a floor, 0.85 (0.7 with `--fast`) where power is required, else what its number of
runs allows (`Case.allowed`). Tested in tests/unit/audit/test_cases.py.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal

from scipy import stats
from scipy.special import ndtr

from cape.audit.bounds import Errors, epsilon_bound, mu_bound
from cape.audit.game import Silent
from cape.audit.world import ANALYSES, OWN, SAMPLED
from cape.core.errors import InvalidInput
from cape.data import Person
from cape.engine.query import Neighbours
from cape.privacy import Budget, epsilon

__all__ = ["FLOOR", "FLOOR_FAST", "Case", "Look", "cases", "chosen", "samples_too"]

DELTA = 1e-5
FLOOR, FLOOR_FAST = 0.85, 0.70
_SCHEMES = ("cape", "cape-gaussian", "conventional", "local", "pooled")
_HAZARDS = ("cox", "survival-regression")
_MANY = ("logistic-regression", "glm", *_HAZARDS, "k-means", "neural-network", "gradient-descent")
_SAMPLES = "neural-network, sampled"
_ASKED = ("count", "mean", "histogram", "covariance", "linear-regression", "pca", *_MANY, "custom-sum")
_QUICK = (*_ASKED, "mixed-model", "evaluate")  # with `fast`
_RUNS = dict.fromkeys(_MANY, 300) | dict.fromkeys((*_HAZARDS, "k-means"), 120)
_OWN_RUNS = {"logistic-regression": 2800} | dict.fromkeys((*_HAZARDS, "k-means"), 400)  # of `cape`
# sums that no two rows move as far as their bound says, which does not depend on where they are asked for
_REACH = {
    "k-means": 0.9,
    "neural-network": 0.85,
    "logistic-regression": 0.89,
    "glm": 0.86,
    "mixed-model": 0.9,
    "evaluate": 0.94,
} | dict.fromkeys(_HAZARDS, 0.85)
_FORGED = {"neural-network": 0.8, "logistic-regression": 0.75, "glm": 0.75, "cox": 0.8}  # nobody gave these
_RARE, _ERROR = 1e-4, 1e-4  # how often a floor may be missed by chance; the error of one test
Look = Literal["", "support"]


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        runs: the number of runs per table.
        flag: the check that must flag it, or "" if none may.
        powered: whether the bound must come near the claim.
        reach: a lower bound on the part of the claim that the best test on its tables shows with unlimited
            runs, below what was measured (docs/audit.md). It sets the floor of a row without power.
        claim: whose claim is tested.
        direct: whether the test is the best one for epsilon at delta instead of mu.
        spare: how many sites may be lost; so many fall silent in the round `silent`, if it names one.
        deployed: whether sites have folders, requests and ledgers (`cape.audit.deployed`); then earlier
            answers may be `forged`.
        person: who is protected, if not a row; the tables then differ in such a person.
    """

    name: str
    analysis: str
    scheme: str
    runs: int
    mu: float = 3.0
    delta: float = DELTA
    neighbours: Neighbours = "replace-one"
    sites: int = 3
    colluding: int = 1
    flag: str = ""
    powered: bool = True
    reach: float = 0.99
    claim: Literal["product", "theorem 1"] = "product"
    look: Look = ""
    direct: bool = False
    deployed: bool = False
    spare: int = 0
    silent: Silent = ""
    forged: bool = False
    person: Person | None = None
    pure: float | None = None
    """The epsilon of a budget without delta; the bound is then on epsilon, directly."""

    @property
    def budget(self) -> Budget:
        """The budget of the release."""
        if self.pure:
            return Budget(self.pure)
        return Budget.of(self.mu, self.delta)

    @property
    def allowed(self) -> float:
        """The ratio that this number of runs shows in all but one of 10,000 audits, given `reach`."""
        if self.pure:
            return self._pure_allowed(self.pure)
        wrong = int(stats.binom.isf(_RARE, 2 * self.runs, ndtr(-self.reach * self.mu / 2)))
        errors = Errors(wrong // 2, self.runs, wrong - wrong // 2, self.runs)
        bound = mu_bound(errors, _ERROR)
        if not bound:
            return 0.0
        ratio = min(bound / self.mu, epsilon(self.delta, bound) / epsilon(self.delta, self.mu))
        return math.floor(100 * ratio) / 100

    def _pure_allowed(self, epsilon: float) -> float:
        """Return the same for Laplace noise: the test finds 1/2, and takes e^-epsilon/2 wrongly for found."""
        wrong = stats.binom.isf(_RARE / 2, self.runs, math.exp(-self.reach * epsilon) / 2)
        missed = stats.binom.isf(_RARE / 2, self.runs, 0.5)
        bound = epsilon_bound(Errors(int(wrong), self.runs, int(missed), self.runs), 0.0, _ERROR)
        return math.floor(100 * bound / epsilon) / 100

    def needed(self, fast: bool) -> float:
        """Return the least ratio allowed.

        It is 0 for a row that must be flagged, and for *support*, which looks for answers that must not
        exist; a test with a float sampler shows that it would find them.
        """
        if self.flag or self.look == "support":
            return 0.0
        if self.powered:
            return FLOOR_FAST if fast else FLOOR
        return self.allowed

    @property
    def tests(self) -> tuple[str, ...]:
        """Its checks that can be wrong by chance; each gets a part of the error."""
        if self.look == "support":
            return ("support",)
        plain = ("likelihood ratio", "learned")
        return plain if self.scheme == "none" else (*plain, "noise scale")

    @property
    def search(self) -> tuple[object, ...]:
        """All that the search for its tables depends on."""
        asked = self.analysis, self.neighbours, self.mu, self.delta, self.sites, self.look, self.forged
        return *asked, self.person, self.pure


def cases(fast: bool) -> list[Case]:
    """Return the whole table."""
    known = [*_schemes(fast), *_studies(fast), *_others(fast), *_persons(fast), *_losses(fast)]
    known += _without_delta(fast)
    known += _deployed(fast)
    known += _flagged(fast)
    return [case for case in known if case.analysis not in SAMPLED or samples_too()]


def samples_too() -> bool:
    """Return whether the accountant for sampling is installed."""
    return find_spec("dp_accounting") is not None


def chosen(fast: bool, only: str | None) -> list[Case]:
    """Return the rows whose name contains `only`, or all of them."""
    known = cases(fast)
    found = [case for case in known if only is None or only in case.name]
    if not found:
        names = [*dict.fromkeys(case.name for case in known), "rounding"]
        near = difflib.get_close_matches(str(only), names, 3, 0.3) or names[:3]
        raise InvalidInput(
            f"--only must be a part of a row's name, or rounding, not {only!r}; rows are for example "
            f"{'; '.join(near)}"
        )
    return found


def _schemes(fast: bool) -> list[Case]:
    """Each scheme with each analysis; with `fast`, some of them."""
    found = []
    for scheme in _SCHEMES:
        own = scheme == "cape"
        wanted = (*ANALYSES, *OWN) if not fast else _QUICK if own else ("mean",)
        for analysis in wanted:
            many, mu = analysis in _MANY, 3.0
            runs = 700 if fast else 2800
            if not own and analysis not in _ASKED:
                runs = 400 if analysis == "polynomial-loss" else 1000
            if many:
                runs = _RUNS[analysis]
                mu = 2.0 if runs == 120 else mu
            if many and own and not fast:
                mu, runs = 3.0, _OWN_RUNS.get(analysis, 1000)
            reach = _REACH.get(analysis, 0.99)
            if analysis in _REACH and not many:
                runs = min(runs, 1000)
            powered = runs == (700 if fast else 2800) and analysis not in _REACH
            name = f"{scheme}/{analysis}"
            found.append(Case(name, analysis, scheme, runs, mu, powered=powered, reach=reach))
    return found


def _studies(fast: bool) -> list[Case]:
    """Several releases of one study, all seen by the adversary; the claim is the whole budget."""
    found = []
    for scheme in ("cape", "pooled") if fast else _SCHEMES:
        runs = 400 if fast else 1000
        for study in ("mean twice", "mean and histogram"):
            found.append(Case(f"{scheme}/{study}", study, scheme, runs, powered=False))
    if not fast:
        for scheme in ("cape", "pooled"):
            name = "count, mean and descent"
            found.append(Case(f"{scheme}/{name}", name, scheme, 300, powered=False))
    return found


def _others(fast: bool) -> list[Case]:
    """The other adjacency, a small budget, many sites, sampling, and epsilon by itself."""
    runs = 700 if fast else 2800
    small = "pooled" if fast else "cape"  # so small a mu takes many runs
    found = [
        Case("cape/mean, add-remove", "mean", "cape", runs, neighbours="add-remove"),
        Case("cape-gaussian/count, 30 sites", "count", "cape-gaussian", runs, sites=30, colluding=9),
        Case(f"{small}/mean, epsilon 1", "mean", small, 4500, mu=_mu_one(), delta=1e-6, powered=False),
        Case(f"cape/{_SAMPLES}", _SAMPLES, "cape", 100 if fast else 600, 2.0, powered=False, reach=0.8),
    ]
    if not fast:
        name = f"pooled/{_SAMPLES}, add-remove"
        found.append(
            Case(name, _SAMPLES, "pooled", 400, 2.0, neighbours="add-remove", powered=False, reach=0.5)
        )
        found.append(
            Case("conventional/count, epsilon", "count", "conventional", 40_000, 2.0, 0.3, direct=True)
        )
    return found


def _persons(fast: bool) -> list[Case]:
    """Persons with twice as many rows as may count, at one site or at two."""
    runs, four = 700 if fast else 2800, Person("person", rows=4)
    there = Person("person", rows=4, sites=2)
    found = [
        Case("cape/mean, 4 rows a person", "mean", "cape", runs, person=four),
        Case("cape/count, 4 rows a person at 2 sites", "count", "cape", runs, person=there),
    ]
    if not fast:
        for scheme in ("cape-gaussian", "conventional", "local", "pooled"):
            name = f"{scheme}/mean, 4 rows a person"
            found.append(Case(name, "mean", scheme, 1000, person=four, powered=False))
        for many, reach in (("logistic-regression", 0.89), ("gradient-descent", 0.99)):
            name = f"cape/{many}, 4 rows a person"
            found.append(Case(name, many, "cape", 300, person=four, powered=False, reach=reach))
        added = Case("cape/mean, 4 rows a person, add-remove", "mean", "cape", 1000, powered=False)
        found.append(replace(added, neighbours="add-remove", person=four))
    return found


_SILENT: dict[Silent, str] = {"": "one may be lost", "mask": "a site lost", "unmask": "a site silent"}
# Who gives up no surplus noise leaves more than is needed: the noise of 3.5 sites in place of 3.
_LEFT: dict[Silent, float] = {"": 0.99, "mask": 0.99, "unmask": 0.91}


def _losses(fast: bool) -> list[Case]:
    """A site may be lost: nobody is, one is before it sends, one does not give up its surplus noise."""
    runs = 250 if fast else 1000
    return [
        Case(
            f"cape/mean, {said}",
            "mean",
            "cape",
            runs,
            sites=4,
            spare=1,
            silent=silent,
            powered=False,
            reach=_LEFT[silent],
        )
        for silent, said in _SILENT.items()
    ]


def _without_delta(fast: bool) -> list[Case]:
    """Laplace noise: one count at 5 sites, bins of which one moves, and a site that is lost.

    Where a row moves k numbers the best test finds 1 in 2^k: with one it has power.
    """
    runs = 700 if fast else 4500

    def row(said: str, analysis: str, scheme: str, **more: Any) -> Case:
        name = f"{scheme}/{analysis}, no delta{said}"
        return Case(name, analysis, scheme, runs, 1.0, 0.0, powered=False, direct=True, pure=2.0, **more)

    found = [
        row("", "count", "cape", sites=5),
        row(", a site lost", "histogram", "cape", sites=4, spare=1, silent="mask", neighbours="add-remove"),
    ]
    if not fast:
        others = ("conventional", "local", "pooled")
        found += [row("", "histogram", scheme, neighbours="add-remove") for scheme in others]
    return found


def _deployed(fast: bool) -> list[Case]:
    """What deployed sites send: with a lost site, and to a coordinator that forges earlier answers."""

    def row(
        analysis: str, runs: int, *, silent: Silent | None = None, forged: bool = False, mu: float = 3.0
    ) -> Case:
        among = silent is not None
        scheme, said = "cape" if among else "conventional", [analysis]
        said += [_SILENT[silent]] if silent is not None else []
        said += ["forged answers"] if forged else []
        reach = min(_FORGED.get(analysis, 1.0), _LEFT[silent or ""])
        return Case(
            f"deployed {scheme}/{', '.join(said)}",
            analysis,
            scheme,
            runs,
            mu,
            sites=4 if among else 3,
            powered=False,
            reach=reach,
            deployed=True,
            spare=int(among),
            silent=silent or "",
            forged=forged,
        )

    many = "logistic-regression"
    if fast:
        return [row("mean", 300), row("mean", 120, silent="mask"), row(many, 120, forged=True)]
    return [
        row("mean", 1000),
        row("mean", 300, silent=""),
        row("mean", 1000, silent="mask"),
        row("mean", 300, silent="unmask"),
        row(many, 300, forged=True),
        row("neural-network", 300, forged=True),
        row("k-means", 120, forged=True, mu=2.0),
        row("glm", 120, forged=True, mu=2.0),
        row("cox", 120, forged=True, mu=2.0),
        row(many, 150, silent="mask", forged=True),
    ]


def _flagged(fast: bool) -> list[Case]:
    """Rows that must be flagged, and by which check; and answers that must not exist."""
    runs, scheme = 1000 if fast else 2000, "cape-gaussian"
    theorem = Case("theorem 1, S = 30, S_C = 9", "count", scheme, runs, sites=30, colluding=9)
    return [
        Case("none/mean", "mean", "none", runs, flag="likelihood ratio"),
        replace(theorem, flag="likelihood ratio", claim="theorem 1"),
        Case("pooled/mean, support", "mean", "pooled", runs, _mu_one(), 1e-6, look="support", powered=False),
    ]


def _mu_one() -> float:
    """Return the mu of (1, 1e-6)."""
    return Budget(1.0, 1e-6).mu
