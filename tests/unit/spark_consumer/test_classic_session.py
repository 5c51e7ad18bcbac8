"""Sessions of Spark Connect are refused by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import tidegate
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.classic_session import require_classic


def connect_session():
    """Return a real session of Spark Connect; it speaks to its server when it is first used."""
    session = pytest.importorskip("pyspark.sql.connect.session", reason="needs grpcio")
    return session.SparkSession(connection="sc://127.0.0.1:1")


def test_a_connect_session_is_refused_with_what_to_use():
    with pytest.raises(ConfigError, match=r"Spark Connect is not supported.*tidegate\.session"):
        require_classic(connect_session())


def test_a_class_below_connects_own_is_refused_too():
    class Theirs(type(connect_session())):
        pass

    with pytest.raises(ConfigError, match="Spark Connect is not supported"):
        require_classic(object.__new__(Theirs))


def test_any_other_session_passes():
    require_classic(SimpleNamespace())


STREAM = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
}


@pytest.mark.parametrize(
    "call",
    [
        lambda spark: tidegate.as_of(spark, "/lake", 7),
        lambda spark: tidegate.audit(spark, "/lake", **STREAM),
        lambda spark: tidegate.stream(spark, **STREAM).output("/lake").mirror().start("/check"),
    ],
    ids=["as_of", "audit", "stream"],
)
def test_every_call_that_takes_a_session_refuses_it(call):
    with pytest.raises(ConfigError, match="Spark Connect is not supported"):
        call(connect_session())
