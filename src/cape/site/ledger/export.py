"""A ledger as a signed text, to hand to others: every line with its chain value and signature.

Claim. Whoever has the site's card can check an export without the ledger's file: as much as of the file
itself (`cape.site.ledger.verify`), and that the site has handed out exactly these lines at the stated time.
Reason. Each line carries the site's signature of all lines up to it. The whole text is signed again, with a
label of its own, so that an export that was cut off, or given another time or name, does not pass.
Tested in tests/unit/site/test_export.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cape.core.errors import BadMessage, InvalidInput
from cape.secagg.keys import KEY_BYTES, Identity, Verifier
from cape.site.ledger.heads import ID_BYTES, Head
from cape.site.ledger.ledger import Ledger
from cape.site.ledger.lines import COLUMNS
from cape.site.ledger.verify import Verified, verify_rows

__all__ = ["Export", "export", "verify_export"]

FORMAT = "cape ledger export 1"
_LABEL = b"cape ledger export 1\0"
_MOST_BYTES = 1 << 30


class Export(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An export as JSON has it; `lines` are number, chain value, signature and the values of `columns`."""

    format: str
    site: Annotated[str, Meta(max_length=200)]
    ledger: Annotated[str, Meta(pattern=rf"\A[0-9a-f]{{{2 * ID_BYTES}}}\Z")]
    at: Annotated[str, Meta(max_length=40)]
    columns: list[str]
    lines: list[list[Any]]
    key: Annotated[str, Meta(pattern=rf"\A[0-9a-f]{{{2 * KEY_BYTES}}}\Z")]
    signature: Annotated[str, Meta(pattern=r"\A[0-9a-f]*\Z")] = ""

    @property
    def body(self) -> bytes:
        """What is signed: a hash of everything except the signature."""
        unsigned = msgspec.structs.replace(self, signature="")
        text = json.dumps(msgspec.to_builtins(unsigned), sort_keys=True, separators=(",", ":"))
        return _LABEL + sha256(text.encode()).digest()


def export(ledger: Ledger, site: str, identity: Identity) -> str:
    """Return a site's ledger as a signed text."""
    told = Export(
        format=FORMAT,
        site=site,
        ledger=ledger.id.hex(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        columns=list(COLUMNS),
        lines=[list(line) for line in ledger.signed()],
        key=identity.public.hex(),
    )
    signed = msgspec.structs.replace(told, signature=identity.sign(told.body).hex())
    return json.dumps(msgspec.to_builtins(signed), separators=(",", ":")) + "\n"


def verify_export(path: Path, keys: Sequence[bytes], heads: Sequence[Head] = ()) -> tuple[Export, Verified]:
    """Check an export against the site's keys, and against heads that others kept.

    Raises:
        InvalidInput: it is not an export, or cannot be read.
    """
    told = _read(path)
    try:
        found = verify_rows(bytes.fromhex(told.ledger), told.lines, keys, heads)
    except (ValueError, TypeError, ArithmeticError):
        raise InvalidInput(f"{path} has a line that is none") from None
    try:
        if bytes.fromhex(told.key) not in keys:
            raise BadMessage("another key")
        Verifier().check(bytes.fromhex(told.key), bytes.fromhex(told.signature), told.body, "the site")
    except (BadMessage, ValueError):
        found.say("the export as a whole does not have the site's signature")
    return told, found


def _read(path: Path) -> Export:
    problem = "is not an export of a ledger"
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES)
        told = msgspec.json.decode(data, type=Export)
        if told.format == FORMAT and told.columns == list(COLUMNS):
            return told
        problem = "was written by another version of cape"
    except OSError as error:
        problem = f"cannot be read: {error.strerror or type(error).__name__}"
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    raise InvalidInput(f"{path} {problem}")
