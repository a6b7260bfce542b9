"""Persons at the desk, and their roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cape import check
from cape.errors import InvalidInput

__all__ = ["ROLES", "Person", "Role", "require_name"]

_MOST_NAME = 200

Role = Literal["viewer", "steward", "admin"]
"""A viewer reads; a steward decides on studies, too; an admin edits the policy and trusts keys, too."""
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Person:
    """Somebody who has logged in; the name goes into the site's log with each decision."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Return whether this person may do what needs a role."""
        return ROLES.index(self.role) >= ROLES.index(role)


def require_name(name: str) -> str:
    """Return a person's name; raise if it could not stand in a line of a log."""
    if not name.strip() or len(name) > _MOST_NAME or not name.isprintable():
        raise InvalidInput(
            f"the name of a person must have 1 to {_MOST_NAME} printable characters, not {check.show(name)}"
        )
    return name
