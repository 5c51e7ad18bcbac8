"""The ordered topic over a broker in memory; the cases also run against a real one."""

from __future__ import annotations

import pytest

from tests import topic_contract as contract
from tests.memory_topic import OUTPUT, RELEASES, MemoryStage
from tests.topic_contract import CASES, change, opened, published, release, values
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.errors import ReleaseUnconfirmed
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink, TopicOrder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_contract(case):
    case(MemoryStage())


def test_a_kill_at_any_step_neither_loses_nor_repeats():
    contract.a_kill_at_any_step_neither_loses_nor_repeats(MemoryStage)


def test_each_key_is_in_order_where_java_would_place_it():
    contract.each_key_is_in_order_where_java_would_place_it(MemoryStage(3))


def test_a_release_that_the_topic_has_is_not_published_again():
    contract.a_replay_publishes_nothing(MemoryStage())


def test_a_former_run_is_ended_before_the_topic_is_read():
    contract.what_a_former_run_commits_at_the_last_moment_is_seen(MemoryStage())


def test_the_topic_is_read_after_a_commit_without_an_answer():
    contract.an_unanswered_commit_that_succeeded_is_found(MemoryStage())


def test_a_commit_that_never_has_an_answer_ends_the_write():
    def lose_the_request(name, _number):
        if name == "commit":
            raise ReleaseUnconfirmed("no answer")

    stage = MemoryStage()
    topic = contract.Watched(stage.process(), before=lose_the_request)
    with pytest.raises(ReleaseUnconfirmed):
        opened(topic).write(release(0))
    assert topic.calls.count("commit") == 3
    assert published(stage) == []


def test_the_transactional_id_is_that_of_the_query_and_the_sink():
    stage = MemoryStage()
    opened(stage.process())
    assert stage.transactional_ids == ["bank-gate-query-1-topic"]


@pytest.mark.parametrize(
    "changes",
    [[change(0, 1), change(0, 0)], [change(0, 0), change(0, 0)]],
    ids=["exchanged", "repeated"],
)
def test_records_out_of_order_are_refused_and_nothing_is_published(changes):
    stage = MemoryStage()
    with pytest.raises(InvariantViolation, match="commit order"):
        opened(stage.process()).write(release(0, changes))
    assert published(stage) == []


def test_records_that_are_not_as_many_as_the_changes_are_refused():
    stage = MemoryStage()
    whole = release(0)
    lacking = release(0, source_records=lambda: list(whole.source_records())[:2])
    with pytest.raises(InvariantViolation, match="as many") as caught:
        opened(stage.process()).write(lacking)
    assert caught.value.fields == {"release": 0, "records": 2, "changes": 3}
    assert published(stage) == []


def test_a_release_with_other_bounds_is_refused():
    stage = MemoryStage()
    sink = opened(stage.process())
    sink.write(release(0))
    with pytest.raises(ConfigError, match="other bounds"):
        sink.write(release(0, through_us=7))


def test_a_topic_with_records_of_others_is_left_for_one_of_its_own():
    taken = MemoryStage()
    opened(taken.process()).write(release(0))
    taken.write_foreign(RELEASES)
    with pytest.raises(ConfigError, match="not one of Tidegate's") as caught:
        opened(taken.process())
    assert "a topic of its own" in caught.value.hint
    own = MemoryStage()
    opened(own.process(), release_max=-1).write(release(0))
    assert published(own) == values(0)


BY_TRANSACTION = {"order": TopicOrder.BY_TRANSACTION, "transactions": contract.transactions}


def test_a_topic_of_changes_gets_no_transactions():
    stage = MemoryStage()
    opened(stage.process()).write(release(0))
    with pytest.raises(ConfigError, match="are changes, not transactions"):
        opened(stage.process(), **BY_TRANSACTION)
    assert published(stage) == values(0)


@pytest.mark.rule("sink-topic-transaction")
@pytest.mark.parametrize(
    ("change_transactions", "text"),
    [
        (lambda found: found[::-1], "commit order"),
        (lambda found: found + found[-1:], "commit order"),
        (lambda found: found[:-1], "as many"),
    ],
)
def test_transactions_out_of_order_or_missing_are_refused(change_transactions, text):
    stage = MemoryStage()
    options = BY_TRANSACTION | {
        "transactions": lambda release: change_transactions(contract.transactions(release))
    }
    with pytest.raises(InvariantViolation, match=text):
        opened(stage.process(), **options).write(release(0))
    assert published(stage) == []


def test_transactions_need_one_topic_partition():
    with pytest.raises(ConfigError, match="an order by transaction needs one"):
        opened(MemoryStage(2).process(), **BY_TRANSACTION)


@pytest.mark.rule("sink-topic-key", "sink-topic-transaction", "sink-joins-by-release")
def test_a_query_may_begin_with_a_later_release():
    stage = MemoryStage()
    sink = opened(stage.process(), first_release=5)
    with pytest.raises(InvariantViolation, match="first one"):
        sink.write(release(4))
    sink.write(release(5))
    assert published(stage) == values(5)


def test_a_write_before_open_is_refused():
    sink = OrderedTopicSink(MemoryStage().process(), names=TopicNames("bank"))
    with pytest.raises(InvariantViolation, match="before open"):
        sink.write(release(0))


def test_a_closed_sink_takes_the_id_again():
    stage = MemoryStage()
    sink = opened(stage.process())
    sink.write(release(0))
    sink.close()
    sink.write(release(1))
    assert published(stage) == values(0, 1)


@pytest.mark.parametrize(
    ("topic", "policy", "named"),
    [
        (OUTPUT, {"compact"}, "all-changes: cleanup.policy is 'compact', it must be 'delete'"),
        (OUTPUT, {"compact", "delete"}, "'compact,delete', it must be 'delete'"),
        (RELEASES, {"delete"}, "all-changes-releases: cleanup.policy is 'delete'"),
        (RELEASES, {"compact", "delete"}, "'compact,delete', it must be 'compact'"),
    ],
)
def test_a_topic_that_would_lose_records_is_refused(topic, policy, named):
    stage = MemoryStage()
    stage.policies[topic] = policy
    with pytest.raises(ConfigError, match=r"cleanup\.policy") as caught:
        opened(stage.process())
    assert named in str(caught.value)


def test_a_releases_topic_with_several_topic_partitions_is_refused():
    stage = MemoryStage()
    stage.broker.create_topic(RELEASES, 2)
    with pytest.raises(ConfigError, match="it must have one"):
        opened(stage.process())


def test_several_topic_partitions_are_refused_with_both_ways_out():
    stage = MemoryStage(2)
    with pytest.raises(ConfigError) as caught:
        opened(stage.process())
    assert str(caught.value) == (
        "topic all-changes has 2 topic partitions, and a total order needs one. "
        "Name a topic with one topic partition, or set the order to 'key'"
    )
    opened(stage.process(), order=TopicOrder.BY_KEY)


@pytest.mark.parametrize(
    ("prefix", "template", "topic"),
    [
        ("bank", "{prefix}.{table}", "bank.all"),
        ("bank", "{prefix}-{table}", "bank-all"),
        ("bank", "{prefix}.{table}-releases", "bank.all"),
        ("bank", "{prefix}.{table}", "bank-progress"),
        ("bank", "{prefix}.{table}", "bank-dead-letter"),
        ("bank", "{prefix}.{table}", "all-progress"),
    ],
)
def test_a_topic_that_readers_of_streams_would_read_is_refused(prefix, template, topic):
    process = MemoryStage().process()
    process.topic, process.releases_topic = topic, f"{topic}-releases"
    with pytest.raises(ConfigError, match=r"of the stream|of another stream"):
        OrderedTopicSink(process, names=TopicNames(prefix, template))
