"""The ordered topic over a broker in memory; the cases also run against a real one."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest

from tests import topic_contract as contract
from tests.memory_topic import OUTPUT, RELEASES, MemoryStage
from tests.topic_contract import CASES, Killed, Watched, change, opened, published, release, values
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.errors import ReleaseUnconfirmed, WriterReplaced
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink, TopicOrder
from tidegate.spark_consumer.sinks.kafka.port import TRANSACTIONS, ReleaseRecord, transaction_record


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_contract(case):
    case(MemoryStage())


def test_a_kill_at_any_step_neither_loses_nor_repeats():
    contract.a_kill_at_any_step_neither_loses_nor_repeats(MemoryStage)


def test_each_key_is_in_order_where_java_would_place_it():
    contract.each_key_is_in_order_where_java_would_place_it(MemoryStage(3))


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


def test_a_release_that_is_not_whole_or_in_order_is_refused():
    stage = MemoryStage()
    for changes in ([change(0, 1), change(0, 0)], [change(0, 0), change(0, 0)]):
        with pytest.raises(InvariantViolation, match="commit order"):
            opened(stage.process()).write(release(0, changes))
    whole = release(0)
    lacking = release(0, source_records=lambda: list(whole.source_records())[:2])
    with pytest.raises(InvariantViolation, match="as many") as caught:
        opened(stage.process()).write(lacking)
    assert caught.value.fields == {"release": 0, "records": 2, "changes": 3}
    assert published(stage) == []
    sink = opened(stage.process())
    assert set(stage.transactional_ids) == {"bank-gate-query-1-topic"}
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


@pytest.mark.rule("sink-topic-key", "sink-topic-transaction", "sink-joins-by-release")
def test_a_query_may_begin_with_a_later_release():
    stage = MemoryStage()
    sink = opened(stage.process(), first_release=5)
    with pytest.raises(InvariantViolation, match="first one"):
        sink.write(release(4))
    sink.write(release(5))
    assert published(stage) == values(5)


def test_a_write_before_open_is_refused_and_a_closed_sink_takes_the_id_again():
    sink = OrderedTopicSink(MemoryStage().process(), names=TopicNames("bank"))
    with pytest.raises(InvariantViolation, match="before open"):
        sink.write(release(0))
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


def test_an_order_that_the_topic_partitions_do_not_give_is_refused_with_both_ways_out():
    stage = MemoryStage(2)
    with pytest.raises(ConfigError) as caught:
        opened(stage.process())
    assert str(caught.value) == (
        "topic all-changes has 2 topic partitions, and a total order needs one. "
        "Name a topic with one topic partition, or set the order to 'key'"
    )
    with pytest.raises(ConfigError, match="an order by transaction needs one"):
        opened(stage.process(), **BY_TRANSACTION)
    opened(stage.process(), order=TopicOrder.BY_KEY)
    stage = MemoryStage()
    stage.broker.create_topic(RELEASES, 2)
    with pytest.raises(ConfigError, match="it must have one"):
        opened(stage.process())


def test_a_topic_that_readers_of_streams_would_read_is_refused():
    default = "{prefix}.{table}"
    for template, topic in (
        (default, "bank.all"),
        ("{prefix}-{table}", "bank-all"),
        ("{prefix}.{table}-releases", "bank.all"),
        *((default, topic) for topic in ("bank-progress", "bank-dead-letter", "all-progress")),
        (default, "bank-backfill-requests"),
    ):
        process = MemoryStage().process()
        process.topic, process.releases_topic = topic, f"{topic}-releases"
        with pytest.raises(ConfigError, match=r"of the stream|of another stream"):
            OrderedTopicSink(process, names=TopicNames("bank", template))


# ---------------------------------------------------------------- runs that replace each other
RELEASE_COUNT = 4

RUNS_MAX = 12


class World:
    """The checkpoint, `done`, and runs that begin within each other's calls."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.stage = MemoryStage()
        self.done = 0
        self.runs = 0
        self.ends = []

    def run(self, *, calm=False):
        """A run that goes on from the checkpoint, until its end or to the last release."""
        self.runs += 1
        number = self.runs

        def require_writer():
            if number < self.runs:
                raise WriterReplaced("a younger run")

        disturb = (lambda *_: None) if calm else self.disturb
        topic = Watched(self.stage.process(), before=disturb, after=disturb)
        done = self.done
        try:
            # The plan of the next release may be stored.
            sink = opened(topic, release_max=done, require_writer=require_writer)
            while done < RELEASE_COUNT:
                require_writer()
                sink.write(release(done))
                require_writer()
                done = self.done = done + 1
        except (Killed, ReleaseUnconfirmed) as error:
            self.ends.append(type(error).__name__)
        except WriterReplaced as error:
            if number == self.runs:
                raise
            self.ends.append(type(error).__name__)

    def disturb(self, name, _number):
        """What may happen before and after each call."""
        event = self.chance.random()
        if event < 0.02:
            raise Killed
        if event < 0.04 and name == "commit":
            raise ReleaseUnconfirmed("no answer")
        if event < 0.08 and self.runs < RUNS_MAX:
            self.run()


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_each_change_comes_out_once_and_in_order(first):
    ends = set()
    for seed in range(first, first + 100):
        world = World(seed)
        while world.done < RELEASE_COUNT and world.runs < RUNS_MAX:
            world.run()
        world.run(calm=True)
        assert world.done == RELEASE_COUNT, seed
        assert published(world.stage) == values(*range(RELEASE_COUNT)), seed
        ends.update(world.ends)
    assert ends >= {"Killed", "TopicWriterReplaced", "WriterReplaced"}


# ---------------------------------------------------------------- records
RECORD = ReleaseRecord(
    query_id="q", release=3, after_us=10, through_us=20, rows=5, topic_id="id", topic_partitions=1
)


def test_a_record_of_a_release_is_read_as_it_was_written():
    assert RECORD.key == b"q"
    assert RECORD.value == (
        b'{"format":1,"query_id":"q","release":3,"after_us":10,"through_us":20,"rows":5,'
        b'"topic_id":"id","topic_partitions":1}'
    )
    of_transactions = replace(RECORD, holds=TRANSACTIONS)
    assert of_transactions.value == RECORD.value[:-1] + b',"holds":"transactions"}'
    later = RECORD.value[:-1] + b',"later":true}'  # a field of a later program is left out
    for value, expected in (
        (RECORD.value, RECORD), (later, RECORD), (of_transactions.value, of_transactions),
    ):  # fmt: skip
        assert ReleaseRecord.parse(value, topic="t") == expected
    with pytest.raises(ConfigError, match="format 2, this version knows 1"):
        ReleaseRecord.parse(RECORD.value.replace(b'"format":1', b'"format":2'), topic="t")


def test_another_programs_record_is_refused():
    for value in (
        *(None, b"", b"\xff", b"{", b"[]", b"7", b"{}", b'{"format":1}'),
        RECORD.value.replace(b":3,", b':"3",'),
        RECORD.value.replace(b":3,", b":true,"),
        RECORD.value.replace(b'"query_id":"q"', b'"query_id":null'),
        RECORD.value.replace(b"}", b',"holds":3}'),
    ):
        with pytest.raises(ConfigError, match="not one of Tidegate's") as caught:
            ReleaseRecord.parse(value, topic="t")
        assert caught.value.fields == {"topic": "t"}


def in_transaction(ordinal, **known):
    fields = {
        "ordinal": ordinal, "table": "accounts", "record_sequence": "0", "mod_number": 0,
        "mod_type": "UPDATE", "key": '{"id":1}', "new_values": '{"n":1.50,"t":"ä\\"b"}',
        "old_values": None, "new_columns": None, "old_columns": None,
    }  # fmt: skip
    return SimpleNamespace(**fields | known)


def test_a_transaction_is_one_json_text_with_every_digit_and_its_changes_in_order():
    digits = "12345678901234567890.123456789"
    deleted = {"mod_type": "DELETE", "new_values": None, "old_values": f'{{"n":{digits}}}'}
    changes = [
        in_transaction(3),
        in_transaction(4, table="ledger", **deleted),
        in_transaction(5, new_columns=["n", "t"]),
    ]
    made = transaction_record(commit_us=1_500_000, transaction_id="t1", changes=changes)
    assert (made.first_ordinal, made.changes, made.key) == (3, 3, b"t1")
    found = json.loads(made.value, parse_float=Decimal)
    first, second, third = found.pop("changes")
    assert found == {
        "commit_timestamp": "1970-01-01T00:00:01.500000Z",
        "server_transaction_id": "t1",
    }
    assert list(first) == list(vars(changes[0]))
    row = {"n": Decimal("1.50"), "t": 'ä"b'}
    assert first == vars(changes[0]) | {"key": {"id": 1}, "new_values": row}
    expected = {"key": {"id": 1}, "old_values": {"n": Decimal(digits)}}
    assert second == vars(changes[1]) | expected
    assert third == first | {"ordinal": 5, "new_columns": ["n", "t"]}
