"""The example notebooks run as they are, and what they show is looked at in a browser."""

from __future__ import annotations

import os
from pathlib import Path

import nbclient
import nbconvert
import nbformat
import pytest

from tests.browser import look
from tests.browser.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_tables_and_pictures(path, tmp_path, visit, picture, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": path.parent}}).execute()
    shown = [
        output["data"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output
    ]
    assert all("text/html" in data or "image/png" in data or "array(" in data["text/plain"] for data in shown)
    assert sum("<table" in data.get("text/html", "") for data in shown) >= 4
    page = Path(tmp_path / "notebook.html")
    body, _ = nbconvert.HTMLExporter(template_name="basic").from_notebook_node(notebook)
    style = "<style>pre { overflow-x: auto } img { max-width: 100% }</style>"  # as Jupyter has it
    page.write_text(f'<!doctype html><html lang="en"><meta charset="utf-8">{style}<body>{body}</body></html>')
    for width in (768, 1400):
        opened = visit(page, width=width)
        picture(opened, f"notebook-{path.stem}-{width}")
        assert not look.sticks_out(opened)
