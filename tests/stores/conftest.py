"""The stores, and a Spark session that reaches all of them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.spark.conftest import local_spark, spark_jars
from tests.spark.sinks.conftest import kit
from tests.stores import servers

__all__ = ["kit"]

SCHEMES = ("s3a", "gs")
SQLITE = "org.xerial:sqlite-jdbc:3.47.1.0"
"""What a catalog of Iceberg keeps its tables' places in."""


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """Start a server for each scheme that this machine has one for, on ports of the loopback."""
    folder = tmp_path_factory.mktemp("stores")
    starts = [
        servers.moto,
        *(() if servers.missing_for_gcs() else [servers.fake_gcs]),
        *(() if servers.missing_for_hdfs() else [servers.hdfs]),
    ]
    with ExitStack() as running:
        found = [running.enter_context(start(folder)) for start in starts]
        yield {store.scheme: store for store in found}


@pytest.fixture(scope="session")
def spark(stores, tmp_path_factory):
    """Start Spark as a user would, who lets it fetch S3A (600 MB, once)."""
    jars = [*spark_jars(), *([str(servers.gcs_connector())] if "gs" in stores else ())]
    packages = [servers.hadoop_aws(), SQLITE]
    settings = {"spark.jars.packages": ",".join(packages), "spark.jars": ",".join(jars)}
    for store in stores.values():
        settings |= store.settings
    session = local_spark(tmp_path_factory.mktemp("spark"), settings)
    yield session
    session.stop()


@pytest.fixture(params=SCHEMES)
def store(request, stores):
    """Return a store of objects, behind its proxy; or HDFS, for a test that asks for it."""
    if request.param not in stores:
        missing = {"gs": servers.missing_for_gcs, "hdfs": servers.missing_for_hdfs}
        pytest.skip(missing[request.param]())
    return stores[request.param]
