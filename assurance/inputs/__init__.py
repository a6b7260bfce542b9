"""What can be fed to the product, one surface each: how an input is made, and what takes it in."""

from __future__ import annotations

import importlib

from assurance.inputs.surface import Secret, Surface, WrongSum

__all__ = ["NAMES", "Secret", "Surface", "WrongSum", "load"]

# surface -> (module, class, inputs of a hundred)
NAMES = {
    "studies": ("studies", "Studies", 15),
    "commands": ("commands", "Commands", 2),
    "stewards": ("stewards", "Stewards", 2),
    "schemas": ("schemas", "Schemas", 6),
    "expressions": ("expressions", "Expressions", 8),
    "csv": ("tables", "TextFiles", 13),
    "parquet": ("tables", "ParquetFiles", 8),
    "frames": ("tables", "Frames", 4),
    "databases": ("databases", "Databases", 3),
    "messages": ("messages", "Messages", 7),
    "sessions": ("messages", "Sessions", 2),
    "members": ("machines", "Members", 3),
    "relays": ("machines", "Relays", 1),
    "requests": ("requests", "Requests", 4),
    "policies": ("policies", "Policies", 5),
    "cards": ("cards", "Cards", 2),
    "offices": ("cards", "Offices", 2),
    "held": ("stewards", "Held", 2),
    "ledgers": ("ledgers", "Ledgers", 2),
    "records": ("records", "Records", 2),
    "checkpoints": ("checkpoints", "Checkpoints", 3),
    "answers": ("answers", "Answers", 4),
}


def load(name: str) -> type[Surface]:
    """Return a surface by its name, or by module and class ("tests.planted:Hanging"); it is imported here."""
    if name in NAMES:
        module, kind, _ = NAMES[name]
        module = f"assurance.inputs.{module}"
    else:
        module, _, kind = name.partition(":")
    found: type[Surface] = getattr(importlib.import_module(module), kind)
    return found
