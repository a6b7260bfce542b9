"""Takes what `python -m reproduction` wrote into documentation: the page, with a few of its pictures.

`python -m reproduction.publish paper docs` writes docs/reproduction.md and docs/img/paper-*.png.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cape.core.errors import InvalidInput
from reproduction.report import kept, page
from reproduction.store import write

__all__ = ["SHOWN", "publish"]

SHOWN = {
    "figure-3-equal.png": "img/paper-figure-3.png",
    "figure-5-equal.png": "img/paper-figure-5.png",
    "figure-7-unit-rows-published.png": "img/paper-figure-7.png",
    "table-1-bytes.png": "img/paper-table-1.png",
}
"""The pictures that go along, and where they lie then."""
_WIDTH, _COLOURS = 1500, 96  # enough to read, and below 200 kB


def publish(out: Path, docs: Path) -> list[Path]:
    """Write the page of a finished run into a folder of documentation, and return the files."""
    sections = kept(out)
    if not sections:
        raise InvalidInput(f"there is no run of `python -m reproduction` in {out}")
    files = [docs / "reproduction.md"]
    write(files[0], page(sections, SHOWN))
    drawn = [name for section in sections for name in section.pictures if name in SHOWN]
    for name in drawn:
        files.append(docs / SHOWN[name])
        _shrink(out / name, files[-1])
    return files


def _shrink(source: Path, target: Path) -> None:
    from PIL import Image

    with Image.open(source) as opened:
        image = opened.convert("RGB")
    if image.width > _WIDTH:
        image = image.resize((_WIDTH, round(image.height * _WIDTH / image.width)), Image.Resampling.LANCZOS)
    target.parent.mkdir(parents=True, exist_ok=True)
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


def _main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m reproduction.publish OUT DOCS", file=sys.stderr)
        return 2
    try:
        files = publish(*map(Path, arguments))
    except InvalidInput as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return 2
    print(f"Written: {', '.join(map(str, files))}")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
