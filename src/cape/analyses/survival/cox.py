"""Cox regression: ratios of hazards, from whole martingale scores.

`cox_query` says how far one row moves what is asked for, `cox_baseline` and `cox_steps` what is made of the
answers. All that follows a released sum is post-processing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cape.analyses.regression.faults import empty_values, no_events, sentence, separated, together, unvaried
from cape.analyses.regression.inference import unreliable
from cape.analyses.regression.marginals import Cap, check_cap, checked_cap
from cape.analyses.regression.score_query import check_few
from cape.analyses.survival.cox_estimate import Estimated
from cape.analyses.survival.cox_model import CoxModel
from cape.analyses.survival.cox_query import hazard_query
from cape.analyses.survival.cox_steps import MARGINALS, Fit, Steps, parts_of
from cape.analyses.survival.proportional import MOST_MOVED, MOST_WEIGHTS, terms
from cape.blocks import Design, FollowUp, Times
from cape.blocks.times import checked_edges
from cape.blocks.typical import steepest
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput, TooNoisyWarning, outside
from cape.data import Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Noise, Query
from cape.show import Table
from cape.show.numbers import count, number

__all__ = ["Cox"]

BINS = 40  # by default: hazards are constant within each, also where bounds of time are some times too wide
ROUNDS = 5  # steps for "auto", after the first question
_MOST_ROUNDS = 30
_HIDDEN = 0.5  # of a coefficient: from there on noise hides it
_LEFT = 0.7  # standard errors that an unsettled step may leave: worth a warning


@dataclass(frozen=True, init=False)
class Cox(Analysis):
    """The ratio of hazards for each feature: Cox's proportional hazards, with a baseline by bins of time.

    >>> Cox("years", "died", ["age", "sex"]), Cox("years", "died", formula="age * sex", strata="site")

    Times are cut at public edges. Within a bin the baseline hazard is constant, and a row counts for as long
    as it is at risk: the likelihood is that of a piecewise exponential model. Where all times are edges, its
    estimates are those of Cox's partial likelihood with Breslow's ties.

    The first question is how rows are spread over each feature, and who leaves when: that gives caps, a first
    baseline, and whitens the features. Each of `rounds` steps then asks for the sum over rows of martingale
    scores at the hazards found so far, whole and shortened at one bound, with their curvature, their spread
    and a histogram of their lengths, which chooses the next bound; and for events less what was expected by
    bin, which corrects the baseline. The sum is that of the partial likelihood beside what is wrong in the
    baseline times what is wrong in the means of those at risk (`cox_baseline`).

    The estimate is that of the same regression without privacy on the capped features, whether hazards are
    proportional or not; intervals count noise, sampling by a sandwich estimate (robust errors), what
    shortening took, and what the last step leaves.

    Rows are complete ones. With `entry` a row is at risk only after it (left truncation); a person with
    several rows, each from a start to a stop, has features that vary in time. Rows that leave by another
    event than the second category are censored then.

    **Sensitivity**: `cox_query` has the proofs.

    Args:
        time: a numeric column: when a row leaves.
        event: a category; the first value is a row that was censored, the second the event.
        features: numeric columns, or categories: one 0 or 1 for each value but the first.
        strata: a category whose values have baselines of their own, such as "site", or several.
        formula: terms in place of features, as in "age * sex + spline(bmi, 4)".
        entry: a numeric column: when a row enters.
        edges: the times at which bins end; rows are followed until the last of them.
        bins: the number of equal bins between the bounds of the time instead, 40 by default.
        rounds: how many steps, or "auto" for five.
        cap: where numeric features are cut: "auto" for released quantiles of 1 to 3%, "none" for the bounds
            of the schema, or a mapping of columns to ends, as in {"nodes": (0, 24)}.
        norm: the length that rows are shortened to, in units of half their bounds; by default none is.
        proportional: whether to test, with part of the last step, that hazards are proportional.
    """

    kind: ClassVar[str] = "cox"
    clustered: ClassVar[bool] = True
    example: ClassVar[dict[str, Any]] = {
        "time": "chol",
        "event": "disease",
        "features": ["age", "sex"],
        "bins": 4,
        "rounds": 2,
    }
    time: str
    event: str
    features: tuple[str, ...]
    strata: tuple[str, ...]
    entry: str | None
    rounds: int | Literal["auto"]
    norm: float | None
    cap: Cap
    edges: tuple[float, ...] | None
    bins: int
    proportional: bool

    def __init__(
        self,
        time: str,
        event: str,
        features: Sequence[str] | str | None = None,
        *,
        formula: str | None = None,
        strata: Iterable[str] | str = (),
        entry: str | None = None,
        edges: Sequence[float] | None = None,
        bins: int | None = None,
        rounds: int | Literal["auto"] = "auto",
        norm: float | None = None,
        cap: Any = "auto",
        proportional: bool = False,
    ) -> None:
        found = terms("a Cox regression", features, formula)
        if not isinstance(strata, Iterable):
            raise InvalidInput(f"strata must be a column or a list of columns, not {strata!r}")
        within = (strata,) if isinstance(strata, str) else tuple(strata)
        names([time, event, *([] if entry is None else [entry]), *within, *found])
        for name in Design(found).sources:
            if name in (time, event, entry, *within):
                raise InvalidInput(f"the feature {name!r} must not be time, event, entry or strata as well")
        if not isinstance(proportional, bool):
            raise InvalidInput(f"proportional must be True or False, not {proportional!r}")
        cut, many = checked_edges(time, edges, BINS if bins is None and edges is None else bins)
        self._set(
            time=time,
            event=event,
            features=found,
            strata=within,
            entry=entry,
            edges=cut,
            bins=many,
            rounds=rounds
            if isinstance(rounds, str) and rounds == "auto"
            else check.integer("rounds", rounds, least=1, most=_MOST_ROUNDS),
            norm=None if norm is None else check.real("norm", norm, above=0.0),
            cap=checked_cap(cap),
            proportional=proportional,
        )

    def _follow_up(self, schema: Schema) -> FollowUp:
        cut = {"bins": self.bins} if self.edges is None else {"edges": self.edges}
        return FollowUp(Times.of(schema, self.time, self.event, entry=self.entry, **cut), self.strata)

    @property
    def steps(self) -> int:
        """How many steps there are after the first question, at most."""
        return ROUNDS if self.rounds == "auto" else int(self.rounds)

    def over(self, schema: Schema) -> Analysis:
        """Return it asked for tables of groups, if groups are all there is to know: far less noise."""
        from cape.analyses.survival.cox_groups import CoxOfGroups

        return CoxOfGroups.of(self, schema) or self

    def exactly(self) -> Analysis:
        """Return it with as many steps as it takes, unless their number was given."""
        return self.changed(rounds=_MOST_ROUNDS) if self.rounds == "auto" else self

    def stages(self) -> tuple[float, ...]:
        """Return the share of each question: more than half for the last."""
        shares = [part.share for part in parts_of(self.steps)]
        rest = (1 - MARGINALS) / sum(shares)
        return (MARGINALS, *(share * rest for share in shares))

    @property
    def _design(self) -> Design:
        return Design(self.features, None, self.norm)

    def _asking(self, schema: Schema) -> Steps:
        follow_up = self._follow_up(schema)
        follow_up.check(schema, self._design)
        check_cap(self.cap, self._design.sources, schema)
        check_few(self._design.width(schema), MOST_WEIGHTS)
        parts = tuple(parts_of(self.steps))
        return Steps(
            self._design, follow_up, parts, self.stages(), self.cap, self.proportional, schema.rows_of_person
        )

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return a question like the last one, where nothing is known yet."""
        asking = self._asking(schema)
        at = asking.supposed(schema)
        block = asking.block(self._design, at.point, at.hazards, at.centre, exact=False, last=True)
        return hazard_query(block, asking.parts[-1], neighbours)

    def finish(self, answer: Answer) -> AnalysisResult:
        """Return what one step where nothing is known says by itself."""
        return self._result(self._asking(answer.schema).alone(answer), answer.schema)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask who is at risk when, and then for scores at what was found, each time."""
        fit = yield from self._asking(schema).conversation(schema, neighbours)
        return self._result(fit, schema)

    def _result(self, fit: Fit, schema: Schema) -> AnalysisResult:
        """Return the model of what these steps say."""
        found = Estimated(fit, schema, MOST_MOVED)
        model = CoxModel(
            self.time,
            self.event,
            schema.category(self.event).values[1],
            self.strata,
            fit.design,
            schema,
            found.estimates,
            tuple(map(float, found.weights)),
            tuple(map(float, fit.centre)),
            self._follow_up(schema).times.edges,
            found.baseline,
            found.joint,
            found.concordance,
            found.proportional,
            len(fit.scored),
            fit.hazards.total,
            found.last.step.count,
            found.limited,
            self._note(found),
            self._faults(found),
            found.events_noise,
        )
        return AnalysisResult(found.estimates, model)

    def _faults(self, found: Estimated) -> tuple[str, ...]:
        """Return what is wrong with the data, or the fit, as sentences; with a warning of what spoils it."""
        last, units, schema = found.last.step, found.units, found.schema
        if not found.fit.clear:
            text = no_events(self.event, schema, " by the last edge", noise=last.score_noise > 0)
            _warn(text)
            return (sentence(text),)
        texts = [each.text(schema) for each in found.separated]
        apart = _endless(found)
        if apart:
            texts.append(apart)
        elif found.left > _LEFT and not texts:
            texts.append(
                "steps had not converged: the last one changed log-hazards by an SD of "
                f"{last.moved(last.change):.2g}; intervals include it. More rounds, rows or "
                "epsilon would help"
            )
        unclear = [] if apart else _named(found, found.hidden)
        if unclear:
            texts.append(unreliable(units.names, found.hidden, noise=last.curvature_noise > 0))
        for text in texts:
            _warn(text)
        marginals, features = found.fit.marginals, units.design.sources
        return (
            *(sentence(text, units.names) for text in texts),
            *empty_values(marginals, features, schema),
            *unvaried(marginals, features, found.joint, schema, unclear),
            *together(found.joint, set(self.features), schema, unclear),
        )

    def _note(self, found: Estimated) -> str:
        """Return what is taken for possible, where something is hidden."""
        unclear = _named(found, found.pulled)
        if not unclear:
            return ""
        budget = " at this budget" if found.last.step.curvature_noise else ""
        return (
            f"Not identified{budget}: {joined(unclear)}. Intervals assume that no column changes "
            f"log-hazards by more than {MOST_MOVED:.0f} as it goes through its range."
        )

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the error of each coefficient beside sampling, after all steps over typical rows."""
        found = Estimated(self._over_typical(schema, noise, rows, neighbours), schema, MOST_MOVED)
        return {each.label: each.privacy for each in found.estimates}

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return a bound on the seconds that steps take, with what the baseline's filter does."""
        strata = self._follow_up(schema).many(schema)
        return super().effort(schema, results) + len(results) * strata * (3e-4 + 4e-9 * self.bins**3)

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return how steep slopes can be."""
        return steepest(schema, self.event, self.features)

    def _over_typical(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Fit:
        """Return steps over typical rows, if the last one has this noise."""
        talk, shares = self._asking(schema).conversation(schema, neighbours), self.stages()
        public = rows if neighbours == "replace-one" and not schema.open else None
        planned = self.query(schema, neighbours)
        unit = noise[0][1] / planned.flat_scales[1] / planned.sensitivity * math.sqrt(shares[-1])
        query = next(talk)
        for share in shares:
            sums = tuple(block.typical(schema, max(rows, 1)) for block in query.blocks)
            std = unit * query.sensitivity / math.sqrt(share)
            stds = tuple(tuple(std * scale for scale in each) for each in query.scales)
            try:
                query = talk.send(Answer(sums, stds, public, schema))
            except StopIteration as stop:
                fit: Fit = stop.value
                return fit
        raise AssertionError("there are as many steps as shares")

    def outlook(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Sequence[Table]:
        """Return what strata cost, if there are any: the noise of coefficients with and without them."""
        if not self.strata:
            return ()
        plain = self.changed(strata=())
        both = [each.expected(schema, noise, rows, neighbours) for each in (self, plain)]
        lines = tuple((schema.title(name), *(number(each[name]) for each in both)) for name in both[0])
        title = "Privacy noise (SD) of coefficients, per unit of each feature"
        return (Table(("", f"within {joined(self.strata)}", "one baseline for all"), lines, title),)

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield the same without strata, then regressions on fewer features, then on one alone."""
        if self.strata:
            yield self.changed(strata=())
        for many in range(len(self.features) - 1, 0, -1):
            yield self.changed(features=self.features[:many])

    def keys(self) -> dict[str, Any]:
        cut = {"bins": self.bins} if self.edges is None else {"edges": list(self.edges)}
        found = {key: value for key, value in super().keys().items() if key not in ("edges", "bins")}
        found |= {"features": list(self.features), "strata": list(self.strata)}
        for key in ("proportional", "strata"):
            if not found[key]:
                del found[key]
        del found["cap"]
        if self.cap != "auto":
            found["cap"] = self.cap if isinstance(self.cap, str) else {k: list(v) for k, v in self.cap}
        return {**found, **cut}

    def describe(self) -> str:
        """Return one line that an ethics board can read."""
        within = f", within {joined(self.strata)}" if self.strata else ""
        entry = f", at risk from {self.entry}" if self.entry else ""
        return (
            f"Cox regression of {self.event} by {self.time} on {joined(self.features)}{within}{entry}, in "
            f"{count(self.steps + 1, 'step')}"
        )


def _endless(found: Estimated) -> str | None:
    """Return a text on features whose effects have no end, without noise; None if all have one."""
    last = found.last.step
    if not last.endless:
        return None
    moved = np.abs(last.point.turn.T @ last.change) * found.fit.made.std(axis=0)
    return separated(moved, found.units.names, "log-hazards", 0.0, endless=True)


def _named(found: Estimated, parts: Floats) -> list[str]:
    """Return the coefficients of which so large parts are hidden."""
    return [name for name, part in zip(found.units.names, parts, strict=True) if part >= _HIDDEN]


def _warn(text: str) -> None:
    warnings.warn(text, TooNoisyWarning, stacklevel=outside())
