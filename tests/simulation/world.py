"""The whole system in one process, driven by one seed: faults first, then healing.

At every step one thing happens somewhere: a worker does its next thing, a marker is written,
Spanner commits, a process dies.  Which one is drawn from the seed, so a seed is a run.  After
`steps` steps the faults end, and `healing` begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulation.checkpoint import Checkpoint, SupersededError
from tests.simulation.collected import collected
from tests.simulation.consumer import Consumer
from tests.simulation.group import Group, GroupClient
from tests.simulation.healing import Healing
from tests.simulation.history import (
    Claim,
    Fenced,
    Finish,
    History,
    Mirror,
    QueryStart,
    Size,
)
from tests.simulation.kafka import Broker, Entry, Transaction
from tests.simulation.node import Node
from tests.simulation.publisher import Publisher, PublisherFaults
from tests.simulation.spanner import SimSpanner, StreamQuery
from tests.simulation.weather import Weather
from tidegate.producer.core import effects as do
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.core.worker import Worker
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.progress import DataTopic
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.frontier import Frontier
from tidegate.spark_consumer.core.gate import STATES_KEPT, Limits
from tidegate.spark_consumer.core.slot_view import SNAPSHOTS_WAITING_MAX

__all__ = ["World"]

_BEGIN_US = 1_700_000_000_000_000
_Trace = list[tuple[int, int, str, str, Any]]


class World:
    """See the module."""

    def __init__(
        self, seed: int, *, weather: Weather | None = None, is_traced: bool = False
    ) -> None:
        self.random = random = Random(seed)
        self.weather = weather = weather or Weather.drawn(random)
        self.names = TopicNames("sim")
        self.slots = weather.slots
        self.now_us = _BEGIN_US
        self.is_healing = False
        self.trace: _Trace | None = [] if is_traced else None
        self.at = 0
        self.spanner = SimSpanner(
            random, names=self.names, tables=weather.tables, now_us=self.now_us
        )
        self.data_topics = [self.names.data(f"t{number}") for number in range(weather.tables)]
        topics = dict.fromkeys(self.data_topics, weather.topic_partitions)
        self.broker = Broker(
            {**topics, self.names.progress: weather.slots}, Group(weather.slots, random)
        )
        for _ in range(random.choice((0, 0, 3, 6))):
            self.let_time_pass()
            random.choice((self.commit, self.commit, self._churn))()
        self.let_time_pass()
        start_us = self.spanner.promise(self.now_us)
        end_us = start_us + random.randint(1, 20_000_000) if weather.is_bounded else None
        self.history = History(
            start_us=start_us, slots=weather.slots, end_us=end_us,
            progress_topic=self.names.progress,
        )  # fmt: skip
        self._identity = StreamIdentity(
            "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "sim-fleet", weather.slots, "pid",
            tuple(DataTopic(topic, f"id-{topic}", count, 1) for topic, count in topics.items()),
        )  # fmt: skip
        self.copies: set[tuple[str, int, int]] = set()
        self.taken: Counter[Node] = Counter()
        self.sizes: dict[str, Size] = {}
        self.compacted: dict[tuple[int, int], Entry] = {}
        self._skews: dict[str, int] = {}
        self.checkpoint = Checkpoint()
        self._consumer: Consumer | None = None
        self._zombie_consumer: Consumer | None = None
        self.nodes: list[Node] = []
        self.zombies: list[Node] = []
        for number in range(weather.nodes):
            self._start_node(f"w{number}")

    # ------------------------------------------------------------ the run

    def run(self) -> History:
        """Run to the end; return what happened."""
        deeds = self._deeds()
        doers = [doer for doer, _ in deeds]
        weights = [weight for _, weight in deeds]
        for doer in self.random.choices(doers, weights, k=self.weather.steps):
            self.at += 1
            self.now_us += self.random.randint(0, 20_000)
            doer()
            if self.history.broken:
                return collected(self)
        Healing(self).run()
        return collected(self)

    def _deeds(self) -> list[tuple[Callable[[], None], float]]:
        weather = self.weather
        deeds = [
            (self.commit, weather.commits),
            (self._churn, weather.churn),
            (self._write_marker, weather.markers),
            (self._work_in_background, weather.background),
            (self._complete_round, weather.background / 2),
            (self.step_consumer, weather.consumer),
            (self._crash, weather.crash),
            (self._pause, weather.pause),
            (self._resume, weather.resume),
            (self._replace, weather.replace),
            (self._expire, weather.expire),
            (self._drain, weather.drain),
            (self._time_out, weather.time_out),
            (self._jump_time, weather.time_jump),
            (self._compact, weather.compaction),
            (self._crash_consumer, weather.consumer_crash),
            (self._make_consumer_zombie, weather.consumer_zombie),
            (self._copy_a_record, weather.copies),
            (self._move, weather.move),
        ]
        rest = max(0.2, 1 - sum(weight for _, weight in deeds))
        return [(self._step_node, rest), *((doer, chance) for doer, chance in deeds if chance)]

    # ------------------------------------------------------------ what goes on by itself

    def let_time_pass(self) -> None:
        self.now_us += self.random.randint(1_000, 50_000)

    def commit(self) -> None:
        self.spanner.commit(self.now_us)

    def _churn(self) -> None:
        self.spanner.churn(self.now_us)

    def _write_marker(self) -> None:
        unsettled = self.broker.unsettled
        if unsettled:
            transaction = self.random.choice(unsettled)
            self.broker.write_marker(transaction, self.random.randrange(8))

    def _work_in_background(self) -> None:
        node = self._some_node()
        if node is not None:
            node.client.work()

    def _complete_round(self) -> None:
        self.broker.group.complete()

    def _step_node(self) -> None:
        node = self._some_node()
        if node is not None:
            node.step()

    def step_consumer(self) -> None:
        if self.at < self.weather.consumer_begins * self.weather.steps and not self.is_healing:
            return
        zombie = self._zombie_consumer
        if zombie is not None and self.chance(0.3):
            self._zombie_consumer = self._stepped(zombie)
            return
        if self._consumer is None:
            self._consumer = Consumer(self, self.checkpoint, self._new_limits())
        self._consumer = self._stepped(self._consumer)

    def _stepped(self, consumer: Consumer) -> Consumer | None:
        try:
            consumer.step()
        except SupersededError:
            return None
        except (TidegateError, KeyError) as error:
            self.tell("consumer", "failed", error)
            if consumer.is_superseded:
                return None  # its successor has deleted what this one was about to read
            self.history.broken.append(f"consumer: {type(error).__name__}: {error}")
            return None
        return consumer

    def _new_limits(self) -> Limits:
        """Draw the consumer's settings: another start may have others."""
        weather, factor = self.weather, self.random.choice((1, 1, 2))
        return Limits(
            release_rows_max=weather.release_rows * factor,
            segment_rows_max=weather.segment_rows * factor,
            segments_max=weather.segments,
            compaction_rows_max=weather.segment_rows * 3,
        )

    def _some_node(self) -> Node | None:
        awake = [n for n in (*self.nodes, *self.zombies) if n.is_alive and not n.is_paused]
        return self.random.choice(awake) if awake else None

    # ------------------------------------------------------------ faults

    def _crash(self) -> None:
        node = self.random.choice(self.nodes)
        if node.is_alive:
            self.tell(node.name, "fault", "killed")
            node.is_alive = False
        else:
            self.restart(node)

    def _pause(self) -> None:
        node = self._some_node()
        if node is not None:
            self.tell(node.name, "fault", "stopped")
            node.is_paused = True

    def _resume(self) -> None:
        paused = [node for node in (*self.nodes, *self.zombies) if node.is_paused]
        if paused:
            node = self.random.choice(paused)
            self.tell(node.name, "fault", "continued")
            node.is_paused = False

    def _replace(self) -> None:
        """Start a second process under a paused one's name; the paused one may wake up later."""
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

    def _compact(self) -> None:
        slot = self.random.randrange(self.slots)
        log = self.broker.logs[self.names.progress, slot]
        for entry in log.compact(self.random.randint(0, log.end)):
            self.compacted[slot, entry.offset] = entry

    def _crash_consumer(self) -> None:
        self.tell("consumer", "fault", "killed")
        self._consumer = None

    def _make_consumer_zombie(self) -> None:
        self.tell("consumer", "fault", "replaced")
        self._zombie_consumer, self._consumer = self._consumer, None

    def _copy_a_record(self) -> None:
        """Append a record a second time, as a tool that copies topics at least once would."""
        log = self.broker.logs[
            self.random.choice(self.data_topics),
            self.random.randrange(self.weather.topic_partitions),
        ]
        entries = list(log.read(0))
        if entries:
            entry = self.random.choice(entries[-5:])
            offset = log.append(entry.key, entry.value, None)
            self.copies.add((*log.place, offset))

    def _move(self) -> None:
        """Let a worker's core go on from its snapshot, in another object."""
        node = self._some_node()
        if node is not None:
            self.tell(node.name, "fault", "moved")
            node.move(self._new_worker(node.name, node.epoch))

    # ------------------------------------------------------------ for the actors

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def skew_us(self, name: str) -> int:
        """Return how far a worker's clock is off."""
        if name not in self._skews:
            widest = self.weather.skew_us
            self._skews[name] = self.random.randint(-widest, widest)
        return self._skews[name]

    def tell(self, who: str, kind: str, what: Any) -> None:
        if self.trace is not None:
            self.trace.append((self.at, self.now_us - _BEGIN_US, who, kind, what))

    def new_publisher(self, name: str, client: GroupClient) -> Publisher:
        def on_commit(
            transaction: Transaction, speaks_for: frozenset[int], finished: tuple[str, ...]
        ) -> None:
            self.at += 1
            self.history.fenced.append(
                Fenced(
                    self.at, name, speaks_for,
                    transaction.owned_at_fence, transaction.was_checked,
                    frozenset(transaction.offsets), transaction.after_fence,
                )
            )  # fmt: skip
            self.history.finishes += [Finish(self.at, name, token) for token in finished]

        return Publisher(
            name=name, broker=self.broker, names=self.names,
            topic_partitions=self.weather.topic_partitions,
            random=self.random, metadata=client.metadata, on_commit=on_commit,
            faults=self._publisher_faults,
        )  # fmt: skip

    def _publisher_faults(self) -> PublisherFaults:
        if self.is_healing:
            return PublisherFaults()
        return PublisherFaults(self.weather.refused, self.weather.reply_lost)

    def open_query(self, node: Node, effect: do.StartQuery) -> tuple[StreamQuery, int]:
        """Return a query and after how many calls it breaks; -1 for never."""
        self.at += 1
        start_us = effect.start_ns // 1000
        self.history.queries.append(QueryStart(self.at, node.name, effect.token, start_us))
        breaks = not self.is_healing and self.chance(self.weather.query_breaks)
        truncates = not self.is_healing and self.chance(self.weather.query_truncates)
        query = StreamQuery(self.spanner, effect.token, start_us, self.random, truncates=truncates)
        return query, self.random.choice((0, 1, 3, 10)) if breaks else -1

    def took(self, node: Node, size: int) -> None:
        self.taken[node] += size

    def gave_back(self, node: Node, size: int) -> None:
        self.taken[node] -= size
        if self.taken[node] < 0:
            self.broke(node, "more bytes were given back than taken")

    def exited(self, node: Node, reason: str) -> None:
        """Note an exit that the run explains; its supervisor starts it again, sooner or later."""
        self.tell(node.name, "exit", reason)
        node.is_alive = False
        if node in self.zombies:
            self.zombies.remove(node)

    def broke(self, node: Node, reason: str) -> None:
        self.tell(node.name, "broke", reason)
        node.is_alive = False
        self.history.broken.append(f"{node.name}: {reason}")

    def claimed(self, claim: Claim) -> None:
        self.history.claims.append(claim)

    def mirrored(self, mirror: Mirror) -> None:
        self.history.mirrors.append(mirror)

    def topic_partitions_of(self, topic: str) -> int:
        return self.slots if topic == self.names.progress else self.weather.topic_partitions

    def measure_frontier(self, frontier: Frontier) -> None:
        self.measure(
            "waiting snapshots", frontier.snapshots_waiting, SNAPSHOTS_WAITING_MAX * self.slots
        )

    def measure_state(self, state: State, files: int) -> None:
        self.measure("files of the gate", files, 2 * STATES_KEPT + 4)

    def measure(self, what: str, size: int, bound: int) -> None:
        known = self.sizes.get(what)
        if known is None or size > known.largest:
            self.sizes[what] = Size(what, size, bound)

    # ------------------------------------------------------------ processes

    def _start_node(self, name: str) -> None:
        epoch = f"epoch-{name}-{self.at}"
        worker = self._new_worker(name, epoch)
        self.nodes.append(Node(self, name, worker, epoch=epoch, atomic=self.weather.is_atomic))

    def _new_worker(self, name: str, epoch: str) -> Worker:
        end_us = self.history.end_us
        return Worker(
            name=name, epoch=epoch, identity=self._identity,
            start_ns=self.history.start_us * 1000,
            end_ns=None if end_us is None else end_us * 1000,
            limits=WorkerLimits(
                commit_interval_us=self.weather.commit_interval_us,
                commit_bytes_max=200,
                chunk_items_max=self.weather.chunk_items,
            ),
        )  # fmt: skip

    def restart(self, node: Node) -> None:
        self.tell(node.name, "fault", "started again")
        self.nodes.remove(node)
        self._start_node(node.name)
