"""Who decides: persons by name, and how many different ones there are.

Claim. Approvals that `count` takes for those of two persons were given under names that differ in more than
case, spelling in Unicode, accents, spaces, quotes, signs that cannot be seen, or what follows a + or an @;
and neither was stated by anybody but the kernel or the desk.
Reason. A person is a name. Over the administrative socket, the name is that of the operating-system user whom
the kernel reports; only the user who runs the desk (`cape site serve --desk USER`) may state another name,
that of the person who has logged in there (`cape.site.admin.wire`). So `ana` at the command line and
`Ana@clinic.org` at the desk are one person, as is `Ana Weiss <ana@clinic.org>`, and two people who share the
part before the @ count as one. The site's own user and root are one person, under any address: whoever works
as one of them can usually become the other.
What this cannot prevent: whoever can write to the site's folder, or change its policy, decides alone;
somebody whose operating-system user (aweiss) is not what stands before the @ of their login
(ana.weiss@clinic.org) is two persons, which docs/stewards.md and `cape site check` say; and so is somebody to
whom a provider gives two accounts, such as one with a letter of another alphabet that looks the same.
Tested in tests/unit/site/test_who_decides.py.
"""

from __future__ import annotations

import os
import pwd
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from cape.site.keyring import person as checked

__all__ = ["Person", "count", "same"]

_ADDRESS = re.compile(r"<([^<>]*@[^<>]*)>\s*$")
_UNSEEN = "C", "M", "Z", "So", "Pi", "Pf"  # control signs, accents, spaces, symbols that show nothing, quotes
_LEFT_OUT = "\u115f\u1160\"'`"  # letters that show nothing (NFKD makes the second of two others), and quotes


@dataclass(frozen=True)
class Person:
    """Somebody who decides for a site; `desk` says that the desk vouches for the name."""

    name: str
    desk: bool = False

    @classmethod
    def at_desk(cls, name: str) -> Person:
        """Return a person whose name the desk states; raise `InvalidInput` if it cannot be a name."""
        return cls(checked("person", name), desk=True)

    @classmethod
    def of_user(cls, uid: int | None) -> Person:
        """Return an operating-system user."""
        return cls(_user(uid))

    def __str__(self) -> str:
        return f"{self.name!r} (desk)" if self.desk else repr(self.name)


def same(first: str, second: str) -> bool:
    """Return whether two names are those of one person."""
    return _key(first) == _key(second)


def count(names: Iterable[str]) -> int:
    """Return how many different persons there are among these names."""
    return len({_key(name) for name in names})


def _key(name: str) -> str:
    """Return what all names of one person have in common."""
    own, root = _account(_user(os.geteuid())), _account(_user(0))
    found = _account(name)
    return own if found == root else found


def _account(name: str) -> str:
    """Return what can be seen of a name, or of its address, before the @ and after a domain's backslash."""
    address = _ADDRESS.search(name)
    plain = _visible(name if address is None else address[1])
    account = plain.partition("@")[0].rpartition("\\")[2]
    return account.partition("+")[0] or account or plain or name


def _visible(text: str) -> str:
    """Return a text without accents, spaces, quotes and signs that cannot be seen, all in one case."""
    return _bare(_bare(text).casefold())  # some accents become letters in another case


def _bare(text: str) -> str:
    kept = unicodedata.normalize("NFKD", text)
    return "".join(c for c in kept if c not in _LEFT_OUT and not unicodedata.category(c).startswith(_UNSEEN))


def _user(uid: int | None) -> str:
    try:
        return pwd.getpwuid(uid).pw_name if uid is not None else "unknown user"
    except KeyError:
        return f"user {uid}"
