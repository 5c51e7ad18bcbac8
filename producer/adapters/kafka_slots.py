"""The consumer group over the progress topic: which slots are this worker's, and what is in them.

Rebalances are told to a listener in the middle of `poll`; a graceful revocation returns to the
group only when the listener has let the slots go.  Reading is `read_committed`, from the fence's
offset of each slot.
"""

from __future__ import annotations

import struct
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import structlog
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidegate.producer.adapters.group_lookout import GroupLookout
from tidegate.producer.core.events import (
    Event,
    ProgressRead,
    SlotPassed,
    SlotRecoveryBegun,
)
from tidegate.schemas.errors import ProducerError, UnreachableError
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.progress_codec import ProgressAssembler, decode_record
from tidegate.schemas.wire_format import unframe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["GroupListener", "KafkaSlots", "StreamStartFinder"]

_CALL_TIMEOUT_S = 5.0
_PATIENCE_S = 60.0
_ASK_AGAIN_S = 0.1
_BATCH_MAX = 500
_OFFSET_BEGINNING = 0
_METADATA_MAGIC = b"CGMDv2:"
_THROWN_OUT = (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)  # noqa: SLF001 - public constants
_Answer = TypeVar("_Answer")
_log = structlog.get_logger()


class GroupListener(Protocol):
    """Who is told of rebalances, inside `KafkaSlots.poll`."""

    def slots_assigned(self, slots: tuple[int, ...]) -> None:
        """Take note of slots gained."""
        ...

    def slots_revoked(self, slots: tuple[int, ...]) -> None:
        """Commit and stop what belongs to these slots; they are gone when this returns."""
        ...

    def slots_lost(self, slots: tuple[int, ...]) -> None:
        """Drop what belongs to these slots; others may own them already."""
        ...


class KafkaSlots:
    """See the module; not for use by several threads."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        group: str,
        worker: str,
        topic: str,
        session_timeout_ms: int,
        listener: GroupListener,
        slots: int,
        on_orphans: Callable[[], None] = lambda: None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; `start` joins the group.

        `slots` is how many the topic has; `on_orphans` is called when some belong to nobody.
        """
        self._topic = topic
        self._group = group
        self._register = f"{group}-{worker}"
        self._listener = listener
        self._common = {"bootstrap.servers": bootstrap_servers, **(options or {})}
        self._admin = AdminClient(self._common)
        # Two processes of one name are told apart by this, and by nothing else that lasts.
        self._client_id = f"{worker}-{uuid.uuid4().hex[:12]}"
        self._config = {
            **self._common,
            "client.id": self._client_id,
            "group.id": group,
            # Static: a worker that comes back under its name gets its slots back at once.
            "group.instance.id": worker,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": max(session_timeout_ms // 5, 200),
            "partition.assignment.strategy": "cooperative-sticky",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
        self._consumer = Consumer(self._config)
        self._assigned: set[int] = set()
        self._starting: dict[int, TopicPartition] = {}
        """Slots that are being assigned, and where reading them begins."""
        self._seeking: dict[int, TopicPartition] = {}
        """Slots that are to be read from elsewhere; what is read of them before that is old."""
        self._on_orphans = on_orphans
        self._lookout = GroupLookout(
            self._common,
            group=group,
            worker=worker,
            client_id=self._client_id,
            slots=slots,
        )
        self._incarnations: dict[int, int] = {}
        """Slot -> the incarnation that reads it now."""

    def start(self) -> None:
        """Take the worker's name, and join the group.

        Raises UnreachableError if the name cannot be written down.
        """
        self._sign()
        self._join()

    def _join(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def close(self) -> None:
        """Leave; slots still held are lost without a word to the listener."""
        self._consumer.close()

    def poll(self, timeout_s: float) -> list[Event]:
        """Return what the own slots brought; rebalances happen inside.

        Raises ProducerError if the group has thrown this worker out for good.
        """
        rejoin = self._lookout.look(time.monotonic_ns() // 1_000)
        if rejoin is not None:
            self._adopt(rejoin.orphans)
        self._seek()
        events: list[Event] = []
        for message in self._consumer.consume(_BATCH_MAX, timeout_s):
            error = message.error()
            if error is not None and (error.fatal() or error.code() in _THROWN_OUT):
                self._rejoin(error)
                return []
            event = self._translate(message)
            if event is not None:
                events.append(event)
        return events

    def metadata(self) -> bytes | None:
        """Return the group's metadata as of now, or None without a generation and a member id."""
        metadata: bytes = self._consumer.consumer_group_metadata()
        if not self._consumer.memberid() or _generation(metadata) < 0:
            return None
        return metadata

    def recover(self, slot: int, incarnation: int) -> SlotRecoveryBegun:
        """Begin to read a slot at its fence's offset; find its end, open transactions included."""
        begin = self._committed(slot)
        place = TopicPartition(self._topic, slot, _OFFSET_BEGINNING if begin is None else begin)
        self._incarnations[slot] = incarnation
        if slot in self._starting:
            self._starting[slot] = place
        else:
            self._seeking[slot] = place
            self._seek()
        end = self._uncommitted_end(slot)
        return SlotRecoveryBegun(slot, incarnation, from_beginning=begin is None, end_offset=end)

    def has_successor(self) -> bool:
        """Whether another process has been started under this worker's name since this one was.

        Raises UnreachableError if that cannot be read.
        """
        asked = ConsumerGroupTopicPartitions(self._register, [TopicPartition(self._topic, 0)])

        def ask() -> str:
            answers = self._admin.list_consumer_group_offsets(
                [asked], request_timeout=_CALL_TIMEOUT_S
            )
            (place,) = answers[self._register].result().topic_partitions
            return place.metadata or ""

        signature = self._insist(ask, "a worker's name cannot be looked up", name=self._register)
        return signature not in {"", self._client_id}

    # ------------------------------------------------------------ inside

    def _translate(self, message: Message) -> Event | None:
        error = message.error()
        slot, offset = message.partition(), message.offset()
        if slot is None or offset is None:
            return None
        if slot in self._seeking:
            return None
        incarnation = self._incarnations.get(slot, -1)
        if error is None:
            return ProgressRead(slot, incarnation, offset, _decode(message))
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public constant
            return SlotPassed(slot, incarnation, offset)
        return None

    def _adopt(self, orphans: tuple[int, ...]) -> None:
        """Begin a round, which gives every slot an owner.

        To subscribe again is not enough: the client sees that nothing has changed.  The slots are
        let go in the polls that follow, as in any round; then it leaves and joins.
        """
        _log.warning("slots belong to nobody", slots=orphans)
        self._on_orphans()
        self._consumer.unsubscribe()
        self._join()

    def _rejoin(self, reason: KafkaError) -> None:
        """Join the group anew, unless another process has taken this worker's name.

        A group that forms again after its broker was away for longer than the session time-out
        fences its own static members: the client's join is repeated, and the second one counts as
        another process.  The client takes that for the end and never polls again.
        """
        if self.has_successor():
            message = f"the group has thrown this worker out: {reason.str()}"
            raise ProducerError(message, hint="Give every worker a name of its own")
        _log.warning("joining the group anew", reason=reason.str())
        former, self._consumer = self._consumer, Consumer(self._config)
        lost, self._assigned = tuple(sorted(self._assigned)), set()
        self._seeking.clear()
        self._listener.slots_lost(lost)
        former.close()
        self._join()

    def _sign(self) -> None:
        """Write down that this process goes by the worker's name now.

        In the metadata of an offset that means nothing, of a group that has no members: the broker
        itself cannot tell two processes of one name apart.  It fences static members whose join
        was repeated, and producers whose transaction took too long, as it fences the replaced; and
        of a member that was replaced it goes on to tell the former one's client.
        """
        mine = TopicPartition(self._topic, 0, _OFFSET_BEGINNING, self._client_id)

        def ask() -> None:
            answers = self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._register, [mine])],
                request_timeout=_CALL_TIMEOUT_S,
            )
            (place,) = answers[self._register].result().topic_partitions
            if place.error is not None:
                raise KafkaException(place.error)

        self._insist(ask, "a worker's name cannot be written down", name=self._register)

    def _seek(self) -> None:
        """Move to where slots are to be read from; what cannot be moved yet is tried again.

        By seeking, and not by assigning anew: outside of its callback that comes between the client
        and a rebalance that it has not told yet, after which it joined no group any more.
        """
        for slot, place in list(self._seeking.items()):
            if slot in self._assigned:
                try:
                    self._consumer.seek(place)
                except KafkaException:
                    continue
            del self._seeking[slot]

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        slots = tuple(sorted(place.partition for place in places))
        self._starting = {
            slot: TopicPartition(self._topic, slot, _OFFSET_BEGINNING) for slot in slots
        }
        self._assigned.update(slots)
        try:
            self._listener.slots_assigned(slots)
        finally:
            starting, self._starting = list(self._starting.values()), {}
        consumer.incremental_assign(starting)

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._let_go(consumer, places, self._listener.slots_revoked)

    def _on_lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._let_go(consumer, places, self._listener.slots_lost)

    def _let_go(
        self,
        consumer: Consumer,
        places: list[TopicPartition],
        tell: Callable[[tuple[int, ...]], None],
    ) -> None:
        # A former consumer's slots have been told as lost already.
        if consumer is self._consumer:
            slots = tuple(sorted(place.partition for place in places))
            tell(slots)
            self._assigned.difference_update(slots)
        consumer.incremental_unassign(places)

    def _committed(self, slot: int) -> int | None:
        """Return the slot's committed offset, once no transaction that would move it is open."""
        # Not by the group's own consumer: this may be asked within its rebalance callback, and if
        # the group then fences it, it never answers.
        asked = ConsumerGroupTopicPartitions(self._group, [TopicPartition(self._topic, slot)])

        def ask() -> int | None:
            answers = self._admin.list_consumer_group_offsets(
                [asked], require_stable=True, request_timeout=_CALL_TIMEOUT_S
            )
            (place,) = answers[self._group].result().topic_partitions
            if place.error is not None:
                raise KafkaException(place.error)
            return int(place.offset) if place.offset >= 0 else None

        return self._insist(ask, "the group's offsets cannot be read", slot=slot)

    def _uncommitted_end(self, slot: int) -> int:
        place = TopicPartition(self._topic, slot)

        def ask() -> int:
            answers = self._admin.list_offsets(
                {place: OffsetSpec.latest()},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=_CALL_TIMEOUT_S,
            )
            return int(answers[place].result().offset)

        return self._insist(ask, "a slot's end cannot be found", slot=slot)

    def _insist(self, ask: Callable[[], _Answer], message: str, **fields: Any) -> _Answer:
        """Ask again while the broker gives no answer: one that restarts is back within seconds.

        Each time with a new admin client: one that has seen a broker go remembers the epochs of its
        leaders, which are refused, and a coordinator that it waits for in vain.  Raises
        UnreachableError when patience ends.
        """
        give_up_at = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                if time.monotonic() > give_up_at:
                    raise UnreachableError(message, **fields, cause=str(error)) from error
                if error.args[0].code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
                    self._admin = AdminClient(self._common)
                time.sleep(_ASK_AGAIN_S)


class StreamStartFinder:
    """Looks through the root's slot, from its beginning, for the record that opened the epoch."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        group: str,
        topic: str,
        root_slot: int,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin to read; the group's name is only a label here, nothing is joined or committed."""
        self._assembler = ProgressAssembler()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                **(options or {}),
                "group.id": f"{group}-stream-start",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        self._consumer.assign([TopicPartition(topic, root_slot, _OFFSET_BEGINNING)])

    def poll(self, timeout_s: float = 0.0) -> tuple[ProgressRecord | None, bool]:
        """Return (the record if it was met now, whether the slot's end was met)."""
        at_end = False
        for message in self._consumer.consume(_BATCH_MAX, timeout_s):
            error = message.error()
            if error is not None:
                at_end = at_end or error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001
                continue
            record = _decode(message)
            whole = self._assembler.add(record.body, offset=message.offset() or 0)
            if whole is not None and isinstance(whole[0], StreamStarted):
                return ProgressRecord(record.epoch, record.worker, whole[0]), False
        return None, at_end

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()


def _decode(message: Message) -> ProgressRecord:
    _, body = unframe(message.value() or b"")
    return decode_record(body)


def _generation(metadata: bytes) -> int:
    """Read the generation out of the client's serialised group metadata; -1 if it is not there.

    librdkafka writes `CGMDv2:`, the generation (4 bytes, in the machine's order), then the names.
    """
    if not metadata.startswith(_METADATA_MAGIC):
        return -1
    return int(struct.unpack_from("=i", metadata, len(_METADATA_MAGIC))[0])
