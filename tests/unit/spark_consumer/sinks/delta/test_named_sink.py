"""When the tables of a sink get their names; no Spark is started."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.named_sink import named
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest
from tidegate.spark_consumer.sinks.port import MergingSink, TableVersion


class Output:
    """The folder of the tables in memory."""

    def __init__(self):
        self.files = {}

    def path(self, name):
        return f"file:/lake/{name}"

    def read_json(self, name):
        return json.loads(self.files[name]) if name in self.files else None

    def write_json(self, name, content):
        self.files[name] = json.dumps(content)

    def names(self, _folder):
        return [name.rpartition("/")[2] for name in self.files]


class Steps:
    """What sink and catalog were asked for, in order."""

    def __init__(self):
        self.done = []
        self.refused = None

    def create_schema(self, sink):
        self.done.append(("schema", sink))

    def register(self, sink, table, *, address):
        if self.refused == table:
            raise ConfigError("the name is taken", hint="Drop it")
        self.done.append(("name", sink, table, address))


def versions(*tables, sink="changelog"):
    return {table: TableVersion(f"{sink}/{table}", 3, 1) for table in tables}


class Sink:
    name = "changelog"

    def __init__(self, steps):
        self._steps = steps

    def open(self, *, query_id, release_max):
        self._steps.done.append(("open", query_id, release_max))

    def write(self, release):
        self._steps.done.append(("write", release))
        return versions("accounts", "ledger", sink=self.name)


class Mirror(Sink):
    name = "mirror"

    def merge(self, merge):
        self._steps.done.append(("merge", merge))
        return versions("accounts", sink=self.name)

    def versions(self, release, tables):
        self._steps.done.append(("versions", release, tables))
        return versions("accounts", sink=self.name)


@pytest.fixture
def world():
    return SimpleNamespace(steps=Steps(), output=Output())


def test_a_release_is_written_before_its_tables_get_their_names(world):
    sink = named(Sink(world.steps), world.steps, output=world.output)

    assert sink.write("release 4") == versions("accounts", "ledger")
    assert world.steps.done == [
        ("write", "release 4"),
        ("name", "changelog", "accounts", "file:/lake/changelog/accounts"),
        ("name", "changelog", "ledger", "file:/lake/changelog/ledger"),
    ]


def test_a_mirror_is_still_one_and_gets_its_names_with_a_merge(world):
    sink = named(Mirror(world.steps), world.steps, output=world.output)

    assert sink.name == "mirror"
    assert isinstance(sink, MergingSink)
    assert not isinstance(named(Sink(world.steps), world.steps, output=None), MergingSink)
    assert sink.versions(7, ()) == versions("accounts", sink="mirror")
    assert sink.merge("merge") == versions("accounts", sink="mirror")
    assert world.steps.done == [
        ("versions", 7, ()),
        ("merge", "merge"),
        ("name", "mirror", "accounts", "file:/lake/mirror/accounts"),
    ]


def test_a_start_gives_names_to_what_a_kill_has_left_without(world):
    tables = {
        "accounts": {"changelog": TableVersion("changelog/accounts", 3, 1)},
        "ledger": {"mirror": TableVersion("mirror/ledger", 2)},
    }
    write_manifest(world.output, Manifest(0, "q", 0, 0, 10, 1, tables))
    sink = named(Sink(world.steps), world.steps, output=world.output)

    sink.open(query_id="q", release_max=0)

    assert world.steps.done == [
        ("open", "q", 0),
        ("schema", "changelog"),
        ("name", "changelog", "accounts", "file:/lake/changelog/accounts"),
    ]


def test_what_another_query_has_released_gets_no_names(world):
    write_manifest(world.output, Manifest(0, "other", 0, 0, 10, 1, {"a": versions("a")}))

    named(Sink(world.steps), world.steps, output=world.output).open(query_id="q", release_max=-1)

    assert world.steps.done == [("open", "q", -1), ("schema", "changelog")]


def test_a_name_that_is_taken_ends_the_release_after_it_was_written(world):
    world.steps.refused = "ledger"
    sink = named(Sink(world.steps), world.steps, output=world.output)

    with pytest.raises(ConfigError, match="the name is taken"):
        sink.write("release 4")
    assert world.steps.done[0] == ("write", "release 4")
