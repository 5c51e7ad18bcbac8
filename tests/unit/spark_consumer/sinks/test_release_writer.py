"""Publishing one release: every sink in turn, then the manifest."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.core.plan import MergeMirror
from tidegate.spark_consumer.errors import CheckpointMismatch
from tidegate.spark_consumer.sinks.manifest import read_manifest
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.release_writer import (
    merge_mirrors,
    merging_sinks,
    write_release,
)

RELEASE = Release(
    number=3, after_us=10, through_us=20, query_id="q", batch=7, rows=5, tables={}, copies=2
)


class Sink:
    def __init__(self, name, events):
        self.name = name
        self._events = events

    def open(self, *, query_id, release_max):
        pass

    def write(self, release):
        self._events.append(f"{self.name} wrote {release.number}")
        return {"accounts": TableVersion(f"{self.name}/accounts", 4)}


@pytest.fixture
def output():
    client = StoreClient(ObjectStore(), "output", None)
    client.take()
    return client


def test_each_sink_writes_with_the_settings_of_its_session(output):
    events = []

    @contextmanager
    def settings_of(sink):
        events.append(f"settings of {sink.name}")
        yield
        events.append("put back")

    sinks = [Sink("changelog", events), Sink("function", events)]
    list(write_release(RELEASE, sinks=sinks, output=output, settings_of=settings_of))
    assert events == [
        "settings of changelog", "changelog wrote 3", "put back",
        "settings of function", "function wrote 3", "put back",
    ]  # fmt: skip


def test_every_step_is_named_before_it_is_done(output):
    events = []
    sinks = [Sink("changelog", events), Sink("mirror", events)]
    for step in write_release(RELEASE, sinks=sinks, output=output):
        events += [step]
    assert events == [
        "sink-changelog", "changelog wrote 3", "sink-mirror", "mirror wrote 3", "manifest",
    ]  # fmt: skip
    found = read_manifest(output, 3)
    assert (found.batch, found.after_us, found.through_us, found.rows) == (7, 10, 20, 5)
    assert found.copies == 2
    assert found.tables == {
        "accounts": {
            "changelog": TableVersion("changelog/accounts", 4),
            "mirror": TableVersion("mirror/accounts", 4),
        }
    }


@pytest.mark.rule("sink-manifest")
def test_a_release_has_no_manifest_before_all_sinks_have_it(output):
    steps = write_release(RELEASE, sinks=[Sink("changelog", [])], output=output)
    assert [next(steps), next(steps)] == ["sink-changelog", "manifest"]
    assert read_manifest(output, 3) is None
    assert list(steps) == []
    assert read_manifest(output, 3) is not None


@pytest.mark.parametrize("complete_from_us", [None, 15])
def test_a_manifest_says_from_when_on_the_output_is_complete(output, complete_from_us):
    list(write_release(RELEASE, sinks=(), output=output, complete_from_us=complete_from_us))
    assert read_manifest(output, 3).complete_from_us == complete_from_us


class Mirror(Sink):
    def merge(self, merge):
        self._events.append(f"{self.name} merged {merge.after}..{merge.through}")
        return {"accounts": TableVersion(f"{self.name}/accounts", merge.through + 10)}

    def versions(self, release, tables):
        names = [one.table for one in tables]
        self._events.append(f"{self.name} has {release} of {names}")
        return {name: TableVersion(f"{self.name}/{name}", release + 10) for name in names}


def test_a_mirror_that_joins_takes_everything_and_the_others_what_they_lack(output):
    events = []
    mirror, history = Mirror("mirror", events), Mirror("history", events)
    list(write_release(RELEASE, sinks=[Sink("changelog", [])], output=output))
    topics = {name: SimpleNamespace(table=name) for name in ("accounts", "later")}
    merge = {"plan": SimpleNamespace(query_id="q", batch=8), "topics": topics, "output": output}

    step = MergeMirror(1, 3, joining=("history",))
    steps = list(merge_mirrors(step, mirrors=[mirror, history], **merge))
    assert steps == ["sink-mirror", "sink-history", "manifest"]
    assert events == ["mirror merged 1..3", "history merged -1..3"]

    events.clear()  # the others stand there already
    step = MergeMirror(3, 3, joining=("history",))
    list(merge_mirrors(step, mirrors=[mirror, history], **merge))
    assert events == ["mirror has 3 of ['accounts']", "history merged -1..3"]

    found = read_manifest(output, 3)
    assert found.mirror_release == 3
    assert found.versions("mirror") == found.versions("history") == {"accounts": 13}
    assert found.versions("changelog") == {"accounts": 4}


def test_a_manifest_names_the_older_cut_of_every_mirror(output):
    mirrors = [Mirror("mirror", []), Mirror("history", [])]
    tables = {"t": SimpleNamespace(schemas=SimpleNamespace(table="accounts"))}
    release = Release(3, 10, 20, "q", 7, 5, tables)
    list(write_release(release, sinks=[Sink("changelog", [])], output=output, behind=(mirrors, 2)))
    found = read_manifest(output, 3)
    assert found.mirror_release == 2
    assert {sink: one.version for sink, one in found.tables["accounts"].items()} == {
        "changelog": 4, "mirror": 12, "history": 12,
    }  # fmt: skip


def test_mirrors_merge_a_release_that_has_a_manifest(output):
    merge = {"plan": SimpleNamespace(query_id="q", batch=8), "topics": {}, "output": output}
    with pytest.raises(CheckpointMismatch, match="no manifest"):
        list(merge_mirrors(MergeMirror(1, 3), mirrors=[Mirror("mirror", [])], **merge))


def test_the_mirrors_of_a_plan_are_found_by_their_names():
    mirror, history, changelog = Mirror("mirror", []), Mirror("history", []), Sink("changelog", [])
    sinks = [changelog, mirror, history]
    assert merging_sinks(sinks, ("changelog", "mirror", "history")) == [mirror, history]
    assert merging_sinks(sinks, ("changelog", "mirror")) == [mirror]
    with pytest.raises(InvariantViolation, match="several releases"):
        merging_sinks(sinks, ("changelog",))
    with pytest.raises(InvariantViolation, match="several releases"):
        merging_sinks([changelog, Sink("mirror", [])], ("changelog", "mirror"))
