"""Whether code written for diffprivlib runs with `cape.sklearn`: by diffprivlib's own tests of its models.

The tests are in its source distribution, which is fetched into `.venv-peers` and never kept here. Imports and
`bounds` are renamed, and nothing else. They compare with a scikit-learn that still has `multi_class`, that of
`.venv-peers`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from benchmarks.harness import Result, Skip, bench

PEERS, VERSION = Path(".venv-peers").absolute(), "0.6.6"
MODELS = ("LinearRegression", "LogisticRegression", "KMeans", "PCA")
MORE = ("GaussianNB", "StandardScaler")
PYTEST = "-m pytest -q -rA -c /dev/null -p no:cacheprovider -p no:randomly --tb no --rootdir"
DOWNLOAD = "-m pip download --quiet --no-deps --no-binary diffprivlib --dest"
RENAMED = (
    (r"from diffprivlib\.models\.\w+ import", "from cape.sklearn import"),
    (r"from diffprivlib\.accountant import", "from cape.sklearn import"),
    (
        r"from diffprivlib\.utils import .*",
        "from sklearn.utils import check_random_state\n"
        "from cape import PrivacyLeakWarning, BudgetExceeded as BudgetError\n"
        "from cape import IgnoredParameterWarning as DiffprivlibCompatibilityWarning",
    ),
    (r"\bbounds=", "bounds_X="),
)
WHY = {
    "test_accountant": "expects a delta of 0; this model has Gaussian noise, which needs one above 0",
    "test_no_range": "expects a warning that bounds leak, where data_norm alone makes none necessary",
    "test_simple": "two predictions from 60 rows with seed 1: right for 23 of the seeds 0 to 29",
}


def tests(folder: Path) -> None:
    """Write the renamed tests into a folder."""
    held = PEERS / f"diffprivlib-{VERSION}.tar.gz"
    if not held.exists():
        command = [sys.executable, *DOWNLOAD.split(), str(PEERS), f"diffprivlib=={VERSION}"]
        fetched = subprocess.run(command, check=False)
        if fetched.returncode:
            raise Skip("the source distribution of diffprivlib could not be fetched")
    with tarfile.open(held) as archive:
        for name in (*MODELS, *MORE):
            member = archive.extractfile(f"diffprivlib-{VERSION}/tests/models/test_{name}.py")
            text = "" if member is None else member.read().decode()
            for old, new in RENAMED:
                text = re.sub(old, new, text)
            Path(folder, f"test_{name}.py").write_text(text)


@bench("sklearn.dropin")
def dropin() -> Result:
    """How many of diffprivlib's 55 tests of four models pass; in the detail, why others do not."""
    packages = next(iter(PEERS.glob("lib/python*/site-packages/sklearn")), None)
    if packages is None:
        raise Skip("diffprivlib is not installed: make .venv-peers/.bench")
    with tempfile.TemporaryDirectory() as made:
        older, folder = Path(made, "older"), Path(made, "tests")
        older.mkdir()
        folder.mkdir()
        tests(folder)
        for name in ("sklearn", "scikit_learn.libs"):
            (older / name).symlink_to(packages.parent / name)
        path = os.pathsep.join([str(older), str(Path("src").absolute())])
        told = subprocess.run(
            [sys.executable, *PYTEST.split(), str(folder), str(folder)],
            capture_output=True, check=False, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) \S*test_(\w+)\.py::\w+::(\w+)", told.stdout, re.M)
    passed = {(model, test) for how, model, test in found if how == "PASSED"}
    failed = sorted((model, test) for how, model, test in found if how != "PASSED")
    counts = {m: (sum(m == x for x, _ in passed), sum(m == x for _, x, _ in found)) for m in (*MODELS, *MORE)}
    detail = {
        "failed": {f"{model}.{test}": WHY.get(test, "") for model, test in failed if model in MODELS},
        **{model: f"{some} of {of}" for model, (some, of) in counts.items()},
    }
    value = float(sum(counts[model][0] for model in MODELS))
    return Result(value, 50.0, "higher", unit="tests", detail=detail)
