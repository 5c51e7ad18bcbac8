"""One worker's membership in the group in memory, and its reading (`ports.Membership`)."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.producer.core.events import (
    AccessDenied,
    Event,
    FleetRead,
    GroupDescribed,
    ProgressRead,
    ProgressReadLost,
    ReadInterrupted,
    RootSlotRead,
    SlotOutOfRange,
    SlotPositionAdvanced,
    SlotRecoveryStarted,
    TopicsObserved,
)
from tidegate.producer.core.fleet import FleetProgress
from tidegate.producer.errors import ProgressLost
from tidegate.producer.memory.broker import TOMBSTONE, Log, MemoryBroker
from tidegate.producer.memory.group import Callback, ClientState, GroupClient
from tidegate.producer.ports import Clock, GroupListener
from tidegate.schemas.errors import ConsumerError, ProducerError, UnreachableError
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.progress import (
    PartitionAnnounced,
    ProgressRecord,
    StreamControl,
    StreamStarted,
    TableAdded,
    WorkerDrain,
)
from tidegate.schemas.progress_chunks import ProgressAssembler
from tidegate.schemas.topics import ROOT_TOKEN, slot_of


class MemoryProgressFollower:
    """Follows one epoch of a progress topic."""

    def __init__(
        self,
        broker: MemoryBroker,
        *,
        topic: str,
        slots: int,
        epoch: str,
        with_moves: bool = False,
    ) -> None:
        self.progress = FleetProgress(epoch=epoch, topic=topic, slots=slots, with_moves=with_moves)
        self._broker = broker
        self._topic = topic
        self._positions = dict.fromkeys(range(slots), 0)
        self._has_failed = False

    def poll(self, now_us: int) -> FleetRead | ProgressReadLost | ReadInterrupted | None:
        """Read every slot to its end; return what is new."""
        if self._has_failed:
            return None
        if self.progress.wants_ends(now_us):
            self.progress.note_ends({slot: self._end(slot) for slot in self._positions}, now_us)
        try:
            for slot in self._positions:
                self._read(slot)
            return self.progress.report()
        except ProgressLost as error:
            self._has_failed = True
            return ProgressReadLost(error)
        except ConsumerError as error:
            self._has_failed = True
            return ReadInterrupted(f"topic {self._topic}", str(error))

    def _end(self, slot: int) -> int:
        log = self._broker.logs.get((self._topic, slot))
        return self._positions[slot] if log is None else log.stable_end

    def _read(self, slot: int) -> None:
        log = self._broker.logs.get((self._topic, slot))
        if log is None:
            return
        for entry in log.read(self._positions[slot]):
            record = entry.value
            if record is TOMBSTONE:
                self.progress.add(slot, entry.offset, None)
            else:
                assert isinstance(record, ProgressRecord)  # noqa: S101 - the topic holds no other
                self.progress.add(slot, entry.offset, record)
        self._positions[slot] = max(self._positions[slot], log.stable_end)
        self.progress.reach_end(slot, self._positions[slot])


_ASK_AGAIN_S = 0.1
_PATIENCE_US = 60 * US_PER_SECOND
_POLL_RECORDS_MAX = 500
_ROOT_SLOT_BODIES = TableAdded | StreamControl | WorkerDrain
"""The bodies that every worker reads in the root's slot."""
DESCRIBE_EVERY_US = 10 * US_PER_SECOND


class MemoryMembership:
    """A member named `worker` of the broker's group over the slots of `topic`.

    `client_id` distinguishes this process from others under the same worker's name.  `poll` does
    the client's background work (joining, heartbeats, the end of a rebalance).
    """

    def __init__(
        self,
        broker: MemoryBroker,
        *,
        worker: str,
        client_id: str,
        topic: str,
        data_topics: Sequence[str] = (),
        listener: GroupListener,
        clock: Clock,
        describe_every_us: int = DESCRIBE_EVERY_US,
    ) -> None:
        self.broker = broker
        self.client = GroupClient(broker.group, worker)
        self._client_id = client_id
        self._topic = topic
        self._data_topics = list(data_topics)
        self._listener = listener
        self._clock = clock
        self._describe_every_us = describe_every_us
        self.positions: dict[int, tuple[int, int]] = {}
        """Slot -> (incarnation, next offset to read)."""
        self._announcements_only: set[tuple[int, int]] = set()
        """Slots with their incarnations."""
        self._described: list[Event] = []
        self._describe_at_us = 0
        self._root_position = 0
        self._has_read_root = False
        self._follower: MemoryProgressFollower | None = None
        self._must_replace = False

    def start(self) -> None:
        """Claim the worker's name; polls join the group."""
        self.broker.claims[self.client.name] = self._client_id
        self._describe_at_us = self._clock.monotonic_us() + self._describe_every_us

    def close(self, *, leaves_group: bool = False) -> None:
        """Stop working; a static member stays in the group until its session times out."""
        self.positions.clear()
        if leaves_group:
            self.client.leave()

    def poll(self, timeout_s: float) -> list[Event]:
        """Serve the next rebalance callback, or read every slot; sleeps if nothing happened."""
        if self._must_replace:
            self._replace_client()
        self.work()
        if self.client.state is ClientState.LOCKED_OUT:
            raise _name_taken()
        if self.client.callbacks:
            self._serve(self.client.callbacks[0])
            return []
        events = self._describe()
        if self._topic in self.broker.denied:
            return [*events, AccessDenied(f"topic {self._topic}", "not authorized")]
        events += [*self.read_root_slot(), *self.read_fleet()]
        for slot in sorted(self.positions):
            events += self.read_slot(slot, count=_POLL_RECORDS_MAX)
        if not events and timeout_s:
            self._clock.sleep(timeout_s)
        return events

    def metadata(self) -> bytes | None:
        """Return the group's metadata as of now; None while the worker is not a member."""
        metadata = self.client.metadata()
        is_member = bool(metadata.member_id) and metadata.generation >= 0
        return metadata.encode() if is_member else None

    def recover(self, slot: int, incarnation: int) -> SlotRecoveryStarted:
        """Read a slot from its committed offset on, once no open transaction can move it."""
        give_up_at_us = self._clock.monotonic_us() + _PATIENCE_US
        while (log := self._log(slot)) is None or not self.broker.offsets_are_stable(slot):
            if self._clock.monotonic_us() > give_up_at_us:
                raise UnreachableError("a slot's offsets cannot be read", slot=slot)
            self._clock.sleep(_ASK_AGAIN_S)
        begin = self.broker.offsets.get(slot)
        self._announcements_only = {
            (number, incarnation)
            for number, incarnation in self._announcements_only
            if number != slot
        }
        self.positions[slot] = incarnation, begin or 0
        return SlotRecoveryStarted(
            slot,
            incarnation,
            committed_offset=begin,
            end_offset=log.uncommitted_end,
        )

    def read_announcements(self, slot: int, incarnation: int) -> None:
        """Return only the announcements of an own slot from now on."""
        self._announcements_only.add((slot, incarnation))

    def rejoin(self) -> None:
        """Leave and rejoin; has no effect while a rebalance is in progress."""
        if self.client.state is ClientState.STABLE and not self.client.callbacks:
            self.client.rejoin()

    def watch(self, topic: str) -> None:
        """Describe one more data topic from now on."""
        self._data_topics.append(topic)

    def follow(self, epoch: str, *, with_moves: bool) -> None:
        """Read all slots of an epoch from now on."""
        slots = sum(topic == self._topic for topic, _ in self.broker.logs)
        self._follower = MemoryProgressFollower(
            self.broker, topic=self._topic, slots=slots, epoch=epoch, with_moves=with_moves
        )

    def await_sources(self, sources: Sequence[tuple[str, int]]) -> None:
        """Report in a `FleetRead` when the given sources have published."""
        if self._follower is not None:
            self._follower.progress.await_sources(sources)

    def replace_client(self) -> None:
        """Let the next poll join with a new client; the slots of the former one are lost."""
        self._must_replace = True

    def has_successor(self) -> bool:
        """Return whether another process claimed the worker's name after this one."""
        return self.broker.claims.get(self.client.name) != self._client_id

    # ------------------------------------------------------------ parts, for models with faults

    def work(self) -> None:
        """Do a Kafka client's background work, and end a rebalance that is complete."""
        self.client.work()
        self.broker.group.complete()

    def read_slot(self, slot: int, *, count: int) -> list[Event]:
        """Continue reading an own slot, at most `count` records."""
        incarnation, position = self.positions[slot]
        log = self._log(slot)
        if log is None:
            return [ReadInterrupted(f"topic {self._topic}", "unknown topic")]
        if not log.begin <= position <= log.end:
            return [SlotOutOfRange(slot, incarnation, f"the log holds {log.begin} to {log.end}")]
        if position >= log.stable_end:
            return []
        events: list[Event] = []
        for entry in log.read(position):
            position = entry.offset + 1
            if self._is_passed_over(slot, incarnation, entry.value):
                events.append(SlotPositionAdvanced(slot, incarnation, position))
            else:
                assert isinstance(entry.value, ProgressRecord)  # noqa: S101 - the topic holds no other
                events.append(ProgressRead(slot, incarnation, entry.offset, entry.value))
            if len(events) == count:
                break
        else:
            position = log.stable_end  # over markers and aborted records
        events.append(SlotPositionAdvanced(slot, incarnation, position))
        self.positions[slot] = incarnation, position
        return events

    def _is_passed_over(self, slot: int, incarnation: int, value: object) -> bool:
        if isinstance(value, ProgressRecord) and isinstance(value.body, PartitionAnnounced):
            return False
        return value is TOMBSTONE or (slot, incarnation) in self._announcements_only

    def read_root_slot(self) -> list[Event]:
        """Continue reading the root's slot for the records that every worker reads."""
        log, had_read = self._log(slot_of(ROOT_TOKEN, slots=1)), self._has_read_root
        if log is None:
            return []
        records, begin = [], self._root_position
        for entry in log.read(begin):
            self._root_position = entry.offset + 1
            record = entry.value
            if isinstance(record, ProgressRecord) and isinstance(record.body, _ROOT_SLOT_BODIES):
                records.append(record)
        self._has_read_root = True
        if not records and had_read:
            return []
        read = RootSlotRead(tuple(records), is_at_end=True, begin=begin, end=self._root_position)
        return [read]

    def read_fleet(self) -> list[Event]:
        """Continue reading all slots, if the fleet is followed."""
        if self._follower is None:
            return []
        event = self._follower.poll(self._clock.monotonic_us())
        return [] if event is None else [event]

    # ------------------------------------------------------------ inside

    def _replace_client(self) -> None:
        self._must_replace = False
        if self.has_successor():
            raise _name_taken()
        owned = self.client.owned
        self.client = GroupClient(self.broker.group, self.client.name)
        if owned:
            self.client.owned, self.client.state = owned, ClientState.LOST
            self.client.callbacks.append(("lost", owned))

    def _log(self, slot: int) -> Log | None:
        return self.broker.logs.get((self._topic, slot))

    def _serve(self, callback: Callback) -> None:
        kind, slots = callback
        listener, client, named = self._listener, self.client, tuple(sorted(slots))
        if kind == "revoked":
            listener.slots_revoked(named)
            client.done(callback)
        else:
            client.done(callback)
        if kind != "assigned":
            for slot in named:
                self.positions.pop(slot, None)
        if kind == "lost":
            listener.slots_lost(named)
        elif kind == "assigned":
            listener.slots_assigned(named)

    def _describe(self) -> list[Event]:
        """Describe group and topics periodically; the next poll returns the answers."""
        described, self._described = self._described, []
        if described:
            return described
        now_us = self._clock.monotonic_us()
        if now_us >= self._describe_at_us:
            self._describe_at_us = now_us + self._describe_every_us
            group, client = self.broker.group, self.client
            member = group.members.get(client.name)
            described_group = GroupDescribed(
                is_stable=not group.is_preparing,
                is_member=member is not None and member.member_id == client.member_id,
                assignments=group.assignment(),
            )
            describe = self.broker.describe_topic
            data = tuple(describe(topic) for topic in self._data_topics)
            self._described = [described_group, TopicsObserved(describe(self._topic), data)]
        return []


def _name_taken() -> ProducerError:
    message = "another process has taken this worker's name"
    return ProducerError(message, hint="Give every worker a name of its own")


class MemoryStreamStartFinder:
    """Searches the root's slot for `StreamStarted`; implements `ports.StreamStartFinder`."""

    def __init__(self, broker: MemoryBroker, *, topic: str, root_slot: int) -> None:
        self._logs = broker.logs
        self._place = topic, root_slot
        self._position = 0
        self._assembler = ProgressAssembler()

    def poll(self, timeout_s: float = 0.0) -> tuple[ProgressRecord | None, bool]:  # noqa: ARG002 - reading never waits
        """Return (the record if it was read now, whether the slot's end was reached)."""
        log = self._logs.get(self._place)
        if log is None:
            return None, False
        for entry in log.read(self._position):
            self._position = entry.offset + 1
            record = entry.value
            if record is TOMBSTONE:
                continue
            assert isinstance(record, ProgressRecord)  # noqa: S101 - the topic holds no other
            assembled = self._assembler.add(record.body, offset=entry.offset)
            if assembled is not None and isinstance(assembled[0], StreamStarted):
                return ProgressRecord(record.epoch, record.worker, assembled[0]), False
        return None, True

    def close(self) -> None:
        """End the search."""
