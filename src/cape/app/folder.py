"""The folder of a study's results: it belongs to one study and never loses a release.

Claim. An analysis in `results.json` stays there, even if the process is killed at any moment.
Reason. A folder belongs to the study whose hash is in its `results.json`. Another study, and a second run of
the same study, get a folder of their own, unless nothing was released or spent in this one: so a study that
was corrected after it failed needs no other folder. A lock admits one process at a time. It writes each
release at once, as a whole file that atomically replaces the earlier one and contains everything that was in
it. What was asked of sites is in the record (`cape.coordinator.record`), which decides the same by itself.
Tested in tests/unit/app/test_folder.py and test_corrected.py, with the process killed.

The folder also remembers the budget: what earlier runs of `cape run` spent in it counts in the next.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import msgspec

from cape.app.results import Results
from cape.app.sites import which
from cape.core import files
from cape.core.errors import InvalidInput
from cape.show.plain import to_json
from cape.study import Study
from cape.study.document import document, hash_of

__all__ = ["RECORD", "RESULTS", "By", "ResultsFolder", "writable"]

RECORD = "record.jsonl"

RESULTS = "results.json"
By = Literal["run", "submit", "rehearsal"]
"""What made a folder: its results are never mixed with those of another."""


class ResultsFolder:
    """A folder that this process has locked, and what earlier runs left in it.

    Attributes:
        released: the analyses in it, by number, as in `results.json`.
        spent: the budget share that they and failed analyses took.
    """

    def __init__(self, path: Path, study: Study, scheme: str, by: By) -> None:
        self.path = path
        self._owner = {"hash": hash_of(document(study) | {"scheme": scheme}), "by": by}
        self._report: Path | None = None
        self._written: dict[int, list[Path]] = {}
        writable(path)
        self._lock = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = _read(path / RESULTS)
        except BlockingIOError:
            self.close()
            raise InvalidInput(f"--out: {path} is in use by another run") from None
        except BaseException:
            self.close()
            raise
        self.free = found is None
        self.mine = found is not None and found.owner == self._owner
        self.unspent = found is not None and found.unspent and found.owner["by"] == by
        earlier = found if found is not None and self.mine else _NOTHING
        self.runs = earlier.runs
        self.released: dict[int, dict[str, Any]] = {each["number"]: each for each in earlier.analyses}
        self.spent = Fraction(earlier.budget.exact)

    @classmethod
    def find(cls, wanted: Path, study: Study, scheme: str, by: By, *, again: bool = False) -> ResultsFolder:
        """Return the first of DIR, DIR-2, DIR-3, ... that is free, unspent, or belongs to the study.

        With `again`, the first in which nothing was released or spent.
        """
        base = wanted if wanted.name.strip(".") else wanted.resolve()
        for number in itertools.count(1):
            folder = cls(base if number == 1 else Path(f"{base}-{number}"), study, scheme, by)
            done = again and (folder.released or folder.spent)
            if folder.free or folder.unspent or (folder.mine and not done):
                return folder
            folder.close()
        raise AssertionError("there is always another number")

    def __enter__(self) -> ResultsFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    def announcements(self, wanted: Path) -> Iterator[str]:
        """Yield what the user should know: results go to another folder, or take another study's place."""
        if self.path != wanted:
            yield f"{wanted} holds other results; these go to {self.path}."
        if self.unspent and not self.mine:
            yield (
                f"{self.path} held another study, or this one before it was changed. Nothing was spent on "
                "it; this one takes its place."
            )

    @property
    def scope(self) -> str:
        """A sentence on what the budget counts besides this run."""
        if not self.spent:
            return ""
        gave = f", which gave {which(sorted(self.released))}" if self.released else ""
        return f"This counts earlier runs in this folder{gave}."

    def keep(self, results: Results) -> list[Path]:
        """Write the results of this run so far and of earlier ones; return the files."""
        from cape.app.report import page

        report = self._report or self._free_report(results)
        try:
            files.replace(self.path / RESULTS, (to_json(self.to_dict(results)) + "\n").encode())
            files.replace(report, page(results).encode())
        except OSError as error:
            raise InvalidInput(f"--out: {self.path} cannot be written: {error.strerror}") from None
        self._report = report
        return [self.path / RESULTS, report, *self._beside(results)]

    def _beside(self, results: Results) -> list[Path]:
        """Write the files that go with releases, once each; return all of them."""
        kinds = [entry.analysis.kind for entry in results.study.analyses]
        for each in results.answered:
            entry = each.entry
            if entry.number in self._written:
                continue
            paths = []
            for name, text in entry.analysis.files(each.release).items():
                stem, dot, suffix = name.rpartition(".")
                mark = f"-{entry.number}" if kinds.count(entry.analysis.kind) > 1 else ""
                first = "rehearsal-" if results.study.rehearsal else ""
                path = self.path / f"{first}{stem}{mark}{dot}{suffix}"
                if results.study.rehearsal and suffix == "md":
                    text = f"> REHEARSAL: {results.study.warnings[0]}.\n\n{text}"
                try:
                    files.replace(path, text.encode())
                except OSError as error:
                    raise InvalidInput(f"--out: {path} cannot be written: {error.strerror}") from None
                paths.append(path)
            self._written[entry.number] = paths
        return [path for paths in self._written.values() for path in paths]

    def to_dict(self, results: Results) -> dict[str, Any]:
        """Return the results of all runs in this folder, as plain data."""
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
        """Return report.html, or a numbered one if that shows results that this one does not."""
        here = {each.entry.number for each in results.answered}
        for number in itertools.count(1):
            path = self.path / ("report.html" if number == 1 else f"report-{number}.html")
            if not path.exists() or (number == 1 and self._replaces_report(here)):
                return path
        raise AssertionError("there is always another number")

    def _replaces_report(self, here: set[int]) -> bool:
        return self.unspent or (self.mine and self.released.keys() <= here)


def writable(folder: Path) -> None:
    """Make the folder of --out; raise if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "permission denied")
    except OSError as error:
        raise InvalidInput(f"--out: {folder} cannot be written: {error.strerror}") from None


class _Budget(msgspec.Struct):
    exact: str


class _Kept(msgspec.Struct):
    """The part of `results.json` that a later run needs."""

    owner: dict[str, str]
    runs: list[dict[str, Any]]
    analyses: list[dict[str, Any]]
    budget: _Budget

    @property
    def unspent(self) -> bool:
        """Whether a run made this, and released and spent nothing."""
        return "by" in self.owner and not self.analyses and not Fraction(self.budget.exact)


_NOTHING = _Kept({}, [], [], _Budget("0"))


def _read(path: Path) -> _Kept | None:
    """Return the content of a results file, None if there is none; an unrecognised file has no owner."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"--out: {path} cannot be read: {error.strerror}") from None
    except ValueError:
        return _NOTHING
