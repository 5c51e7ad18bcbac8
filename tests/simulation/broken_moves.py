"""Workers that are broken on purpose: keys that move between stream partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.lineage.published_view import PublishedView
from tidegate.producer.core import stream_partition
from tidegate.producer.core.item_times import lies_past
from tidegate.producer.core.key_moves import MoveIns
from tidegate.producer.core.position import Position
from tidegate.producer.core.stream_partition import Publication, StreamPartition
from tidegate.producer.records import PartitionEventRecord

__all__ = ["BROKEN_MOVES"]

_publication = StreamPartition.publication
_publish = MoveIns.publish
_add = MoveIns.add


def _wait_for_nobody(_self: MoveIns, _at_us: int, _sources: Iterable[str]) -> list[tuple[str, int]]:
    return []


def _wait_for_the_first(self: MoveIns, at_us: int, sources: Iterable[str]) -> list[tuple[str, int]]:
    return _add(self, at_us, list(sources)[:1])


def _enough_with_one(self: MoveIns, source: str, at_us: int) -> bool:
    _publish(self, source, at_us)
    self._published |= self.waits_for  # or the move-in, read again, would ask for them again
    self.waits_for.clear()
    return True


def _what_is_unknown_has_finished(self: PublishedView, _token: str, _at_us: int) -> bool:
    return self._watermark_us is not None


def _without_move_outs(self: Position, event: PartitionEventRecord) -> Position:
    return self.through(event.commit_timestamp_ns // 1000 - 1)


def _later_instants_only(item: Any, at_us: int) -> bool:
    return lies_past(item, at_us * 1000)


def _without_started(self: StreamPartition) -> Publication:
    return replace(_publication(self), started=())


BROKEN_MOVES = (
    Mutant(
        "keys that moved in are read before they are published elsewhere",
        "key_order",
        ((MoveIns, "add", _wait_for_nobody),),
    ),
    Mutant(
        "only one of several sources is waited for",
        "key_order",
        ((MoveIns, "add", _wait_for_the_first),),
    ),
    Mutant(
        "the first source that is published ends the wait",
        "key_order",
        ((MoveIns, "publish", _enough_with_one),),
    ),
    Mutant(
        "a source that is not announced yet is taken for finished",
        "key_order",
        ((PublishedView, "has_finished", _what_is_unknown_has_finished),),
    ),
    Mutant(
        "a move-out that its position does not hold",
        "liveness",
        ((Position, "with_move", _without_move_outs),),
    ),
    Mutant(
        "what has the time of a move-in does not wait for it",
        "key_order",
        ((stream_partition, "waits_for_move_ins", _later_instants_only),),
    ),
    Mutant(
        "a start that is not announced",
        "gaps",
        ((StreamPartition, "publication", _without_started),),
    ),
)
