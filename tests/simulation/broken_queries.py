"""Workers that are broken on purpose: how they read the change stream, and when they stop."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.producer.core import queries
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.query_failure import Consequence
from tidegate.producer.core.stall_watch import StallWatch
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.topics import slot_of

__all__ = ["BROKEN_QUERIES"]


_news = PartitionIndex.news


def _no_news_beside_stopped(self: PartitionIndex, slot: int) -> Any:
    stopped = {slot_of(token, self._slots) for token in self.stopped}
    return {} if slot in stopped else _news(self, slot)


_report_change = StreamPartition._report_change


def _report_all_but_the_end(self: StreamPartition) -> None:
    if self.state is not PartitionState.FINISHED:
        _report_change(self)


def _stop_for_everything(error: TidegateError, *, token: str) -> Consequence:
    return Consequence.RETRY if error.retriable else Consequence.STOP_WORKER


_add_items = StreamPartition.add_items


def _any_item_is_progress(self: StreamPartition, *args: Any, **kwargs: Any) -> bool:
    self.attempts = 0
    return _add_items(self, *args, **kwargs)


def _nothing_stalls(self: StallWatch) -> list[StreamPartition]:
    return []


BROKEN_QUERIES = (
    Mutant(
        "a silent query waited for without end",
        "liveness",
        ((StallWatch, "stalled", _nothing_stalls),),
    ),
    Mutant(
        "a back-off that ends with any item",
        "query_pace",
        ((StreamPartition, "add_items", _any_item_is_progress),),
    ),
    Mutant(
        "a stopped stream partition that holds up its slot",
        "others_advance",
        ((PartitionIndex, "news", _no_news_beside_stopped),),
    ),
    Mutant(
        "an index that misses a change",
        "soundness",
        ((StreamPartition, "_report_change", _report_all_but_the_end),),
    ),
    Mutant(
        "a refused token that stops its worker",
        "soundness",
        ((queries, "consequence_of", _stop_for_everything),),
    ),
)
