"""`python -m assurance [PART]`: all checks or one; results as JSON in assurance-out, a page made of them."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from assurance import results
from assurance.results import Result

Part = Callable[[argparse.Namespace], list[Result]]


def _fuzz(given: argparse.Namespace) -> list[Result]:
    from assurance.fuzz import fuzz

    return fuzz(
        given.inputs,
        given.seed,
        given.only,
        processes=given.processes,
        niceness=given.nice,
        out=given.out,
    )


def _load(given: argparse.Namespace) -> list[Result]:
    from assurance import load

    return [load.many_sites(), load.long_vectors(), load.many_releases(), load.long_release()]


def _soak(given: argparse.Namespace) -> list[Result]:
    from assurance.soak import soak

    return [soak(given.minutes, given.seed)]


def _kills(given: argparse.Namespace) -> list[Result]:
    from assurance.kills import kills

    return [kills(given.kills, given.seed)]


def _supply(given: argparse.Namespace) -> list[Result]:
    from assurance.supply import supply

    return supply()


PARTS: dict[str, Part] = {"supply": _supply, "kills": _kills, "load": _load, "fuzz": _fuzz, "soak": _soak}


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Leave with status 2 and the name of the option where one cannot be right."""
    for name in ("inputs", "processes", "kills"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(given, name)}")
    if not given.minutes > 0:
        parser.error(f"--minutes must be above 0, not {given.minutes:g}")
    for name in ("only", "number"):
        if getattr(given, name) is not None and given.part not in ("all", "fuzz"):
            parser.error(f"--{name} is for fuzz, not for {given.part}")
    if given.number is not None and (given.only is None or given.part != "fuzz" or given.number < 0):
        parser.error("--number needs the kind of input too: fuzz --only csv --number 1234")
    if given.only is None:
        return
    from assurance.inputs import NAMES, load

    try:
        load(given.only)
    except (ImportError, AttributeError, ValueError):
        parser.error(f"--only: there is no kind of input {given.only!r}; there are {', '.join(NAMES)}")


def main() -> int:
    """Run what was asked for; 0 if all is well, 1 if it failed, 2 for wrong use, 3 if a part was left out."""
    parser = argparse.ArgumentParser(prog="python -m assurance", description=__doc__)
    parser.add_argument("part", nargs="?", choices=["all", *PARTS, "page"], default="all")
    parser.add_argument("--out", type=Path, default=results.OUT, help="where results go")
    parser.add_argument("--inputs", type=int, default=100_000, help="fuzz: how many in all")
    parser.add_argument("--seed", type=int, default=1, help="fuzz, soak, kills: another seed, other inputs")
    parser.add_argument("--only", help="fuzz: one kind of input")
    parser.add_argument("--number", type=int, help="fuzz: this input alone, once more")
    parser.add_argument("--processes", type=int, default=2, help="fuzz: how many at once")
    parser.add_argument("--nice", type=int, default=0, help="fuzz: be nice to others on this machine")
    parser.add_argument("--minutes", type=float, default=10.0, help="soak: how long")
    parser.add_argument("--kills", type=int, default=200, help="kills: how many")
    parser.add_argument("--json", action="store_true", help="print results as JSON")
    given = parser.parse_args()
    _check(parser, given)
    if given.part == "page":
        from assurance.page import PAGE, write

        print(f"Written: {write(given.out, PAGE)}")
        return 0
    if given.part == "fuzz" and given.number is not None:
        from assurance.fuzz import again

        with tempfile.TemporaryDirectory() as folder:
            print(again(given.only, given.seed, given.number, Path(folder)))
        return 0
    done: list[Result] = []
    for name in PARTS if given.part == "all" else [given.part]:
        found = PARTS[name](given)
        results.save(name, found, given.out)
        for result in found:
            print(json.dumps(asdict(result)) if given.json else result.line(), flush=True)
        done += found
    return {"pass": 0, "fail": 1, "skip": 3}[results.worst(done)]


if __name__ == "__main__":
    sys.exit(main())
