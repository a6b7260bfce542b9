"""Turn the four raw UCI heart-disease files into one CSV per hospital, with words in place of codes.

    python examples/heart/prepare.py FOLDER_WITH_RAW_FILES

Reads processed.cleveland.data and the like, writes data/*.csv beside the study file. Each hospital would do
this for its own file: nothing here looks at more than one row.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

HOSPITALS = {"cleveland": "cleveland", "hungary": "hungarian", "zurich": "switzerland", "va": "va"}
COLUMNS = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"]
COLUMNS += ["slope", "ca", "thal", "num"]
PAIN = {1: "typical angina", 2: "atypical angina", 3: "non-anginal", 4: "asymptomatic"}


def translate(cells: list[str]) -> dict[str, object]:
    """Return one person's row in words. '?' is missing; so is a blood pressure or cholesterol of 0."""
    raw = {
        name: None if cell.strip() == "?" else float(cell) for name, cell in zip(COLUMNS, cells, strict=True)
    }
    words = {"sex": {0: "female", 1: "male"}, "exang": {0: "no", 1: "yes"}, "cp": PAIN}
    return {
        "age": raw["age"],
        "sex": words["sex"].get(raw["sex"]),
        "pain": words["cp"].get(raw["cp"]),
        "pressure": raw["trestbps"] or None,
        "chol": raw["chol"] or None,
        "rate": raw["thalach"],
        "exercise_angina": words["exang"].get(raw["exang"]),
        "depression": raw["oldpeak"],
        "disease": None if raw["num"] is None else ("yes" if raw["num"] > 0 else "no"),
    }


def main() -> None:
    """Write a file for each hospital."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    raw, target = Path(sys.argv[1]), Path(__file__).parent / "data"
    target.mkdir(exist_ok=True)
    for hospital, name in HOSPITALS.items():
        source = raw / f"processed.{name}.data"
        if not source.is_file():
            sys.exit(f"no file {source}; see examples/heart/README.md for where to get it")
        with source.open(newline="") as lines:
            people = [translate(cells) for cells in csv.reader(lines) if cells]
        with (target / f"{hospital}.csv").open("w", newline="") as out:
            writer = csv.DictWriter(out, list(people[0]))
            writer.writeheader()
            writer.writerows(people)
        print(f"{target / hospital}.csv")


if __name__ == "__main__":
    main()
