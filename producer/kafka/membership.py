"""The consumer group over the progress topic: the slots of a worker, and their records.

Rebalances call a listener in the middle of `poll`; a revocation returns to the group only when the
listener has released the slots.  Reading is `read_committed`, from each slot's fence offset.
"""

from __future__ import annotations

import struct
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidegate.producer.core.events import (
    AccessDenied,
    Event,
    FleetRead,
    ProgressRead,
    ProgressReadLost,
    ReadInterrupted,
    RootSlotRead,
    SlotOutOfRange,
    SlotPositionAdvanced,
    SlotRecoveryStarted,
)
from tidegate.producer.kafka.admin import CommittedOffsets, RetryingAdmin, SharedAdmin
from tidegate.producer.kafka.group import NameClaim, keep_place, leave_group
from tidegate.producer.kafka.monitors import GroupMonitor, TopicMonitor
from tidegate.producer.kafka.progress_follower import ProgressFollower
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.producer.kafka.slots import SlotRecovery
from tidegate.producer.ports import GroupListener
from tidegate.program.kafka_clients import admin_config, make_client
from tidegate.program.kafka_errors import AT_END, OUT_OF_RANGE, is_denied
from tidegate.schemas.errors import ProducerError
from tidegate.schemas.progress_codec import is_announcement_key
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.wire_format import unframe

_BATCH_MAX = 500
_OFFSET_BEGINNING = 0
_MAX_POLL_INTERVAL_MS = 300_000
_HEARTBEAT_MAX_MS = 2_000
"""A member learns of a rebalance by its next heartbeat, however long its session may last."""
_METADATA_MAGIC = b"CGMDv2:"
_FATAL_ERRORS = (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)  # noqa: SLF001 - public constants
_EVENTS_OF_OTHER_CLIENTS = (
    RootSlotRead | FleetRead | ProgressReadLost | AccessDenied | ReadInterrupted
)
"""Events from other clients than the group's; most of them are returned once."""
_log = structlog.get_logger()


class KafkaMembership:
    """One worker as a static member of the group; port: `ports.Membership`."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        group: str,
        worker: str,
        topic: str,
        data_topics: Sequence[str] = (),
        session_timeout_ms: int,
        listener: GroupListener,
        decoder: ProgressDecoder,
        root_slot: RootSlotReader | None = None,
        open_follower: Callable[[str, bool], ProgressFollower] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; `start` joins the group.

        `data_topics` are described as well as `topic`.  `RootSlotRead`, without which a worker
        starts no query, comes from `root_slot`, which the caller closes; `open_follower` starts
        reading all slots of an epoch.
        """
        # Distinguishes two processes of one name.
        client_id = f"{worker}-{uuid.uuid4().hex[:12]}"
        config = admin_config(bootstrap_servers, options)
        admin = RetryingAdmin(config)
        self._topic = topic
        self._group = group
        self._listener = listener
        self._decoder = decoder
        claims = CommittedOffsets(config, group=f"{group}-{worker}")
        offsets = CommittedOffsets(config, group=group)
        self._name = NameClaim(claims, topic=topic, process=client_id)
        self._recovery = SlotRecovery(admin, offsets, topic=topic)
        self._rarely_used = (admin, claims, offsets)
        shared = SharedAdmin(config)
        self._monitor = GroupMonitor(shared, group=group, worker=worker, client_id=client_id)
        self._root_slot = root_slot
        self._open_follower = open_follower
        self._follower: ProgressFollower | None = None
        self._topic_monitor = TopicMonitor(shared, progress=topic, data=data_topics)
        self._config = {
            "bootstrap.servers": bootstrap_servers,
            # The client rejects less than its session; otherwise it is the client's default.
            "max.poll.interval.ms": max(session_timeout_ms, _MAX_POLL_INTERVAL_MS),
            **(options or {}),
            "client.id": client_id,
            "group.id": group,
            # Static: a worker that restarts under its name gets its slots back at once.
            "group.instance.id": worker,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": min(max(session_timeout_ms // 5, 200), _HEARTBEAT_MAX_MS),
            "partition.assignment.strategy": "cooperative-sticky",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # The core decides about an offset that is not in the log; the client must never reset
            # it.
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
        self._consumer = make_client(Consumer, self._config)
        self._assigned: set[int] = set()
        self._starting: dict[int, TopicPartition] = {}
        """Slots that are being assigned, with the offsets where reading starts."""
        self._seeking: dict[int, TopicPartition] = {}
        """Slots to read from another offset; records read before the seek are ignored."""
        self._must_replace = False
        """Whether the next poll joins with a new client although the present one has no error."""
        self._incarnations: dict[int, int] = {}
        """Slot -> the incarnation that reads it now."""
        self._announcements_only: dict[int, int] = {}
        """Slot -> the incarnation that reads only announcements from now on."""

    def start(self) -> None:
        """Claim the worker's name and join the group; raises UnreachableError."""
        self._name.claim()
        self._join()

    def close(self, *, leaves_group: bool = False) -> None:
        """End the membership; the place in the group is kept or, if the worker leaves, given up.

        When it leaves, the listener is called for slots that are still assigned.
        """
        if leaves_group:
            leave_group(self._consumer)
        else:
            former = [self._consumer]
            del self._consumer
            keep_place(former)
        self._close_rarely_used()
        if self._follower is not None:
            self._follower.close()

    def poll(self, timeout_s: float) -> list[Event]:
        """Return the events of own slots and the group; rebalances happen inside.

        Raises ProducerError if another process took this worker's name, UnreachableError if that or
        the schema of a record cannot be found out, and SchemaError for a record that cannot be
        decoded.
        """
        if self._must_replace:
            self._replace_consumer("the client was no member of the group and did not join")
            return []
        self._close_rarely_used()
        self._seek()
        now_us = time.monotonic_ns() // 1_000
        tables = None if self._root_slot is None else self._root_slot.poll_records()
        fleet = None if self._follower is None else self._follower.poll(now_us)
        described = (self._monitor.poll(now_us), self._topic_monitor.poll(now_us), tables, fleet)
        events: list[Event] = [event for event in described if event is not None]
        for message in self._consumer.consume(_BATCH_MAX, timeout_s):
            error = message.error()
            if error is not None and (
                error.fatal()
                or error.code() in _FATAL_ERRORS
                or (error.code() in OUT_OF_RANGE and message.partition() in self._seeking)
            ):
                self._replace_consumer(error.str())
                return [event for event in events if isinstance(event, _EVENTS_OF_OTHER_CLIENTS)]
            event = self._event_of(message)
            if event is None:
                continue
            if events and _goes_on(event, events[-1]):
                events.pop()  # most records that a worker reads are its own, and not needed
            events.append(event)
        return events

    def metadata(self) -> bytes | None:
        """Return the group's metadata as of now, or None without a generation and a member id."""
        metadata: bytes = self._consumer.consumer_group_metadata()
        if not self._consumer.memberid() or _generation(metadata) < 0:
            return None
        return metadata

    def recover(self, slot: int, incarnation: int) -> SlotRecoveryStarted:
        """Read a slot from its fence offset on; return its end, including open transactions."""
        fence = self._recovery.fence_offset(slot)
        place = TopicPartition(self._topic, slot, _OFFSET_BEGINNING if fence is None else fence)
        self._incarnations[slot] = incarnation
        if slot in self._starting:
            self._starting[slot] = place
        else:
            self._seeking[slot] = place
            self._seek()
        end = self._recovery.uncommitted_end(slot)
        return SlotRecoveryStarted(slot, incarnation, committed_offset=fence, end_offset=end)

    def read_announcements(self, slot: int, incarnation: int) -> None:
        """Return only the announcements of an own slot from now on; skip other records."""
        self._announcements_only[slot] = incarnation

    def rejoin(self) -> None:
        """Leave the group and join it again, which starts a rebalance.

        Subscribing again is not enough: the client sees that nothing has changed.  The slots are
        revoked in the polls that follow, as in any rebalance; then it leaves and joins.
        """
        self._consumer.unsubscribe()
        self._join()

    def watch(self, topic: str) -> None:
        """Describe one more data topic from now on."""
        self._topic_monitor.add(topic)

    def follow(self, epoch: str, *, with_moves: bool) -> None:
        """Read all slots of an epoch from now on."""
        if self._open_follower is not None:
            self._follower = self._open_follower(epoch, with_moves)

    def await_sources(self, sources: Sequence[tuple[str, int]]) -> None:
        """Report in a `FleetRead` when the given sources have published."""
        if self._follower is not None:
            self._follower.progress.await_sources(sources)

    def replace_client(self) -> None:
        """Let the next poll join with a new client.

        Not at once, because its callback for lost slots must run inside a poll, like that of a
        rebalance.
        """
        self._must_replace = True

    def has_successor(self) -> bool:
        """Whether another process claimed this worker's name after this one did."""
        return self._name.has_successor()

    def _close_rarely_used(self) -> None:
        """Close the clients of look-ups, with four threads or more each.

        Between two polls, so that one client serves all slots of a rebalance.
        """
        for client in self._rarely_used:
            client.close()

    # ------------------------------------------------------------ reading

    def _event_of(self, message: Message) -> Event | None:
        error, slot = message.error(), message.partition()
        if error is not None and error.code() not in (*OUT_OF_RANGE, AT_END):
            return self._failure_of(error, message.topic() or self._topic)
        if slot is None or slot in self._seeking:
            return None
        incarnation, offset = self._incarnations.get(slot, -1), message.offset()
        if error is not None and error.code() in OUT_OF_RANGE:
            return SlotOutOfRange(slot, incarnation, error.str())
        if offset is None:
            return None
        if error is not None:
            return SlotPositionAdvanced(slot, incarnation, offset)
        key, value = message.key(), message.value()
        is_wanted = self._announcements_only.get(slot) != incarnation or (
            key is not None and is_announcement_key(unframe(key)[1])
        )
        if value is None or not is_wanted:  # without a value it removes an earlier record
            return SlotPositionAdvanced(slot, incarnation, offset + 1)
        if not self._decoder.is_ready(value):
            # The group has to be polled meanwhile, so the slot is read again from here.
            self._seeking[slot] = TopicPartition(self._topic, slot, offset)
            return None
        return ProgressRead(slot, incarnation, offset, self._decoder.decode(value))

    def _failure_of(self, error: KafkaError, topic: str) -> AccessDenied | ReadInterrupted:
        """Classify an error; the topics' description decides whether an unknown topic is gone."""
        is_of_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        resource = f"group {self._group}" if is_of_group else f"topic {topic}"
        kind = AccessDenied if is_denied(error) else ReadInterrupted
        return kind(resource, error.str())

    def _seek(self) -> None:
        """Seek in the slots that must be read from another offset; rejected seeks are retried.

        A client that found an offset out of range no longer reads that slot and rejects every seek
        in it: then `poll` replaces it, and reading begins at the new offset.  By seeking, not by
        assigning again: an assignment outside of the rebalance callback interferes with a rebalance
        that the client has not delivered yet, after which the client no longer joined the group.
        """
        for slot, place in list(self._seeking.items()):
            if slot in self._assigned:
                try:
                    self._consumer.seek(place)
                except KafkaException:
                    continue
            del self._seeking[slot]

    # ------------------------------------------------------------ the group

    def _join(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _replace_consumer(self, reason: str) -> None:
        """Join the group with a new client, unless another process took this worker's name.

        A group that forms again after its broker was down for longer than the session time-out
        fences its own static members: the client retries its join, and the second attempt counts as
        another process.  The client treats that as fatal and never polls again.  Or it never
        rejoins, without an error (`core.group_watch`).
        """
        self._must_replace = False
        if self.has_successor():
            raise ProducerError(
                f"the group fenced this worker: {reason}",
                hint="Another process runs under its name: give every worker a name of its own",
            )
        _log.warning("the group's client is replaced", reason=reason)
        former, self._consumer = self._consumer, make_client(Consumer, self._config)
        lost, self._assigned = tuple(sorted(self._assigned)), set()
        self._seeking.clear()
        self._listener.slots_lost(lost)
        # On its own thread: a client that hangs may take long.
        threading.Thread(
            target=leave_group, args=(former,), name="kafka-discard", daemon=True
        ).start()
        self._join()

    def _is_current(self, consumer: Consumer) -> bool:
        """Whether a callback belongs to the current client; there is none after `close`."""
        return getattr(self, "_consumer", None) is consumer

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        if not self._is_current(consumer):
            return
        slots = tuple(sorted(place.partition for place in places))
        for slot in slots:  # where its earlier incarnation was to be read from
            self._seeking.pop(slot, None)
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
        self._unassign(consumer, places, self._listener.slots_revoked)

    def _on_lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._unassign(consumer, places, self._listener.slots_lost)

    def _unassign(
        self,
        consumer: Consumer,
        places: list[TopicPartition],
        notify: Callable[[tuple[int, ...]], None],
    ) -> None:
        # The slots of an earlier consumer have already been reported as lost.
        if self._is_current(consumer):
            slots = tuple(sorted(place.partition for place in places))
            notify(slots)
            self._assigned.difference_update(slots)
        consumer.incremental_unassign(places)


def _goes_on(event: Event, before: Event) -> bool:
    """Whether an event replaces the event before it; a step backwards is left to the core."""
    return (
        isinstance(event, SlotPositionAdvanced)
        and isinstance(before, SlotPositionAdvanced)
        and (event.slot, event.incarnation) == (before.slot, before.incarnation)
        and event.position >= before.position
    )


def _generation(metadata: bytes) -> int:
    """Return the generation in the client's serialised group metadata; -1 if there is none.

    librdkafka writes `CGMDv2:`, the generation (4 bytes, in the machine's order), then the names.
    """
    if not metadata.startswith(_METADATA_MAGIC):
        return -1
    return int(struct.unpack_from("=i", metadata, len(_METADATA_MAGIC))[0])
