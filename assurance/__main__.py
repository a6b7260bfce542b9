"""`python -m assurance [PART]`: all checks or one; results as JSON in assurance-out, a page made of them."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from assurance import results
from assurance.results import Result

Part = Callable[[argparse.Namespace], list[Result]]


def _seed(given: argparse.Namespace) -> int:
    return 1 if given.seed is None else int(given.seed)


def _fuzz(given: argparse.Namespace) -> list[Result]:
    from assurance.fuzz import fuzz

    return fuzz(
        given.inputs,
        _seed(given),
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

    return [soak(given.minutes, _seed(given))]


def _kills(given: argparse.Namespace) -> list[Result]:
    from assurance.kills import kills

    return [kills(given.kills, _seed(given))]


def _supply(given: argparse.Namespace) -> list[Result]:
    from assurance.supply import supply

    return supply()


def _edge(given: argparse.Namespace) -> list[Result]:
    from assurance.edge import edge

    return edge(lambda attack: print(f"trying: {attack}", file=sys.stderr, flush=True))


def _attacks(given: argparse.Namespace) -> list[Result]:
    from assurance.attacks.play import play

    return play(lambda attack: print(f"trying: {attack}", file=sys.stderr, flush=True))


def _mutants(given: argparse.Namespace) -> list[Result]:
    from assurance.mutants import Outcome, mutants

    def watch(outcome: Outcome) -> None:
        mutant = outcome.mutant
        said = f"{outcome.said} in {outcome.seconds:.1f} s" if outcome.killed else outcome.said.upper()
        print(f"{mutant.package}, {mutant.function}: {mutant.name}: {said}", file=sys.stderr, flush=True)

    # Without a seed every day has a sample of its own; those of consecutive days are all there are.
    seed = datetime.now(UTC).toordinal() if given.seed is None else given.seed
    return [mutants(given.sample, seed, given.only if given.part == "mutants" else None, watch)]


PARTS: dict[str, Part] = {
    "supply": _supply,
    "mutants": _mutants,
    "attacks": _attacks,
    "edge": _edge,
    "kills": _kills,
    "load": _load,
    "fuzz": _fuzz,
    "soak": _soak,
}


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Leave with status 2 and the name of the option where one cannot be right."""
    for name in ("inputs", "processes", "kills"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(given, name)}")
    if not given.minutes > 0:
        parser.error(f"--minutes must be above 0, not {given.minutes:g}")
    if given.sample is not None and (given.sample < 1 or given.part != "mutants"):
        parser.error("--sample must be at least 1, and is for mutants")
    for name, of in (("only", ("all", "fuzz", "mutants")), ("number", ("all", "fuzz"))):
        if getattr(given, name) is not None and given.part not in of:
            parser.error(f"--{name} is for {' and '.join(of[1:])}, not for {given.part}")
    if given.number is not None and (given.only is None or given.part != "fuzz" or given.number < 0):
        parser.error("--number needs the kind of input too: fuzz --only csv --number 1234")
    if given.only is None or given.part == "mutants":
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
    parser.add_argument("--seed", type=int, help="fuzz, soak, kills, mutants: another seed, other inputs")
    parser.add_argument("--only", help="fuzz: one kind of input; mutants: a package, or a part of a name")
    parser.add_argument("--sample", type=int, help="mutants: so many of them; other ones each day")
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
            print(again(given.only, _seed(given), given.number, Path(folder)))
        return 0
    done: list[Result] = []
    for name in PARTS if given.part == "all" else [given.part]:
        found = PARTS[name](given)
        if given.part != "mutants" or (given.sample is None and given.only is None):
            results.save(name, found, given.out)  # the page tells of all mutants, or of none
        for result in found:
            print(json.dumps(asdict(result)) if given.json else result.line(), flush=True)
        done += found
    return {"pass": 0, "fail": 1, "skip": 3}[results.worst(done)]


if __name__ == "__main__":
    sys.exit(main())
