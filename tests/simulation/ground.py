"""The ground that a fleet stands on, and what happens to it: topics, rights, retention.

A seed has one kind of such a fault at most, drawn from a generator of its own.  Some pass: a right
that comes back, a client that reads a part of a slot again, data that expires.  Others are final:
no restart can repair them, and every worker has to stop with an error that names the fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from tests.simulation.history import GroundFault, Stop
from tidegate.producer.core.effects import ReportStopped
from tidegate.producer.core.slot import Slot
from tidegate.producer.errors import ProgressLost
from tidegate.producer.memory.broker import TOMBSTONE, Entry, Log
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.progress import ProgressRecord, StreamStarted, TableAdded
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

_KINDS = {
    "none": 50,
    "a part of a slot is read again": 8,
    "a right is lost for a while": 7,
    "data expires": 15,
    "a topic grows": 5,
    "a topic is deleted": 3,
    "a topic is re-created": 3,
    "the progress topic is re-created": 4,
    "the change stream's retention passes": 5,
}
_OF_DATA_TOPICS = frozenset({"a topic grows", "a topic is deleted", "a topic is re-created"})
_SUBJECTS = ("any table", "a later table", "a dropped table")
"""Whose topic it is.  A later table and a dropped one are made for it."""
_RIGHT_LOST = "a right is lost for a while"
_TOPIC_ERRORS = frozenset({"TopicsChangedError", "StreamChangedError"})
_OUTAGE_US = 7 * 86_400_000_000
_EXPIRES_IN_THE_END = 0.2
_NEW_LIFE = 1 << 32
"""Added to the offsets of a topic that was re-created: they follow those of its former life."""


class DataLostError(Exception):
    """Spark's `failOnDataLoss`: Kafka no longer holds what a query has to read next."""


class Ground:
    def __init__(self, world, seed: int) -> None:
        self._world = world
        self._random = random = Random(f"ground {seed}")
        (self._kind,) = random.choices([*_KINDS], [*_KINDS.values()])
        self._rewinds = Random(f"rewinds {seed}")
        self._due = [round(world.weather.steps * part) for part in self._parts()]
        self._subject = random.choice(_SUBJECTS) if self._kind in _OF_DATA_TOPICS else "any table"
        self._is_prepared = False
        self._dropped = ""
        if self._subject == "a dropped table":
            self._dropped = world.tables.add_unchanging()
        self._steps = 0
        self.final: GroundFault | None = None
        self.consumer_has_ended = False
        self.expired: dict[tuple[str, int, int], Entry] = {}
        self._removed: list[Log] = []
        chance = Random(f"gaps {seed}")
        self.gap_margin_us: int | None = chance.choice((0, 0, 1_000, 30_000, None))
        """So much of what can be read is given up with what has expired; None: nothing is."""
        self._expires_in_the_end = self._kind == "none" and chance.random() < _EXPIRES_IN_THE_END
        if world.weather.key_moves or world.weather.backfill or world.weather.chunks:
            # What began in a gap would be missing, so that none can be accepted; nor do rows expire
            # as changes do.
            self.gap_margin_us, self._expires_in_the_end = None, False
        self._recreated: set[str] = set()

    def _parts(self) -> list[float]:
        often = {"data expires": 8, "a part of a slot is read again": 4}.get(self._kind, 1)
        return sorted(self._random.uniform(0.2, 0.95) for _ in range(often))

    def step(self) -> None:
        """Do what is due; one that needs an open stream, or a table of its own, waits for it."""
        self._steps += 1
        if not self._due or self._steps < self._due[0] or self._kind == "none":
            return
        if not self.has_stream:
            return
        if not self._is_prepared:
            self._is_prepared = True
            self._prepare()
        elif topics := self._topics():
            self._due.pop(0)
            self._happen(self._random.choice(topics))

    def _prepare(self) -> None:
        tables, alter = self._world.tables, self._world.alter
        if self._subject == "a later table":
            alter(tables.add_table)
        if self._dropped in tables.names:
            alter(lambda: tables.drop_table(self._dropped))

    def _topics(self) -> list[str]:
        first, later = self._recorded_topics()
        names = self._world.names
        match self._subject:
            case "a later table":
                return later
            case "a dropped table":
                return [topic for topic in first if topic == names.data(self._dropped)]
        return first + later

    @property
    def has_stream(self) -> bool:
        return self.started() is not None

    @property
    def keeps_data(self) -> bool:
        return self._kind != "data expires"

    def heal(self) -> None:
        """Give back what can be given back; in some worlds let what is far behind expire."""
        self._world.broker.denied.clear()
        if self._expires_in_the_end and self.has_stream and not self._world.history.broken:
            self._kind = "the change stream's retention passes"
            self._pass_retention(all_of_it=False)

    def _happen(self, topic: str) -> None:
        if self._subject == "a dropped table":  # workers that start now do not find it any more
            self._kill_all()
        match self._kind:
            case "a part of a slot is read again":
                self._read_again()
            case "a right is lost for a while":
                self._lose_a_right()
            case "data expires":
                self._expire(topic)
            case "a topic grows":
                broker = self._world.broker
                broker.add_topic_partitions(topic, broker.topic_partitions(topic) + 1)
                self._end(frozenset({topic}), _TOPIC_ERRORS)
            case "a topic is deleted":
                self._remove(topic)
                self._end(frozenset({topic}), _TOPIC_ERRORS)
            case "a topic is re-created":
                self._remove(topic)
                self.ensure_topics()
                self._end(frozenset({topic}), _TOPIC_ERRORS)
            case "the progress topic is re-created":
                self._remove(self._world.names.progress)
                self.ensure_topics()
                named = frozenset({self._world.names.progress, "the progress topic"})
                self._end(named, _TOPIC_ERRORS | {"ProgressLost"})
            case "the change stream's retention passes":
                self._pass_retention()

    def _read_again(self) -> None:
        """Let a client begin again at an earlier offset, as `auto.offset.reset` would."""
        awake = [node for node in self._world.nodes if node.is_alive]
        if awake and self._rewinds.random() < 0.5:
            node = self._rewinds.choice(awake)
            self._tell(node.name)
            node.membership.read_shared_again(self._rewinds)
            return
        places = [(node, slot) for node in awake for slot in node.membership.positions]
        if places:
            node, slot = self._random.choice(places)
            incarnation, position = node.membership.positions[slot]
            self._tell(node.name)
            node.membership.positions[slot] = incarnation, self._random.randint(0, position)

    def _lose_a_right(self) -> None:
        denied = self._world.broker.denied
        if denied:
            denied.clear()
            return
        self._tell(self._world.names.progress)
        denied.add(self._world.names.progress)
        self._due.append(self._steps + self._random.randint(1, 300))

    def _expire(self, topic: str) -> None:
        world = self._world
        number = self._random.randrange(world.weather.topic_partitions)
        log = world.broker.logs[topic, number]
        read = world.checkpoint.offsets.get(world.checkpoint.committed, {})
        is_read = bool(read) and self._random.random() < 0.8
        below = read.get(topic, {}).get(number, 0) if is_read else log.stable_end
        below = self._random.randint(log.begin, max(log.begin, below))
        for entry in log.read(log.begin, below):
            self.expired[topic, number, entry.offset] = entry
        log.expire(below)
        self._tell(topic)

    def _remove(self, topic: str) -> None:
        logs = self._world.broker.logs
        self._removed += [log for place, log in logs.items() if place[0] == topic]
        self._world.broker.delete_topic(topic)
        self._recreated.add(topic)
        if topic == self._world.names.progress:
            self.consumer_has_ended = True  # its sources' offsets belong to the former topic

    def _pass_retention(self, *, all_of_it: bool = True) -> None:
        """Let the whole fleet be away for longer than the change stream keeps records."""
        world = self._world
        self._kill_all()
        world.broker.time_out_all_but(())
        world.broker.settle()
        world.now_us += _OUTAGE_US
        positions = dict(self._positions())
        if not positions:
            return
        oldest_us = min(positions.values())
        earliest_us = world.spanner.earliest_us = self._random.randint(
            oldest_us, world.now_us if all_of_it else max(positions.values()) + 1
        )
        lost = frozenset(token for token, at_us in positions.items() if at_us < earliest_us)
        if lost:
            self._end(lost, frozenset({"PositionExpired"}))

    def _kill_all(self) -> None:
        for node in (*self._world.nodes, *self._world.zombies):
            node.kill()

    def _end(self, subjects: frozenset[str], errors: frozenset[str]) -> None:
        self._tell(min(subjects))
        fault = GroundFault(self._world.at, self._kind, subjects, errors)
        self.final = fault
        self._world.history.ground.append(fault)

    def _tell(self, subject: str) -> None:
        self._world.tell(subject, "fault", self._kind)

    def ensure_topics(self) -> None:
        world = self._world
        counts = dict.fromkeys(world.data_topics, world.weather.topic_partitions)
        for topic, count in {**counts, world.names.progress: world.slots}.items():
            if world.broker.describe_topic(topic).topic_id is None:
                world.broker.create_topic(topic, count)

    def explains(self, error: TidegateError) -> bool:
        name = type(error).__name__
        if self.final is not None and name in self.final.errors:
            return True
        if self._kind == _RIGHT_LOST:
            return name == "ConfigError" and self._world.names.progress in str(error)
        return self._kind == "a part of a slot is read again" and name == "ProgressLost"

    def note_stop(self, worker: str, error: TidegateError) -> None:
        stop = Stop(self._world.at, worker, type(error).__name__, error.exit_code, str(error))
        self._world.history.stops.append(stop)

    def note_held(self, worker: str, effect: ReportStopped) -> None:
        text = f"{effect.token}: {effect.error}"
        stop = Stop(self._world.at, worker, type(effect.error).__name__, None, text)
        self._world.history.stops.append(stop)

    @property
    def must_all_stop(self) -> bool:
        """Whether no worker may live on: the fault concerns the whole fleet."""
        return self.final is not None and "PositionExpired" not in self.final.errors

    def is_reported(self) -> bool:
        fault = self.final
        return fault is not None and any(
            stop.at >= fault.at and stop.error in fault.errors for stop in self._world.history.stops
        )

    def begins_at(self, topic: str, number: int) -> int:
        """Return where a query that has read nothing begins, and note what it leaves out."""
        log = self._world.broker.logs[topic, number]
        if log.begin:
            self._world.tell("consumer", "fault", f"begins at {topic} {number}: {log.begin}")
            self._world.history.skipped.update(
                entry.value.order_key
                for (name, place, offset), entry in self.expired.items()
                if (name, place) == (topic, number)
                and offset < log.begin
                and entry.value is not TOMBSTONE
            )
        return log.begin

    def require_kept(self, topic: str, number: int, begin: int) -> None:
        kept = self._world.broker.logs[topic, number].begin
        if begin < kept:
            raise DataLostError(f"{topic} {number}: {begin} to {kept - 1} are gone")

    def require_same(self, topic: str, read: dict[int, int]) -> None:
        """Raise DataLostError where a topic that was read ends before what was read of it."""
        logs = self._world.broker.logs
        for number, offset in read.items():
            log = logs.get((topic, number))
            if offset and (log is None or log.stable_end < offset):
                raise DataLostError(f"{topic} {number} ends before {offset}")

    def has_changed(self, topic: str) -> bool:
        return topic in self._recreated

    def note_batch(self, batch: int, recorded: Mapping[str, str]) -> None:
        for topic in self._recreated & recorded.keys():
            self._world.history.planned_over_change.setdefault(topic, set()).add(batch)

    def end_consumer(self, error: Exception) -> None:
        """Note that the consumer refused to read on; a restart would refuse again."""
        self.consumer_has_ended = True
        self._world.history.reported_losses.append(str(error))

    def entries(self, topic: str) -> Iterator[tuple[int, int, Entry]]:
        for (name, number, offset), entry in self.expired.items():
            if name == topic:
                yield number, offset, entry
        for log in self._removed:
            if log.place[0] == topic:
                yield from ((log.place[1], entry.offset, entry) for entry in log.read())
        shift = _NEW_LIFE if topic in self._recreated else 0
        for (name, number), log in self._world.broker.logs.items():
            if name == topic:
                yield from ((number, entry.offset + shift, entry) for entry in log.read())

    def _recorded_topics(self) -> tuple[list[str], list[str]]:
        """Return the data topics of the stream's first tables, and those of later ones."""
        first: list[str] = []
        later: list[str] = []
        for record in self._root_records():
            if isinstance(record.body, StreamStarted) and record.body.chunk == 0:
                first += [topic.topic for topic in record.body.topics]
            elif isinstance(record.body, TableAdded):
                later.append(record.body.topic.topic)
        return list(dict.fromkeys(first)), sorted({*later} - {*first})

    def _root_records(self) -> Iterator[ProgressRecord]:
        world = self._world
        root = world.broker.logs[world.names.progress, slot_of(ROOT_TOKEN, world.slots)]
        for entry in root.read():
            if isinstance(entry.value, ProgressRecord):
                yield entry.value

    def started(self) -> ProgressRecord | None:
        return next((r for r in self._root_records() if isinstance(r.body, StreamStarted)), None)

    def _positions(self) -> Iterator[tuple[str, int]]:
        started = self.started()
        for number in range(self._world.slots if started is not None else 0):
            log = self._world.broker.logs[self._world.names.progress, number]
            slot = Slot(number, 0)
            slot.start_recovery(committed_offset=None, end_offset=log.end)
            for entry in log.read():
                if entry.value is not TOMBSTONE:
                    slot.add_record(entry.offset, entry.value, epoch=None)
            slot.advance_to(log.end)
            try:
                slot.own(started.epoch if started is not None else "")
            except ProgressLost:
                continue  # a broken core wrote it; what reads it next says so
            for token, partition in slot.tokens.items():
                start_us = partition.child.start_ns // 1_000
                yield token, max(start_us, partition.read.watermark_us)
