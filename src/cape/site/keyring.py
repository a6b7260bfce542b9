"""Keys on disk: a site's own, in a file that only its owner can read, and the public keys of others.

A public key is written `ed25519:` and 64 hexadecimal digits. Two people exchange a `Card` over a channel that
the aggregator does not control, and compare its fingerprint by telephone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from cape.core import check, documents
from cape.core.errors import InvalidInput
from cape.core.files import give_to_owner, sync_folder
from cape.secagg.keys import KEY_BYTES, Identity

__all__ = [
    "Card",
    "fingerprint",
    "load_identity",
    "make_identity",
    "new_folder",
    "person",
    "pin",
    "public_text",
    "read_keys",
    "read_public",
    "unpin",
    "write_whole",
]

_PUBLIC = "ed25519:"
_PRIVATE = "cape-private-ed25519:"
_DIGITS = re.compile(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}")
_MOST = 1 << 16  # bytes of a card
_MADE = "the other side makes it with `cape site export-key`"


def public_text(key: bytes) -> str:
    """Return a public key as people write it."""
    return f"{_PUBLIC}{key.hex()}"


def read_public(name: str, value: Any) -> bytes:
    """Return the bytes of a public key, or raise an error that names it."""
    key = _read(value, _PUBLIC)
    if key is not None:
        return key
    if isinstance(value, str) and value.startswith(_PRIVATE):
        value = "a private key, which must never leave its file"
    else:
        value = repr(value)[:40]
    raise InvalidInput(f"{name} must be a public key, '{_PUBLIC}' and 64 hexadecimal digits, not {value}")


def _read(text: Any, prefix: str) -> bytes | None:
    """Return the bytes of a key after its prefix; None if the text is not one."""
    if not isinstance(text, str) or not text.startswith(prefix):
        return None
    digits = text[len(prefix) :]
    return bytes.fromhex(digits) if _DIGITS.fullmatch(digits) else None


def fingerprint(key: bytes) -> str:
    """Return the start of a key's hash, in groups that two people can compare by telephone."""
    digits = sha256(b"cape fingerprint\0" + key).hexdigest()[:20]
    return "-".join(digits[i : i + 4] for i in range(0, 20, 4))


def make_identity(path: Path, private: bytes | None = None) -> Identity:
    """Write a private key, by default a new one, to a file that only its owner can read; never overwrite."""
    private = os.urandom(KEY_BYTES) if private is None else private
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise InvalidInput(f"{path} already exists; a key is never overwritten") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"{_PRIVATE}{private.hex()}\n")
        file.flush()
        os.fsync(file.fileno())
    return Identity(private)


def new_folder(path: Path, files: Sequence[str], name: str | None) -> str:
    """Make the folder of a site or coordinator; return its name, by default that of the folder.

    Nothing is overwritten: none of `files` may exist.
    """
    shown = check.plain(str(path), 300)
    for file in files:
        if os.path.lexists(path / file):  # False for a name that is too long, where Path.exists raises
            raise InvalidInput(
                f"{shown}/{file} already exists; nothing is overwritten: choose another folder"
            )
    called = person("name", name or os.path.basename(os.path.realpath(path)))
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no path"
        raise InvalidInput(f"{shown} cannot be made: {why}") from None
    return called


def load_identity(path: Path) -> Identity:
    """Read a private key; refuse a file that users other than its owner can read."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise InvalidInput(
                f"{path} can be read by others (mode {mode:04o}); if nobody has, run: chmod 600 {path}"
            )
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise InvalidInput(f"no key {str(path)!r}; `cape site init` makes one") from None
    except (OSError, UnicodeDecodeError):
        text = ""
    private = _read(text, _PRIVATE)
    if private is None:  # raised out here, without what was read
        raise InvalidInput(f"{path} is not a private key of cape")
    return Identity(private)


class _Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    key: Any  # possibly a private one, which no error may show
    role: Literal["", "site", "coordinator"] = ""


@dataclass(frozen=True)
class Card:
    """A name and a public key, as a small file that two people exchange.

    `role` is "site", "coordinator", or "" if the file does not say. It prevents mistakes and grants no
    rights: the command that trusts a key says in which role.
    """

    name: str
    key: bytes
    role: str = ""

    def to_text(self) -> str:
        """Return the file."""
        return (
            "# A public key for CAPE. It is not secret, but must be authentic: hand it over yourself,\n"
            f"# and compare the fingerprint by telephone: {fingerprint(self.key)}\n"
            f"name = {json.dumps(self.name)}\n"
            f'key = "{public_text(self.key)}"\n' + (f'role = "{self.role}"\n' if self.role else "")
        )

    @classmethod
    def load(cls, path: Path) -> Card:
        """Read such a file."""
        if path.name == "identity.key":
            raise InvalidInput(
                f"{path} is a private key: keep it secret; `cape site export-key` prints the public key"
            )
        return cls.parse(documents.read(path, "file", _MADE, _MOST), path)

    @classmethod
    def parse(cls, text: str, path: Path) -> Card:
        """Return the card of a text; `path` is its file, for errors."""
        try:
            document = documents.parse(path, text[:_MOST])
        except InvalidInput:
            document = {}
        if not document:
            raise InvalidInput(f"{path} is not a key; {_MADE}")
        with documents.at(str(path)):
            card = documents.decode(document, _Card)
            return cls(person("name", card.name), read_public("key", card.key), card.role)

    def require(self, role: str) -> None:
        """Raise if the card states another role."""
        if self.role and self.role != role:
            hint = {
                "site": "a site can trust it with --coordinator, as a coordinator",
                "coordinator": "`cape deploy export-key` prints a coordinator's card",
            }[role]
            raise InvalidInput(f"that is the key of {self.role} {self.name!r}, not of a {role}; {hint}")


def read_keys(section: str, given: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the names and public keys of a section."""
    with documents.at(f"[{section}]"):
        found = {person("a name", who): read_public(who, key) for who, key in given.items()}
        if len(set(found.values())) < len(found):
            raise InvalidInput("two names have the same key; each key belongs to one")
    return found


def pin(
    path: Path, section: str, known: Mapping[str, bytes], card: Card, check_text: Callable[[str], object]
) -> bool:
    """Write a key into a section of a hand-written file; return False if it is there already.

    Raises:
        InvalidInput: the name has another key, the section cannot be edited, or `check_text` rejects the new
            text. Nothing was written.
    """
    if known.get(card.name) == card.key:
        return False
    if card.name in known:
        raise InvalidInput(
            f"[{section}] {card.name} has another key in {path}; if it was renewed, remove the old line"
        )
    text = _with_key(path.read_text(encoding="utf-8"), section, card)
    try:
        written = documents.parse(path, text)[section].get(card.name) == public_text(card.key)
    except (InvalidInput, KeyError, AttributeError):  # an inline section, or none
        written = False
    if not written:
        raise InvalidInput(f"{path}: put the key into [{section}] yourself, as the line {_line(card)}")
    check_text(text)
    write_whole(path, text)
    return True


def unpin(path: Path, section: str, name: str, check_text: Callable[[str], object]) -> None:
    """Remove a key from a section of such a file, and leave the rest as people wrote it.

    Raises:
        InvalidInput: its line cannot be found, or `check_text` rejects the new text. Nothing was written.
    """
    old = path.read_text(encoding="utf-8")
    text = _without_key(old, section, name)
    wanted = documents.parse(path, old)
    del wanted[section][name]
    try:
        done = documents.parse(path, text) == wanted
    except InvalidInput:
        done = False
    if not done:
        raise InvalidInput(f"{path}: remove the line of {check.show(name)} from [{section}] yourself")
    check_text(text)
    write_whole(path, text)


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file whole or not at all; it is on the disk when this returns."""
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            give_to_owner(beside, handle)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None


def _line(card: Card) -> str:
    return f'{json.dumps(card.name, ensure_ascii=False)} = "{public_text(card.key)}"'


def _with_key(text: str, section: str, card: Card) -> str:
    """Return a TOML file with one more key at the start of a section."""
    line = f"{_line(card)}\n"
    found = _header(section).search(text)
    if found is None:
        return f"{text.rstrip()}\n\n[{section}]\n{line}"
    start, end = found.span()
    head = text[start:end] if text[start:end].endswith("\n") else text[start:end] + "\n"
    return text[:start] + head + line + text[end:]


def _without_key(text: str, section: str, name: str) -> str:
    """Return a TOML file without the line of a section that assigns this name."""
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = _header(section).match(line) is not None
        if not (inside and _names(line) == [name]):
            kept.append(line)
    return "".join(kept)


def _names(line: str) -> list[str]:
    """Return the keys that a line by itself assigns."""
    try:
        return list(tomllib.loads(line))
    except ValueError:
        return []


def _header(section: str) -> re.Pattern[str]:
    return re.compile(rf"^\s*\[\s*([\"']?){section}\1\s*\][^\n]*(?:\n|\Z)", re.MULTILINE)


def person(name: str, value: str) -> str:
    """Return the name of a site or a coordinator, if a roster can hold it."""
    if not value.strip() or not value.isprintable() or len(value) > 200:
        raise InvalidInput(f"{name} must have 1 to 200 characters, all printable, not {check.show(value)}")
    return value
