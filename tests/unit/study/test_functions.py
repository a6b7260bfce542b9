"""The page that puts DataSHIELD's and vantage6's functions beside ours: all that it shows is run."""

from __future__ import annotations

import re
import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.engine.query import Analysis
from cape.engine.result import Release
from tests.checkout import ROOT

PAGE = (ROOT / "docs" / "functions.md").read_text(encoding="utf-8")
NAMESPACE = """
computeWeightedMeans Boole abs asCharacter asDataMatrix asFactor asFactorSimple asInteger asList asLogical
asMatrix asNumeric assign auc boxPlot bp_standards c cbind changeRefGroup class colnames completeCases
contourPlot cor corTest cov dataFrame dataFrameFill dataFrameSort dataFrameSubset densityGrid dim dmtC2S
elspline exists exp forestplot gamlss getWGSR glm glmPredict glmSLMA glmSummary glmerSLMA heatmapPlot hetcor
histogram igb_standards isNA isValid kurtosis length levels lexis list listClientsideFunctions
listDisclosureSettings listOpals listServersideFunctions lmerSLMA log look ls lspline make matrix matrixDet
matrixDet.report matrixDiag matrixDimnames matrixInvert matrixMult matrixTranspose mean meanByClass meanSdGp
merge message metadata mice names ns numNA qlspline quantileMean rBinom rNorm rPois rUnif ranksSecure rbind
reShape recodeLevels recodeValues rep replaceNA rm rowColCalc sample scatterPlot seq setDefaultOpals setSeed
skewness sqrt subset subsetByClass summary table table1D table2D tapply tapply.assign testObjExists unList
unique var vectorCalc
"""  # what dsBaseClient 6.3.4 exports, each but the first after its prefix
EXPORTED = NAMESPACE.split()


def rows() -> list[list[str]]:
    """The cells of every row of a table, without heads."""
    lines = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    return [[cell.strip(" |") for cell in line] for line in lines]


def calls() -> list[str]:
    """Every call on the page, once."""
    found = [code for row in rows() for cell in row[1:] for code in re.findall(r"`([^`]+)`", cell)]
    return list(dict.fromkeys(code for code in found if code.startswith(("cape.", "released("))))


def frame(many: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    age, years = rng.uniform(20, 88, many), rng.exponential(6, many)
    sbp = 100 + 0.5 * age + rng.normal(0, 12, many)
    return pl.DataFrame(
        {
            "age": age,
            "sbp": sbp,
            "crp": rng.lognormal(0.5, 1.0, many),
            "visits": rng.poisson(3, many),
            "sex": rng.choice(["female", "male"], many),
            "ill": np.where(rng.random(many) < age / 120, "yes", "no"),
            "stage": rng.choice(["I", "II", "III"], many),
            "years": np.minimum(years, 12),
            "died": np.where(years < 12, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def consortium() -> cape.Consortium:
    schema = cape.Schema(
        age=(18, 90),
        sbp=(60, 240),
        crp=(0, 100),
        visits=(0, 20),
        sex=["female", "male"],
        ill=["no", "yes"],
        stage=["I", "II", "III"],
        years=(0, 15),
        died=["no", "yes"],
        log_crp={"sql": "ln(crp + 1)"},
        over_50={"sql": "greatest(age - 50, 0)"},
        age_group={"sql": "cut(age, 40, 65)"},
        sbp_group={"sql": "cut(sbp, 120, 140)"},
    )
    sites = {name: frame(500, seed) for seed, name in enumerate("abcd")}
    return cape.Consortium(sites, schema, cape.Budget(100.0, 1e-6), colluding=1, scheme="pooled")


@pytest.mark.one_in(4, seconds=0.1)
@pytest.mark.parametrize("code", calls())
def test_what_the_page_shows_is_run(consortium, code):
    spent = [0.0]

    def released(analysis: Analysis) -> Release:
        spent[0] += 1
        return consortium.release(analysis, 0.004)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = eval(code, {"cape": cape, "released": released, "table": frame(5, 9)})
        if isinstance(found, Analysis):
            found = released(found)
            assert len(found.estimates) or found.model is not None
    assert found is not None
    assert len(found.estimates if isinstance(found, Release) else found) > 0 or found.model is not None
    assert spent[0] > 0


def test_every_function_that_dsbaseclient_exports_is_on_the_page_once():
    first = [name for row in rows() for name in re.findall(r"`(ds\.[\w.]+|computeWeightedMeans)`", row[0])]
    wanted = ["computeWeightedMeans", *(f"ds.{name}" for name in EXPORTED[1:])]
    assert sorted(first) == sorted(wanted)


def test_what_has_no_counterpart_says_why():
    for row in rows():
        said = row[1]
        shown = re.match(r"`(cape\.|released\()", said) or "[" in said or "`" in said
        assert shown or re.match(r"none: \w+ \w+", said), row
