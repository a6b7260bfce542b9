"""`python -m benchmarks [NAME ...] [--json]`: run the named measurements, or all of them.

A name stands for every measurement that starts with it (`noise` runs `noise.stream` and the rest). Prints
one JSON object per line as each is done, and exits with 1 if a bar does not hold.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys

import benchmarks
from benchmarks.harness import REGISTRY, Skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--json", action="store_true", help="accepted for clarity: it always is")
    arguments = parser.parse_args()
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if not module.name.startswith("_") and module.name != "harness":
            importlib.import_module(f"benchmarks.{module.name}")
    chosen = [
        name
        for name in sorted(REGISTRY)
        if not arguments.names
        or any(name == wanted or name.startswith(f"{wanted}.") for wanted in arguments.names)
    ]
    if not chosen:
        print(f"no such measurement; there are: {', '.join(sorted(REGISTRY))}", file=sys.stderr)
        return 2
    results = []
    for name in chosen:
        try:
            result = REGISTRY[name]()
        except Skip as reason:
            print(json.dumps({"name": name, "skipped": str(reason)}), flush=True)
            continue
        print(json.dumps(result.line(name)), flush=True)
        results.append(result)
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
