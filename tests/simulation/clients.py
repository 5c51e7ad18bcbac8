"""A worker's clients of Kafka and Spanner: the models, with pauses and with the seed's faults.

Every call that would reach a broker or a service pauses first, so that anything may happen between
two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.history import Denial
from tests.simulation.process import Process
from tests.simulation.spanner import QueryBroke, QueryDone, QueryExpired, StreamQuery
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.errors import PositionExpired, QueryInterrupted, TokenRefused
from tidegate.producer.memory.broker import (
    MemoryBroker,
    MessageRefused,
    ProducerFenced,
    Transaction,
    UnknownTopicPartition,
)
from tidegate.producer.memory.change_stream import MemoryResponse
from tidegate.producer.memory.data_topics import MemoryMessageLimits
from tidegate.producer.memory.membership import MemoryMembership
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.records import DataChangeRecord
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.schemas.progress import (
    DataTopic,
    PartitionFinished,
    SlotPaused,
    StreamStarted,
    TableAdded,
)

OnCommit = Callable[[Transaction, "Carried"], None]


@dataclass(frozen=True, slots=True)
class PublisherFaults:
    refused: float = 0.0  # a request is answered with an error that aborts the transaction
    reply_lost: float = 0.0  # a commit's answer does not come, whether it took place or not


@dataclass(slots=True)
class Carried:
    covers: set[int] = field(default_factory=set)
    finished: list[str] = field(default_factory=list)  # tokens
    topics: set[str] = field(default_factory=set)  # data topics with a record in it
    fixed: list[DataTopic] = field(default_factory=list)  # data topics that it records
    paused: list[tuple[int, int]] = field(default_factory=list)  # (slot, number of the pause)
    with_data: set[int] = field(default_factory=set)  # slots whose tokens' changes it publishes


class NotedPublisher(MemoryPublisher):
    def __init__(
        self, broker: MemoryBroker, *, name: str, on_commit: OnCommit, **options: Any
    ) -> None:
        super().__init__(broker, transactional_id=name, **options)
        self.on_commit = on_commit
        self._carried = Carried()
        self._is_noted = False

    def begin(self, metadata: bytes | None) -> Any:
        self._carried = Carried()
        self._is_noted = False
        return super().begin(metadata)

    def publish_records(self, effect: do.PublishRecords) -> Any:
        self._carried.covers.add(effect.slot)
        self._carried.with_data.add(effect.slot)
        self._carried.topics |= {m.topic for record in effect.records for m in record.messages}
        return super().publish_records(effect)

    def publish_progress(self, effect: do.PublishProgress) -> Any:
        body, carried = effect.record.body, self._carried
        carried.covers.add(effect.slot if effect.author_slot is None else effect.author_slot)
        if isinstance(body, PartitionFinished) and body.chunk == 0:
            carried.finished.append(body.token)
        if isinstance(body, TableAdded):
            carried.fixed.append(body.topic)
        if isinstance(body, StreamStarted) and body.chunk == 0:
            carried.fixed += body.topics
        if isinstance(body, SlotPaused):
            carried.paused.append((body.slot, body.control))
        return super().publish_progress(effect)

    def end_transaction(self) -> Transaction | None:
        transaction = super().end_transaction()
        if transaction is not None and not self._is_noted:
            self._is_noted = True
            self.on_commit(transaction, self._carried)
        return transaction


class WorkerPublisher(NotedPublisher):
    def __init__(
        self,
        broker: MemoryBroker,
        *,
        process: Process,
        random: Random,
        faults: Callable[[], PublisherFaults],
        on_refused: Callable[[on.DeliveryFailure], None],
        **options: Any,
    ) -> None:
        super().__init__(broker, **options)
        self._on_refused, self._process, self._random = on_refused, process, random
        self._faults = faults
        self._is_unanswered = False

    def start(self) -> None:
        self._process.pause()
        super().start()

    def begin(self, metadata: bytes | None) -> Any:
        self._process.pause()
        self._is_unanswered = False
        return super().begin(metadata) or self._refused()

    def publish_records(self, effect: do.PublishRecords) -> Any:
        return super().publish_records(effect) or self._flush_sometimes()

    def publish_progress(self, effect: do.PublishProgress) -> Any:
        return super().publish_progress(effect) or self._flush_sometimes()

    def await_delivery(self) -> Any:
        self._process.pause()
        return self._refused() or super().await_delivery()

    def send_offsets(self, offsets: tuple[tuple[int, int], ...]) -> Any:
        self._process.pause()
        return self._refused() or super().send_offsets(offsets)

    def commit(self) -> Any:
        """Commit; request or reply may be lost, and some losses allow no further question."""
        self._process.pause()
        refused = self._refused()
        if refused is None and self._is_unanswered and self._random.random() < 0.3:
            refused = super().abort("refused")  # which proves nothing: it may be committed already
        if refused is not None:
            return refused
        if self._random.random() >= self._faults().reply_lost:
            return super().commit()
        try:
            self.flush()
            if self._random.random() < 0.5:
                self.end_transaction()
        except ProducerFenced:
            return on.ProducerFenced()
        if self._random.random() < 0.5:
            self._is_unanswered = True
            return on.CommitUnanswered("no answer")
        self.is_open = False
        return on.CommitOutcomeUnknown("no answer, and no way to ask")

    def abort(self, reason: str) -> Any:
        self._process.pause()
        return super().abort(reason)

    def abort_refused(self) -> Any:
        failure = self.refusal()
        outcome = super().abort_refused()
        if not isinstance(outcome, on.ProducerFenced):  # which has another cause
            self._on_refused(failure)
        return outcome

    def _refused(self) -> on.TransactionFailure | None:
        if self._random.random() < self._faults().refused:
            return super().abort("refused")
        return None

    def _flush_sometimes(self) -> on.TransactionFailure | None:
        """Send what is queued before anybody waits for it, as a client may at any time."""
        if self._random.random() >= 0.1:
            return None
        self._process.pause()
        try:
            self.flush()
        except ProducerFenced:
            return on.ProducerFenced()
        except MessageRefused:
            return self.abort_refused()
        except UnknownTopicPartition as error:
            return super().abort(f"unknown topic partition {error}")
        return self._refused()


class KnownLimits(MemoryMessageLimits):
    def __init__(self, broker: MemoryBroker, topics: list[str], *, process: Process) -> None:
        self._process = process
        self.most: dict[str, int] = dict.fromkeys(topics, 0)
        super().__init__(broker, topics)

    def add(self, topic: str) -> None:
        self.most.setdefault(topic, 0)
        super().add(topic)

    def refresh(self) -> None:
        if self._process.threads:
            self._process.pause()
        self.read()

    def read(self) -> None:
        """Read them at once, as a publisher does that the broker has refused a message."""
        super().refresh()
        self.most = {topic: max(size, self.bytes_max(topic)) for topic, size in self.most.items()}


class WorkerMembership(MemoryMembership):
    """Background work is the world's to schedule; reads return any part of what there is."""

    def __init__(self, world, process: Process, **options: Any) -> None:
        super().__init__(world.broker, clock=process.clock, **options)
        self._tables_random = Random(f"tables {options['client_id']} {world.weather.steps}")
        self._fleet_random = Random(f"fleet {options['client_id']} {world.weather.steps}")
        self._world, self._process = world, process

    def poll(self, timeout_s: float) -> list[on.Event]:
        self._process.pause()
        events = super().poll(timeout_s)
        if any(isinstance(event, on.AccessDenied) for event in events):
            denial = Denial(self._world.at, self.client.name, self._client_id)
            self._world.history.denials.append(denial)
        return events

    def recover(self, slot: int, incarnation: int) -> on.SlotRecoveryStarted:
        self._process.pause()
        return super().recover(slot, incarnation)

    def has_successor(self) -> bool:
        self._process.pause()
        return super().has_successor()

    def work(self) -> None:
        pass

    def read_root_slot(self) -> list[on.Event]:
        """Read on as far as a client of its own has got."""
        return super().read_root_slot() if self._tables_random.random() < 0.4 else []

    def read_fleet(self) -> list[on.Event]:
        found = super().read_fleet() if self._fleet_random.random() < 0.4 else []
        for event in found:
            if isinstance(event, on.FleetRead):
                self._world.fleet_sights.read(self._client_id, event)
        return found

    def read_shared_again(self, random: Random) -> None:
        """Begin again at an earlier offset in the root's slot, and in one that is followed."""
        self._root_position = random.randint(0, self._root_position)
        if self._follower is not None:
            positions = self._follower._positions
            slot = random.choice(sorted(positions))
            positions[slot] = random.randint(0, positions[slot])

    def read_slot(self, slot: int, *, count: int) -> list[on.Event]:
        if self._world.chance(0.3):
            return []
        count = count if self._world.is_healing else self._world.random.choice((1, 2, 5, 50))
        return super().read_slot(slot, count=count)


class ProcessLock:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_held = False

    def __enter__(self) -> None:
        self._process.wait_for(lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


class WorkerRegistry:
    """One process's client of the registry; implements `schemas.registry.SchemaRegistry`."""

    def __init__(self, world, process: Process) -> None:
        self._world = world
        self._registry = world.registry
        self._process = process

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        self._process.pause()
        if self._process.threads and self._world.refuses_schema(subject, schema):
            raise SchemaError("the registry rejects a schema", subject=subject)
        return self._registry.register(subject, schema)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            self._process.pause()
            return getattr(self._registry, name)(*arguments)

        return ask


class WorkerTopics:
    """One process's client of the broker's topics; implements `ports.DataTopics`."""

    def __init__(self, node, limits: KnownLimits) -> None:
        self._node, self._limits = node, limits

    def ensure(self, topic: str, *, key_schema_id: int) -> None:
        node = self._node
        node.process.pause()
        node.world.ensure_topic(topic)
        found = node.world.broker.describe_topic(topic)
        node.process.pause()
        node.publisher.topic_partitions.setdefault(topic, found.topic_partitions)
        self._limits.add(topic)
        topic_id = str(found.topic_id)
        node.loop.add_table(DataTopic(topic, topic_id, found.topic_partitions, key_schema_id))


class WorkerStream:
    """The change stream of one process; implements `ports.ChangeStream`."""

    def __init__(self, world, process: Process) -> None:
        self._world, self._process = world, process

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> _RunningQuery:
        query, calls = self._world.open_query(token, start_ns, end_ns)
        return _RunningQuery(self._world, self._process, token, query, calls)


class _RunningQuery:
    def __init__(self, world, process: Process, token: str, query: StreamQuery, calls: int) -> None:
        self._world, self._process, self._token = world, process, token
        self._query, self._calls = query, calls
        self._is_cancelled = False
        self._next: MemoryResponse | None = None

    async def next_size(self) -> int | None:
        self._next = self._following()
        return None if self._next is None else self._next.size_bytes

    async def receive(self) -> MemoryResponse:
        assert self._next is not None
        return self._next

    def _following(self) -> MemoryResponse | None:
        while True:
            self._process.pause()
            if self._is_cancelled:
                raise QueryInterrupted("the query was cancelled", code="CANCELLED")
            if self._token in self._world.refused:
                raise TokenRefused("no such token", code="INVALID_ARGUMENT", token=self._token)
            if not self._calls:
                raise QueryInterrupted("the service is unavailable", code="UNAVAILABLE")
            self._calls -= 1
            try:
                items = self._world.served(self._token, self._query)
            except QueryDone:
                return None
            except QueryExpired as expired:
                raise PositionExpired(
                    "the requested changes are outside the change stream's retention",
                    code="OUT_OF_RANGE", token=self._query.token,
                    lost_from=format_rfc3339(self._query.start_us * NS_PER_US),
                    lost_until="unknown" if expired.earliest_us is None
                    else format_rfc3339(expired.earliest_us * NS_PER_US),
                ) from None  # fmt: skip
            except QueryBroke:
                raise QueryInterrupted("the service is unavailable", code="UNAVAILABLE") from None
            if items:
                return _response(items)

    def cancel(self) -> None:
        self._is_cancelled = True


def _response(records: list[Any]) -> MemoryResponse:
    """Return records as a response that may weigh less than what becomes of them."""
    changes = sum(len(record.mods) for record in records if isinstance(record, DataChangeRecord))
    return MemoryResponse(records, size_bytes=200 * len(records) + 400 * changes)
