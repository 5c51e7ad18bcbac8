"""The sinks of a query: those of the settings, and those of a program's own."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.unit.spark_consumer.core.test_plan import PLAN
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import SINKS, ConsumerConfig
from tidegate.spark_consumer.sinks.datastream.file_bytes import FileFormat
from tidegate.spark_consumer.sinks.datastream.open_files import FileLimits
from tidegate.spark_consumer.sinks.datastream.sink import FileSettings
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.named_sink import NamedSink
from tidegate.spark_consumer.sinks.port import MergingSink, TableSink
from tidegate.spark_consumer.spark import sink_factory
from tidegate.spark_consumer.spark.sink_factory import all_names, make_sinks

PROPERTIES = {"delta.logRetentionDuration": "interval 10 days"}


def config(sinks, catalog_schema=""):
    return ConsumerConfig(
        bootstrap_servers="b", registry_url="http://r", prefix="bank", output="o", checkpoint="c",
        sinks=sinks, ordered_topic="bank-ordered" if "topic" in sinks else "",
        catalog_schema=catalog_schema,
    )  # fmt: skip


OWN = SimpleNamespace(name="mine")
OUTPUT = SimpleNamespace(root="/lake", require_writer=lambda: None)


@pytest.mark.parametrize("sinks", [*SINKS, ",".join(SINKS)])
def test_each_sink_that_settings_name_is_made_under_its_name(sinks):
    made = make_sinks(None, config(sinks), output=OUTPUT, direct=None, further=[OWN])
    assert tuple(sink.name for sink in made) == all_names(config(sinks), [OWN])
    assert made[-1] is OWN


@pytest.mark.parametrize(("sinks", "first"), [(("topic",), 0), (("changelog",), None)])
def test_the_ordered_topic_knows_with_which_release_it_begins(sinks, first):
    stored = replace(PLAN, sinks=sinks)
    (sink,) = make_sinks(None, config("topic"), output=OUTPUT, direct=None, stored=stored)
    assert sink._first_release == first


def test_each_sink_of_delta_tables_says_which_versions_it_has_read():
    made = make_sinks(None, config(",".join(SINKS)), output=OUTPUT, direct=None)
    with_tables = {sink.name: sink for sink in made if isinstance(sink, TableSink)}
    assert set(with_tables) == {"changelog", "mirror", "history"}
    for name, sink in with_tables.items():
        assert sink.heads() == {}
        sink._tables._logs["t"] = SimpleNamespace(exists=True, head=7)
        sink._tables._logs["none"] = SimpleNamespace(exists=False, head=-1)
        expected = {f"{name}/t": 7}
        if name != "changelog":
            sink._incomplete._tables._logs["t"] = SimpleNamespace(exists=True, head=1)
            expected[sink._incomplete._tables.path("t")] = 1
        assert sink.heads() == expected


def test_layouts_are_those_of_new_mirrors_and_properties_those_of_all():
    settings = config("changelog,mirror,history").model_copy(
        update={
            "table_properties": PROPERTIES,
            "mirror_partition_by": {"t": "a, b"},
            "mirror_cluster_by": {"u": "c"},
        }
    )
    made = make_sinks(None, settings, output=OUTPUT, direct=None)
    layouts = {sink.name: sink._tables._layout for sink in made}
    assert layouts["mirror"] == TableLayout(PROPERTIES, {"t": ("a", "b")}, {"u": ("c",)})
    assert layouts["changelog"] == layouts["history"] == TableLayout(PROPERTIES)


def test_two_sinks_have_two_names():
    with pytest.raises(ConfigError, match="same name"):
        all_names(config("mirror"), [SimpleNamespace(name="mirror")])


def test_tables_of_delta_get_names_where_a_schema_is_set():
    wanted = config(",".join(SINKS), catalog_schema="bank")
    made = make_sinks(None, wanted, output=OUTPUT, direct=None, further=[OWN])
    assert tuple(sink.name for sink in made) == all_names(wanted, [OWN])
    given = {sink.name for sink in made if isinstance(sink, NamedSink)}
    assert given == {"changelog", "mirror", "history"}
    merging = {sink.name for sink in made if isinstance(sink, MergingSink)}
    assert merging == {"mirror", "history", "iceberg_mirror"}


def test_files_as_datastream_writes_them_get_the_streams_name_from_its_first_record(monkeypatch):
    settings = config("datastream_files").model_copy(
        update={"datastream_files_format": "jsonl", "datastream_files_rows_max": 7}
    )
    (sink,) = make_sinks(None, settings, output=OUTPUT, direct=None)
    assert sink._settings == FileSettings(FileFormat.JSON, FileLimits(7, 16 * 1024**2))
    found = iter([SimpleNamespace(stream="projects/p"), None])
    asked = []
    monkeypatch.setattr(
        sink_factory, "recorded_start", lambda topic, **_: (asked.append(topic), next(found))[1]
    )
    assert sink._find_stream() == "projects/p"
    with pytest.raises(ConfigError, match=r"does not say which change stream.*bank-progress"):
        sink._find_stream()
    assert asked == ["bank-progress"] * 2
