"""Totals that nobody added up: whoever sends them gets a sentence, and sites are asked nothing odd."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cape.analyses.registry import KINDS
from cape.audit.world import SCHEMA, analysis_of
from cape.core.errors import CapeError, InvalidInput
from cape.data import Schema
from cape.data.schema import Category
from cape.engine.query import Analysis, Conversation
from cape.engine.schemes import SCHEMES
from cape.engine.session import AnalysisSession, StageResult
from cape.engine.stages import Setting, Stages
from cape.privacy import Budget
from tests.unit.engine.questions import Average

LONG = ("neural-network", "k-means")  # the same engine, and many stages
STAGED = [kind for kind in KINDS if len(analysis_of(kind).stages()) > 1 and kind not in LONG]
STAGED += ["mixed-model", "heterogeneity", "evaluate"]
PLACES = Schema({**dict(SCHEMA.items()), "site": Category(("a", "b", "c", "d", "e"), missing=False)})


def session(analysis: Analysis) -> AnalysisSession:
    scheme = SCHEMES["cape"]()
    setting = Setting(PLACES, Budget(1.0, 1e-6), scheme.parties(5, 1, None), "replace-one")
    return AnalysisSession(analysis, Stages.of(analysis, setting, scheme, 1.0))


def totals(size: int, how: str, seed: int) -> np.ndarray:
    """Totals of one size or of all, with or without a sign."""
    rng, most = np.random.default_rng(seed), 2**62
    found = {
        "zero": np.zeros(size),
        "most": np.full(size, most),
        "least": np.full(size, -most),
        "signs": most * rng.choice([-1, 1], size),
        "all sizes": rng.choice([-1, 1], size) * 2.0 ** rng.uniform(0, 62, size),
        "one": np.where(np.arange(size) == seed % size, most, 0),
    }[how]
    return found.astype(np.int64)


@pytest.mark.parametrize("kind", STAGED)
@pytest.mark.parametrize("how", ["zero", "most", "least", "signs", "all sizes", "one"])
def test_forged_totals_lead_to_a_query_of_the_same_price_or_to_a_sentence(kind: str, how: str) -> None:
    for seed, noise in enumerate((0.0, None)):
        at = session(analysis_of(kind))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                while not at.done:
                    size = at.calibrate()[0].size
                    at.tell(StageResult.of(totals(size, how, seed + at.stage), 5, 1000, noise))
        except CapeError as error:
            assert str(error)  # noqa: PT017


class Singular(Average):
    """Asks once, and cannot solve what it was told."""

    def conduct(self, schema, neighbours) -> Conversation:
        yield self.query(schema, neighbours)
        np.linalg.inv(np.zeros((2, 2)))


def test_what_cannot_be_solved_is_said_in_a_sentence() -> None:
    at = session(Singular("age"))
    with pytest.raises(InvalidInput, match="cannot go on from the total of stage 1"):
        at.tell(StageResult.of(np.zeros(at.calibrate()[0].size), 5, 1000))
