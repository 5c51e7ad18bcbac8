"""Commands that read a fleet take settings without a source, and compare one that is named."""

from __future__ import annotations

import pytest

from tests.unit.producer.test_config import (
    REQUIRED,
    no_settings_of_this_machine,  # noqa: F401 - a fixture
)
from tidegate.producer.config import ProducerConfig
from tidegate.producer.fleet_config import FleetConfig
from tidegate.schemas.errors import ConfigError

NAMES = ("project", "instance", "database", "change_stream")


def test_a_command_that_reads_the_fleet_needs_no_source():
    kafka = {name: value for name, value in REQUIRED.items() if name not in NAMES}
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.load(None, **kafka)
    assert [name for name in NAMES if f"{name}: is not set" not in str(caught.value)] == []
    assert not FleetConfig.load(None, **kafka).names_source
    assert not FleetConfig.load(None, **kafka, database="my_db").names_source
    whole = FleetConfig.load(None, **REQUIRED)
    assert whole.names_source
    assert whole.stream_path == ProducerConfig.load(None, **REQUIRED).stream_path
    source = {"kind": "datastream", "location": "gs://a/b"}
    assert FleetConfig.load(None, **kafka, source=source).names_source
    for name in NAMES:
        with pytest.raises(ConfigError, match="not a valid name"):
            FleetConfig.load(None, **{**REQUIRED, name: "!"})
        with pytest.raises(ConfigError, match="not a valid name"):
            ProducerConfig.load(None, **{**REQUIRED, name: ""})
