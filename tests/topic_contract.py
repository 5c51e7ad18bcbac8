"""What the ordered topic promises, as cases for any implementation of its port.

The same cases run against the broker in memory and, with a real broker, against Kafka.  A process
that is killed is an exception in one of its calls, after which none of its calls does anything.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Protocol

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.partitioner import topic_partition_of
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.errors import (
    ReleasesMissing,
    ReleaseUnconfirmed,
    TopicWriterReplaced,
    WriterReplaced,
)
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink, TopicOrder
from tidegate.spark_consumer.sinks.kafka.port import OutputTopic, TransactionRecord
from tidegate.spark_consumer.sinks.port import Release, SourceRecord

NAMES = TopicNames("bank")
QUERY = "query-1"
TABLES = ("bank.accounts", "bank.ledger")


class Stage(Protocol):
    """A broker with an output topic and its releases topic, which the first `ensure` creates."""

    topic_partitions: int

    def process(self) -> OutputTopic:
        """Return the topic as another process has it."""
        ...

    def records(self) -> list[list[tuple[bytes, bytes, tuple]]]:
        """Return key, value and headers of all committed records, by topic partition."""
        ...

    def releases(self) -> list[int]:
        """Return the releases that the releases topic names, in their order."""
        ...

    def write_foreign(self) -> None:
        """Create the topics, and write a record to the output topic as another program."""
        ...

    def recreate(self, *, releases: bool) -> None:
        """Delete one of the topics; the next `ensure` creates it again."""
        ...

    def grow(self, topic_partitions: int) -> None:
        """Give the output topic more topic partitions."""
        ...


# ---------------------------------------------------------------- releases


def change(release, ordinal, *, topic=TABLES[0], key=b"\0\0\0\0\x01k", origin=-7):
    order_key = OrderKey(release * 1_000 + ordinal, "t", (0, 0), 0).encode()
    value = f"{release}/{ordinal}".encode()
    return SourceRecord(ordinal, topic, key, value, order_key, "U", origin)


def release(number, changes=None, **fields):
    """A release of three changes of two tables, unless `changes` are given."""
    if changes is None:
        changes = [change(number, n, topic=TABLES[n % 2], key=b"key %d" % n) for n in range(3)]
    tables = {
        topic: SimpleNamespace(
            schemas=SimpleNamespace(table=NAMES.table(topic)),
            rows=sum(one.topic == topic for one in changes),
        )
        for topic in TABLES
    }
    given = {
        "number": number,
        "after_us": number * 1_000 - 1,
        "through_us": number * 1_000 + 999,
        "query_id": QUERY,
        "batch": number,
        "rows": len(changes),
        "tables": tables,
        "source_records": lambda: iter(changes),
    }
    return Release(**given | fields)


def transactions(release):
    """The changes of a release two by two, as transactions."""
    changes = list(release.source_records())
    return [
        TransactionRecord(first.ordinal, len(pair), b"t%d" % n, b"".join(one.value for one in pair))
        for n in range(0, len(changes), 2)
        for pair in [changes[n : n + 2]]
        for first in pair[:1]
    ]


def opened(topic, *, release_max=9, query_id=QUERY, **options):
    """A run that has begun."""
    sink = OrderedTopicSink(topic, names=NAMES, **options)
    sink.open(query_id=query_id, release_max=release_max)
    return sink


def published(stage):
    """The values of all committed records, in the order of topic partitions and offsets."""
    return [value.decode() for records in stage.records() for _, value, _ in records]


def values(*numbers):
    return [f"{number}/{ordinal}" for number in numbers for ordinal in range(3)]


# ---------------------------------------------------------------- processes that are killed


class Killed(BaseException):
    """The process ends."""


class Watched:
    """Passes calls on; `before` and `after` are called with the name and number of each."""

    def __init__(self, topic, *, before=lambda name, number: None, after=lambda name, number: None):
        self.whole = topic
        self.calls = []
        self._before, self._after = before, after

    def __getattr__(self, name):
        found = getattr(self.whole, name)
        if not callable(found):
            return found

        def call(*arguments):
            number = len(self.calls)
            self.calls.append(name)
            self._before(name, number)
            answer = found(*arguments)
            self._after(name, number)
            return answer

        return call


def killed_at(topic, place):
    """A process that ends before (even places) or after (odd ones) one of its calls."""
    dead = []

    def die(at):
        def hook(_name, number):
            if dead or number * 2 + at == place:
                dead.append(place)
                raise Killed

        return hook

    return Watched(topic, before=die(0), after=die(1))


def steps_of_a_run(stage):
    """The calls of a run that writes one release."""
    topic = Watched(stage.process())
    opened(topic).write(release(0))
    topic.close()
    return [name for name in topic.calls if name != "close"]


# ---------------------------------------------------------------- cases


def records_are_unchanged_and_in_order(stage):
    topic = stage.process()
    sink = opened(topic)
    given = [
        change(0, 0, topic=TABLES[1]),
        change(0, 1, topic=TABLES[0], origin=None),
        change(0, 2, topic=TABLES[1], key=b"", origin=(1 << 63) - 1),
    ]
    versions = sink.write(release(0, given))
    sink.write(release(1))
    topic.close()
    (records,) = stage.records()
    assert [record[1].decode() for record in records] == values(0, 1)
    assert [record[0] for record in records[:3]] == [one.key for one in given]
    found = [{name: _bytes(value) for name, value in record[2]} for record in records[:3]]
    assert [list(headers) for headers in found] == [
        ["order", "mod", "origin", "release", "ordinal", "topic"],
        ["order", "mod", "release", "ordinal", "topic"],
        ["order", "mod", "origin", "release", "ordinal", "topic"],
    ]
    assert found[2] == {
        "order": given[2].order_key,
        "mod": b"U",
        "origin": b"\x7f" + b"\xff" * 7,
        "release": b"0",
        "ordinal": b"2",
        "topic": b"bank.ledger",
    }
    assert {name: (one.path, one.version, one.rows) for name, one in versions.items()} == {
        "accounts": (topic.topic, 0, 1),
        "ledger": (topic.topic, 0, 2),
    }


def a_transaction_is_one_record(stage):
    given = {"order": TopicOrder.BY_TRANSACTION, "transactions": transactions}
    topic = stage.process()
    sink = opened(topic, **given)
    sink.write(release(0))
    sink.write(release(1, []))
    sink.write(release(0))
    topic.close()
    again = stage.process()
    opened(again, release_max=1, **given).write(release(2))
    again.close()
    assert published(stage) == ["0/00/1", "0/2", "2/02/1", "2/2"]
    ((_, _, headers), *_) = stage.records()[0]
    assert {name: _bytes(value) for name, value in headers} == {
        "release": b"0", "ordinal": b"0", "changes": b"2",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="of the output topic are transactions, not changes"):
        opened(stage.process())


def a_replay_publishes_nothing(stage):
    first = stage.process()
    sink = opened(first)
    answers = [sink.write(release(0)), sink.write(release(0))]
    first.close()
    second = stage.process()
    sink = opened(second, release_max=0)
    answers += [sink.write(release(0))]
    sink.write(release(1))
    sink.write(release(0))
    second.close()
    assert answers[0] == answers[1] == answers[2]
    assert published(stage) == values(0, 1)
    assert stage.releases()[-1] == 1


def a_kill_at_any_step_neither_loses_nor_repeats(stage_of):
    """`stage_of` makes a stage for each kill."""
    steps = steps_of_a_run(stage_of())
    assert steps[:2] == ["ensure", "start"]
    assert steps[-2:] == ["flush", "commit"]
    assert steps.count("produce") == 3
    for place in range(2 * len(steps)):
        stage = stage_of()
        killed = killed_at(stage.process(), place)
        with pytest.raises(Killed):
            opened(killed, release_max=0).write(release(0))
        next_run = stage.process()
        sink = opened(next_run, release_max=0)
        sink.write(release(0))
        sink.write(release(1))
        next_run.close()
        killed.whole.close()
        assert published(stage) == values(0, 1), (place, steps[place // 2])


def a_release_without_changes_is_remembered(stage):
    first = stage.process()
    opened(first).write(release(0, []))
    first.close()
    second = stage.process()
    opened(second).write(release(1))
    second.close()
    assert published(stage) == values(1)
    assert stage.releases()[-1] == 1


def a_replaced_run_cannot_publish(stage):
    elder, younger = stage.process(), stage.process()
    replaced = opened(elder)
    replaced.write(release(0))
    successor = opened(younger)
    with pytest.raises(TopicWriterReplaced):
        replaced.write(release(1))
    successor.write(release(1))
    elder.close()
    younger.close()
    assert published(stage) == values(0, 1)


def a_replaced_run_that_is_behind_is_named_as_one(stage):
    """It has read the checkpoint of its successor, but the topic before that."""
    elder, younger = stage.process(), stage.process()
    replaced = opened(elder)
    opened(younger).write(release(0))
    with pytest.raises(TopicWriterReplaced):
        replaced.write(release(1))
    elder.close()
    younger.close()
    assert published(stage) == values(0)


def a_run_that_is_replaced_within_a_release_leaves_nothing_of_it(stage):
    younger = stage.process()

    def replace(name, _number):
        if name == "flush":
            opened(younger).write(release(0))

    elder = Watched(stage.process(), before=replace)
    with pytest.raises(TopicWriterReplaced):
        opened(elder).write(release(0))
    elder.close()
    younger.close()
    assert published(stage) == values(0)


def what_a_former_run_commits_at_the_last_moment_is_seen(stage):
    """It commits just before its id is taken over: what was read before that is too old."""
    elder = stage.process()
    sink = opened(elder)

    def commit_now(name, _number):
        if name == "start":
            sink.write(release(0))

    younger = Watched(stage.process(), before=commit_now)
    opened(younger).write(release(0))
    elder.close()
    younger.close()
    assert published(stage) == values(0)


def an_unanswered_commit_that_succeeded_is_found(stage):
    def lose_the_answer(name, _number):
        if name == "commit" and topic.calls.count("commit") == 1:
            raise ReleaseUnconfirmed("no answer")

    topic = Watched(stage.process(), after=lose_the_answer)
    sink = opened(topic)
    sink.write(release(0))
    sink.write(release(1))
    topic.close()
    assert topic.calls.count("commit") == 2
    assert published(stage) == values(0, 1)


def an_unanswered_commit_that_failed_is_done_again(stage):
    def lose_the_request(name, _number):
        if name == "commit" and topic.calls.count("commit") == 1:
            raise ReleaseUnconfirmed("no answer")

    topic = Watched(stage.process(), before=lose_the_request)
    opened(topic).write(release(0))
    topic.close()
    assert topic.calls.count("commit") == 2
    assert published(stage) == values(0)


def the_same_run_goes_on_after_an_error_within_a_release(stage):
    topic = stage.process()
    sink = opened(topic)

    def broken():
        yield change(0, 0)
        raise OSError("a job failed")

    with pytest.raises(OSError, match="a job failed"):
        sink.write(release(0, source_records=broken))
    sink.write(release(0))
    topic.close()
    assert published(stage) == values(0)


def a_replaced_run_does_not_fence_its_successor(stage):
    """It asks whether it is the writer still before it takes the transactional id again."""
    is_replaced = []

    def require_writer():
        if is_replaced:
            raise WriterReplaced("a younger run")

    def lose_the_answer(name, _number):
        if name == "commit":
            is_replaced.append(True)
            raise ReleaseUnconfirmed("no answer")

    elder = Watched(stage.process(), after=lose_the_answer)
    sink = opened(elder, require_writer=require_writer)
    with pytest.raises(WriterReplaced):
        sink.write(release(0))
    elder.close()
    assert elder.calls.count("start") == 1
    assert published(stage) == values(0)


def a_topic_of_another_query_is_refused(stage):
    first, second = stage.process(), stage.process()
    opened(first).write(release(0))
    with pytest.raises(ConfigError, match="another query"):
        opened(second, query_id="query-2")
    first.close()
    second.close()


def a_topic_ahead_of_the_checkpoint_is_refused(stage):
    first, second = stage.process(), stage.process()
    sink = opened(first)
    sink.write(release(0))
    sink.write(release(1))
    with pytest.raises(ConfigError, match="later release"):
        opened(second, release_max=0)
    first.close()
    second.close()


def a_topic_with_records_of_others_is_refused(stage):
    stage.write_foreign()
    topic = stage.process()
    with pytest.raises(ConfigError, match="names no release"):
        opened(topic)
    topic.close()


def lost_topics_are_noticed(stage):
    first = stage.process()
    opened(first).write(release(0))
    first.close()
    stage.recreate(releases=True)
    second = stage.process()
    with pytest.raises(ConfigError, match="names no release"):
        opened(second)
    second.close()
    stage.recreate(releases=False)
    third = stage.process()
    with pytest.raises(ReleasesMissing, match="lacks releases"):
        opened(third).write(release(1))
    opened(third).write(release(0))
    third.close()
    stage.recreate(releases=False)
    fourth = stage.process()
    with pytest.raises(ReleasesMissing, match="re-created"):
        opened(fourth)
    fourth.close()
    # With new topics and a new checkpoint, that is without a release, it begins again.
    stage.recreate(releases=True)
    stage.recreate(releases=False)
    fifth = stage.process()
    opened(fifth, release_max=-1, query_id="query-2").write(release(0))
    fifth.close()
    assert published(stage) == values(0)


def each_key_is_in_order_where_java_would_place_it(stage):
    """Needs a stage with three topic partitions."""
    topic = stage.process()
    with pytest.raises(ConfigError, match="3 topic partitions"):
        opened(topic)
    sink = opened(topic, order=TopicOrder.BY_KEY)
    keys = [b"key %d" % (n % 7) for n in range(40)]
    for number in range(2):
        sink.write(release(number, [change(number, n, key=key) for n, key in enumerate(keys)]))
    found = stage.records()
    assert sum(map(len, found)) == 80
    for number, records in enumerate(found):
        assert records
        assert {topic_partition_of(key, 3) for key, _, _ in records} == {number}
        places = [tuple(map(int, value.decode().split("/"))) for _, value, _ in records]
        assert places == sorted(places)
    stage.grow(4)
    with pytest.raises(ConfigError, match="keys would move"):
        opened(topic, order=TopicOrder.BY_KEY)
    topic.close()


CASES = (
    records_are_unchanged_and_in_order,
    a_transaction_is_one_record,
    a_replay_publishes_nothing,
    a_release_without_changes_is_remembered,
    a_replaced_run_cannot_publish,
    a_replaced_run_that_is_behind_is_named_as_one,
    a_run_that_is_replaced_within_a_release_leaves_nothing_of_it,
    what_a_former_run_commits_at_the_last_moment_is_seen,
    an_unanswered_commit_that_succeeded_is_found,
    an_unanswered_commit_that_failed_is_done_again,
    the_same_run_goes_on_after_an_error_within_a_release,
    a_replaced_run_does_not_fence_its_successor,
    a_topic_of_another_query_is_refused,
    a_topic_ahead_of_the_checkpoint_is_refused,
    a_topic_with_records_of_others_is_refused,
    lost_topics_are_noticed,
)
"""Cases for a stage with one topic partition; the others are named where they run."""


def _bytes(header):
    return header.encode() if isinstance(header, str) else header
