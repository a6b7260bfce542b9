"""A column that a file calls otherwise is read under the schema's name, whatever kind of file it is."""

from __future__ import annotations

import polars as pl
import pytest

from cape.core.errors import InvalidInput
from cape.data import Csv, Excel, File
from cape.data.sources import open_source


@pytest.mark.parametrize("kind", ["csv", "latin-1", "parquet", "ipc", "xlsx"])
@pytest.mark.parametrize("lenient", [False, True])
def test_columns_are_read_under_the_names_of_the_schema(tmp_path, kind, lenient):
    frame = pl.DataFrame({"Jahre": [50.0, 61.0], "größe": [1.7, 1.8]})
    path = tmp_path / f"rows.{'csv' if kind in ('csv', 'latin-1') else kind}"
    rename = {"age": "Jahre", "height": "größe"}
    if kind == "parquet":
        frame.write_parquet(path)
    elif kind == "ipc":
        frame.write_ipc(path)
    elif kind == "xlsx":
        pytest.importorskip("xlsxwriter")
        frame.write_excel(path)
    else:
        path.write_bytes(frame.write_csv().encode(kind if kind == "latin-1" else "utf-8"))
    made = {"csv": Csv, "latin-1": Csv, "xlsx": Excel}.get(kind, File)
    more = {"encoding": "latin-1"} if kind == "latin-1" else {}
    reader = open_source("a", made(path, rename=rename, **more), lenient=lenient)
    assert reader.names() == ["age", "height"]
    assert reader.rows() == 2
    read = pl.concat(reader.batches(["height", "age"], 10))
    assert read.columns == ["height", "age"]
    assert [float(cell) for cell in read["age"]] == [50.0, 61.0]


def test_a_rename_must_be_one_to_one():
    with pytest.raises(InvalidInput, match="one name only"):
        Csv("rows.csv", rename={"age": "Jahre", "years": "Jahre"})
