"""The ordered topic behind the whole batch on real Spark: both ways of a release, and kills."""

import pytest

from tests.memory_topic import MemoryStage
from tests.spark.batch.gate_world import ACCOUNTS, LEDGER, GateWorld
from tests.topic_contract import NAMES
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink

pytestmark = pytest.mark.spark


class Killed(BaseException):
    """Stands for SIGKILL."""


def world_of(spark, folder, stage, *, collects, **limits):
    world = GateWorld(spark, folder, release_rows_max=6, **limits)
    world.collects = collects

    def make_sink():
        sink = OrderedTopicSink(stage.process(), names=NAMES)
        sink.open(query_id="q", release_max=9)
        return sink

    world.make_sink = make_sink
    return world


def feed(log):
    """Changes of two tables in turn, out of order, some twice."""
    for commit_us in (50, 20, 40, 10, 30, 60, 80, 70, 90):
        topic = LEDGER if commit_us % 20 else ACCOUNTS
        log.change(commit_us, topic=topic, copies=1 + (commit_us == 40))
    log.beat(85)


def sent(log):
    """Key, value, order key and topic of each change up to the watermark, in commit order."""
    found = {bytes(row[6]): (bytes(row[4]), bytes(row[5]), row[1]) for row in log.sent}
    return [(key, *found[key]) for key in sorted(found) if key[:8] <= (85).to_bytes(8, "big")]


def received(stage):
    found = []
    for key, value, headers in stage.records()[0]:
        by_name = dict(headers)
        found.append((by_name["order"], key, value, by_name["topic"]))
    return found


@pytest.mark.parametrize(
    ("collects", "limits"),
    [
        (True, {}),
        pytest.param(False, {}, marks=pytest.mark.deep),
        (False, {"small_release_rows_max": 0, "slice_rows": 2}),
    ],
    ids=["small", "large", "sliced"],
)
def test_what_kafka_held_comes_out_in_commit_order(spark, tmp_path, collects, limits):
    stage = MemoryStage()
    world = world_of(spark, tmp_path, stage, collects=collects, **limits)
    feed(world.log)
    world.run(world.start())
    plan = (tmp_path / "gate" / "plans" / "0.json").read_text()
    assert ('"cuts_us":[]' not in plan) == bool(limits)
    assert received(stage) == sent(world.log)
    assert [topic for *_, topic in received(stage)][:3] == [LEDGER, ACCOUNTS, LEDGER]
    releases = [dict(headers)["release"] for _, _, headers in stage.records()[0]]
    assert len(set(releases)) > 1
    versions = world.manifest(0).tables
    assert versions["accounts"]["topic"].path == "all-changes"
    assert versions["accounts"]["topic"].version == 0


@pytest.mark.parametrize("collects", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_release_that_is_repeated_the_other_way_is_not_published_again(spark, tmp_path, collects):
    """Killed behind the first release's commit, before its manifest."""
    stage = MemoryStage()
    world = world_of(spark, tmp_path, stage, collects=collects)
    feed(world.log)
    number = world.cut()

    def kill():
        if stage.releases():
            raise Killed

    with pytest.raises(Killed):
        world.ask(world.start(kill), number)
    assert stage.releases() == [0]
    assert world.manifest(0) is None
    world.collects = not collects
    world.ask(world.start(), number)
    assert received(stage) == sent(world.log)
    assert world.manifest(1) is not None
