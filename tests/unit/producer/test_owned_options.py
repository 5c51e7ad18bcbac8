"""Options that the guarantees rest on are not for settings."""

from __future__ import annotations

import pytest

from tests.unit.producer.test_config import REQUIRED
from tidegate.producer.config import ProducerConfig
from tidegate.producer.owned_options import OWNED_KAFKA_OPTIONS
from tidegate.schemas.errors import ConfigError


def test_each_is_refused_by_name():
    for pattern in sorted(OWNED_KAFKA_OPTIONS):
        name = pattern.replace("*", "x")
        with pytest.raises(ConfigError, match=f"{name}: the guarantees rest on these"):
            ProducerConfig.load(None, **REQUIRED, kafka_options={name: "1"})
