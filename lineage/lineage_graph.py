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
    """None until its marker is read."""


class PartitionHistory:
    """The stream partitions of one epoch, open and finished; only `add` changes it."""

    def __init__(self, *, epoch: str) -> None:
        """Start without records."""
        self._epoch = epoch
        self._known: dict[str, KnownPartition] = {}
        self.finished_changes = 0
        """Changes that those which have finished have published."""

    @property
    def known(self) -> Mapping[str, KnownPartition]:
        """All of them by token, in the order in which they were read.  Read only."""
        return self._known

    def add(self, record: ProgressRecord) -> None:
        """Take the next record of a slot; slots may be mixed.  Each record is taken once."""
        if record.epoch != self._epoch:
            return
        body = record.body
        if isinstance(body, StreamStarted):
            self._add(body.children)
        elif isinstance(body, PartitionAnnounced):
            self._add((body.child,))
        elif isinstance(body, PartitionFinished):
            known = self._known.setdefault(
                body.token, KnownPartition(body.token, body.parents, body.start_ns)
            )
            known.end_ns = body.end_ns
            self.finished_changes += sum(topic.mods for topic in body.totals)
            self._add(body.children)

    def _add(self, children: Iterable[ChildPartition]) -> None:
        for child in children:
            known = KnownPartition(child.token, child.parents, child.start_ns)
            self._known.setdefault(child.token, known)


@dataclass(frozen=True, slots=True)
class Relative:
    """One stream partition of the graph."""

    token: str
    slot: int
    parents: tuple[str, ...]
    """In the graph or not; empty for a child of the initial query."""
    condition: PartitionCondition
    start_us: int
    end_us: int | None
    """When it ended; None while it is open."""
    watermark_us: int | None
    """Published up to here; None where it has finished, or was announced just now."""


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """Stream partitions, those that began earlier first."""

    stream: str
    partitions: tuple[Relative, ...]
    left_out: int
    """Finished ones that are more generations away than was asked for."""

    def children(self) -> dict[str, list[Relative]]:
        """Return by token those of the graph that came from it; "" has those without a parent."""
        shown = {one.token for one in self.partitions}
        found: dict[str, list[Relative]] = {}
        for one in self.partitions:
            for parent in [name for name in one.parents if name in shown] or [""]:
                found.setdefault(parent, []).append(one)
        return found


def lineage_graph(
    view: FleetView, history: PartitionHistory, *, stream: str, generations: int | None
) -> LineageGraph:
    """Return what is open with its ancestors; None: with all that there ever was.

    `generations` is how many parents, parents of parents and so on are followed from what is open.
    """
    tokens = {name: one for slot in view.slots for name, one in (slot.tokens or {}).items()}
    known = history.known
    chosen = {name for name in known if known[name].end_ns is None} | tokens.keys()
    if generations is None:
        chosen |= known.keys()
    newest = chosen
    for _ in range(generations or 0):
        parents = {
            parent
            for name in newest
            for parent in (known[name].parents if name in known else tokens[name].parents)
        }
        newest = (parents & known.keys()) - chosen
        chosen = chosen | newest
    found = [_relative(name, tokens.get(name), history, len(view.slots)) for name in chosen]
    return LineageGraph(
        stream,
        tuple(sorted(found, key=lambda one: (one.start_us, one.token))),
        left_out=len(known.keys() - chosen),
    )


def _relative(
    name: str, token: TokenSnapshot | None, history: PartitionHistory, slots: int
) -> Relative:
    known = history.known.get(name)
    end_ns = None if known is None else known.end_ns
    if end_ns is not None:
        condition = PartitionCondition.FINISHED
    elif token is None:
        condition = PartitionCondition.WAITING
    else:
        condition = condition_of(token)
    origin = known or token
    return Relative(
        token=name,
        slot=slot_of(name, slots),
        parents=() if origin is None else origin.parents,
        condition=condition,
        start_us=0 if origin is None else origin.start_ns // NS_PER_US,
        end_us=None if end_ns is None else end_ns // NS_PER_US,
        watermark_us=None if end_ns is not None or token is None else token.watermark_us,
    )
