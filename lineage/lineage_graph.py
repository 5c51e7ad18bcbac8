"""The history of a stream's partitions, and the graph of the open ones with their ancestors.

Announcements and markers stay in the progress topic for as long as the topic does, so they give the
whole history.  Memory grows with it: some hundred bytes for each stream partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.lineage.fleet_status import PartitionCondition, condition_of
from tidegate.lineage.fleet_view import FleetView
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    StreamStarted,
    TokenSnapshot,
)
from tidegate.schemas.topics import slot_of


@dataclass(slots=True)
class KnownPartition:
    """One stream partition; only `PartitionHistory` changes it."""

    token: str
    parents: tuple[str, ...]
    """Empty for a child of the initial query."""
    start_ns: int
    end_ns: int | None = None
    """The exclusive end of its time range; None until its marker is read."""


class PartitionHistory:
    """The stream partitions of one epoch, open and finished; only `add` changes it."""

    def __init__(self, *, epoch: str) -> None:
        """Start without records."""
        self._epoch = epoch
        self._partitions: dict[str, KnownPartition] = {}
        self.finished_changes = 0
        """Number of changes published by finished stream partitions."""

    @property
    def partitions(self) -> Mapping[str, KnownPartition]:
        """All stream partitions by token, in the order in which they were read.  Read only."""
        return self._partitions

    def add(self, record: ProgressRecord) -> None:
        """Add the next record of a slot, once; records of several slots may be mixed."""
        if record.epoch != self._epoch:
            return
        body = record.body
        if isinstance(body, StreamStarted):
            self._add(body.children)
        elif isinstance(body, PartitionAnnounced):
            self._add((body.child,))
        elif isinstance(body, PartitionFinished):
            partition = self._partitions.setdefault(
                body.token, KnownPartition(body.token, body.parents, body.start_ns)
            )
            partition.end_ns = body.end_ns
            self.finished_changes += sum(topic.mods for topic in body.totals)
            self._add(body.children)

    def _add(self, children: Iterable[ChildPartition]) -> None:
        for child in children:
            partition = KnownPartition(child.token, child.parents, child.start_ns)
            self._partitions.setdefault(child.token, partition)


@dataclass(frozen=True, slots=True)
class Relative:
    """One stream partition of the graph."""

    token: str
    slot: int
    parents: tuple[str, ...]
    """The tokens of its parents, in the graph or not; empty for a child of the initial query."""
    condition: PartitionCondition
    start_us: int
    end_us: int | None
    """The end of its time range; None while it is open."""
    watermark_us: int | None
    """Published up to here; None if it has finished or was just announced."""


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """A graph of stream partitions, sorted by their start."""

    stream: str
    partitions: tuple[Relative, ...]
    left_out: int
    """Number of finished stream partitions beyond the requested generations."""

    def children(self) -> dict[str, list[Relative]]:
        """Return the children of each token in the graph; "" has those without a parent."""
        shown = {partition.token for partition in self.partitions}
        relatives: dict[str, list[Relative]] = {}
        for partition in self.partitions:
            for parent in [name for name in partition.parents if name in shown] or [""]:
                relatives.setdefault(parent, []).append(partition)
        return relatives


def lineage_graph(
    view: FleetView, history: PartitionHistory, *, stream: str, generations: int | None
) -> LineageGraph:
    """Return the open stream partitions with their ancestors; all of the history for None.

    `generations` is the number of generations of parents that are followed from the open ones.
    """
    tokens = {
        name: snapshot for slot in view.slots for name, snapshot in (slot.tokens or {}).items()
    }
    partitions = history.partitions
    chosen = {name for name in partitions if partitions[name].end_ns is None} | tokens.keys()
    if generations is None:
        chosen |= partitions.keys()
    newest = chosen
    for _ in range(generations or 0):
        parents = {
            parent
            for name in newest
            for parent in (partitions[name].parents if name in partitions else tokens[name].parents)
        }
        newest = (parents & partitions.keys()) - chosen
        chosen = chosen | newest
    relatives = [_relative(name, tokens.get(name), history, len(view.slots)) for name in chosen]
    return LineageGraph(
        stream,
        tuple(sorted(relatives, key=lambda relative: (relative.start_us, relative.token))),
        left_out=len(partitions.keys() - chosen),
    )


def _relative(
    name: str, token: TokenSnapshot | None, history: PartitionHistory, slots: int
) -> Relative:
    partition = history.partitions.get(name)
    end_ns = None if partition is None else partition.end_ns
    if end_ns is not None:
        condition = PartitionCondition.FINISHED
    elif token is None:
        condition = PartitionCondition.WAITING
    else:
        condition = condition_of(token)
    origin = partition or token
    return Relative(
        token=name,
        slot=slot_of(name, slots),
        parents=() if origin is None else origin.parents,
        condition=condition,
        start_us=0 if origin is None else origin.start_ns // NS_PER_US,
        end_us=None if end_ns is None else end_ns // NS_PER_US,
        watermark_us=None if end_ns is not None or token is None else token.watermark_us,
    )
