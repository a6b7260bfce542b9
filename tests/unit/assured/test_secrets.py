"""No log, warning, output or error holds a key, a seed, a share or a cell, with every logger at DEBUG.

The secrets are those of the real code: what it draws and derives is written down while it runs.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cape
from assurance.site_folder import CELL, make_folder
from cape.cli import main
from cape.core.errors import CapeError
from cape.noise import SecureStream, stream
from cape.secagg import Identity, Session, chain, keys, masks, shamir, site
from cape.secagg.keys import KeyPair
from cape.site import Grant

ENTRY = 731_948_151_623_421  # in every vector of the session
SHORTEST = 17  # bytes; the name of a run has 16, and is public
PROBE = bytes(32)  # a key that everyone knows

STUDY = """
[study]
name = "lungs"
[privacy]
epsilon = 2.0
delta = 1e-6
colluding = 1
min_sites = 2
[schema]
age = [18, 90]
sex = ["female", "male"]
[sites]
a = "a.csv"
b = "b.csv"
c = "c.csv"
[[analysis]]
kind = "mean"
columns = ["age"]
[[analysis]]
kind = "histogram"
column = "sex"
"""


class Secrets:
    """What was drawn, derived or shared."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.texts: set[str] = {CELL, CELL.replace(".", ","), str(ENTRY), str(-ENTRY), hex(ENTRY)}

    def keep(self, found: Any) -> Any:
        for each in found if isinstance(found, (list, tuple)) else [found]:
            if isinstance(each, (bytes, bytearray)) and len(each) >= SHORTEST and each != PROBE:
                self.keys.add(bytes(each))
        return found

    def within(self, said: str) -> list[str]:
        """Return which secrets stand in a text, in any form that a log could have."""
        lower, found = said.lower(), [text for text in self.texts if text in said]
        for key in self.keys:
            forms = [repr(key)[2:-1], str(int.from_bytes(key, "big")), str(int.from_bytes(key, "little"))]
            forms += [str(list(key))[1:-1], key.decode("latin-1")]
            for start in range(3):  # base64 of a longer text that has the key in it
                inner = base64.b64encode(key[start:][: (len(key) - start) // 3 * 3]).decode()
                forms += [inner, inner.replace("+", "-").replace("/", "_")]
            if key.hex() in lower or any(form in said for form in forms):
                found.append(key.hex())
        return found


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    """Write down every secret that the code makes from here on."""
    kept = Secrets()

    def spy(owner: Any, name: str, *, given: bool = False, got: bool = True) -> None:
        real = getattr(owner, name)

        def called(*args: Any, **named: Any) -> Any:
            if given:
                kept.keep([each for each in args if isinstance(each, bytes)])
            result = real(*args, **named)
            return kept.keep(result) if got else result

        monkeypatch.setattr(owner, name, called)

    spy(SecureStream, "_start", given=True, got=False)
    spy(SecureStream, "bytes")
    spy(stream, "keystream", given=True, got=False)
    spy(Identity, "__init__", given=True, got=False)
    spy(KeyPair, "__init__", given=True, got=False)
    spy(KeyPair, "agree")
    spy(chain.Chain, "_secrets")
    spy(shamir, "share")
    for module in (keys, chain, masks, site):
        if hasattr(module, "derive"):
            spy(module, "derive")
    return kept


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """Everything that is logged, warned of or printed; a function that returns it."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record) + repr(record.args))

    handler = Keep(logging.DEBUG)
    root = logging.getLogger()
    names = [None, *root.manager.loggerDict]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    root.addHandler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        def everything() -> str:
            out, err = capfd.readouterr()
            return "\n".join([*lines, *(str(each.message) for each in caught), out, err])

        yield everything
    root.removeHandler(handler)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def shown(*things: Any) -> str:
    """All that can be printed of an object by accident."""
    return "\n".join(f"{thing!r} {thing!s} {getattr(thing, '__dict__', {}).keys()}" for thing in things)


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.__context__)


def rows(path: Path) -> None:
    lines = [f"{20 + i},{'female' if i % 3 else 'male'}" for i in range(40)]
    lines[3] = f"{CELL},male"
    path.write_text("\n".join(["age,sex", *lines]) + "\n")


def test_a_study(secrets: Secrets, said: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in "abc":
        rows(tmp_path / f"{name}.csv")
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.showwarning", None)
    for arguments in (
        ["run", "study.toml", "--out", "results"],
        ["run", "study.toml", "--json", "--drop", "a@unmask"],
        ["run", "study.toml", "--drop", "a@mask", "--drop", "b@mask"],  # too few
        ["plan", "study.toml"],
    ):
        monkeypatch.setattr(sys, "argv", ["cape", *arguments])
        with pytest.raises(SystemExit):
            main()
    consortium = cape.Study.load("study.toml").consortium()
    release = consortium.release(cape.Mean("age"), 0.1)
    (tmp_path / "b.csv").write_text(f"age,sex\n{CELL},{CELL}\n")
    with pytest.raises(CapeError) as caught:
        cape.Study.load("study.toml").consortium().release(cape.Histogram("sex"), 0.1)
    text = said() + shown(consortium, release, release.to_dict()) + told(caught.value)
    text += "".join(path.read_text() for path in (tmp_path / "results").iterdir())
    assert "lungs" in text
    assert len(secrets.keys) > 50
    assert secrets.within(text) == []


def test_a_session_of_secure_aggregation(secrets: Secrets, said: Any):
    names = ("a", "b", "c", "d")

    def spoil(batch: list[Any]) -> list[Any]:
        return [*batch, *batch[:1]] if len(batch) > 1 else batch  # repeated, and refused

    session = Session(names, 3, 2, colluding=0, hook=spoil)
    text = shown(session, *session._driver._sites.values(), session._aggregator, session.parameters)
    outcomes = [session.step({name: np.array([ENTRY, 1, 2]) for name in names}, drop={"mask": ["d"]})]
    with pytest.raises(CapeError) as caught:
        session.step({name: np.array([ENTRY, 1, 2]) for name in names}, drop={"unmask": names[1:]})
    text += said() + told(caught.value) + "".join(map(str, getattr(caught.value, "__notes__", ())))
    text += "".join(why for outcome in outcomes for _, why in outcome.refusals)
    assert len(secrets.keys) > 50
    assert secrets.within(text) == []


def test_decisions_of_a_site(secrets: Secrets, said: Any, tmp_path: Path):
    office = Identity()
    folder, asking = make_folder(tmp_path / "site", office, epsilon=3.0, private=os.urandom(32))
    mean = {"kind": "mean", "columns": ["age", "weight"], "share": 0.25}
    granted = folder.decide(asking.request(mean, run=os.urandom(16)).pack())
    assert isinstance(granted, Grant)
    folder.answer(granted)
    found = [granted, folder.answer(granted), folder.decide(b"garbage")]
    found.append(folder.decide(asking.request(mean, run=os.urandom(16)).pack()[:-1] + b"x"))
    (folder.path / "rows.csv").write_text(f"age,weight,sex,ill\n{CELL},{CELL},{CELL},{CELL}\n")
    again = folder.decide(asking.request(mean, run=os.urandom(16)).pack())
    found += [again, folder.answer(again) if isinstance(again, Grant) else None]
    text = said() + shown(folder, folder.policy, folder.ledger, folder.card, folder.identity, *found)
    text += (folder.path / "site.log").read_text() + json.dumps(str(folder.ledger.entries()))
    text += "".join(path.read_text() for path in folder.path.glob("held/*"))
    assert "refused" in text
    assert len(secrets.keys) > 5
    assert secrets.within(text) == []


@pytest.mark.parametrize(
    "write",
    [
        bytes.hex,
        repr,
        lambda key: key.hex().upper(),
        lambda key: base64.b64encode(b"x" + key).decode(),
        lambda key: base64.urlsafe_b64encode(key + b"yz").decode(),
        lambda key: str(int.from_bytes(key, "big")),
        lambda key: str(np.frombuffer(key, np.uint8).tolist()),
    ],
)
def test_a_key_that_is_logged_would_be_found(secrets: Secrets, said: Any, write: Any):
    private = os.urandom(32)
    Identity(private)
    logging.getLogger("cape.somewhere").debug("the key is %s", write(private))
    assert private.hex() in secrets.within(said())


def test_a_cell_that_is_logged_would_be_found(secrets: Secrets, said: Any):
    warnings.warn(f"the cell is {CELL}", UserWarning, stacklevel=1)
    assert secrets.within(said()) == [CELL]
