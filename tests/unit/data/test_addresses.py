"""Addresses of tables: an error names them without what lets others read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.core.errors import DataError, InvalidInput
from cape.data.secrets import nameable
from cape.data.sources import open_source
from cape.study.sites import place_of

SECRET = [
    ("https://bob:hunter2@127.0.0.1:1/rows.parquet", "https://127.0.0.1:1/rows.parquet"),
    ("https://hunter2@127.0.0.1:1/rows.parquet", "https://127.0.0.1:1/rows.parquet"),
    ("https://127.0.0.1:1/rows.parquet?X-Amz-Signature=hunter2", "https://127.0.0.1:1/rows.parquet?..."),
    ("https://127.0.0.1:1/rows.parquet?sig=a@hunter2", "https://..."),
    ("https://bob:hunt?er2@127.0.0.1:1/rows.parquet", "https://..."),
    ("https://bob:hunt/er2@127.0.0.1:1/rows.parquet", "https://127.0.0.1:1/rows.parquet"),
    ("https://127.0.0.1:1/rows.parquet#hunter2", "https://127.0.0.1:1/rows.parquet?..."),
]


@pytest.mark.parametrize(("address", "shown"), SECRET)
def test_an_address_is_named_without_secrets(address: str, shown: str):
    assert nameable(address) == shown


@pytest.mark.parametrize("path", ["rows.csv", "/data/rows-2026@b?.csv", "s3://bucket/rows.parquet"])
def test_other_paths_are_named_whole(path: str):
    assert nameable(path) == path


@pytest.mark.parametrize("address", [address for address, _ in SECRET[:2]])
def test_no_error_of_a_reader_holds_the_secret(address: str):
    assert "hunter2" not in open_source("a", address).what


@pytest.mark.parametrize("address", ["https://127.0.0.1:1/rows?sig=hunter2", "https://h\0/x.csv?sig=hunter2"])
def test_no_error_before_a_reader_is_chosen_holds_the_secret(address: str):
    with pytest.raises(DataError) as caught:
        open_source("a", address)
    assert "hunter2" not in str(caught.value)


def test_no_error_of_a_policy_holds_the_secret():
    with pytest.raises(InvalidInput) as caught:
        place_of({"path": SECRET[0][0], "sheet": 1}, Path())
    assert "hunter2" not in str(caught.value)
