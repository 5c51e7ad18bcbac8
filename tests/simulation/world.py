"""The whole system in one process, driven by one seed: faults first, then healing.

At every step one thing happens somewhere: a worker does its next thing, a marker is written,
Spanner commits, a process dies.  Which one is drawn from the seed, so a seed is a run.  After
`steps` steps the faults end, and `healing` begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

from tests.simulation.any_tables import tables_of
from tests.simulation.backfill import kind_of_spanner
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.clients import (
    Carried,
    OnCommit,
    ProcessLock,
    PublisherFaults,
    WorkerRegistry,
    WorkerTopics,
)
from tests.simulation.collected import FleetSights, collect
from tests.simulation.consumer import REFUSALS, Consumer, SupersededError, is_explained
from tests.simulation.disturbance import Disturbance
from tests.simulation.ground import DataLostError, Ground
from tests.simulation.healing import Healing
from tests.simulation.history import (
    Claim,
    Fenced,
    Finish,
    Full,
    History,
    Limit,
    Refusal,
    Size,
    TooLargeStop,
    View,
)
from tests.simulation.key_moves import MovingQuery
from tests.simulation.losses import Copies, Damage, Losses
from tests.simulation.node import MOVABLE, UNFINISHED, Node, WatchedCore
from tests.simulation.older_programs import OlderTranslator
from tests.simulation.operators import ACCEPT_GAP, REDRIVE, AcceptGap, Operators, Redrive
from tests.simulation.poison import TOO_FINE, Poison, RefusedSchemas
from tests.simulation.process import silenced
from tests.simulation.spanner import StreamQuery
from tests.simulation.tables import Decoder
from tests.simulation.weather import Weather
from tidegate.lineage import frontier, slot_view, snapshot_queue
from tidegate.producer.core import events as on
from tidegate.producer.core import publication
from tidegate.producer.core.effects import ReportStopped
from tidegate.producer.core.group_watch import WatchLimits
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.partition_index import SchedulerLimits
from tidegate.producer.core.progress_writer import HeartbeatLimits
from tidegate.producer.core.publication import PARKED_KEYS_MAX
from tidegate.producer.core.queries import QueryLimits
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.core.worker import Worker
from tidegate.producer.errors import MessageTooLarge, TokenRefused, TooManyParkedKeys
from tidegate.producer.memory.broker import MESSAGE_BYTES_MAX, Entry, MemoryBroker, Transaction
from tidegate.producer.memory.group import ClientState, Group
from tidegate.producer.records import DataChangeRecord, StreamRecord
from tidegate.producer.translation.pipeline import Parking, SizeLimits, TranslationPipeline
from tidegate.producer.translation.table_refresh import TableRefresher
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.errors import ConsumerError, SchemaError, TidegateError
from tidegate.schemas.progress import PROGRESS_VERSION, DataTopic, PartitionGap, TimestampForm
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.limits import Limits

_BEGIN_US = 1_700_000_000_000_000
_WATCH_LIMITS = WatchLimits(patience_us=2_000_000, pause_us=4_000_000)
"""Less patience than a real worker has, so that it rejoins in the middle of other things."""
_REFUSAL_PAUSE_US = 2_000_000
_STALL_AFTER_US = 3_000_000
"""Shorter times than a real worker's, so that they pass before the faults end."""
_LIMITS = (500, 1_000, 2_000, 20_000)
_LIFTED_PART = 0.6
"""Share of poison changes that an operator makes publishable before a redrive."""
_Core = TypeVar("_Core", bound=WatchedCore)
_Trace = list[tuple[int, int, str, str, Any]]


class World:
    def __init__(
        self, seed: int, *, weather: Weather | None = None, is_traced: bool = False
    ) -> None:
        self.random = random = Random(seed)
        self.weather = weather = weather or Weather.drawn(random, seed)
        self.names = TopicNames("sim", ("{prefix}.{table}", "{prefix}-{table}")[seed % 2])
        self.slots = weather.slots
        self.now_us = _BEGIN_US
        self.is_healing = False
        self.trace: _Trace | None = [] if is_traced else None
        self.at = 0
        self.tables = tables_of(weather, random, seed)
        self.registry = InMemorySchemaRegistry()
        self.decode = Decoder(self.registry)
        self.spanner = kind_of_spanner(weather)(
            random, self.names, self.tables, now_us=self.now_us, record_filter=weather.record_filter
        )
        self.poison = Poison(Random(f"poison changes {seed}"), chance=weather.poison)
        if weather.timestamps is TimestampForm.MICROS:
            self.poison.add_kind(TOO_FINE)
        self.refused_schemas = RefusedSchemas(
            Random(f"refused schemas {seed}"),
            self.registry,
            self.tables,
            self.names,
            chance=weather.schema_refused,
        )
        self.data_topics = [self.names.data(name) for name in self.tables.names]
        topics = dict.fromkeys(self.data_topics, weather.topic_partitions)
        self.broker = MemoryBroker(
            {**topics, self.names.progress: weather.slots, self.names.dead_letter: 1},
            group=Group(weather.slots, random=random),
            settles_at_once=False,
        )
        for _ in range(random.choice((0, 0, 3, 6))):
            self.let_time_pass()
            random.choice((self.commit, self.commit, self._churn))()
        self.let_time_pass()
        start_us = self.spanner.begin(self.now_us, Random(f"begin {seed}"))
        end_us = start_us + random.randint(1, 20_000_000) if weather.is_bounded else None
        self.history = History(
            start_us=start_us, slots=weather.slots, end_us=end_us,
            progress_topic=self.names.progress,
            are_tables_recorded=not weather.progress_versions_meet,
            has_key_moves=weather.key_moves, read_beside=self.spanner.read_beside,
        )  # fmt: skip
        for topic in (self.names.progress, self.names.dead_letter):
            self.broker.topic_bytes_max[topic] = MESSAGE_BYTES_MAX
        self.broker.message_bytes_max = weather.brokers_bytes_max
        self.history.limits += [
            Limit(0, topic, weather.brokers_bytes_max) for topic in self.data_topics
        ]
        self.copies = Copies(self, seed)
        self.sizes: dict[str, Size] = {}
        self.refused: set[str] = set()  # tokens whose queries Spanner refuses
        self.repeating: set[str] = set()  # tokens whose queries break after what they repeat
        self.compacted: dict[tuple[int, int], Entry] = {}
        self._skews: dict[str, int] = {}
        self._end_rest_ns = Random(f"end {seed}").choice((0, 1, 500, 999))
        """Nanoseconds of a bounded stream's end, which need not be a whole microsecond."""
        self._views: dict[int, int] = {}
        """Slot -> revision that a reader had in effect when it was looked at last."""
        self.thinning = 0.6 if weather.consumer_begins else 0.2
        """Chance that a batch of progress records is thinned; a late reader has large batches."""
        self._started = 0
        self.checkpoint = Checkpoint(
            Disturbance(
                Random(f"gate {seed}"),
                self.consumers,
                self._replace_consumer,
                tell=lambda what: self.tell("consumer", "fault", what),
            ),
            damage=Damage(seed, lambda what: self.tell("consumer", "fault", what)),
        )
        self.checkpoint.losses = Losses(self, seed)
        self.ground = Ground(self, seed)
        self.fleet_sights = FleetSights(self)
        self.operators = Operators(self, seed)
        self._consumer: Consumer | None = None
        self._zombie_consumer: Consumer | None = None
        self.nodes: list[Node] = []
        self.zombies: list[Node] = []
        self.redrives: list[Redrive | AcceptGap] = []
        """Those that live; all but the last were replaced while they stood still."""
        self.last_redrive: Redrive | None = None
        for number in range(weather.nodes):
            self._start_node(f"w{number}")

    def run(self) -> History:
        weather = self.weather
        with (
            silenced(),
            patch.object(publication, "PARKED_KEYS_MAX", weather.parked_keys_max),
            patch.object(snapshot_queue, "SNAPSHOTS_WAITING_MAX", weather.snapshots_waiting),
            patch.object(frontier, "ENTRIES_WAITING_MAX", weather.entries_waiting),
            patch.object(slot_view, "ANNOUNCEMENTS_MAX", weather.announcements),
        ):
            self._run()
        for node in self.processes:
            node.kill()
        return self.history

    def _run(self) -> None:
        deeds = self._deeds()
        doers = [doer for doer, _ in deeds]
        weights = [weight for _, weight in deeds]
        for doer in self.random.choices(doers, weights, k=self.weather.steps):
            self.at += 1
            self.now_us += self.random.randint(0, 20_000)
            doer()
            self.ground.step()
            if self.history.broken:
                break
        else:
            Healing(self).run()
        collect(self)

    def _deeds(self) -> list[tuple[Callable[[], None], float]]:
        weather = self.weather
        deeds = [
            (self.commit, weather.commits),
            (self._churn, weather.churn),
            (self.alter, weather.ddl),
            (self._write_marker, weather.markers),
            (self._work_in_background, weather.background),
            (self.broker.group.complete, weather.background / 2),
            (self.step_consumer, weather.consumer),
            (self._crash, weather.crash),
            (self._pause, weather.pause),
            (self._resume, weather.resume),
            (self._replace, weather.replace),
            (self._expire, weather.expire),
            (self._drain, weather.drain),
            (self._time_out, weather.time_out),
            (self._jump_time, weather.time_jump),
            (lambda: self._compact(self.random.randrange(self.slots)), weather.compaction),
            (self._crash_consumer, weather.consumer_crash),
            (self._make_consumer_zombie, weather.consumer_zombie),
            (self.copies.add, weather.copies),
            (self._move, weather.move),
            (self._step_a_clock, weather.wall_step),
            (self._change_a_limit, weather.limit_changes),
            (self._let_a_client_stick, weather.stuck_clients),
            (self._redrive, weather.redrive),
            (self._kill_a_redrive, weather.redrive),
            *self.operators.deeds(),
        ]
        rest = max(0.2, 1 - sum(weight for _, weight in deeds))
        return [(self._step_node, rest), *((doer, chance) for doer, chance in deeds if chance)]

    def let_time_pass(self) -> None:
        self.now_us += self.random.randint(1_000, 50_000)

    def commit(self) -> None:
        before = len(self.spanner.committed)
        self.spanner.commit(self.now_us)
        if not self.is_healing or self.all_park:
            self.poison.mark(self.spanner.committed[before:])

    def _churn(self) -> None:
        self.spanner.churn(self.now_us)

    def alter(self, change: Callable[[], str] | None = None) -> None:
        """Change the schema: as it comes, or one table of it."""
        *_, what, done = self.spanner.alter(self.now_us, change).split()
        self.tell("spanner", "fault", f"table {done}" if what == "table" else done)

    def _write_marker(self) -> None:
        unsettled = self.broker.unsettled
        if unsettled:
            transaction = self.random.choice(unsettled)
            self.broker.write_marker(transaction, self.random.randrange(8))

    def _work_in_background(self) -> None:
        node = self._some_node()
        if node is not None:
            node.client.work()

    def _step_node(self) -> None:
        node = self._some_node()
        if node is not None:
            node.step()
            self.end_redrives()

    def step_consumer(self) -> None:
        if self.at < self.weather.consumer_begins * self.weather.steps and not self.is_healing:
            return
        if self.ground.consumer_has_ended:
            return
        if self._zombie_consumer is not None and self.chance(0.3):
            consumer = self._zombie_consumer
        else:
            consumer = self._consumer = self._consumer or self._new_consumer()
        if self._has_ended(consumer):
            if consumer is self._consumer:
                self._consumer = None
            else:
                self._zombie_consumer = None

    def _has_ended(self, consumer: Consumer) -> bool:
        try:
            consumer.step()
        except SupersededError:
            return True
        except DataLostError as error:
            self.tell("consumer", "failed", error)
            self.ground.end_consumer(error)
            return True
        except REFUSALS as error:
            self.tell("consumer", "failed", error)
            if not consumer.is_superseded:
                self._end_consumer(error)
            return True
        except (TidegateError, KeyError) as error:
            self.tell("consumer", "failed", error)
            # Or else its successor has deleted what this one was about to read.
            if not consumer.is_superseded:
                self.history.broken.append(f"consumer: {type(error).__name__}: {error}")
            return True
        return False

    def _end_consumer(self, error: ConsumerError) -> None:
        """Note that the gate refused rows, which damage explains; a restart refuses again."""
        if is_explained(self, error):
            self.ground.end_consumer(error)
        else:
            self.history.broken.append(f"consumer: {type(error).__name__}: {error}")

    def _new_consumer(self) -> Consumer:
        if self.weather.consumer_begins and not self.checkpoint.offsets:
            # A late reader finds what compaction has left.
            for slot in range(self.slots):
                self._compact(slot)
        return Consumer(self, self.checkpoint, self._new_limits())

    def _replace_consumer(self) -> Consumer | None:
        """Start the successor of the run that stands still; None beside a run that it has."""
        if self._zombie_consumer is not None:
            return None
        self._zombie_consumer, self._consumer = self._consumer, self._new_consumer()
        return self._consumer

    def _new_limits(self) -> Limits:
        weather, factor = self.weather, self.random.choice((1, 1, 2))
        return Limits(
            release_rows_max=weather.release_rows * factor,
            segment_rows_max=weather.segment_rows * factor,
            segments_max=weather.segments,
            compaction_rows_max=weather.segment_rows * 3,
            small_release_rows_max=weather.release_rows * (1, 100)[factor - 1],
            small_release_bytes_max=weather.release_rows * 100,
            slice_rows=max(1, weather.release_rows * factor // 3),
            state_segments_max=weather.segments // 4,
            releases_kept=weather.segments // 2,
            cadence=weather.cadence(Random(f"cadence {self.now_us}"), now_us=self.now_us),
        )

    def _some_node(self) -> Node | None:
        awake = [node for node in self.processes if node.is_alive and not node.is_paused]
        return self.random.choice(awake) if awake else None

    def _crash(self) -> None:
        node = self.random.choice(self.nodes)
        if node.is_alive:
            self.tell(node.name, "fault", "killed")
            node.kill()
        else:
            self.restart(node)

    def _let_a_client_stick(self) -> None:
        """One whose session timed out, and whose place no former process of its name has."""
        held = {*self.broker.group.members, *(zombie.name for zombie in self.zombies)}
        out = [
            node
            for node in self.nodes
            if node.client.state is ClientState.OUT and node.name not in held
        ]
        if out:
            node = self.random.choice(out)
            node.client.state = ClientState.STUCK
            self.tell(node.name, "fault", "its group client is stuck")

    def _pause(self) -> None:
        node = self._some_node()
        if node is not None:
            self.tell(node.name, "fault", "stopped")
            node.is_paused = True

    def _resume(self) -> None:
        paused = [node for node in self.processes if node.is_paused]
        if paused:
            node = self.random.choice(paused)
            self.tell(node.name, "fault", "continued")
            node.is_paused = False

    def _replace(self) -> None:
        paused = [node for node in self.nodes if node.is_paused and node.is_alive]
        if paused:
            node = self.random.choice(paused)
            self.tell(node.name, "fault", "replaced")
            self.nodes.remove(node)
            self.zombies.append(node)
            self._start_node(node.name)

    def _expire(self) -> None:
        """End a member's session: by silence, or because the net between was cut."""
        names = sorted(self.broker.group.members)
        if names:
            name = self.random.choice(names)
            self.tell(name, "fault", "session expired")
            self.broker.group.expire(name)

    def _drain(self) -> None:
        node = self._some_node()
        if node is not None:
            self.tell(node.name, "fault", "drain")
            node.drain()

    def _time_out(self) -> None:
        names = self.broker.open_transactions
        if names:
            name = self.random.choice(names)
            self.tell(name, "fault", "transaction timed out")
            self.broker.time_out(name)

    def _jump_time(self) -> None:
        self.now_us += self.random.choice((5_000_000, 61_000_000))

    def _compact(self, slot: int) -> None:
        log = self.broker.logs[self.names.progress, slot]
        if self.ground.final is not None:
            return  # what compaction removes is kept by its offset, and another life may use it too
        for entry in log.compact(self.random.randint(0, log.end)):
            self.compacted[slot, entry.offset] = entry

    def _crash_consumer(self) -> None:
        self.tell("consumer", "fault", "killed")
        self._consumer = None

    def _make_consumer_zombie(self) -> None:
        self.tell("consumer", "fault", "replaced")
        self._zombie_consumer, self._consumer = self._consumer, None

    def _move(self) -> None:
        node = self._some_node()
        if node is not None:
            self.tell(node.name, "fault", "moved")
            node.move()

    def _step_a_clock(self) -> None:
        name = self.random.choice(self.nodes).name
        step_us = self.random.choice((-3_600_000_000, 3_600_000_000))
        self.tell(name, "fault", "clock set")
        self._skews[name] = self.skew_us(name) + step_us

    def _change_a_limit(self) -> None:
        """Give a topic another limit, as an operator does, and start workers that ended."""
        topic, bytes_max = self.random.choice(self.data_topics), self.random.choice(_LIMITS)
        is_more = bytes_max > self.broker.bytes_max(topic)
        self.tell("operator", "fault", f"limit {'raised' if is_more else 'lowered'}")
        self._set_limit(topic, bytes_max)
        for node in list(self.nodes):
            if is_more and not node.is_alive:
                self.restart(node)
            elif is_more and self.is_stopped_for_a_record(node):
                node.drain()

    def _redrive(self) -> None:
        """Stop the workers, perhaps not all, and put back what can be published by now."""
        if self.ground.final is not None or not self.ground.has_stream:
            return
        if any(not redrive.is_paused for redrive in self.redrives):
            return
        if not self.broker.logs[self.names.dead_letter, 0].end and self.chance(0.9):
            return  # nothing is parked
        for node in (*self.nodes, *self.zombies):
            if node.is_alive and not self.chance(0.1):
                node.kill()
                self.broker.group.expire(node.name)
        self.poison.lift(part=_LIFTED_PART)
        self.refused_schemas.lift()
        self.start_redrive(patience_s=self.random.choice((1, 10)))

    def _kill_a_redrive(self) -> None:
        """Kill it; the operator starts it again, or gives up."""
        if self.redrives:
            self.tell(REDRIVE, "fault", "redrive killed")
            self.redrives[-1].kill()
            if self.chance(0.5):
                self.start_redrive(patience_s=10)
            self.end_redrives()

    def start_redrive(self, *, patience_s: float) -> None:
        self.tell(REDRIVE, "fault", "redrive started")
        self._started += 1
        self.ground.ensure_topics()
        self.last_redrive = Redrive(
            self, client_id=f"{REDRIVE}-{self._started}", patience_s=patience_s
        )
        self.redrives.append(self.last_redrive)

    def start_accept_gap(self, *, gaps: tuple[PartitionGap, ...] = ()) -> AcceptGap:
        self.tell(ACCEPT_GAP, "fault", "accept-gap started")
        self._started += 1
        name, margin_us = f"{ACCEPT_GAP}-{self._started}", self.ground.gap_margin_us or 0
        process = AcceptGap(self, client_id=name, margin_us=margin_us, gaps=gaps)
        self.redrives.append(process)
        return process

    def end_redrives(self) -> None:
        """Forget the redrives that have ended; after the last one the workers are started again."""
        if not self.redrives or all(redrive.is_alive for redrive in self.redrives):
            return
        self.redrives = [redrive for redrive in self.redrives if redrive.is_alive]
        if self.is_healing or any(not redrive.is_paused for redrive in self.redrives):
            return
        self.broker.group.expire(REDRIVE)
        for node in list(self.nodes):
            if not node.is_alive:
                self.restart(node)

    def _set_limit(self, topic: str, bytes_max: int) -> None:
        self.broker.topic_bytes_max[topic] = bytes_max
        self.history.limits.append(Limit(self.now_us, topic, bytes_max))

    def is_stopped_for_a_record(self, node: Node) -> bool:
        """Whether a restart of the worker is due once what it stopped for can be published."""
        stopped = node.worker.stopped.values() if node.is_alive else ()
        return any(
            isinstance(error, MessageTooLarge | SchemaError | TooManyParkedKeys)
            for error in stopped
        )

    @property
    def all_park(self) -> bool:
        """Whether no worker stops at a change that it may park."""
        weather = self.weather
        return weather.parks and not (self.is_limited or weather.progress_versions_meet)

    @property
    def is_limited(self) -> bool:
        return self.weather.parked_keys_max < PARKED_KEYS_MAX

    def lift_limits(self) -> None:
        for topic in self.data_topics:
            self._set_limit(topic, MESSAGE_BYTES_MAX)

    @property
    def processes(self) -> list[Node]:
        return [*self.nodes, *self.zombies, *self.redrives]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def skew_us(self, name: str) -> int:
        if name not in self._skews:
            widest = self.weather.skew_us
            self._skews[name] = self.random.randint(-widest, widest)
        return self._skews[name]

    def tell(self, who: str, kind: str, what: Any) -> None:
        if self.trace is not None:
            self.trace.append((self.at, self.now_us - _BEGIN_US, who, kind, what))

    def commit_note(self, name: str) -> OnCommit:
        def note(transaction: Transaction, carried: Carried) -> None:
            self.at += 1
            self.history.fenced.append(
                Fenced(
                    self.at, name, frozenset(carried.covers), transaction.owned_at_fence,
                    transaction.was_checked, frozenset(transaction.offsets),
                    transaction.after_fence, frozenset(carried.topics), tuple(carried.fixed),
                    tuple(carried.paused), frozenset(carried.with_data),
                )
            )  # fmt: skip
            self.history.finishes += [Finish(self.at, name, token) for token in carried.finished]

        return note

    def publisher_faults(self) -> PublisherFaults:
        if self.is_healing:
            return PublisherFaults()
        return PublisherFaults(self.weather.refused, self.weather.reply_lost)

    def open_query(self, token: str, start_ns: int, end_ns: int | None) -> tuple[StreamQuery, int]:
        breaks = not self.is_healing and self.chance(self.weather.query_breaks)
        if token and not self.is_healing and self.chance(self.weather.token_refused):
            self.tell("spanner", "fault", "token refused")
            self.refused.add(token)
        truncates = not self.is_healing and self.chance(self.weather.query_truncates)
        kind = StreamQuery if end_ns is None else partial(MovingQuery, end_us=end_ns // 1000)
        query = kind(self.spanner, token, start_ns // 1000, self.random, truncates=truncates)
        if not self.is_healing and self.chance(self.weather.query_silent):
            query.silence = self.random.choice((0.02, 0.2, 1.0))
        return query, self.random.choice((0, 1, 3, 10)) if breaks else -1

    def served(self, token: str, query: StreamQuery) -> list[StreamRecord]:
        """Return a query's next response; raises QueryBroke and QueryDone."""
        if query.is_silent:
            return []
        if token in self.repeating:
            return self.poison.spoiled(query.repeat())
        if not self.is_healing and self.chance(query.silence):
            self.tell("spanner", "fault", "query silent")
            query.is_silent = True
            return []
        items = query.next(self.now_us)
        is_data = any(isinstance(item, DataChangeRecord) for item in items)
        if is_data and not self.is_healing and self.chance(self.weather.query_repeats):
            self.tell("spanner", "fault", "queries end after what they repeat")
            self.repeating.add(token)
        return self.poison.spoiled(items)

    def exited(self, node: Node, reason: str) -> None:
        self.tell(node.name, "exit", reason)
        if node in self.zombies:
            self.zombies.remove(node)

    def message_refused(self, node: Node, failure: on.DeliveryFailure) -> None:
        self.at += 1
        self.tell(node.name, "fault", "message refused")
        self.history.refusals.append(
            Refusal(
                self.at, node.name, node.client_id, failure.slot, failure.topic, failure.size_bytes,
                node.limits.most[failure.topic], (failure.key, failure.commit_timestamp_us),
            )
        )  # fmt: skip
        node.limits.read()

    def refuses_schema(self, subject: str, schema: dict[str, Any]) -> bool:
        is_refused = self.refused_schemas.refuses(subject, schema)
        if is_refused:
            self.tell("registry", "fault", "schema refused")
        return is_refused

    def stopped_for_size(self, name: str, error: MessageTooLarge) -> None:
        """Note what a worker, or a stream partition of it, says that it stopped for."""
        self.tell(name, "fault", "a record is too large")
        named: dict[str, Any] = error.fields
        self.history.too_large.append(
            TooLargeStop(
                self.now_us, name, named["topic"],
                named["size_bytes"], named["limit_bytes"], named.get("commit_timestamp_us"),
            )
        )  # fmt: skip

    def broke(self, node: Node, reason: str) -> None:
        self.tell(node.name, "broke", reason)
        self.history.broken.append(f"{node.name}: {reason}")

    def stopped(self, name: str, effect: ReportStopped, *, parked_keys: frozenset[int]) -> None:
        """Note a stream partition that stopped with these parked keys, and what explains it."""
        self.ground.note_held(name, effect)
        if isinstance(effect.error, MessageTooLarge):
            self.stopped_for_size(name, effect.error)
            return
        if isinstance(effect.error, TooManyParkedKeys):
            self.tell(name, "fault", "too many parked keys")
            at_us: Any = effect.error.fields["commit_timestamp_us"]
            may_be_large = bool(self.weather.large_values)
            self.history.full.append(Full(effect.token, at_us, parked_keys, may_be_large))
            return
        of_registry = effect.error.fields.get("subject") in self.refused_schemas.subjects
        may_be_poison = bool(self.poison.marked) or of_registry
        is_poison = isinstance(effect.error, SchemaError) and may_be_poison
        if is_poison:
            self.tell(name, "fault", "a change is poison")
        is_refused = isinstance(effect.error, TokenRefused)
        if not (is_poison or is_refused or self.ground.explains(effect.error)):
            self.history.broken.append(f"{name}: stopped {effect.token}: {effect.error}")

    def claimed(self, claim: Claim) -> None:
        self.history.claims.append(claim)

    def slowest_us(self, worker: Worker) -> int | None:
        """Return the fleet's least watermark of what can move, as a worker should know it.

        Of its own slots that is what was read, of the others what was published.  None while a slot
        has not exactly one owner, a worker stands still, or nothing can move.
        """
        owned: dict[int, Slot] = {}
        for node in (*self.nodes, *self.zombies):
            if not node.is_alive:
                continue
            if node.is_paused:
                return None  # what it has published may not be what it knows
            for number, slot in node.worker.slots.items():
                if slot.phase is SlotPhase.OWNED:
                    if number in owned:
                        return None
                    owned[number] = slot
        if len(owned) < self.slots:
            return None
        return min(
            (
                (partition.read if number in worker.slots else partition.published).watermark_us
                for number, slot in owned.items()
                # Version 1 does not say what is stopped, so others do not wait for its slots.
                if number in worker.slots or slot.heartbeat.version > 1
                for partition in slot.tokens.values()
                if partition.state in (MOVABLE if number in worker.slots else UNFINISHED)
            ),
            default=None,
        )

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str | None]:
        ids = {topic: self.broker.describe_topic(topic).topic_id for topic in topics}
        if not any(True for _ in self.ground.entries(self.names.dead_letter)):
            ids[self.names.dead_letter] = None  # created with the first change that is parked
        return {topic: None if (one := ids[topic]) is None else str(one) for topic in topics}

    def consumers(self) -> list[Consumer]:
        return [one for one in (self._consumer, self._zombie_consumer) if one is not None]

    def measure_frontier(self, found: frontier.Frontier) -> None:
        if self.ground.final is None:  # or else the offsets of two lives of a topic would meet
            self._note_views(found)
        bound = self.weather.snapshots_waiting * self.slots
        self.measure("waiting snapshots", found.snapshots_waiting, bound)

    def _note_views(self, found: frontier.Frontier) -> None:
        for slot in range(self.slots):
            view = found.view(slot)
            if view is None or view.current is None:
                continue
            revision = view.current.revision
            if self._views.get(slot) != revision:
                self._views[slot] = revision
                self.history.views.append(View(slot, revision, view.vector_in_effect))

    def measure_files(self) -> None:
        for kept in self.checkpoint.files_kept():
            self.measure(*kept)

    def measure(self, what: str, size: int, bound: int) -> None:
        known = self.sizes.get(what)
        if known is None or size > known.largest:
            self.sizes[what] = Size(what, size, bound)

    def _start_node(self, name: str) -> None:
        self._started += 1
        self.ground.ensure_topics()
        client_id = f"{name}-{self._started}"
        self.nodes.append(Node(self, name, epoch=f"epoch-{name}-{self.at}", client_id=client_id))

    def new_translator(self, node: Node, *, parks: bool) -> TranslationPipeline:
        """Return the pipeline of a worker, as `commands.run` puts it together."""
        registrar = self._registrar(WorkerRegistry(self, node.process))
        tables = map(self.tables.schema, self.tables.names)
        encodings = {table.name: registrar.register(table) for table in tables}
        translate = OlderTranslator if self._is_older(node.name) else Translator
        translator = translate(encodings, change_stream="s")
        topics, clock_us = WorkerTopics(node, node.limits), node.process.clock.monotonic_us
        refresher = TableRefresher(
            translator, self.tables, registrar, topics,
            lock=ProcessLock(node.process), clock_us=clock_us,
        )  # fmt: skip
        limits = SizeLimits(node.limits, lock=ProcessLock(node.process), clock_us=clock_us)
        parking = Parking(
            translator,
            node.limits,
            dead_letter=self.names.dead_letter,
            report=lambda _change, _key, _commit_timestamp_us: None,
        )
        return TranslationPipeline(
            translator, refresher, limits, parking=parking if parks else None
        )

    def _registrar(self, registry: Any) -> TableRegistrar:
        timestamps, chosen = self.weather.timestamps, self.weather.record_filter
        return TableRegistrar(self.names, registry, timestamps, record_filter=chosen)

    def _is_older(self, name: str) -> bool:
        if not self.weather.progress_versions_meet:
            return False
        return Random(f"program {name} {self._started} {self.weather.steps}").random() < 0.5

    def ensure_topic(self, topic: str) -> None:
        if topic not in self.data_topics:
            self.data_topics.append(topic)
            self.broker.create_topic(topic, self.weather.topic_partitions)
            bytes_max = MESSAGE_BYTES_MAX if self.is_healing else self.weather.brokers_bytes_max
            self._set_limit(topic, bytes_max)

    def new_worker(
        self, name: str, epoch: str, identity: StreamIdentity, *, kind: type[_Core]
    ) -> _Core:
        end_us = self.history.end_us
        return kind(
            self,
            name=name, epoch=epoch, identity=identity,
            start_ns=self.history.start_us * 1000,
            end_ns=None if end_us is None else end_us * 1000 + self._end_rest_ns,
            limits=WorkerLimits(
                commit_interval_us=self.weather.commit_interval_us,
                commit_bytes_max=self.weather.commit_bytes,
                chunk_items_max=self.weather.chunk_items,
                chunk_bytes_max=self.weather.chunk_bytes,
                group_watch=_WATCH_LIMITS,
                queries=self._query_limits(),
                heartbeats=self._heartbeat_limits(name),
            ),
        )  # fmt: skip

    def _query_limits(self) -> QueryLimits:
        weather, ends = self.weather, self.weather.window_us if self.weather.key_moves else None
        scheduler = SchedulerLimits(weather.open_queries, weather.turn_us, weather.drift_us)
        return QueryLimits(_REFUSAL_PAUSE_US, _STALL_AFTER_US, ends, scheduler)

    def _heartbeat_limits(self, name: str) -> HeartbeatLimits:
        """Return those of a worker: in some worlds versions meet, and a worker may be upgraded."""
        version = PROGRESS_VERSION
        if self.weather.progress_versions_meet and name != REDRIVE:
            version = Random(f"{name} {self._started} {self.weather.steps}").choice((1, 2))
        return HeartbeatLimits(
            version,
            history_minutes=self.weather.history_minutes,
            chain_length_max=self.weather.chain_length,
            chain_entries_min=self.weather.chain_entries,
            chain_entries_per_token=1,
        )

    def find_identity(self) -> StreamIdentity:
        """Return what a worker that starts now finds, as `commands.run` puts it together."""
        registrar = self._registrar(self.registry)
        topics = []
        for name in self.tables.names:
            topic = registrar.register(self.tables.schema(name)).topic
            self.ensure_topic(topic)
            found = self.broker.describe_topic(topic)
            key_id = registrar.key_schema_id(topic)
            topics.append(DataTopic(topic, str(found.topic_id), found.topic_partitions, key_id))
        return StreamIdentity(
            "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "sim-fleet", self.slots,
            str(self.broker.describe_topic(self.names.progress).topic_id), tuple(topics),
            self.weather.record_filter.described + self.names.recorded, self.weather.timestamps,
        )  # fmt: skip

    def restart(self, node: Node) -> None:
        self.tell(node.name, "fault", "started again")
        self.nodes.remove(node)
        self._start_node(node.name)
