"""The sinks of a query: those of the settings, and those of a program's own."""

from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import SINKS, ConsumerConfig
from tidegate.spark_consumer.spark.sink_factory import all_names, make_sinks


def config(sinks):
    return ConsumerConfig(
        bootstrap_servers="b", registry_url="http://r", prefix="bank", output="o", checkpoint="c",
        sinks=sinks,
    )  # fmt: skip


OWN = SimpleNamespace(name="mine")


@pytest.mark.parametrize("sinks", [*SINKS, ",".join(SINKS)])
def test_each_sink_that_settings_name_is_made_under_its_name(sinks):
    made = make_sinks(
        None, config(sinks), output=SimpleNamespace(root="/lake"), direct=None, further=[OWN]
    )
    assert tuple(sink.name for sink in made) == all_names(config(sinks), [OWN])
    assert made[-1] is OWN


def test_two_sinks_have_two_names():
    with pytest.raises(ConfigError, match="same name"):
        all_names(config("mirror"), [SimpleNamespace(name="mirror")])
