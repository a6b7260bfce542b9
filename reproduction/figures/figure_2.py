"""Figure 2: accuracy of a small network, train and test, versus epsilon per iteration and versus N."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cape import privacy
from cape.privacy import Budget
from reproduction import network as n
from reproduction import style
from reproduction.figure import Cell, Claim, Figure, Row
from reproduction.reference import Point, Reference
from reproduction.seeds import FIRST_SEED, seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURE", "Figure2"]

_ROWS, _BATCH, _PRINTED_EPOCHS = 10_000, 64.0, 500
_EPSILONS = (1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 10.0)
_SAMPLES = (1000, 2000, 3000, 4000, 5000, 7000, 8000, 10_000)
_AT = 0.5  # epsilon per iteration where N is varied
_TOTALS = (0.005, 0.02, 0.05, 0.1, 0.5, 2.0)
_EQUAL_SAMPLES, _EQUAL_AT = (1000, 2000, 5000, 10_000), 0.1
_LONG = (0.01, 0.1, 0.5, 1.0)  # trained for 500 epochs too, without the protocol
_EARLY, _EARLY_AT = (1, 2), 0.1  # epochs after which convergence is looked at, and epsilon per iteration
_EPOCHS, _RUNS, _LONG_RUNS = 5, 10, 3
_FAST_EPSILONS = (1e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 10.0)
_FAST_SAMPLES, _FAST_TOTALS, _FAST_EQUAL_SAMPLES = (
    (1000, 3000, 10_000),
    (0.005, 0.02, 0.1, 2.0),
    (1000, 3000, 10_000),
)
_PUBLISHED, _EQUAL = ("cape-gaussian", "conventional"), ("cape", "cape-gaussian", "conventional")
_OWN = "CAPE, ring masks, truly (ε, δ)"
_STEP_SECONDS = {"cape": 8e-3, "cape-gaussian": 4.5e-3, "conventional": 2.3e-3, "none": 1.6e-3}
_LABELS = {
    "cape": "CAPE, ring masks",
    "cape-gaussian": "CAPE, the paper's",
    "conventional": "conventional",
    "none": "non-private",
}
_FILES = {"epsilon": "synth_vs_eps_D50_adam_v2", "samples": "synth_vs_samples_D50_adam_v2"}
_ALGORITHMS = {"cape-gaussian": "cape", "conventional": "conv"}
_NEAR = 1.0  # points of accuracy
_SURE = 3.0  # standard errors from which on a difference counts
_HOW = f"""\
**What was changed.** {_EPOCHS} epochs instead of {_PRINTED_EPOCHS}, since every iteration is a run of the
protocol: 547 iterations instead of 54,687 at N = {_ROWS:,}. Nothing else of an iteration: batch, Adam's rate
and noise are the published ones. What {_PRINTED_EPOCHS} epochs do is drawn dashed, at {len(_LONG)} values of
epsilon with {_LONG_RUNS} runs each; there the noise of each sum is added without the protocol. `--fast` does
that for everything, at fewer points, and leaves {_PRINTED_EPOCHS} epochs out.

**CAPE's own curve** among the published ones has the noise with which one iteration truly is (epsilon,
{n.DELTA:g})-private. At small epsilon that is far less than the classical formula asks: such a large delta
allows most of what is seen there by itself, and nobody should ask for it.

**What the paper does not say.** The clip is 1, and Delta twice that, for one record that is replaced. A batch
is a secret sample of the expected size 64 (versus N: min(N_train/10, 128), at epsilon = {_AT:g} per
iteration), not a shuffled part, so that its privacy can be accounted for. Columns are scaled from [-5.5, 5.5]
to [-1, 1]. {n.COLLUDING} of {n.SITES} sites may collude. Each run has its own data, first weights, batches
and noise."""
_WHERE_E, _WHERE_N = "Section 5.1, Figure 2 (a)-(b)", "Section 5.1, Figure 2 (c)-(d)"


class Figure2(Figure):
    """Accuracy of a small network versus epsilon per iteration and versus N."""

    name = "figure-2"
    title = "Accuracy of a network (50-5-1, four sites) versus epsilon per iteration, and versus N"

    def cells(self, fast: bool, seed: int = FIRST_SEED) -> Sequence[Cell]:
        """Return a cell for each training, and one for the totals of each point.

        `fast` has fewer points, and adds the noise of each sum without the protocol.
        """
        runs = seeds(seed, _RUNS)
        points = [("epsilon", e, _ROWS) for e in (_FAST_EPSILONS if fast else _EPSILONS)]
        points += [("samples", _AT, rows) for rows in (_FAST_SAMPLES if fast else _SAMPLES)]
        found = []
        for sweep, epsilon, rows in points:
            for scheme in _PUBLISHED:
                found.append(self._accounts(seed, sweep, scheme, epsilon, rows))
                found += [self._train("published", sweep, scheme, epsilon, rows, r, not fast) for r in runs]
            found += [self._train("published", sweep, "cape", epsilon, rows, run, not fast) for run in runs]
        for sweep, rows in dict.fromkeys((sweep, rows) for sweep, _, rows in points):
            found += [self._train("published", sweep, "none", None, rows, run, not fast) for run in runs]
        equal = [("epsilon", e, _ROWS) for e in (_FAST_TOTALS if fast else _TOTALS)]
        many = _FAST_EQUAL_SAMPLES if fast else _EQUAL_SAMPLES
        equal += [("samples", _EQUAL_AT, rows) for rows in many]
        for sweep, epsilon, rows in equal:
            for scheme in _EQUAL:
                found += [self._train("equal", sweep, scheme, epsilon, rows, run, not fast) for run in runs]
        for epochs in _EARLY:
            for scheme in (*_PUBLISHED, "none"):
                at = None if scheme == "none" else _EARLY_AT
                found += [
                    self._train("published", "epsilon", scheme, at, _ROWS, run, not fast, epochs)
                    for run in runs
                ]
        if not fast:
            for epsilon in _LONG:
                for scheme in _PUBLISHED:
                    found += [
                        self._train(
                            "published", "epsilon", scheme, epsilon, _ROWS, run, False, _PRINTED_EPOCHS
                        )
                        for run in runs[:_LONG_RUNS]
                    ]
        return found

    def _train(
        self,
        drawn: str,
        sweep: str,
        scheme: str,
        epsilon: float | None,
        rows: int,
        seed: int,
        protocol: bool,
        epochs: int = _EPOCHS,
    ) -> Cell:
        steps = epochs * n.trained_on(rows) / _batch(sweep, rows)
        guess = steps * (_STEP_SECONDS[scheme] if protocol else 3e-4)
        return Cell.of(
            self.name,
            seed,
            guess,
            kind="training",
            drawn=drawn,
            sweep=sweep,
            scheme=scheme,
            epsilon=epsilon,
            rows=rows,
            epochs=epochs,
            protocol=protocol,
        )

    def _accounts(self, seed: int, sweep: str, scheme: str, epsilon: float, rows: int) -> Cell:
        return Cell.of(
            self.name, seed, 2.0, kind="total", sweep=sweep, scheme=scheme, epsilon=epsilon, rows=rows
        )

    def compute(self, cell: Cell) -> list[Row]:
        """Train once, or account for all iterations of one point."""
        if cell["kind"] == "total":
            return [dict(cell.settings) | _totals(cell)]
        rows, scheme = cell.integer("rows"), cell.text("scheme")
        task = n.Task(rows, _batch(cell.text("sweep"), rows), cell.integer("epochs"), cell.seed)
        stream = cell.stream("noise")
        budget, multiplier = Budget(1.0, n.TRUE_DELTA), None
        if cell["drawn"] == "equal":
            budget = Budget(cell.number("epsilon"), n.TRUE_DELTA)
            multiplier = None if cell["protocol"] else n.multiplier_at(budget, task)
        elif scheme != "none":
            epsilon = cell.number("epsilon")
            multiplier = n.published_multiplier(scheme, epsilon)
            if cell["protocol"]:
                budget = n.published_budget(scheme, epsilon, task.sampling, task.steps)
        if cell["protocol"]:
            found = n.learn(task, scheme, budget, stream)
        else:
            found = n.learn_without_protocol(task, scheme, multiplier, stream)
        return [
            dict(cell.settings)
            | {"batch": task.batch, "steps": task.steps, "noise": found.noise}
            | {"train": found.train, "test": found.test}
            | {"length": float(np.linalg.norm(found.parameters))}
        ]

    def draw(self, rows: Sequence[Row], reference: Reference | None) -> Mapping[str, Picture]:
        """Return accuracies with the published noise per iteration, and at equal totals."""
        return {"published": _published(rows, reference), "equal": _equal(rows)}

    def claims(self, rows: Sequence[Row], reference: Reference | None) -> list[Claim]:
        """Compare accuracies on the test rows, and say what all iterations cost."""
        found = [
            *_against_epsilon(rows),
            *_against_samples(rows),
            _faster(rows),
            _cost(rows),
            _one_iteration(rows),
            *_at_equal_totals(rows),
        ]
        if (long := _longer(rows)) is not None:
            found.append(long)
        return found if reference is None else [*found, *_beside(rows, reference)]

    def notes(self, rows: Sequence[Row]) -> str:
        """Return what was changed, and the totals beside the accuracies."""
        return f"{_HOW}\n\n{_published_table(rows)}\n\n{_equal_table(rows)}"


def _batch(sweep: str, rows: int) -> float:
    return _BATCH if sweep == "epsilon" else n.batch_against_rows(rows)


def _totals(cell: Cell) -> Row:
    """Return the true epsilon of all iterations, here and in the paper, and of one without sampling."""
    rows, scheme = cell.integer("rows"), cell.text("scheme")
    z = n.published_multiplier(scheme, cell.number("epsilon"))
    batch = _batch(cell.text("sweep"), rows)
    here, there = (n.Task(rows, batch, epochs, cell.seed) for epochs in (_EPOCHS, _PRINTED_EPOCHS))
    return {
        "multiplier": z,
        "batch": batch,
        "steps": here.steps,
        "total": n.total_epsilon(z, here.sampling, here.steps, n.TRUE_DELTA),
        "printed_steps": there.steps,
        "printed_total": n.total_epsilon(z, there.sampling, there.steps, n.TRUE_DELTA),
        "printed_total_at_its_delta": n.total_epsilon(z, there.sampling, there.steps, n.DELTA),
        "one_iteration": float(privacy.epsilon(n.DELTA, 2.0 / z)),
    }


def _keep(drawn: str, sweep: str, scheme: str, epochs: int = _EPOCHS) -> Callable[[Row], bool]:
    wanted = {"kind": "training", "drawn": drawn, "sweep": sweep, "scheme": scheme, "epochs": epochs}
    return lambda row: all(row.get(name) == value for name, value in wanted.items())


def _curve(
    rows: Sequence[Row], drawn: str, sweep: str, scheme: str, column: str = "test", epochs: int = _EPOCHS
) -> list[Point]:
    kept = [row for row in rows if _keep(drawn, sweep, scheme, epochs)(row)]
    return style.over_runs(kept, "epsilon" if sweep == "epsilon" else "rows", column)


def _level(rows: Sequence[Row], column: str = "test", epochs: int = _EPOCHS) -> float:
    """Return the accuracy without privacy at the paper's N."""
    kept = filter(_keep("published", "epsilon", "none", epochs), rows)
    return float(np.mean([_number(row[column]) for row in kept]))


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def _error(a: Point, b: Point) -> float:
    """Return the standard error of the difference of two means."""
    return math.sqrt(a.std**2 / a.runs + b.std**2 / b.runs)


def _said(points: Sequence[Point]) -> str:
    return ", ".join(f"{point.mean:.2f}" for point in points)


def _rises(*curves: Sequence[Point]) -> bool | None:
    """Return whether curves rise: no mean below the one before it, and the last above the first.

    None where a difference may be chance.
    """
    verdicts: list[bool | None] = []
    for points in curves:
        first, last = points[0], points[-1]
        pairs = itertools.pairwise(points)
        falls = any(b.mean - a.mean < -_SURE * _error(a, b) - 1e-9 for a, b in pairs)
        sure = last.mean - first.mean > _SURE * _error(first, last)
        verdicts.append(False if falls else sure or None)
    return _all(verdicts)


def _all(verdicts: Sequence[bool | None]) -> bool | None:
    return False if False in verdicts else None if None in verdicts else True


def _compare(ours: Sequence[Point], theirs: Sequence[Point]) -> tuple[str, bool | None]:
    """Say by how many points one curve lies above another, and whether it does: None if it may be chance."""
    gaps = [(a.x, a.mean - b.mean, _SURE * _error(a, b)) for a, b in zip(ours, theirs, strict=True)]
    better = [x for x, gap, error in gaps if gap > error and gap > 0]
    worse = [x for x, gap, error in gaps if gap < -error and gap < 0]
    told = ", ".join(f"{gap:+.2f} at {x:,g}" for x, gap, _ in gaps)
    counted = f"better at {len(better)} of {len(gaps)} points by more than {_SURE:g} standard errors, "
    return f"{told}; {counted}worse at {len(worse)}", False if worse else bool(better) or None


def _against_epsilon(rows: Sequence[Row]) -> list[Claim]:
    cape, conv = (_curve(rows, "published", "epsilon", scheme) for scheme in _PUBLISHED)
    gaps, above = _compare(cape, conv)
    level = _level(rows)
    near = {
        name: next((point.x for point in points if level - point.mean < _NEAR), None)
        for name, points in (("CAPE", cape), ("conventional", conv))
    }
    reached = "; ".join(
        f"{name} from epsilon = {x:g} on" if x is not None else f"{name} nowhere" for name, x in near.items()
    )
    return [
        Claim(
            _WHERE_E,
            "Both private algorithms perform better as epsilon per iteration grows.",
            f"Test accuracy in percent at epsilon = {', '.join(f'{p.x:g}' for p in cape)}: CAPE "
            f"{_said(cape)}; conventional {_said(conv)}.",
            _rises(cape, conv),
            "At the smallest epsilons noise is all there is, and both guess.",
        ),
        Claim(
            _WHERE_E,
            "CAPE performs better than the conventional scheme at the same epsilon per iteration.",
            f"Points of test accuracy: {gaps}.",
            above,
            "The same tau leaves sqrt(S) = 2 times less noise in the sum. It is not the same privacy: see "
            "the totals. Where both guess, or both are right, there is nothing to gain.",
        ),
        Claim(
            _WHERE_E,
            "CAPE reaches the non-private accuracy even for moderate epsilon.",
            f"Non-private {level:.2f}. Within {_NEAR:g} point of it: {reached}. At the largest epsilon CAPE "
            f"has {cape[-1].mean:.2f}, the conventional scheme {conv[-1].mean:.2f}.",
            near["CAPE"] is not None and near["CAPE"] <= 1.0,
            "Moderate is read as at most 1 for each iteration.",
        ),
    ]


def _against_samples(rows: Sequence[Row]) -> list[Claim]:
    cape, conv = (_curve(rows, "published", "samples", scheme) for scheme in _PUBLISHED)
    gaps, above = _compare(cape, conv)
    least, gap = (cape[i].mean - conv[i].mean for i in (0, 1))
    widest = max(range(len(cape)), key=lambda i: cape[i].mean - conv[i].mean)
    return [
        Claim(
            _WHERE_N,
            f"Accuracy of the private algorithms improves with N (epsilon = {_AT:g} per iteration).",
            f"Test accuracy in percent at N = {', '.join(f'{p.x:,g}' for p in cape)}: CAPE {_said(cape)}; "
            f"conventional {_said(conv)}.",
            _rises(cape, conv),
            "Not because noise in a batch's mean falls with N, as the paper says: the batch is 128 from N = "
            "1,829 on. There are more iterations in an epoch.",
        ),
        Claim(
            _WHERE_N,
            "CAPE outperforms the conventional scheme when N is varied, too.",
            f"Points of test accuracy: {gaps}.",
            above,
        ),
        Claim(
            _WHERE_N,
            "When N is quite small, the gap between CAPE and the conventional scheme is less pronounced.",
            f"{least:+.2f} points at N = {cape[0].x:,g}, {gap:+.2f} at {cape[1].x:,g}; the widest is "
            f"{cape[widest].mean - conv[widest].mean:+.2f} at {cape[widest].x:,g}, and at N = "
            f"{cape[-1].x:,g} it is {cape[-1].mean - conv[-1].mean:+.2f}.",
            _wider(cape, conv, widest),
            "With enough rows both reach the non-private accuracy, and the gap closes from the other side.",
        ),
    ]


def _faster(rows: Sequence[Row]) -> Claim:
    """Compare what is reached after one, two and all epochs."""
    told, verdicts = [], []
    for epochs in (*_EARLY, _EPOCHS):
        cape, conv = (
            next(p for p in _curve(rows, "published", "epsilon", scheme, epochs=epochs) if p.x == _EARLY_AT)
            for scheme in _PUBLISHED
        )
        gap, error = cape.mean - conv.mean, _SURE * _error(cape, conv)
        verdicts.append(True if gap > error else False if gap < -error else None)
        level = _level(rows, epochs=epochs)
        told.append(
            f"after {epochs}: CAPE {_spread(cape)}, conventional {_spread(conv)}, non-private {level:.2f}"
        )
    return Claim(
        "Section 5.1",
        "Gradient descent converges much faster under CAPE than under the conventional scheme.",
        f"Test accuracy by epochs, epsilon = {_EARLY_AT:g} per iteration: {'; '.join(told)}.",
        False if False in verdicts else True if True in verdicts else None,
        f"Judged by the accuracy on the way: better at one of the three by more than {_SURE:g} standard "
        "errors, worse at none. From which epsilon on CAPE matches the non-private accuracy is said above.",
    )


def _wider(ours: Sequence[Point], theirs: Sequence[Point], at: int) -> bool | None:
    """Return whether the gap is wider there than at the first point: None if it may be chance.

    Where the first is the widest, the last one is compared.
    """
    other = at or len(ours) - 1
    first, there = (ours[i].mean - theirs[i].mean for i in (0, other))
    error = math.hypot(_error(ours[0], theirs[0]), _error(ours[other], theirs[other]))
    return None if abs(there - first) <= _SURE * error else there > first


def _accounted(rows: Sequence[Row], sweep: str, scheme: str) -> list[Row]:
    found = [row for row in rows if row["kind"] == "total"]
    found = [row for row in found if row["sweep"] == sweep and row["scheme"] == scheme]
    return sorted(found, key=lambda row: (_number(row["epsilon"]), _number(row["rows"])))


def _cost(rows: Sequence[Row]) -> Claim:
    told = []
    for cape, conv in zip(*(_accounted(rows, "epsilon", scheme) for scheme in _PUBLISHED), strict=True):
        if _number(cape["epsilon"]) in (0.1, 0.5, 1.0, 10.0):
            totals = " and ".join(f"{_number(row['printed_total']):.3g}" for row in (cape, conv))
            here = " and ".join(f"{_number(row['total']):.3g}" for row in (cape, conv))
            told.append(f"{cape['epsilon']:g} per iteration is {totals} in all (here {here})")
    steps = _number(_accounted(rows, "epsilon", "conventional")[0]["printed_steps"])
    return Claim(
        _WHERE_E,
        "The axis is epsilon per iteration; no total is given.",
        f"Total epsilon of CAPE and of the conventional scheme at delta = {n.TRUE_DELTA:g} over {steps:,.0f} "
        f"iterations (and the {_EPOCHS} epochs that were run): {'; '.join(told)}.",
        None,
        "Exact composition of iterations over secret samples. At the same epsilon per iteration CAPE's total "
        "is larger than the conventional scheme's.",
    )


def _one_iteration(rows: Sequence[Row]) -> Claim:
    found = {scheme: _accounted(rows, "epsilon", scheme) for scheme in _PUBLISHED}
    told = {
        scheme: ", ".join(f"{_number(r['one_iteration']):.3g} at {r['epsilon']:g}" for r in each[-3:])
        for scheme, each in found.items()
    }
    every = [row for each in found.values() for row in each]
    above = sorted(
        {_number(r["epsilon"]) for r in every if _number(r["one_iteration"]) > _number(r["epsilon"])}
    )
    return Claim(
        "Section 5.1",
        f"An iteration with the stated tau is (epsilon, {n.DELTA:g})-private.",
        f"True epsilon of one iteration at delta = {n.DELTA:g}, sampling not counted: CAPE "
        f"{told['cape-gaussian']}; conventional {told['conventional']}."
        + (f" More than is stated at epsilon = {', '.join(f'{e:g}' for e in above)}." if above else ""),
        not above,
        "The classical formula is for epsilon below 1. There it wastes more than CAPE's correlated noise "
        "costs; far beyond it neither scheme keeps what is stated.",
    )


def _at_equal_totals(rows: Sequence[Row]) -> list[Claim]:
    found = []
    for sweep, says in (
        ("epsilon", "CAPE performs better than the conventional scheme at the same total (epsilon, delta)."),
        ("samples", f"The same versus N, at a total epsilon of {_EQUAL_AT:g}."),
    ):
        own, cape, conv = (_curve(rows, "equal", sweep, scheme) for scheme in _EQUAL)
        (gaps, above), (more, own_above) = _compare(cape, conv), _compare(own, conv)
        found.append(
            Claim(
                f"{_WHERE_E if sweep == 'epsilon' else _WHERE_N}, at equal totals",
                says,
                f"Points of test accuracy, delta = {n.TRUE_DELTA:g}. The paper's noise: {gaps}. Ring masks: "
                f"{more}.",
                _all([above, own_above]),
                "At equal privacy noise is 1.46 times less with the paper's variances and 1.73 times less "
                "with ring masks, not 2 times (S = 4, one colluding).",
            )
        )
    return found


def _longer(rows: Sequence[Row]) -> Claim | None:
    """Compare 500 epochs with what was run."""
    told, gaps = [], []
    for scheme in _PUBLISHED:
        long = _curve(rows, "published", "epsilon", scheme, epochs=_PRINTED_EPOCHS)
        here = {point.x: point for point in _curve(rows, "published", "epsilon", scheme)}
        told += [f"{_LABELS[scheme]} {p.x:g}: {p.mean:.2f} against {here[p.x].mean:.2f}" for p in long]
        gaps.append({point.x: point.mean for point in long})
    if not told:
        return None
    return Claim(
        _WHERE_E,
        f"Trained for {_PRINTED_EPOCHS} epochs, CAPE is better than the conventional scheme too.",
        f"Test accuracy after {_PRINTED_EPOCHS} against {_EPOCHS} epochs, at epsilon per iteration: "
        f"{'; '.join(told)}.",
        all(gaps[0][x] >= gaps[1][x] for x in gaps[0] if x >= 0.1),
        "Judged from epsilon = 0.1 on. Without the protocol: the same noise in each sum. More iterations "
        "cost more in all, as the totals say.",
    )


def _beside(rows: Sequence[Row], reference: Reference) -> list[Claim]:
    """Compare with the authors' values, if the file has them."""
    spread, told, close = [], [], []
    for sweep, file in _FILES.items():
        for scheme, algorithm in _ALGORITHMS.items():
            theirs = reference.curve(file, f"{algorithm}_ts", "acc")
            ours = {point.x: point for point in _curve(rows, "published", sweep, scheme)}
            spread += [point.std for point in theirs]
            gaps = {point.x: ours[point.x].mean - point.mean for point in theirs if point.x in ours}
            close += list(gaps.values())
            told.append(
                f"{algorithm} versus {sweep} {', '.join(f'{g:+.1f} at {x:,g}' for x, g in gaps.items())}"
            )
    if not spread:
        return []
    same = sum(std < 1e-6 for std in spread)
    return [
        Claim(
            "Section 5.1",
            "Accuracies are averages over 10 independent runs.",
            f"At {same} of {len(spread)} of the authors' points ten runs differ by nothing.",
            same == 0,
            "Ten equal runs are one run: the authors' curves have no spread to be compared with.",
        ),
        Claim(
            "Section 5.1, Figure 2",
            "The authors' accuracies.",
            f"Ours minus theirs in points: {'; '.join(told)}.",
            max(map(abs, close)) <= 5.0,
            "Neither clip nor scaling of columns is in the paper, there are fewer epochs here, and their "
            "points are one run each.",
        ),
    ]


def _published_table(rows: Sequence[Row]) -> str:
    head = (
        "| epsilon per iteration | N | scheme | iterations | total epsilon | over 500 epochs: iterations "
        f"| total epsilon | at delta = {n.DELTA:g} | train | test |"
    )
    lines = [
        f"As published; totals at delta = {n.TRUE_DELTA:g}, accuracy in percent:\n",
        head,
        "|---" * 10 + "|",
    ]
    for sweep in ("epsilon", "samples"):
        for scheme in _PUBLISHED:
            train, test = (
                {p.x: p for p in _curve(rows, "published", sweep, scheme, part)} for part in ("train", "test")
            )
            for row in _accounted(rows, sweep, scheme):
                x = _number(row["epsilon"] if sweep == "epsilon" else row["rows"])
                lines.append(
                    f"| {row['epsilon']:g} | {row['rows']:,} | {_LABELS[scheme]} | {row['steps']:,} "
                    f"| {_number(row['total']):.3g} | {row['printed_steps']:,} "
                    f"| {_number(row['printed_total']):.3g} "
                    f"| {_number(row['printed_total_at_its_delta']):.3g} "
                    f"| {_spread(train[x])} | {_spread(test[x])} |"
                )
    return "\n".join(lines)


def _equal_table(rows: Sequence[Row]) -> str:
    lines = [f"At equal totals, delta = {n.TRUE_DELTA:g}:\n"]
    lines += ["| total epsilon | N | scheme | train | test |", "|---" * 5 + "|"]
    for sweep in ("epsilon", "samples"):
        for scheme in _EQUAL:
            train, test = (_curve(rows, "equal", sweep, scheme, part) for part in ("train", "test"))
            for a, b in zip(train, test, strict=True):
                epsilon, many = (a.x, _ROWS) if sweep == "epsilon" else (_EQUAL_AT, int(a.x))
                lines.append(f"| {epsilon:g} | {many:,} | {_LABELS[scheme]} | {_spread(a)} | {_spread(b)} |")
    return "\n".join(lines)


def _spread(point: Point) -> str:
    return f"{point.mean:.2f} ± {point.std:.2f}"


def _published(rows: Sequence[Row], reference: Reference | None) -> Picture:
    picture, grid = style.new(
        2, 2, (11, 8.8), f"Figure 2 as published: noise for each iteration at nominal ε and δ = {n.DELTA:g}"
    )
    for line, sweep in zip(grid, ("epsilon", "samples"), strict=True):
        for axes, part in zip(line, ("train", "test"), strict=True):
            for scheme in _PUBLISHED:
                colour = style.COLOURS[scheme]
                points = _curve(rows, "published", sweep, scheme, part)
                style.band(axes, points, colour, f"{_LABELS[scheme]}, {_EPOCHS} epochs", marker=".")
                long = _curve(rows, "published", sweep, scheme, part, _PRINTED_EPOCHS)
                if long:
                    label = f"{_LABELS[scheme]}, {_PRINTED_EPOCHS} epochs, no protocol"
                    style.band(axes, long, colour, label, ls="--", lw=1.2, marker="d", ms=4)
                if reference is not None:
                    theirs = f"{_ALGORITHMS[scheme]}_{'tr' if part == 'train' else 'ts'}"
                    style.markers(axes, reference.curve(_FILES[sweep], theirs, "acc"), colour)
            own = _curve(rows, "published", sweep, "cape", part)
            style.band(axes, own, style.COLOURS["cape"], _OWN, marker=".", lw=1.2)
            _without(axes, rows, sweep, part)
            if sweep == "epsilon":
                style.tidy(
                    axes, f"{part}, N = {_ROWS:,}, batch {_BATCH:g}", "ε per iteration", "accuracy (%)"
                )
                _total_axis(axes, rows)
            else:
                title = f"{part}, ε = {_AT:g} per iteration, batch min(N_train/10, 128)"
                style.tidy(axes, title, "N", "accuracy (%)")
    style.legend(picture, grid[0][0], 3, reference is not None)
    return picture


def _total_axis(axes: Axes, rows: Sequence[Row]) -> None:
    """Put the total over all of the paper's iterations above the axis of epsilon per iteration."""
    found = _accounted(rows, "epsilon", "cape-gaussian")
    places = [_number(row["epsilon"]) for row in found]
    apart = [i for i, x in enumerate(places) if abs(math.log10(x) - round(math.log10(x))) < 1e-9]
    top = axes.secondary_xaxis("top")
    top.set_xticks(
        [places[i] for i in apart], [_short(_number(found[i]["printed_total"])) for i in apart], fontsize=8
    )
    top.minorticks_off()
    top.tick_params(colors=style.MUTED)
    label = f"total ε of CAPE over {_PRINTED_EPOCHS} epochs at δ = {n.TRUE_DELTA:g}"
    top.set_xlabel(label, color=style.MUTED, fontsize=8)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _equal(rows: Sequence[Row]) -> Picture:
    picture, grid = style.new(
        2, 2, (11, 8.2), f"Figure 2 at equal true (ε, δ = {n.TRUE_DELTA:g}) of all {_EPOCHS} epochs together"
    )
    for line, sweep in zip(grid, ("epsilon", "samples"), strict=True):
        for axes, part in zip(line, ("train", "test"), strict=True):
            for scheme in _EQUAL:
                points = _curve(rows, "equal", sweep, scheme, part)
                style.band(axes, points, style.COLOURS[scheme], _LABELS[scheme], marker=".")
            _without(axes, rows, sweep, part)
            if sweep == "epsilon":
                style.tidy(axes, f"{part}, N = {_ROWS:,}, batch {_BATCH:g}", "total ε", "accuracy (%)")
            else:
                title = f"{part}, total ε = {_EQUAL_AT:g}, batch min(N_train/10, 128)"
                style.tidy(axes, title, "N", "accuracy (%)")
    style.legend(picture, grid[0][0], 4)
    return picture


def _without(axes: Axes, rows: Sequence[Row], sweep: str, part: str) -> None:
    """Draw the accuracy without privacy, and set the scales."""
    colour, label = style.COLOURS["none"], _LABELS["none"]
    if sweep == "epsilon":
        axes.axhline(_level(rows, part), color=colour, lw=1.2, ls=":", label=label)
        axes.set_xscale("log")
    else:
        style.band(axes, _curve(rows, "published", sweep, "none", part), colour, label, lw=1.2, ls=":")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(top=101.5)


FIGURE = Figure2()
