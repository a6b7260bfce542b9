"""The folder of a study's results: it belongs to one study, and loses nothing that was released.

Claim. An analysis that stands in `results.json` stays there, also when the process is killed at any moment.
Reason. A folder belongs to the study whose hash stands in its `results.json`. Another study, and a study that
is run again, get a folder of their own. One process at a time holds a folder, by a lock. It writes each
release at once, as a whole file that replaces the earlier one and holds all that stood there.
Tested in tests/cli/test_folder.py, with the process killed.

The folder is the memory of the budget too: what earlier runs of `cape run` spent in it counts in the next.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import msgspec

from cape import files
from cape.cli.results import Results
from cape.cli.sites import which
from cape.errors import InvalidInput
from cape.show.plain import to_json
from cape.study import Study
from cape.study.document import document, hash_of

__all__ = ["RESULTS", "ResultsFolder", "writable"]

RESULTS = "results.json"


class ResultsFolder:
    """A folder that this process holds, and what earlier runs left in it.

    Attributes:
        released: the analyses that stand in it, by their number, as `results.json` has them.
        spent: what share of the budget they took, with what failed.
    """

    def __init__(self, path: Path, study: Study, scheme: str, by: Literal["run", "submit"]) -> None:
        self.path = path
        self._owner = {"hash": hash_of(document(study) | {"scheme": scheme}), "by": by}
        self._report: Path | None = None
        writable(path)
        self._lock = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = _read(path / RESULTS)
        except BlockingIOError:
            self.close()
            raise InvalidInput(f"--out: {path} is in use: is another run at work in it?") from None
        except BaseException:
            self.close()
            raise
        self.free = found is None
        self.mine = found is not None and found.owner == self._owner
        earlier = found if found is not None and self.mine else _NOTHING
        self.runs = earlier.runs
        self.released: dict[int, dict[str, Any]] = {each["number"]: each for each in earlier.analyses}
        self.spent = Fraction(earlier.budget.exact)

    @classmethod
    def find(
        cls, wanted: Path, study: Study, scheme: str, by: Literal["run", "submit"], *, again: bool = False
    ) -> ResultsFolder:
        """Return the first of DIR, DIR-2, DIR-3, ... that is free or belongs to the study.

        With `again`, the first in which nothing was released or spent.
        """
        base = wanted if wanted.name.strip(".") else wanted.resolve()
        for number in itertools.count(1):
            folder = cls(base if number == 1 else Path(f"{base}-{number}"), study, scheme, by)
            if folder.free or (folder.mine and not (again and (folder.released or folder.spent))):
                return folder
            folder.close()
        raise AssertionError("there is always another number")

    def __enter__(self) -> ResultsFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write to it."""
        os.close(self._lock)

    @property
    def scope(self) -> str:
        """What the budget of a run in this folder counts besides."""
        if not self.spent:
            return ""
        gave = f", which gave {which(sorted(self.released))}" if self.released else ""
        return f"This counts earlier runs in this folder{gave}."

    def keep(self, results: Results) -> list[Path]:
        """Write what this run has given so far, beside what earlier ones gave; return the files."""
        from cape.cli.report import page

        report = self._report or self._free_report(results)
        try:
            files.replace(self.path / RESULTS, (to_json(self.to_dict(results)) + "\n").encode())
            files.replace(report, page(results).encode())
        except OSError as error:
            raise InvalidInput(f"--out: {self.path} cannot be written: {error.strerror}") from None
        self._report = report
        return [self.path / RESULTS, report]

    def to_dict(self, results: Results) -> dict[str, Any]:
        """Return what all runs in this folder gave, as plain data."""
        told, number = results.to_dict(), len(self.runs) + 1
        here = {each["number"]: each | {"run": number} for each in told["analyses"]} | self.released
        analyses = [here[number] for number in sorted(here)]
        run = {"run": number, "finished": told["finished"], "error": told["error"]}
        return told | {
            "owner": self._owner,
            "runs": [*self.runs, run],
            "analyses": analyses,
            "sites": [
                site | {"took_part": [e["number"] for e in analyses if site["name"] in e["participants"]]}
                for site in told["sites"]
            ],
            "guarantee": results.guarantee.to_dict() if analyses else None,
            "budget": told["budget"] | {"exact": str(results.budget.spent)},
            "cost": {what: sum(each["cost"][what] for each in analyses) for what in ("bytes", "seconds")},
        }

    def _free_report(self, results: Results) -> Path:
        """Return report.html, or a numbered one if that holds what is not in this one."""
        here = {each.entry.number for each in results.answered}
        for number in itertools.count(1):
            path = self.path / ("report.html" if number == 1 else f"report-{number}.html")
            if not path.exists() or (number == 1 and self.mine and self.released.keys() <= here):
                return path
        raise AssertionError("there is always another number")


def writable(folder: Path) -> None:
    """Make the folder of --out, or raise."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "permission denied")
    except OSError as error:
        raise InvalidInput(f"--out: {folder} cannot be written: {error.strerror}") from None


class _Budget(msgspec.Struct):
    exact: str


class _Kept(msgspec.Struct):
    """What a later run needs to know of `results.json`."""

    owner: dict[str, str]
    runs: list[dict[str, Any]]
    analyses: list[dict[str, Any]]
    budget: _Budget


_NOTHING = _Kept({}, [], [], _Budget("0"))


def _read(path: Path) -> _Kept | None:
    """Return what stands in a file of results, None if there is none; what is not ours has no owner."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"--out: {path} cannot be read: {error.strerror}") from None
    except ValueError:
        return _NOTHING
