"""Requests to a site: right ones bent and signed again by a coordinator that is trusted, or only bent."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assurance.inputs.bend import NASTY, bend, bend_bytes, pick
from assurance.inputs.surface import Surface
from assurance.site_folder import CELL, make_folder, signed
from cape.secagg import Identity
from cape.site import Grant, Refusal, Request, envelope
from cape.site.decide.request import LABEL
from cape.site.envelope import FRONT_BYTES
from cape.study.document import read

__all__ = ["Requests"]

_PLAIN = [value for value in NASTY if not isinstance(value, int) or -(2**63) <= value < 2**64]
_ANALYSES: list[dict[str, Any]] = [
    {"kind": "mean", "columns": ["age", "weight"], "share": 0.25},
    {"kind": "histogram", "column": "sex", "share": 0.5},
    {"kind": "count", "share": 0.1, "where": {"sex": "female"}},
    {"kind": "logistic-regression", "target": "ill", "features": ["age"], "rounds": 2, "share": 0.5},
    {"kind": "k-means", "columns": ["age", "weight"], "clusters": 2, "steps": 3, "share": 0.5, "seed": 1},
]  # the last one takes long to be read, and comes seldom


class Requests(Surface):
    """`SiteFolder.decide` with bytes, and the answer if there is one; and what a coordinator's side reads."""

    secrets = (CELL,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._office = Identity(b"an office that is trusted".ljust(32, b"."))
        self._site, self._asking = make_folder(folder / "site", self._office, epsilon=1e5)
        self._right = [self._asking.request(each, run=bytes(16)) for each in _ANALYSES]
        self._log = self._site.path / "site.log"
        self._said = ""

    def make(self, random: np.random.Generator) -> bytes:
        """Bend a request, its study above all."""
        base = pick(random, self._right[:-1] if random.random() < 0.97 else self._right)
        run = random.bytes(16)  # each of a study of its own: one would soon have spent what it states
        study = dict(base.study) | {"description": f"run {run.hex()}"}
        request = signed(replace(base, run=run, study=study), self._office, random)
        way = random.random()
        if way < 0.2:
            return bend_bytes(request.pack(), random, other=request.pack())
        plain = msgspec.msgpack.decode(request.pack()[FRONT_BYTES:])
        inner = msgspec.msgpack.decode(plain[0])
        for _ in range(int(random.integers(1, 3))):
            if way < 0.6:
                inner = bend(inner, random, _PLAIN)
            else:
                plain = bend(plain, random, _PLAIN)
            if not isinstance(plain, list) or not plain:
                break
        try:
            if way < 0.6:
                plain[0] = msgspec.msgpack.encode(inner)
            body = msgspec.msgpack.encode(plain)
        except (OverflowError, ValueError, UnicodeEncodeError):
            body = b"\xc0"
        if way >= 0.9:
            body = bend_bytes(body, random, other=body) or b"\xc0"
        return envelope.pack(self._office.public, envelope.sign(self._office, LABEL, body), body)

    def feed(self, given: bytes) -> None:
        """Decide and answer; then read it as the other side would."""
        before = self._log.stat().st_size if self._log.exists() else 0
        found = self._site.decide(given)
        self._said = found.sentence if isinstance(found, Refusal) else ""
        if isinstance(found, Grant):
            answered = self._site.answer(found)
            self._said += answered.sentence if isinstance(answered, Refusal) else ""
        if self._log.exists():
            with self._log.open("rb") as file:
                file.seek(before)
                self._said += file.read().decode("utf-8", "replace")
            if before > 1 << 20:
                os.truncate(self._log, 0)
        request = Request.open(given, trusted=lambda key: True)
        request.check()
        read(request.study, request.number).session().calibrate()

    def said(self) -> str:
        """Return the refusal and the lines of the site's log."""
        return self._said
