"""The gate's files, over an object store in memory."""

from dataclasses import replace
from random import Random

import pytest

from tests.simulation.disturbance import Disturbance, GateProfile
from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    StreamStarted,
)
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles, complete_from_us, newest_state
from tidegate.spark_consumer.core.batch_state import Segment, State
from tidegate.spark_consumer.core.files import QUERY_FILE
from tidegate.spark_consumer.core.frontier_log import FrontierLog
from tidegate.spark_consumer.core.plan import PLAN_FORMAT, Plan, ReleaseBounds
from tidegate.spark_consumer.core.segment_list import ALL_IN_THE_STATE
from tidegate.spark_consumer.errors import CheckpointConflict, CheckpointMismatch, WriterReplaced

SUBSCRIPTION = Subscription(TopicNames("bank"))


def plan(batch, *releases):
    return Plan(
        format=PLAN_FORMAT, code="1", prefix="bank", query_id="q", batch=batch,
        end_offsets={"bank-progress": {0: 1}}, after_us=0, through_us=9, slowest=None,
        stream_has_ended=False, late_rows=0,
        releases=tuple(ReleaseBounds(number, 0, 9, ()) for number in releases),
        stored=(), compaction=None, topics=(), frontier="f", sinks=("changelog",),
    )  # fmt: skip


CHILD = ChildPartition("t", ("",), 0)
BODIES = (
    StreamStarted("s", "g", 0, None, "bank-fleet", 1, "id", (), (CHILD,)),
    PartitionAnnounced(CHILD, ""),
)
OPENING = [ProgressRow(0, n, ProgressRecord("e", "w", body)) for n, body in enumerate(BODIES)]


@pytest.fixture
def storage():
    client = StoreClient(ObjectStore(), "gate", None)
    client.take()
    return client


@pytest.fixture
def files(storage):
    return GateFiles(storage)


def test_a_checkpoint_keeps_its_identity(files):
    first = files.identify(TopicNames("bank"), output="o")
    assert files.identify(TopicNames("bank"), output="o") == first
    with pytest.raises(ConfigError, match="another prefix"):
        files.identify(TopicNames("other"), output="o")
    with pytest.raises(ConfigError, match="another output"):
        files.identify(TopicNames("bank"), output="elsewhere")


def test_a_checkpoint_keeps_the_template_of_its_topics(files, storage):
    names = TopicNames("bank", "{prefix}-{table}")
    files.identify(names, output="o")
    assert files.require_identity(names, output="o").topic_template == "{prefix}-{table}"
    with pytest.raises(ConfigError, match="another topic_template"):
        files.identify(TopicNames("bank"), output="o")


def test_older_programs_read_the_identity_of_a_checkpoint_with_default_names(files, storage):
    files.identify(TopicNames("bank"), output="o", new_id=lambda: "q")
    stored = {"query_id": "q", "prefix": "bank", "output": "o"}
    assert storage.read_json(QUERY_FILE) == stored
    with pytest.raises(ConfigError, match="another topic_template"):
        files.identify(TopicNames("bank", "{prefix}-{table}"), output="o")


def test_states_plans_and_frontiers_are_loaded_as_they_were_stored(files):
    state, frontier = State("bank", "q", batch=3), Frontier(SUBSCRIPTION)
    frontier.fold(OPENING, reached={"bank-progress": {0: 2}})
    files.store_state(state)
    files.store_plan(plan(4, 7))
    log = FrontierLog(frontier)
    files.store_frontier("f/1", log, log.write("f/1", code="1"))
    assert files.state(3) == state
    assert files.plan(4) == plan(4, 7)
    assert files.frontier("f/1", SUBSCRIPTION) is log
    found = files.frontier("f/1", SUBSCRIPTION)
    assert found is not log
    assert list(found.frontier.items_since(None)) == list(frontier.items_since(None))
    assert (files.state(4), files.plan(3), files.frontier("g", SUBSCRIPTION)) == (None, None, None)


def test_a_plan_is_stored_once(files):
    files.store_plan(plan(4, 7))
    with pytest.raises(CheckpointConflict, match="another run"):
        files.store_plan(plan(4, 8))
    assert files.plan(4) == plan(4, 7)


def test_deleted_files_are_gone(files):
    files.store_state(State("bank", "q", batch=3))
    files.delete(["states/3.json", "states/4.json"])
    assert files.state(3) is None


def test_a_replaced_run_may_not_write(files, storage):
    StoreClient(storage._store, "gate", None).take()
    for write in (
        files.require_writer,
        lambda: files.store_state(State("bank", "q", batch=3)),
        lambda: files.store_plan(plan(4)),
        lambda: files.delete(["a"]),
    ):
        with pytest.raises(WriterReplaced):
            write()


@pytest.mark.parametrize("lists_late", [0.0, 1.0])
def test_the_newest_state_is_found_also_where_the_listing_lacks_it(storage, lists_late):
    files = GateFiles(storage)
    assert newest_state(storage) is None
    assert files.release_max() == -1
    for batch in range(11):
        files.store_state(replace(State("bank", "q"), batch=batch, next_release=batch))
    storage._disturbance = Disturbance(Random(1), profile=GateProfile(lists_late=lists_late))
    assert newest_state(storage).batch == 10
    assert files.release_max() == 9


def test_sinks_by_key_go_by_batches_of_states_and_of_an_unfinished_plan(files):
    assert files.batch_max() == files.release_max("mirror_by_key") == -1
    files.store_state(replace(State("bank", "q"), batch=6, next_release=2))
    assert [files.release_max(name) for name in ("changelog_by_key", "topic")] == [6, -1]
    files.store_plan(plan(7))
    assert files.batch_max() == files.release_max("parquet_by_key") == 7


def test_the_releases_of_an_unfinished_plan_count(files):
    files.store_state(replace(State("bank", "q"), batch=0, next_release=2))
    files.store_plan(plan(1, 2, 3))
    assert files.release_max() == 3


def test_the_mirror_has_the_releases_of_its_merges_only(files):
    sinks = ("changelog", "mirror")
    state = replace(State("bank", "q", sinks=sinks), batch=0, next_release=5)
    files.store_state(replace(state, mirror_release=2))
    assert (files.release_max("changelog"), files.release_max("mirror")) == (4, 2)
    files.store_plan(replace(plan(1, 5, 6), sinks=sinks, mirror_at=2, merges=()))
    assert (files.release_max("changelog"), files.release_max("mirror")) == (6, 2)
    files.store_plan(replace(plan(2, 7, 8), sinks=sinks, mirror_at=2, merges=(8,)))
    assert (files.release_max("changelog"), files.release_max("mirror")) == (8, 8)


def test_a_sink_that_joins_has_no_release_before_a_plan_names_it(files):
    state = replace(State("bank", "q", sinks=("changelog",)), batch=0, next_release=5)
    files.store_state(state)
    assert (files.release_max("changelog"), files.release_max("topic")) == (4, -1)
    files.store_plan(replace(plan(1, 5, 6), sinks=("changelog", "topic")))
    assert (files.release_max("changelog"), files.release_max("topic")) == (6, 6)


def test_where_the_output_begins_to_be_complete_is_kept(files, storage):
    assert complete_from_us(storage) is None
    files.note_start(7)
    files.note_start(9)
    assert complete_from_us(storage) == 9
    files.note_start(None)
    assert complete_from_us(storage) is None


def segments(*numbers):
    return tuple(Segment(f"{n}/1", n, n, 1, (n,)) for n in numbers)


def listed(batch, *numbers, writer=1):
    """A state that stores its segments in files beside it, and the files."""
    parts, files = ALL_IN_THE_STATE.write(segments(*numbers), batch=batch, writer=writer, own_max=0)
    return State("bank", "q", batch=batch, segments=segments(*numbers), listed=parts), files


def test_a_state_is_loaded_with_the_segments_beside_it(files, storage):
    state, parts = listed(3, 1, 2)
    files.store_state(state, parts)
    assert files.state(3) is state
    assert GateFiles(storage).state(3) == state == newest_state(storage)


def test_a_state_that_another_run_has_replaced_is_read_again(files, storage):
    state, parts = listed(3, 1, 2)
    files.store_state(state, parts)
    other, parts = listed(3, 4, 5, writer=2)
    GateFiles(storage).store_state(other, parts)
    assert files.state(3) == other


def test_the_newest_state_is_looked_for_again_if_its_files_are_gone(files, storage):
    first, parts = listed(3, 1, 2)
    files.store_state(first, parts)
    second, more = listed(4, 3, 4)

    class Overtaken:
        """A folder whose run stores the next state once the newest one was read."""

        names = storage.names

        def read_json(self, name):
            content = storage.read_json(name)
            if name == "states/3.json" and files.state(4) is None:
                files.store_state(second, more)
                files.delete([file for file, _ in parts])
            return content

    assert newest_state(Overtaken()) == second
    files.delete([file for file, _ in more])
    with pytest.raises(CheckpointMismatch, match="not stored"):
        newest_state(storage)
