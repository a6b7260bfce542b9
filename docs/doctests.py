"""Shows the examples in docstrings as code; Markdown would take `>>>` for quotations."""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts each example of a docstring, with what it prints, between fences."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of anything that has one."""
        if obj.docstring and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return the text with fences around each run of lines from `>>>` to a blank line."""
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        if not inside and line.lstrip().startswith(">>> "):
            inside = True
            if lines and lines[-1].strip():
                lines.append("")
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
        elif inside and not line.strip():
            inside = False
            lines.append(f"{indent}```")
        lines.append(line)
    return "\n".join([*lines, f"{indent}```"] if inside else lines)
