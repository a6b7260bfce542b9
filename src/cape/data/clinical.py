"""Clinical measures by the names that columns usually have: units, and round bounds that hold nearly all.

From textbooks, never from rows. `cape init --suggest` proposes the bounds, `cape check` the unit that a
column may be in where its cells lie beyond its bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Measure", "is_id", "is_sex", "measure_of", "rounded", "unit_in"]


@dataclass(frozen=True)
class Measure:
    """A measure in its usual unit.

    Attributes:
        names: spellings of a column's name in English, German and French, in lower case.
        others: other units, and what a number in each is multiplied by.
    """

    names: tuple[str, ...]
    unit: str
    low: float
    high: float
    others: Mapping[str, float] = field(default_factory=dict)

    def bounds(self, unit: str) -> tuple[float, float]:
        """Return the bounds in one of its units, rounded outwards to two digits."""
        factor = 1.0 if unit == self.unit else self.others[unit]
        return rounded(self.low / factor, up=False), rounded(self.high / factor, up=True)


def rounded(value: float, *, up: bool) -> float:
    """Return a value with two significant digits, rounded up or down."""
    if not value:
        return 0.0
    digits = 1 - math.floor(math.log10(abs(value)))
    scaled = round(value * 10.0**digits, 6)  # 3.0000000000000004 is 3
    return round((math.ceil(scaled) if up else math.floor(scaled)) / 10.0**digits, max(digits, 0))


_LIPID = {"mmol/l": 38.67}
_MEASURES = (
    Measure(("age", "alter", "patient age", "age at admission", "age at index", "age years", "alter jahre"),
            "years", 0, 100, {"months": 1 / 12, "days": 1 / 365.25}),
    Measure(("bmi", "body mass index", "imc", "kmi"), "kg/m2", 10, 70),
    Measure(("weight", "body weight", "wt", "gewicht", "koerpergewicht", "körpergewicht", "poids"),
            "kg", 30, 250, {"lb": 0.4536, "g": 0.001}),
    Measure(("height", "body height", "ht", "groesse", "größe", "koerpergroesse", "körpergröße", "taille"),
            "cm", 100, 220, {"m": 100.0, "in": 2.54, "mm": 0.1}),
    Measure(("waist", "waist circumference", "taillenumfang", "tour de taille"), "cm", 40, 200, {"in": 2.54}),
    Measure(("sbp", "systolic", "systolic bp", "systolic blood pressure", "sys bp", "bp sys", "rr sys",
             "rrsys", "trestbps", "pas", "tas"), "mmHg", 60, 260, {"kPa": 7.501, "cmHg": 10.0}),
    Measure(("dbp", "diastolic", "diastolic bp", "diastolic blood pressure", "dia bp", "bp dia",
             "rr dia", "rrdia", "pad", "tad"), "mmHg", 30, 160, {"kPa": 7.501, "cmHg": 10.0}),
    Measure(("map", "mean arterial pressure", "mad", "pam"), "mmHg", 30, 200, {"kPa": 7.501}),
    Measure(("heart rate", "hr", "pulse", "puls", "herzfrequenz", "hf", "fc", "thalach"), "1/min", 30, 220),
    Measure(("respiratory rate", "resp rate", "rr", "breathing rate", "atemfrequenz", "af", "fr"),
            "1/min", 4, 60),
    Measure(("temperature", "temp", "body temperature", "temperatur", "koerpertemperatur", "température"),
            "°C", 30, 43),
    Measure(("spo2", "sao2", "oxygen saturation", "o2 sat", "sauerstoffsaettigung", "sauerstoffsättigung"),
            "%", 50, 100, {"fraction": 100.0}),
    Measure(("chol", "cholesterol", "total cholesterol", "tc", "cholesterin", "gesamtcholesterin",
             "cholestérol"), "mg/dl", 50, 500, _LIPID),
    Measure(("ldl", "ldl c", "ldl cholesterol", "ldlc"), "mg/dl", 10, 350, _LIPID),
    Measure(("hdl", "hdl c", "hdl cholesterol", "hdlc"), "mg/dl", 5, 150, _LIPID),
    Measure(("triglycerides", "trig", "tg", "triglyzeride", "triglyceride", "triglycérides"),
            "mg/dl", 20, 1000, {"mmol/l": 88.57}),
    Measure(("glucose", "glc", "blood glucose", "fasting glucose", "fpg", "blutzucker", "bz", "glukose",
             "glycémie", "glycemie"), "mg/dl", 20, 600, {"mmol/l": 18.02}),
    Measure(("hba1c", "hb a1c", "a1c", "glycated haemoglobin"), "%", 3, 18, {"fraction": 100.0}),
    Measure(("creatinine", "crea", "creat", "scr", "serum creatinine", "kreatinin", "krea", "créatinine"),
            "mg/dl", 0.1, 15, {"µmol/l": 1 / 88.42}),
    Measure(("egfr", "gfr", "dfg", "egfr ckd epi"), "ml/min/1.73m2", 0, 150),
    Measure(("urea", "harnstoff", "urée", "uree"), "mg/dl", 2, 300, {"mmol/l": 6.006}),
    Measure(("bun", "blood urea nitrogen"), "mg/dl", 1, 150, {"mmol/l": 2.801}),
    Measure(("uric acid", "urate", "harnsaeure", "harnsäure"), "mg/dl", 1, 20, {"µmol/l": 1 / 59.48}),
    Measure(("haemoglobin", "hemoglobin", "hb", "hgb", "hämoglobin", "haemoglobin g dl"),
            "g/dl", 3, 22, {"g/l": 0.1, "mmol/l": 1.611}),
    Measure(("haematocrit", "hematocrit", "hct", "hkt", "hämatokrit"), "%", 10, 70, {"fraction": 100.0}),
    Measure(("wbc", "white blood cells", "leukocytes", "leukozyten", "leuko", "leucocytes", "gb"),
            "10^9/l", 0, 50, {"/µl": 0.001}),
    Measure(("platelets", "plt", "thrombocytes", "thrombozyten", "thrombo", "plaquettes"),
            "10^9/l", 0, 1000, {"/µl": 0.001}),
    Measure(("crp", "c reactive protein", "hscrp", "hs crp"), "mg/l", 0, 300, {"mg/dl": 10.0}),
    Measure(("procalcitonin", "pct"), "ng/ml", 0, 100),
    Measure(("lactate", "laktat"), "mmol/l", 0, 20, {"mg/dl": 0.111}),
    Measure(("sodium", "na", "natrium"), "mmol/l", 110, 170),
    Measure(("potassium", "k", "kalium"), "mmol/l", 2, 8),
    Measure(("calcium", "ca", "kalzium"), "mmol/l", 1, 4, {"mg/dl": 0.2495}),
    Measure(("albumin", "alb", "albumine"), "g/l", 10, 60, {"g/dl": 10.0}),
    Measure(("bilirubin", "bili", "total bilirubin", "bilirubine"), "mg/dl", 0, 30, {"µmol/l": 1 / 17.1}),
    Measure(("alt", "alat", "gpt", "sgpt"), "U/l", 0, 1000),
    Measure(("ast", "asat", "got", "sgot"), "U/l", 0, 1000),
    Measure(("inr",), "1", 0.5, 10),
    Measure(("troponin", "hs troponin", "hstnt", "tnt", "tni"), "ng/l", 0, 10000, {"µg/l": 1000.0}),
    Measure(("nt probnp", "ntprobnp"), "ng/l", 0, 35000),
    Measure(("ejection fraction", "lvef", "ef"), "%", 5, 80, {"fraction": 100.0}),
    Measure(("los", "length of stay", "hospital days", "days in hospital", "liegedauer", "verweildauer",
             "durée de séjour", "duree sejour"), "days", 0, 90, {"hours": 1 / 24}),
    Measure(("apgar", "apgar5"), "points", 0, 10),
    Measure(("gcs", "glasgow coma scale"), "points", 3, 15),
    Measure(("nihss",), "points", 0, 42),
    Measure(("pack years", "packyears"), "pack-years", 0, 100),
)  # fmt: skip

_BY_NAME = {name.casefold(): measure for measure in _MEASURES for name in measure.names}
_SPLIT = re.compile(r"[\W_]+")
_SPELT = {
    "mgdl": "mg/dl", "mg dl": "mg/dl", "mmol": "mmol/l", "mmoll": "mmol/l", "mmol l": "mmol/l", "kg": "kg",
    "lb": "lb", "lbs": "lb", "cm": "cm", "m": "m", "mm": "mm", "in": "in", "inch": "in", "years": "years",
    "yrs": "years", "y": "years", "jahre": "years", "months": "months", "monate": "months", "days": "days",
    "tage": "days", "hours": "hours", "h": "hours", "mmhg": "mmHg", "umol": "µmol/l", "umoll": "µmol/l",
    "umol l": "µmol/l", "µmol l": "µmol/l", "µmol": "µmol/l", "gdl": "g/dl", "g dl": "g/dl", "gl": "g/l",
    "g l": "g/l", "mgl": "mg/l", "mg l": "mg/l", "c": "°C", "celsius": "°C", "percent": "%", "pct": "%",
    "bpm": "1/min", "kg m2": "kg/m2", "kgm2": "kg/m2",
}  # fmt: skip
_UNITS = {spelling.casefold(): unit for spelling, unit in _SPELT.items()}
_IDS = re.compile(
    r"(?:(?:patient|pat|person|subject|participant|proband|case|fall|encounter|record)"
    r" ?(?:id|nr|no|num|number|nummer|code|key|identifier)"
    r"|medical record number|id|pid|mrn|pseudonym|patient|person|ipp|nip|subjid|usubjid)"
)
_SEXES = {"sex", "gender", "geschlecht", "sexe", "genre"}


def measure_of(name: str) -> tuple[Measure, str] | None:
    """Return the measure that a column's name stands for, and the unit in it or the usual one."""
    words = _words(name)
    for cut in range(len(words), 0, -1):
        measure = _BY_NAME.get(" ".join(words[:cut]))
        if measure is None:
            continue
        unit = _UNITS.get(" ".join(words[cut:]), measure.unit) if cut < len(words) else measure.unit
        return measure, unit if unit in measure.others else measure.unit
    return None


def unit_in(name: str, low: float, high: float) -> Mapping[str, float]:
    """Return the factors into the bounds' unit that are known for a column, by the unit they come from."""
    found = measure_of(name)
    if found is None:
        return {}
    measure = found[0]
    units = {measure.unit: 1.0, **measure.others}
    # The bounds are in the unit whose own bounds are most like them.
    own = min(units, key=lambda unit: _apart(measure.bounds(unit), (low, high)))
    return {unit: factor / units[own] for unit, factor in units.items() if unit != own}


def _apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return how far the upper bounds are apart, as a ratio."""
    high, wanted = max(one[1], 1e-9), max(other[1], 1e-9)
    return max(high / wanted, wanted / high)


def is_id(name: str) -> bool:
    """Return whether a column's name is that of an identifier of persons or cases."""
    return _IDS.fullmatch(" ".join(_words(name))) is not None


def is_sex(name: str) -> bool:
    """Return whether a column's name is that of a person's sex."""
    return " ".join(_words(name)) in _SEXES


def _words(name: str) -> list[str]:
    """Return a name's words in lower case: patientId, Patient_ID and "patient id" are the same."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [word for word in _SPLIT.split(spaced.casefold()) if word]
