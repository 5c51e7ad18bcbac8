"""Cores and readers that are broken on purpose where topics, rights or retention change."""

from __future__ import annotations

from typing import Any

from tests.simulation.ground import Ground
from tests.simulation.mutant import Mutant
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.now import Now
from tidegate.producer.core.position import Position
from tidegate.producer.core.queries import Queries
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.topic_watch import TopicWatch
from tidegate.producer.core.worker import Worker
from tidegate.producer.errors import PositionExpired
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.instants import NS_PER_US, parse_rfc3339_ns
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.gate import Gate

__all__ = ["BROKEN_GROUND"]


def _advance_and_take_what_comes(self: Slot, position: int) -> None:
    if self.phase is not SlotPhase.ASSIGNED:
        self.position = max(self.position, position)


def _see_no_change(self: TopicWatch, event: on.TopicsObserved, *, now_us: int) -> None:
    return None


_fail = Queries.fail


def _go_on_behind_the_gap(
    self: Queries, partition: StreamPartition, error: TidegateError, now_us: int
) -> list[do.Effect]:
    if not isinstance(error, PositionExpired):
        return _fail(self, partition, error, now_us)
    lost_until = str(error.fields["lost_until"])
    if lost_until == "unknown":
        return _fail(self, partition, error, now_us)
    partition.read = Position(parse_rfc3339_ns(lost_until) // NS_PER_US)
    partition.fail_query(now_us)
    return []


def _require_nothing(self: Ground, topic: str, number: int, begin: int) -> None:
    pass


_handle = Worker._handle


def _go_on_without_a_right(self: Worker, event: on.Event, now: Now) -> list[do.Effect]:
    return [] if isinstance(event, on.AccessDenied) else _handle(self, event, now)


def _require_no_topics(self: Gate, ids: Any) -> None:
    pass


_describe = BatchRun._describe


def _describe_in_the_first_batch(self: BatchRun) -> Any:
    return [] if self._batch else _describe(self)


BROKEN_GROUND = (
    Mutant(
        "a data topic that is another one read on",
        "ground",
        ((Gate, "require_topics", _require_no_topics),),
    ),
    Mutant(
        "data topics compared in the first batch only",
        "ground",
        ((BatchRun, "_describe", _describe_in_the_first_batch),),
    ),
    Mutant(
        "an announcement that is read again believed",
        "nothing_twice",
        ((Slot, "advance_to", _advance_and_take_what_comes),),
    ),
    Mutant("a topic that changed not noticed", "ground", ((TopicWatch, "handle", _see_no_change),)),
    Mutant(
        "an expired interval of the change stream skipped",
        "ground",
        ((Queries, "fail", _go_on_behind_the_gap),),
    ),
    Mutant(
        "expired data passed over in silence",
        "nothing_lost",
        ((Ground, "require_kept", _require_nothing),),
    ),
    Mutant(
        "a right that is lost while a worker runs not noticed",
        "ground",
        ((Worker, "_handle", _go_on_without_a_right),),
    ),
)
