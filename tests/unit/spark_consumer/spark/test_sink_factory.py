"""The sinks of a query: those of the settings, and those of a program's own."""

from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import SINKS, ConsumerConfig
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.spark.sink_factory import all_names, make_sinks


def config(sinks):
    return ConsumerConfig(
        bootstrap_servers="b", registry_url="http://r", prefix="bank", output="o", checkpoint="c",
        sinks=sinks, ordered_topic="bank-ordered" if "topic" in sinks else "",
    )  # fmt: skip


OWN = SimpleNamespace(name="mine")
OUTPUT = SimpleNamespace(root="/lake", require_writer=lambda: None)


@pytest.mark.parametrize("sinks", [*SINKS, ",".join(SINKS)])
def test_each_sink_that_settings_name_is_made_under_its_name(sinks):
    made = make_sinks(None, config(sinks), output=OUTPUT, direct=None, further=[OWN])
    assert tuple(sink.name for sink in made) == all_names(config(sinks), [OWN])
    assert made[-1] is OWN


@pytest.mark.parametrize(
    ("state", "first"),
    [
        (None, 0),
        (State("bank", "q"), 0),
        (State("bank", "q", sinks=("topic",), next_release=4), 0),
        (State("bank", "q", sinks=("topic",), next_release=4, begins={"topic": 2}), 2),
        (State("bank", "q", sinks=("changelog",), next_release=4), None),
    ],
)
def test_the_ordered_topic_lacks_nothing_from_the_release_on_with_which_it_joined(state, first):
    (sink,) = make_sinks(None, config("topic"), output=OUTPUT, direct=None, state=state)
    assert sink._first_release == first


def test_two_sinks_have_two_names():
    with pytest.raises(ConfigError, match="same name"):
        all_names(config("mirror"), [SimpleNamespace(name="mirror")])
