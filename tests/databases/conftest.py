from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with servers.postgres() as uri:
        yield uri


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    with servers.mariadb() as uri:
        yield uri


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark")),
    }
    builder = SparkSession.builder.master("local[2]").appName("cape")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
