"""The sums of a linear regression over a large Parquet table, against reading it and multiplying matrices."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.harness import Result, bench, paired_seconds
from cape.blocks import Design, Table, Tensors, Term
from cape.data import Schema

FILES, FILE_ROWS, FEATURES = 10, 1_000_000, 50
ROW_GROUP = 100_000
LOW, HIGH = 0.0, 100.0
NAMES = tuple(f"x{i}" for i in range(FEATURES))
TARGET = "y"
MOST_MEMORY = 1e9
BATCH_ROWS = 40_960

# In a process of its own, so that the peak is that of the sums and of what they import.
PEAK = """
import sys
from benchmarks.harness import peak_bytes
from benchmarks.regression_stream import ours
ours(sys.argv[1])
print(peak_bytes())
"""


@bench("regression.stream")
def stream() -> Result:
    """Time of exact first and second moments of 10 million x 51 as a multiple of numpy's; within 1 GB."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        source = f"{folder}/*.parquet"
        mine, reference = paired_seconds(lambda: ours(source), lambda: plain(source), repeat=3)
        peak = float(
            json.loads(
                subprocess.run(
                    [sys.executable, "-c", PEAK, source], check=True, capture_output=True, text=True
                ).stdout
            )
        )
        megabytes = round(sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6)
    detail = {
        "seconds": round(mine, 3),
        "numpy_seconds": round(reference, 3),
        "rows": FILES * FILE_ROWS,
        "peak_mb": round(peak / 1e6),
        "most_mb": round(MOST_MEMORY / 1e6),
        "file_mb": megabytes,
    }
    # A ratio that was bought with more memory does not count: it fails the bar.
    return Result(mine / reference if peak <= MOST_MEMORY else 1000.0, 2.0, "lower", detail=detail)


def write(folder: Path) -> None:
    """Write the table file by file: float64 readings that do not compress, some outside the bounds."""
    generator = np.random.default_rng(1)
    for i in range(FILES):
        columns = {name: generator.normal(50.0, 25.0, FILE_ROWS) for name in (*NAMES, TARGET)}
        pl.DataFrame(columns).write_parquet(
            folder / f"part-{i}.parquet", row_group_size=ROW_GROUP, compression="uncompressed"
        )


def ours(source: str) -> None:
    schema = Schema(dict.fromkeys((*NAMES, TARGET), (LOW, HIGH)))
    terms = (Term(0, (0, 1)), Term(0, (0, 0, 1)), Term(1), Term(1, (0, 1)), Term(2))
    Table("a", source, schema).sums([Tensors(Design(NAMES, TARGET), terms)])


def plain(source: str) -> None:
    """Read the table batch by batch and add up x'x, y among the columns: no bounds, no grid, no rounding."""
    total = np.zeros((FEATURES + 1, FEATURES + 1))
    scan = pl.scan_parquet(source).select(*NAMES, TARGET)
    for batch in scan.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True, engine="streaming"):
        x = batch.to_numpy()
        total += x.T @ x
