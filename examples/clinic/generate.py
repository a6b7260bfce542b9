"""Makes the rows of this example: `python generate.py`. Nobody in them has ever lived.

Five made-up clinics follow patients with high blood pressure, who were given a new treatment or the usual one
by lot. Treatment lowers pressure by 8 mmHg and the rate of death by a third; age, diabetes and smoking raise
the rate of death. The clinics differ in size, in their patients' age and in pressure.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

CLINICS = {"aspen": 900, "birch": 700, "cedar": 500, "elm": 400, "fir": 300}
FOLLOW_UP = 60.0  # months


def rows(seed: int, patients: int, place: int) -> list[str]:
    """Return the rows of one clinic as lines of CSV."""
    rng = np.random.default_rng([2026, seed])
    age = np.clip(rng.normal(61 + place, 11, patients), 30, 90).round(0)
    female = rng.random(patients) < 0.47
    bmi = np.clip(rng.gamma(30, 0.9, patients), 16, 50).round(1)
    diabetes = rng.random(patients) < 1 / (1 + np.exp(3.0 - 0.09 * (bmi - 20) - 0.012 * age))
    smoker = rng.random(patients) < 0.24
    treated = rng.random(patients) < 0.5
    sbp = 128 + 0.28 * (age - 60) + 6 * diabetes + 3 * smoker - 8 * treated + 1.5 * place
    sbp = np.clip(sbp + rng.normal(0, 14, patients), 90, 220).round(0)
    rate = 0.006 * np.exp(0.045 * (age - 60) + 0.5 * diabetes + 0.6 * smoker - 0.42 * treated)
    death = rng.exponential(1 / rate)
    left = np.minimum(rng.exponential(160, patients), FOLLOW_UP)
    months, died = np.minimum(death, left).round(1), death <= left
    no_bmi = rng.random(patients) < 0.04
    yes = np.array(["no", "yes"])
    columns = [
        age.astype(int),
        np.where(female, "female", "male"),
        np.where(no_bmi, "", bmi.astype(str)),
        yes[diabetes.astype(int)],
        yes[smoker.astype(int)],
        np.where(treated, "new", "usual"),
        sbp.astype(int),
        months,
        yes[died.astype(int)],
    ]
    return [",".join(map(str, row)) for row in zip(*columns, strict=True)]


if __name__ == "__main__":
    head = "age,sex,bmi,diabetes,smoker,treatment,sbp,months,died"
    for place, (name, patients) in enumerate(CLINICS.items()):
        lines = [head, *rows(place, patients, place - 2)]
        (Path(__file__).parent / "data" / f"{name}.csv").write_text("\n".join(lines) + "\n")
