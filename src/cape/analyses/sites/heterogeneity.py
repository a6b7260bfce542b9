"""Whether sites differ: a quantity of each site, and all of them brought together, in one release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cape.analyses.parse_analysis import build_of
from cape.analyses.sites.by_site import KINDS, BySite, by_site
from cape.analyses.sites.heterogeneity_estimate import quantity
from cape.analyses.sites.heterogeneity_model import HeterogeneityModel
from cape.blocks.terms import parse
from cape.core import check
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.data.schema import SITE
from cape.engine.query import Analysis, AnalysisResult, Answer, Neighbours, Noise, Query
from cape.stats.estimates import warn_of_unknown

__all__ = ["Heterogeneity"]


@dataclass(frozen=True, init=False)
class Heterogeneity(Analysis):
    """Whether sites differ in a mean, a share, a difference of groups or a coefficient, and by how much.

    >>> Heterogeneity(Mean("sbp")), Heterogeneity(Difference("sbp", by="diabetes"))
    >>> Heterogeneity(LinearRegression("sbp", ["age", "sex"]))

    The quantity at each site with its interval; Cochran's Q with a P value that counts the noise; tau², the
    variance between sites, and I²; the effect that all sites share, if they agree (fixed effect), the mean
    of all sites that there could be (random effects), the interval of the effect at a new site (prediction),
    and the mean without each site in turn. `synthesis` says how each is found.

    *What becomes public.* One release holds numbers of each site by itself. A row touches the sums of its
    own site only, so the noise that hides a person is that of any other release; but each site's mean is
    hidden by noise of that one release alone, and everyone sees it. Sites that collude take their own rows
    and noise off, and know no more of another site than its released numbers, with the noise that the
    guarantee counts on. A site that does not want to be told apart writes `by_site = false` in its policy,
    and refuses.

    **Sensitivity** 2 sqrt(columns) of means and differences of means under replace-one, sqrt(2 columns)
    under add-remove; sqrt(2 columns) and sqrt(columns) of shares; that of a linear regression's second
    moments for coefficients. Proof in `by_site`.

    Args:
        of: a `Mean`, a `Proportion` of columns with two categories, a `Difference` between two groups, an
            `Association` of two columns with two categories (the risk difference), or a `LinearRegression`
            (each coefficient but the intercept, with classical errors).
        by: the column that tells sites apart.
    """

    kind: ClassVar[str] = "heterogeneity"
    example: ClassVar[dict[str, Any]] = {"of": {"kind": "mean", "columns": ["chol"]}, "by": "sex"}
    of: Analysis
    by: str

    def __init__(self, of: Analysis | Mapping[str, Any], by: str = SITE) -> None:
        if not isinstance(by, str):
            raise InvalidInput(f"by must be a column's name, not {check.show(by)}")
        kind = of.get("kind") if isinstance(of, Mapping) else None
        if kind is not None and (not isinstance(kind, str) or kind not in KINDS):
            raise InvalidInput(f"of must be one of {', '.join(KINDS)}, not {check.show(kind)}")
        asked = build_of(KINDS, of) if isinstance(of, Mapping) else of
        if type(asked) not in KINDS.values():
            shown = check.show(of) if not isinstance(of, Analysis) else of.kind
            raise InvalidInput(f"of must be one of {', '.join(KINDS)}, as in Mean('age'), not {shown}")
        if asked.where is not None:
            raise InvalidInput("of must not have a condition of its own: write where beside it")
        if isinstance(asked, KINDS["linear-regression"]) and not getattr(asked, "intercept", True):
            raise InvalidInput("a regression that is compared between sites must have an intercept")
        if not isinstance(asked, KINDS["difference"]) and getattr(asked, "by", None) is not None:
            raise InvalidInput(
                f"{asked.kind} must not have groups here: leave out its by, or ask for a difference"
            )
        self._set(of=asked, by=by)
        if by in _columns(asked):
            raise InvalidInput(f"column {by!r} tells sites apart, and cannot be compared between them")

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:
        return self._asked.query(schema, neighbours)

    def finish(self, answer: Answer) -> AnalysisResult:
        quantities = [quantity(found) for found in self._asked.read(answer)]
        estimates = [estimate for each in quantities for estimate in each.estimates]
        warn_of_unknown(estimates)
        model = HeterogeneityModel(self.by, answer.schema, tuple(quantities), self.slopes)
        return AnalysisResult(estimates, model)

    def limits(
        self, schema: Schema, noise: Noise, rows: int, neighbours: Neighbours = "replace-one"
    ) -> dict[str, float]:
        """Return the widest intervals; not of I², of which nothing is known where typical sites all agree."""
        found = super().limits(schema, noise, rows, neighbours)
        return {label: half for label, half in found.items() if not label.endswith("| I²")}

    def describe(self) -> str:
        sites = "sites" if self.by == SITE else f"values of {self.by}"
        return f"differences between {sites}, whose own numbers become public: {self.of.describe()}"

    def keys(self) -> dict[str, Any]:
        return {"of": self.of.to_dict(), "by": self.by}

    @property
    def slopes(self) -> bool:  # type: ignore[override]
        """Whether estimates are coefficients, which are shown per what the schema says."""
        return self.of.slopes

    @property
    def _asked(self) -> BySite:
        return by_site(self.of, self.by)


def _columns(of: Analysis) -> Iterator[str]:
    """Yield the columns that an analysis names."""
    yield from getattr(of, "columns", ())
    for term in getattr(of, "features", ()):
        yield from parse(term).columns
    for name in ("target", "by"):
        if getattr(of, name, None) is not None:
            yield getattr(of, name)
