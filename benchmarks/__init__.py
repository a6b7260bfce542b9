"""Measurements with a bar: each beside its reference, in one run, as a ratio where that makes sense."""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # bars are for one thread; it counts only before numpy loads
