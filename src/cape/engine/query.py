"""What is asked and what comes back, as plain data between an analysis and the machinery below it.

An analysis turns itself into a `Query`: which sums over rows, how noise is to be shared out among them, and
how far one person can move them. The machinery returns an `Answer`: the same sums over all sites, with
noise of a known scale. The analysis turns that into `Estimate`s. Nothing else passes between the two.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cape.blocks import Array, Block
from cape.blocks.typical import steepest
from cape.core import check
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Schema
from cape.show import Figure, Intervals, Shown, Table
from cape.show.figures import DOTS, dots, to_scale
from cape.show.findings import findings
from cape.show.tables import listed
from cape.stats.estimates import Estimate, Estimates
from cape.stats.law import GAUSSIAN, Law

if TYPE_CHECKING:
    from cape.engine.result import Release

__all__ = [
    "Analysis",
    "AnalysisResult",
    "Answer",
    "Conversation",
    "Estimate",
    "Neighbours",
    "Noise",
    "Query",
    "ResumePoint",
    "check_where",
]

A = TypeVar("A", bound="Analysis")
Neighbours = Literal["replace-one", "add-remove"]
Noise = Sequence[Sequence[float]]
"""For each block and array of a query, the standard deviation of the noise in every entry."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Query:
    """Sums over rows, and what one person can do to them.

    Attributes:
        blocks: what each site adds up.
        scales: for each block, the relative noise of each of its arrays: an array with scale 2 gets
            twice the noise of one with scale 1.
        sensitivity: the most that one person can change the arrays, each divided by its scale, in the
            L2 norm over all of them together. Scaled cells t lie in [-1, 1]; counts change by 1.
        norm: the most that one person alone can add, in the same norm; needed where rows are sampled,
            because a row that is not drawn adds 0.
        l1: as `sensitivity`, in the L1 norm: what Laplace noise is scaled by. None where it is not proved,
            which refuses a budget without delta.
    """

    blocks: tuple[Block, ...]
    scales: tuple[tuple[float, ...], ...]
    sensitivity: float
    norm: float | None = None
    l1: float | None = field(default=None, kw_only=True)
    of_person: float | None = None
    """The most that one person can change them with all rows that count at a site, where sites clip their
    sum; None if every row counts by itself, and a person for `sensitivity` times the number of rows."""
    note: str = ""
    """What is to be said of the run so far, from released numbers only."""
    before: Callable[[], None] | None = None
    """Called once the query is paid for, before anything is computed: to write down that it is asked."""

    def arrays(self, schema: Schema) -> tuple[Array, ...]:
        """Return the arrays of all blocks, one after the other, checked against the scales."""
        arrays = tuple(array for block in self.blocks for array in block.arrays(schema))
        if len(arrays) != len(self.flat_scales):
            raise InvalidInput("a query must give one scale for each of its arrays")
        return arrays

    def __post_init__(self) -> None:
        check.real("sensitivity", self.sensitivity, least=0.0)
        if self.norm is not None:
            check.real("norm", self.norm, above=0.0)
        if self.l1 is not None:
            check.real("l1", self.l1, above=0.0)
        if self.blocks:
            check.real("sensitivity", self.sensitivity, above=0.0)
        scales = self.flat_scales
        if not all(type(scale) is float and 0.0 < scale < math.inf for scale in scales):
            for scale in scales:
                check.real("scales", scale, above=0.0)

    @property
    def private(self) -> bool:
        """Whether anything is asked of the tables."""
        return bool(self.blocks)

    @property
    def brings_code(self) -> bool:
        """Whether a function of whoever asks runs over the rows: it could tell something by failing."""
        return any(block.brings_code for block in self.blocks)

    @property
    def flat_scales(self) -> tuple[float, ...]:
        """The scales in the order of `arrays`."""
        return tuple(scale for scales in self.scales for scale in scales)


@dataclass(frozen=True)
class Answer:
    """The sums over the sites that took part, with noise.

    Attributes:
        sums: for each block its arrays, in units of t, t² or rows.
        noise: for each block and array the standard deviation of the noise in every entry.
        rows: how many rows the sites that took part hold, if that is public, else None.
        schema: the columns.
        law: the law of the noise in every entry, scaled by `noise`: Gaussian, or of Laplace's family.
    """

    sums: tuple[tuple[Floats, ...], ...]
    noise: tuple[tuple[float, ...], ...]
    rows: int | None
    schema: Schema
    law: Law = GAUSSIAN

    def complete_rows(self, columns: Iterable[str]) -> tuple[float, float]:
        """Return how many rows miss none of these columns, and the noise in that number: 0 if it is public.

        The first array of the first block counts them. The count is cut at the public number of rows: that
        is nearer the truth, whatever the truth is.
        """
        if self.rows is not None and not any(self.schema[name].missing for name in columns):
            return float(self.rows), 0.0
        count = float(self.sums[0][0][0])
        return count if self.rows is None else min(count, float(self.rows)), self.noise[0][0]


@dataclass(frozen=True)
class AnalysisResult:
    """What an analysis makes of noisy sums: estimates, and a model where there is more to it than numbers.

    A model says how it is shown, and has `predict` or what else it is good for; `Release.model` hands it on.
    """

    estimates: Sequence[Estimate]
    model: Shown | None = None


@dataclass(frozen=True)
class ResumePoint:
    """A run that can be cut off: its name, and how many of its stages have begun, which stay paid for."""

    run: str
    stages: int


Conversation = Generator[Query, Answer, "AnalysisResult | Sequence[Estimate]"]


@dataclass(frozen=True, init=False)
class Analysis(ABC):
    """What is asked. It knows its sensitivity, its shape and its post-processing, and no data.

    Every analysis takes the keyword `where`: a condition such as "age >= 65 and sex = 'female'", in SQL's
    expression language (`cape.data.expressions`). Only rows for which it is true count. How many these are is
    private, so that its queries are those of a schema that is `open`.
    """

    kind: ClassVar[str]
    """What study files call it."""
    example: ClassVar[dict[str, Any]]
    """Its other keys in a study file, about columns age and chol (numbers), sex and disease (of two values).

    What it asks here is small: audits and tests take every registered analysis through all of cape by it.
    """
    decisive: ClassVar[int] = -1
    """Which of its stages pays for `query`, the one that decides how large its noise is: plans go by it."""
    whole: ClassVar[bool] = False
    """Whether estimates count people, and are shown without digits after the point."""
    synthetic: ClassVar[bool] = False
    """Whether what it releases is to draw synthetic rows from: a site may forbid that."""
    slopes: ClassVar[bool] = False
    """Whether an estimate that is named after a column is what one unit more of it does."""
    clustered: ClassVar[bool] = False
    """Whether sampling errors allow for alike rows of a person; else results say that they do not."""

    where: str | None = field(default=None, kw_only=True, repr=False)
    laplace: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether its sums get Laplace noise: set by `under`. What suits L2 may not suit L1, so it may ask
    otherwise; every query that states `l1` holds under either noise."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        made = vars(cls).get("__init__")
        if made is not None and "where" not in inspect.signature(made).parameters:
            cls.__init__ = _taking_where(made)  # type: ignore[method-assign]

    def _set(self, **fields: Any) -> None:
        """Set fields of a frozen analysis: for constructors that check or convert their arguments."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def changed(self, **fields: Any) -> Self:
        """Return it with other fields: for smaller questions, whose arguments are parts of valid ones."""
        found = copy(self)
        found._set(**fields)
        return found

    def made(self, kind: type[A]) -> A:
        """Return an analysis of another class with the same fields, which that class has."""
        found = kind.__new__(kind)
        found._set(**{each.name: getattr(self, each.name) for each in fields(self)})
        return found

    def under(self, laplace: bool) -> Self:
        """Return it as it is asked under Laplace noise, or under Gaussian noise."""
        return self if laplace == self.laplace else self.changed(laplace=laplace)

    def over(self, schema: Schema) -> Analysis:
        """Return it as it is asked with noise over these columns: where they allow for a better question."""
        return self

    def sized(self, rows: int, mu: float) -> Self:
        """Return it as it is asked where so many rows are expected and a release costs this mu.

        From these public numbers it decides what was left to it, such as the number of steps.
        """
        return self

    def chosen(self, schema: Schema, noise: float, rows: int, neighbours: Neighbours) -> Self:
        """Return it with the way of asking that is expected to have the smaller error.

        `noise` is that of totals for a sensitivity of 1, paid with the whole share. Like `sized`, it goes by
        public facts alone.
        """
        return self

    def exactly(self) -> Analysis:
        """Return it as it is asked where there is no noise, and stages cost nothing."""
        return self

    @property
    def sampling(self) -> float:
        """The probability with which each row takes part in each stage, drawn in secret at the site."""
        return 1.0

    @abstractmethod
    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        """Return the sums that it needs. The docstring of each analysis proves its sensitivity."""

    @abstractmethod
    def finish(self, answer: Answer) -> AnalysisResult | Sequence[Estimate]:
        """Turn noisy sums into estimates: post-processing, which costs no privacy."""

    def converse(
        self, schema: Schema, neighbours: Neighbours, terms: str
    ) -> tuple[ResumePoint | None, Conversation]:
        """Return the conversation, and which run it goes on with if it can be cut off and resumed.

        `terms` are what a resumed run must have in common with the one that was cut off: budget, share,
        scheme and parties.
        """
        return None, self.conduct(schema, neighbours)

    def require_extras(self) -> None:  # noqa: B027
        """Raise `MissingExtra` if its result could not be used here; whoever asks calls it before paying."""

    def stages(self) -> tuple[float, ...]:
        """Return how the share is divided among the queries that are asked one after the other."""
        return (1.0,)

    def effort(self, schema: Schema, results: Sequence[int]) -> float:
        """Return a bound on the seconds of CPU that `conduct` takes to its next query, given such results.

        `results` has the size of the result of each earlier stage. The bound itself is computed at once: a
        site lets a question that would take long wait for approval (`cape.site.decide.decide`). By default
        the first query and `query` take no more than a second, whatever the arguments are, and after each
        stage a matrix with as many entries as its result is decomposed a few times.
        """
        return sum((4e-4 + 1e-5 * size + 8e-8 * size * math.sqrt(size) for size in results), 0.0)

    def conduct(self, schema: Schema, neighbours: Neighbours) -> Conversation:
        """Ask, and ask again once the answer is there: yields as many queries as there are stages.

        An analysis with several stages overrides this; its `query` is then that of the stage `decisive`.
        """
        answer = yield self.query(schema, neighbours)
        return self.finish(answer)

    def expected(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return, per label, the privacy error that this noise in the sums would leave, without any data.

        The sums of `rows` typical rows (`cape.blocks.typical`) are finished as released ones would be.
        """
        estimates = self._typical(schema, noise, rows, neighbours)
        return dict(zip(estimates.labels, estimates.privacy.tolist(), strict=True))

    def between(self, schema: Schema) -> Mapping[str, float]:
        """Return, per label, how far a number between whole ones may be off, whatever the noise."""
        return {}

    def drawn(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> dict[str, float]:
        """Return, per label, the sampling error of typical rows; 0 where there is none."""
        estimates = self._typical(schema, noise, rows, neighbours)
        return dict(zip(estimates.labels, estimates.sampling.tolist(), strict=True))

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return, per label, half the width of all values that are possible, where there are such bounds.

        A slope is at most as large as if its column explained the target alone: as many SDs of the target
        for one SD of the column, or log-odds that separate its two values almost completely.
        """
        target, features = getattr(self, "target", None), getattr(self, "features", ())
        if self.slopes and target is not None:
            return steepest(schema, target, features)
        if type(self).expected is not Analysis.expected:
            return {}
        estimates = self._typical(schema, noise, rows, neighbours)
        halves = (estimates.within[1] - estimates.within[0]) / 2
        return {k: half for k, half in zip(estimates.labels, halves.tolist(), strict=True) if half < np.inf}

    def outlook(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Sequence[Table]:
        """Return what a plan shows besides the noise of each number, from typical rows."""
        return ()

    def smaller(self, schema: Schema) -> Iterator[Analysis]:
        """Yield smaller questions of the same kind, the largest first: fewer columns or features."""
        for name in ("columns", "features"):
            held = getattr(self, name, ())
            for many in range(len(held) - 1, getattr(self, "least", 1) - 1, -1):
                yield self.changed(**{name: held[:many]})

    def typical(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Answer:
        """Return the sums of `rows` typical rows, to be finished as if they had this noise."""
        return Answer(
            tuple(block.typical(schema, rows) for block in self.query(schema, neighbours).blocks),
            tuple(tuple(each) for each in noise),
            rows if neighbours == "replace-one" and not schema.open else None,
            schema,
        )

    def _typical(self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours) -> Estimates:
        answer = self.typical(schema, noise, rows, neighbours)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooNoisyWarning)
            found = self.finish(answer)
        return Estimates.of(found.estimates if isinstance(found, AnalysisResult) else found)

    @property
    def follows(self) -> int | None:
        """The number of an earlier analysis of its study, whose model it needs; None if it stands alone."""
        return None

    def told(self, analysis: Analysis, model: Any = None) -> Analysis:
        """Return it with the analysis that it follows and, once that is released, the model: public numbers.

        A site is told the model by whoever asks: what it costs must not depend on it.
        """
        return self

    @abstractmethod
    def describe(self) -> str:
        """Return one line that an ethics board can read, without `where`."""

    @property
    def sentence(self) -> str:
        """One line that an ethics board can read."""
        return self.describe() + (f", where {self.where}" if self.where else "")

    def keys(self) -> dict[str, Any]:
        """Return what a study file would say, besides kind and `where`."""
        own = {key: value for key, value in vars(self).items() if key not in ("where", "laplace")}
        return {key: value for key, value in own.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return what a study file would say."""
        return {"kind": self.kind, **self.keys(), **({"where": self.where} if self.where else {})}

    def tables(self, release: Release) -> Sequence[Table]:
        """Return the tables that show a release: its model's, or estimates with their errors."""
        model: Shown | None = release.model
        if model is not None:
            return model.tables()
        return [listed(release.estimates, release.title, most=0 if self.whole else None)]

    def figures(self, release: Release) -> Sequence[Figure]:
        """Return the figures that show a release: its model's, or estimates as dots with intervals."""
        model: Shown | None = release.model
        if model is not None:
            return model.figures()
        marks, units = dots(release.estimates, release.title), self.units(release.schema)
        if units is not None and len(marks) > 1:
            return [to_scale(marks, units)]
        return [Figure((Intervals(marks),), DOTS)] if marks else []

    def files(self, release: Release) -> Mapping[str, str]:
        """Return files that go with a release, by name: `cape run --out` writes them beside the report."""
        return {}

    def notes(self, release: Release) -> Sequence[str]:
        """Return what follows from a release besides, or should be known of it, in sentences."""
        model: Shown | None = release.model
        return () if model is None else model.notes()

    def findings(self, release: Release) -> Sequence[str]:
        """Return the main numbers of a release in words."""
        model: Shown | None = release.model
        return findings(self.tables(release)) if model is None else model.findings()

    def title(self, label: str, schema: Schema) -> str:
        """Return how tables and figures name the estimate with this label."""
        return schema.title(label)

    def units(self, schema: Schema) -> Sequence[float] | None:
        """Return for each estimate what half the width of its columns' bounds is in its unit.

        None if all are in the same unit: counts, correlations.
        """
        return None


def check_where(where: Any) -> str:
    """Return a condition as text; a schema parses it."""
    if not isinstance(where, str) or not where.strip():
        raise InvalidInput(f'where must be a condition such as "age >= 65", not {check.show(where)}')
    return where


def _taking_where(made: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of an analysis with the keyword `where` besides."""

    @functools.wraps(made)
    def construct(self: Analysis, *args: Any, where: str | None = None, **options: Any) -> None:
        made(self, *args, **options)
        if where is not None:
            self._set(where=check_where(where))

    signature = inspect.signature(made)
    parameters = list(signature.parameters.values())
    at = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_KEYWORD), len(parameters))
    parameters.insert(at, inspect.Parameter("where", inspect.Parameter.KEYWORD_ONLY, default=None))
    construct.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return construct
