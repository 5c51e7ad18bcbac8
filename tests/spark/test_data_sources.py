"""A real session with its jars has every data source that the gate uses, and loads no other."""

from __future__ import annotations

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.spark import requirements

pytestmark = pytest.mark.spark


def test_the_local_stacks_jars_bring_all_data_sources(spark):
    requirements.require_session(spark)


def test_a_class_that_no_jar_brings_is_reported(spark, monkeypatch):
    monkeypatch.setattr(requirements, "_DATA_SOURCES", {"no.such.Provider": "carrier pigeons"})
    with pytest.raises(ConfigError, match="a data source for carrier pigeons"):
        requirements.require_session(spark)
