"""Persons at the desk, and their roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cape.site.keyring import person as checked

__all__ = ["ROLES", "Person", "Role", "require_name"]


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
    """Return a person's name; raise if the site's daemon would not write it into its log."""
    return checked("the name of a person", name)
