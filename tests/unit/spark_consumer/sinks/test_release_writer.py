"""Publishing one release: every sink in turn, then the manifest."""

import pytest

from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.spark_consumer.sinks.manifest import read_manifest
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.release_writer import write_release

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
