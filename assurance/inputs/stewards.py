"""What a steward has and types: studies that wait, and `cape site` on folders in which one file is bent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from assurance.inputs import cards, ledgers
from assurance.inputs.bend import NASTY, bend, bend_bytes, pick
from assurance.inputs.commands import play
from assurance.inputs.policies import policy
from assurance.inputs.studies import PASSWORD, written
from assurance.inputs.surface import Surface
from assurance.site_folder import CELL, OWN, Asking, make_folder
from cape.core.errors import CapeError
from cape.secagg import Identity
from cape.site.decide.preview import preview
from cape.site.keyring import public_text
from cape.site.persons import Person

__all__ = ["Held", "InTheWay", "Stewards"]

_OFFICE = Identity(b"an office that is trusted".ljust(32, b"."))
_FOLDERS = ("held", "approved", "refused")
_ANALYSES: list[dict[str, Any]] = [
    {"kind": "mean", "columns": ["age", "weight"], "share": 0.25},
    {"kind": "histogram", "column": "sex", "share": 0.5},
    {"kind": "count", "share": 0.1, "where": {"sex": "female"}},
]
_ODD = (
    b"[" * 200_000,
    b'{"coordinator":' * 50_000,
    b"",
    b"null",
    b"\xff\xfe",
    b'{"study": {}}',
    b"9" * 5000,
    b'"\\ud800"',
)


class InTheWay(Exception):
    """A file that is bent kept a steward from deciding on another study."""


def _study(analyses: list[Any], name: str = "lungs") -> dict[str, Any]:
    """Return a study as it waits."""
    study = Asking(_OFFICE, Identity(OWN).public).study(analyses[0]) | {"name": name, "analyses": analyses}
    return {"coordinator": public_text(_OFFICE.public), "study": study}


def held(random: np.random.Generator) -> bytes:
    """Return a file of a study that waits, bent."""
    way = random.random()
    right = _study([pick(random, _ANALYSES) for _ in range(int(random.integers(1, 3)))])
    if random.random() < 0.5:
        said = {"person": "ana", "desk": True, "at": "2026-01-01T00:00:00+00:00"}
        right |= {"since": said["at"], "approvals": [said | {"once": True, "lines": 3}]}
        right |= {"question": said | {"text": "why?"}, "refusal": said | {"text": "no"}}
    if way < 0.1:
        return bytes(pick(random, _ODD))
    if way < 0.8:
        nasty = [*NASTY, "\ud800", {"\udfff": 1}]
        for _ in range(int(random.integers(1, 3))):
            if random.random() < 0.8 and isinstance(right.get("study"), dict):
                right = right | {"study": bend(right["study"], random, nasty)}
            else:
                bent = bend(right, random, nasty)
                right = bent if isinstance(bent, dict) else {"study": bent}
    text = json.dumps(right, default=str, skipkeys=True).encode()  # keys of bent dicts may be anything
    return text if way < 0.75 else bend_bytes(text, random, other=text)


class Held(Surface):
    """One bent file among the studies: the others can be listed, approved and refused all the same."""

    secrets = (CELL,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._site, _ = make_folder(folder / "site", _OFFICE, epsilon=1.0)
        for name in _FOLDERS:
            (self._site.path / name).mkdir()

    def make(self, random: np.random.Generator) -> tuple[str, bytes]:
        """Return a folder, and the file."""
        return pick(random, _FOLDERS), held(random)

    def show(self, given: tuple[str, bytes]) -> bytes:
        """Return the file after its folder."""
        return given[0].encode() + b"\n" + given[1]

    def feed(self, given: tuple[str, bytes]) -> None:
        """Look at all, decide on the one that is right, then on the bent one, if it is a study still."""
        where, data = given
        path, approvals = self._site.path, self._site.approvals
        for name in _FOLDERS:
            for file in (path / name).iterdir():
                file.unlink()
        (path / where / "bent.json").write_bytes(data)
        (path / "held" / "right.json").write_text(json.dumps(_study(_ANALYSES[:1], "the right one")))
        told = approvals.unreadable()
        known = [*approvals.studies("waiting"), *approvals.studies("approved"), *approvals.studies("refused")]
        if len(told) + len(known) != 2:
            raise InTheWay(f"{len(told)} cannot be read, and {len(known)} can")
        try:
            approvals.approve(approvals.find("the right one"), Person("ana"))
            approvals.refuse(approvals.find("the right one", to="refuse"), Person("ana"))
        except CapeError as error:
            if not any(each.name == "the right one" and each.path.stem == "bent" for each in known):
                raise InTheWay(str(error)) from error
        for each in known:
            preview(self._site.policy, self._site.ledger, each.study, each.coordinator)
            if each.path.stem == "bent" and where != "refused":
                found = approvals.find(each.study_hash, to="refuse")
                approvals.refuse(found, Person("ana"))
        for sentence in told:
            raise _Told(sentence)


class _Told(CapeError):
    """A file that is no study was named."""


class Stewards(Surface):
    """`cape site check`, `approve`, `refuse`, `trust`, `ledger` and others, in this process."""

    secrets = (PASSWORD, CELL, OWN.hex())

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._right = folder / "right"
        make_folder(self._right, _OFFICE, epsilon=1.0)
        for name in _FOLDERS:
            (self._right / name).mkdir()
        (self._right / "held" / "right.json").write_text(json.dumps(_study(_ANALYSES[:1], "heart")))
        (folder / "books").mkdir()
        self._books = ledgers.Ledgers(folder / "books")

    def make(self, random: np.random.Generator) -> tuple[list[str], str, bytes]:
        """Return what is typed, which file is bent, and what is in it."""
        bends: dict[str, Any] = {
            "held/bent.json": held,
            "approved/bent.json": held,
            "refused/bent.json": held,
            "site.toml": lambda random: written(random, policy()),
            "ledger.sqlite": self._books.make,
            "new.card": cards.card,
            "identity.key": lambda random: bend_bytes(b"cape-private-ed25519:" + b"7c" * 32, random),
            "rows.csv": lambda random: bend_bytes((self._right / "rows.csv").read_bytes(), random),
        }
        file = pick(random, [*bends, "held/bent.json", "new.card"])
        typed = pick(
            random,
            [
                ["check"],
                ["approve"],
                ["approve", pick(random, ["heart", "lungs", "", "0", "a", "\udcff", "[bold]", "x" * 3000])],
                ["approve", "heart", "--once"],
                ["refuse", pick(random, ["heart", "lungs", "", "b", "office", "\x1b[2J"])],
                ["ask", "heart", pick(random, ["why?", "", "\udcff", "\x1b[2J", "[bold]", "x" * 3000])],
                ["trust", "new.card", *pick(random, [[], ["--coordinator"]])],
                ["ledger"],
                ["ledger", "--export"],
                ["verify"],
                ["ledger", "--study", pick(random, ["heart", "", "\udcff"]), "--coordinator", "office"],
                ["inbox"],
                ["status"],
                ["policy"],
                ["policy", "--set", pick(random, ["site.toml", "new.card", "rows.csv", "none"])],
                ["revoke", pick(random, ["office", "b", "", "\udcff", "x" * 3000])],
            ],
        )
        if typed[0] not in ("trust", "revoke") and "--export" not in typed and random.random() < 0.3:
            typed = [*typed, "--json"]
        if typed[0] in ("approve", "refuse") and random.random() < 0.2:
            typed = [*typed, "--coordinator", pick(random, ["office", "nobody", "", "\n"])]
        return ["site", *typed], file, bends[file](random)

    def show(self, given: tuple[list[str], str, bytes]) -> bytes:
        """Return the file after a line that says where it stood and what was typed."""
        return f"# {given[0]!r} {given[1]}\n".encode() + given[2]

    def feed(self, given: tuple[list[str], str, bytes]) -> None:
        """Make the folder anew, and run the command in it."""
        typed, file, data = given
        place = self.folder / "site"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._right, place)
        (place / "new.card").write_bytes(cards.card(np.random.default_rng(1)))
        (place / file).write_bytes(data)
        (place / file).chmod(0o600)
        play(place, typed, self.secrets)
