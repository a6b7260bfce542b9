"""What can be fed to the product, one surface each: how an input is made, and what takes it in."""

from __future__ import annotations

import importlib

from assurance.inputs.surface import Secret, Surface, WrongSum

__all__ = ["NAMES", "Secret", "Surface", "WrongSum", "load"]

# surface -> (module, class, inputs of a hundred)
NAMES = {
    "studies": ("studies", "Studies", 20),
    "commands": ("commands", "Commands", 3),
    "schemas": ("schemas", "Schemas", 10),
    "csv": ("tables", "TextFiles", 20),
    "parquet": ("tables", "ParquetFiles", 10),
    "frames": ("tables", "Frames", 5),
    "messages": ("messages", "Messages", 11),
    "sessions": ("messages", "Sessions", 2),
    "requests": ("requests", "Requests", 5),
    "policies": ("policies", "Policies", 6),
    "ledgers": ("ledgers", "Ledgers", 3),
    "answers": ("answers", "Answers", 5),
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
