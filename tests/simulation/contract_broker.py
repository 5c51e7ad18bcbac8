"""A real broker on the contract's stage: each case has topics, group and names of its own."""

from __future__ import annotations

import struct
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.simulation.contract import DATA_NUMBERS, SLOTS, UNSTABLE, Answer, Place, Seen

CALL_S = 20.0
NO_COORDINATOR_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)  # what a broker that has just started answers about a group, for a moment
PATIENCE_S = 45.0
HEARTBEAT_MS = 200
TIME_OUT_MS = 1_500
SESSION_MS = 3_000
SEGMENT_MS = 100
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": str(SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.0",
    "max.compaction.lag.ms": "100",
}


def _answer_of(error: KafkaException) -> Answer:
    reason: KafkaError = error.args[0]
    if reason.code() == KafkaError._FENCED:
        assert reason.fatal()
        return Answer.FENCED
    assert reason.txn_requires_abort(), reason
    return Answer.REFUSED


class BrokerProducer:
    def __init__(self, stage: BrokerStage, name: str, *, timeout_ms: int) -> None:
        self._stage = stage
        self.first_offsets: dict[Place, int] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": stage.address,
                "transactional.id": f"{stage.prefix}-{name}",
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(CALL_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, place: Place, key: bytes, value: bytes) -> Answer:
        reports: list[tuple[KafkaError | None, Message]] = []
        topic = self._stage.topics[place[0]]

        def on_report(error: KafkaError | None, report: Message) -> None:
            reports.append((error, report))

        self._producer.produce(
            topic, key=key, value=value, partition=place[1], on_delivery=on_report
        )
        give_up_at = time.monotonic() + CALL_S
        while not reports:
            assert time.monotonic() < give_up_at, "no report"
            try:
                self._producer.poll(0.1)
            except KafkaException as error:
                return _answer_of(error)
        ((error, report),) = reports
        if error is not None:
            assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE, error
            return Answer.REFUSED
        self.first_offsets.setdefault(place, int(report.offset() or 0))
        return Answer.OK

    def send_offsets(self, offsets: dict[int, int], metadata: Any) -> Answer:
        topic = self._stage.topics["slots"]
        places = [TopicPartition(topic, slot, offset) for slot, offset in offsets.items()]
        return self._ask(self._producer.send_offsets_to_transaction, places, metadata, CALL_S)

    def commit(self) -> Answer:
        return self._ask(self._producer.commit_transaction, CALL_S)

    def abort(self) -> Answer:
        return self._ask(self._producer.abort_transaction, CALL_S)

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Answer:
        try:
            call(*arguments)
        except KafkaException as error:
            return _answer_of(error)
        return Answer.OK


class BrokerMember:
    """A static member as `producer.kafka.membership` is one; polled by the stage only."""

    def __init__(self, stage: BrokerStage, name: str) -> None:
        self.events: list[tuple[str, frozenset[int], int]] = []
        self.slots: frozenset[int] = frozenset()
        self.is_locked_out = False
        self._is_closing = False
        self.name = name
        self._topic = stage.topics["slots"]
        self.consumer = Consumer(
            {
                **stage.common,
                "group.instance.id": name,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
            }
        )
        self._subscribe()

    @property
    def generation(self) -> int:
        return int(struct.unpack_from("=i", self.metadata(), len(b"CGMDv2:"))[0])

    def metadata(self) -> bytes:
        return bytes(self.consumer.consumer_group_metadata())

    def begin_round(self) -> None:
        """Subscribing again is not enough: the client sees that nothing has changed."""
        self.consumer.unsubscribe()
        self._subscribe()

    def serve(self) -> None:
        """Run callbacks; a member locked out gets no more than an error in place of a message."""
        for message in self.consumer.consume(10, 0.02):
            error = message.error()
            if error is not None and error.code() == KafkaError._FATAL:
                assert "group.instance.id" in error.str()
                self.is_locked_out = True

    def close(self) -> None:
        self._is_closing = True
        self.consumer.close()

    def _subscribe(self) -> None:
        def note(kind: str, places: list[TopicPartition]) -> frozenset[int]:
            slots = frozenset(place.partition for place in places)
            if not self._is_closing:  # the client has no metadata then, and must not raise
                self.events.append((kind, slots, self.generation))
            return slots

        def on_assign(consumer: Consumer, places: list[TopicPartition]) -> None:
            self.slots |= note("assigned", places)
            consumer.incremental_assign(places)

        def on_revoke(consumer: Consumer, places: list[TopicPartition]) -> None:
            self.slots -= note("revoked", places)
            consumer.incremental_unassign(places)

        def on_lost(consumer: Consumer, places: list[TopicPartition]) -> None:
            self.slots -= note("lost", places)
            consumer.incremental_unassign(places)

        self.consumer.subscribe(
            [self._topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )


class BrokerStage:
    """A stage on a real broker; `close` leaves nothing that would disturb the next case."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.prefix = f"c{uuid.uuid4().hex[:8]}"
        self.topics = {kind: f"{self.prefix}-{kind}" for kind in ("data", "slots")}
        self.common = {"bootstrap.servers": address, "group.id": self.prefix, "log_level": 0}
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        made = self._admin.create_topics(
            [
                NewTopic(self.topics["data"], DATA_NUMBERS, 1),
                NewTopic(self.topics["slots"], SLOTS, 1, config=COMPACTED),
            ]
        )
        for answer in made.values():
            answer.result(CALL_S)
        self._plain = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
        self._offsets = Consumer({**self.common, "isolation.level": "read_committed"})
        self._has_limited_brokers = False
        self._impatient: dict[str, BrokerProducer] = {}
        self._members: list[BrokerMember] = []

    def close(self) -> None:
        if self._has_limited_brokers:
            self._set_limit(*self._broker(), ConfigEntry(
                "message.max.bytes", "", incremental_operation=AlterConfigOpType.DELETE
            ))  # fmt: skip
        self._offsets.close()
        for member in self._members:
            member.close()
        # The client ends these when nothing refers to them any more.
        del self._admin, self._plain
        self._impatient.clear()

    def producer(self, name: str) -> BrokerProducer:
        return BrokerProducer(self, name, timeout_ms=60_000)

    def impatient_producer(self, name: str) -> BrokerProducer:
        made = self._impatient[name] = BrokerProducer(self, name, timeout_ms=TIME_OUT_MS)
        return made

    def time_out(self, name: str) -> None:
        for place, offset in self._impatient[name].first_offsets.items():
            self.until(lambda place=place, offset=offset: self.stable_end(place) > offset)

    def limit(self, size_bytes: int, kind: str = "") -> None:
        name = "max.message.bytes" if kind else "message.max.bytes"
        self._has_limited_brokers |= not kind
        place = (ResourceType.TOPIC, self.topics[kind]) if kind else self._broker()
        self._set_limit(*place, ConfigEntry(
            name, str(size_bytes), incremental_operation=AlterConfigOpType.SET
        ))  # fmt: skip
        topic = ConfigResource(ResourceType.TOPIC, self.topics[kind or "slots"])

        def is_known() -> bool:
            found = self._admin.describe_configs([topic])[topic].result(CALL_S)
            return int(found["max.message.bytes"].value) == size_bytes

        self.until(is_known)

    def _broker(self) -> tuple[ResourceType, str]:
        """Return the only broker; the client takes no name for the default of all of them."""
        return ResourceType.BROKER, str(next(iter(self._admin.list_topics(timeout=CALL_S).brokers)))

    def _set_limit(self, kind: ResourceType, name: str, entry: ConfigEntry) -> None:
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(CALL_S)

    def append(self, place: Place, key: bytes, value: bytes) -> None:
        self._plain.produce(self.topics[place[0]], key=key, value=value, partition=place[1])
        assert self._plain.flush(CALL_S) == 0

    def read(self, place: Place) -> Seen:
        messages, position = self._read(place, "read_committed")
        return [(m.offset() or 0, m.value() or b"") for m in messages], position

    def stable_end(self, place: Place) -> int:
        return self._end(place, IsolationLevel.READ_COMMITTED)

    def uncommitted_end(self, place: Place) -> int:
        return self._end(place, IsolationLevel.READ_UNCOMMITTED)

    def roll(self) -> None:
        time.sleep(2 * SEGMENT_MS / 1000)

    def compact(self, place: Place) -> None:
        """Wait for the broker's cleaner; what is appended meanwhile closes segments."""

        def is_compacted() -> bool:
            self.roll()
            self.append(place, b"filler", b"filler")
            messages, _ = self._read(place, "read_uncommitted")
            stable_end = self.stable_end(place)
            keys = Counter(m.key() for m in messages if (m.offset() or 0) < stable_end)
            return max(keys.values()) == 1

        self.until(is_compacted)

    def member(self, name: str) -> BrokerMember:
        self._members.append(BrokerMember(self, name))
        return self._members[-1]

    def expire(self, name: str) -> None:
        for member in self._members:
            if member.name == name:
                member.close()  # a static member does not leave the group with that
        self._members = [member for member in self._members if member.name != name]

        def is_out() -> bool:
            assigned = self.assigned()
            return assigned is not None and name not in assigned

        self.until(is_out)

    def strange_metadata(self, name: str = "") -> bytes:
        fixed = {"group.instance.id": name} if name else {}
        stranger = Consumer({**self.common, **fixed})
        metadata = bytes(stranger.consumer_group_metadata())
        stranger.close()
        return metadata

    def committed(self, slot: int) -> int | str | None:
        place = TopicPartition(self.topics["slots"], slot)
        try:
            (answer,) = self._offsets.committed([place], timeout=1.0)
        except KafkaException as error:
            # The client asks again while the broker answers UNSTABLE_OFFSET_COMMIT.
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            return UNSTABLE
        assert answer.error is None
        return answer.offset if answer.offset >= 0 else None

    def assigned(self) -> dict[str, frozenset[int]] | None:
        try:
            found = self._admin.describe_consumer_groups([self.prefix])[self.prefix].result(CALL_S)
        except KafkaException as error:
            if error.args[0].code() not in NO_COORDINATOR_YET:
                raise
            return None
        if found.state not in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY):
            return None
        return {
            member.group_instance_id: frozenset(
                p.partition for p in member.assignment.topic_partitions
            )
            for member in found.members
        }

    def until(self, condition: Callable[[], bool], *members: BrokerMember) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, "timed out: the condition does not hold"
            for member in members:
                member.serve()
            if not members:
                time.sleep(0.02)

    def linger(self, *members: BrokerMember) -> None:
        until = time.monotonic() + 6 * HEARTBEAT_MS / 1000
        self.until(lambda: time.monotonic() > until, *members)

    def _end(self, place: Place, isolation: IsolationLevel) -> int:
        where = TopicPartition(self.topics[place[0]], place[1])
        answers = self._admin.list_offsets({where: OffsetSpec.latest()}, isolation_level=isolation)
        return int(answers[where].result(CALL_S).offset)

    def _read(self, place: Place, isolation: str) -> tuple[list[Message], int]:
        reader = Consumer(
            {
                **self.common,
                "group.id": f"{self.prefix}-reader",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        reader.assign([TopicPartition(self.topics[place[0]], place[1], 0)])
        messages: list[Message] = []
        give_up_at = time.monotonic() + CALL_S
        try:
            while True:
                assert time.monotonic() < give_up_at, "no end was met"
                message = reader.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    messages.append(message)
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                return messages, int(message.offset() or 0)
        finally:
            reader.close()
