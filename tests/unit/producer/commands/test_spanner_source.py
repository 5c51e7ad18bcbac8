"""A change stream of Spanner, opened with the settings."""

from __future__ import annotations

from contextlib import closing

import pytest

from tidegate.producer.commands.environment import find_environment
from tidegate.producer.commands.spanner_source import open_spanner
from tidegate.schemas.errors import ConfigError

LONG_AGO = "2001-01-01T00:00:00Z"


def test_a_start_counts_until_the_stream_has_begun(place):
    config = place.config(start=LONG_AGO)
    with pytest.raises(ConfigError, match="changes before the stream's retention"):
        open_spanner(config, has_begun=False, has_dead_letter=False)
    with closing(open_spanner(config, has_begun=True, has_dead_letter=False)) as source:
        assert [table.name for table in source.description.tables] == ["Users"]
        assert source.channels is not None


def test_queries_say_of_themselves_what_the_settings_say(place):
    config = place.config(rpc_priority="low", request_tag="tide")
    with closing(open_spanner(config, has_begun=False, has_dead_letter=False)) as source:
        assert (source.query_options.priority, source.query_options.tag) == ("LOW", "tide")


def test_a_table_that_cannot_have_a_topic_is_refused_by_name(place):
    config = place.config(topic_template="{prefix}-U" + "x" * 240 + "{table}")
    with pytest.raises(ConfigError, match="table Users: its topic's name has 251 characters"):
        find_environment(config)
    assert place.topics() == set()
    assert {method for method, _ in place.registry.asked} == {"GET"}
