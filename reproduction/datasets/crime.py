"""Communities and Crime (UCI 183): 1,994 communities of the United States, crime against 122 attributes."""

from __future__ import annotations

import csv
import io
import os
from typing import Literal

import numpy as np

from cape.core.errors import InvalidInput
from reproduction.datasets.dataset import Dataset, Origin
from reproduction.datasets.fetch import Source, Unavailable, read

__all__ = ["load_crime"]

_FILE = "communities.data"
ORIGIN = Origin(
    "Communities and Crime",
    "UCI Machine Learning Repository, https://doi.org/10.24432/C53W3X",
    "CC BY 4.0",
    "Redmond, M. (2002).",
)
_SOURCE = Source(
    "crime",
    "https://archive.ics.uci.edu/static/public/183/communities+and+crime.zip",
    {_FILE: "d90d85bd66bad9a00fa0ed6c15ac017b5966d528e55ba2940ad028d071353f95"},
    origin=ORIGIN,
)
_TARGET = "ViolentCrimesPerPop"
_CODES = ("state", "county", "community", "communityname", "fold")
_CENSUS = """
population householdsize racepctblack racePctWhite racePctAsian racePctHisp agePct12t21 agePct12t29
agePct16t24 agePct65up numbUrban pctUrban medIncome pctWWage pctWFarmSelf pctWInvInc pctWSocSec
pctWPubAsst pctWRetire medFamInc perCapInc whitePerCap blackPerCap indianPerCap AsianPerCap
OtherPerCap HispPerCap NumUnderPov PctPopUnderPov PctLess9thGrade PctNotHSGrad PctBSorMore
PctUnemployed PctEmploy PctEmplManu PctEmplProfServ PctOccupManu PctOccupMgmtProf MalePctDivorce
MalePctNevMarr FemalePctDiv TotalPctDiv PersPerFam PctFam2Par PctKids2Par PctYoungKids2Par
PctTeen2Par PctWorkMomYoungKids PctWorkMom NumIlleg PctIlleg NumImmig PctImmigRecent PctImmigRec5
PctImmigRec8 PctImmigRec10 PctRecentImmig PctRecImmig5 PctRecImmig8 PctRecImmig10 PctSpeakEnglOnly
PctNotSpeakEnglWell PctLargHouseFam PctLargHouseOccup PersPerOccupHous PersPerOwnOccHous
PersPerRentOccHous PctPersOwnOccup PctPersDenseHous PctHousLess3BR MedNumBR HousVacant PctHousOccup
PctHousOwnOcc PctVacantBoarded PctVacMore6Mos MedYrHousBuilt PctHousNoPhone PctWOFullPlumb
OwnOccLowQuart OwnOccMedVal OwnOccHiQuart RentLowQ RentMedian RentHighQ MedRent MedRentPctHousInc
MedOwnCostPctInc MedOwnCostPctIncNoMtg NumInShelters NumStreet PctForeignBorn PctBornSameState
PctSameHouse85 PctSameCity85 PctSameState85
"""
_POLICE = """
LemasSwornFT LemasSwFTPerPop LemasSwFTFieldOps LemasSwFTFieldPerPop LemasTotalReq LemasTotReqPerPop
PolicReqPerOffic PolicPerPop RacialMatchCommPol PctPolicWhite PctPolicBlack PctPolicHisp
PctPolicAsian PctPolicMinor OfficAssgnDrugUnits NumKindsDrugsSeiz PolicAveOTWorked
"""
_LAND = ["LandArea", "PopDens", "PctUsePubTrans"]
_POLICE_TOO = ["PolicCars", "PolicOperBudg", "LemasPctPolicOnPatr", "LemasGangUnitDeploy"]
_LAST = ["LemasPctOfficDrugUn", "PolicBudgPerPop", _TARGET]
_COLUMNS = (*_CODES, *_CENSUS.split(), *_POLICE.split(), *_LAND, *_POLICE_TOO, *_LAST)
# Complete in every row: without the police survey of 319 large communities, and OtherPerCap, empty once.
_PREDICTIVE = tuple(
    name for name in (*_CENSUS.split(), *_LAND, "LemasPctOfficDrugUn") if name != "OtherPerCap"
)
_BOUNDS = {"state": (1.0, 56.0), "fold": (1.0, 10.0)}  # codes of states, and ten folds


def load_crime(
    path: str | os.PathLike[str] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    columns: Literal["predictive", "paper"] = "predictive",
) -> Dataset:
    """Return violent crimes per person and what may predict them, for each community.

    Args:
        path: `communities.data`, a folder with it, or UCI's zip. By default fetched once, and kept.
        cache: where fetched files are kept; by default CAPE_DATA, else the user's cache folder.
        columns: "predictive" for the 99 attributes without an empty cell, "paper" for the 101 that the paper
            used: the same with the codes `state` and `fold`, which mean nothing as numbers.

    All attributes but the codes lie in [0, 1]: the source says so, and the bounds are taken from there.
    """
    if columns not in ("predictive", "paper"):
        raise InvalidInput(f"columns must be 'predictive' or 'paper', not {columns!r}")
    names = (("state", "fold") if columns == "paper" else ()) + _PREDICTIVE
    text = read(_SOURCE, _FILE, path, cache).decode("latin-1")
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if not rows or any(len(row) != len(_COLUMNS) for row in rows):
        raise Unavailable(f"crime: {_FILE} must have {len(_COLUMNS)} columns separated by commas in each row")
    places = [_COLUMNS.index(name) for name in (*names, _TARGET)]
    try:
        table = np.array([[float(row[place]) for place in places] for row in rows])
    except ValueError:
        raise Unavailable(
            f"crime: {_FILE} holds a cell that is no number, in a column that is complete"
        ) from None
    bounds = {name: _BOUNDS.get(name, (0.0, 1.0)) for name in (*names, _TARGET)}
    return Dataset("crime", names, table[:, :-1], table[:, -1], _TARGET, bounds, ORIGIN)
