"""A study that a site keeps, with what its stewards decided: one JSON file, which is replaced as a whole."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cape.core import check, documents
from cape.core.errors import InvalidInput
from cape.site import persons
from cape.site.keyring import public_text, read_public
from cape.site.ledger.ledger import Answers
from cape.study.document import Document, hash_of

__all__ = [
    "MOST_QUESTION",
    "MOST_REASON",
    "Approval",
    "Held",
    "Said",
    "file_name",
    "is_meant",
    "load",
    "parse",
]

MOST_BYTES = 1 << 24
"""Bytes of a study."""
MOST_QUESTION = 500
"""Characters of a question to a coordinator."""
MOST_REASON = 2000
"""Characters of a note, or of the reason of a refusal."""

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Time = Annotated[str, Meta(max_length=40)]
_LONGEST_ESCAPE = 10  # characters that stand for one that cannot be printed
_HASH = re.compile("[0-9a-fA-F]{12,64}")


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    person: _Name
    desk: bool = False
    at: _Time

    @property
    def who(self) -> persons.Person:
        """Who it was."""
        return persons.Person(self.person, self.desk)


class Approval(_Written, frozen=True):
    """An approval by one person.

    Attributes:
        once: whether each analysis may be answered once only.
        lines: how many lines the ledger had: what was answered before does not use it up.
        text: the person's note.
    """

    once: bool = False
    lines: Annotated[int, Meta(ge=0)] = 0
    text: Annotated[str, Meta(max_length=MOST_REASON)] = ""

    def counts(self, answers: Answers) -> bool:
        """Return whether it still allows an analysis that has these answers in the ledger.

        One for once ends with the first answer after it.
        """
        return not self.lost(answers) and not (self.once and answers.last > self.lines)

    def lost(self, answers: Answers) -> bool:
        """Return whether it was given on a ledger that was lost: one with more lines than there are now."""
        return self.lines > answers.lines


class Said(_Written, frozen=True):
    """A question to the coordinator, or the reason of a refusal."""

    text: Annotated[str, Meta(max_length=MOST_REASON)]


class _Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says besides the coordinator and the study."""

    since: _Time = ""
    approvals: Annotated[tuple[Approval, ...], Meta(max_length=100)] = ()
    question: Said | None = None
    refusal: Said | None = None


@dataclass(frozen=True)
class Held:
    """A study that waits, was approved, or was refused.

    Attributes:
        since: when it was first held (UTC).
        approvals: one for each person who approved it.
        question: what its coordinator was asked last; None if nothing since the last decision.
        refusal: who refused it last, and why.
    """

    path: Path
    coordinator: bytes
    study: Mapping[str, Any]
    since: str = ""
    approvals: tuple[Approval, ...] = ()
    question: Said | None = None
    refusal: Said | None = None

    @property
    def name(self) -> str:
        """The study's name."""
        return str(self.study.get("name"))

    @property
    def study_hash(self) -> str:
        """The study's hash."""
        return hash_of(self.study)

    @property
    def persons(self) -> int:
        """How many different persons have approved it."""
        return persons.count(each.person for each in self.approvals)

    @property
    def once(self) -> bool:
        """Whether anybody has approved it for once."""
        return any(each.once for each in self.approvals)

    def counting(self, answers: Answers) -> Held:
        """Return it with those approvals that still count for an analysis with these answers."""
        return replace(self, approvals=tuple(each for each in self.approvals if each.counts(answers)))

    def text(self) -> str:
        """Return the file's text."""
        kept = _Kept(since=self.since, approvals=self.approvals, question=self.question, refusal=self.refusal)
        told = {"coordinator": public_text(self.coordinator), "study": self.study}
        return json.dumps(told | msgspec.to_builtins(kept), indent=2) + "\n"


def now() -> str:
    """Return the time as files have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_meant(text: str, name: str, study_hash: str) -> bool:
    """Return whether a person who writes this means a study: by its name, or by the start of its hash.

    Who asks chooses the name. So what looks like a hash is never taken for a name: nobody can have a study
    approved by naming it after the hash of another one.
    """
    if _HASH.fullmatch(text):
        return study_hash.startswith(text.lower())
    return bool(text) and (name == text or study_hash.startswith(text.lower()))


def file_name(coordinator: bytes, study_hash: str) -> str:
    """Return the name of a study's file: another one for each coordinator and each study."""
    return f"{sha256(coordinator + bytes.fromhex(study_hash)).hexdigest()[:32]}.json"


def load(path: Path) -> Held | None:
    """Return the study in a file; None if the file is unrecognised."""
    try:
        return parse(path, documents.read(path, "study", most=MOST_BYTES)) if path.is_file() else None
    except InvalidInput:
        return None


def parse(path: Path, text: str) -> Held | None:
    """Return a study that can be shown, hashed and decided on; None if the text is not one.

    Its analyses may be invalid: a request uses its own only, and the steward sees what is wrong with others.
    """
    if len(text) > MOST_BYTES:
        return None
    try:
        told = json.loads(text)
        coordinator, study = read_public("coordinator", told.pop("coordinator")), told.pop("study")
        kept = msgspec.convert(told, _Kept)
        held = Held(path, coordinator, study, kept.since, kept.approvals, kept.question, kept.refusal)
        documents.decode(held.study, Document)
        _ = held.study_hash  # raises for lone surrogates and numbers beyond 64 bits
        return held
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        InvalidInput,
        msgspec.MsgspecError,
    ):
        return None


def one_line(text: str, most: int) -> str:
    """Return a text of a steward in one printable line, or raise `InvalidInput` if it is too long."""
    found = " ".join(text.split())
    found = check.plain(found, _LONGEST_ESCAPE * len(found))
    if len(found) > most:
        raise InvalidInput(f"a question has at most {most} characters, not {len(found)}")
    return found
