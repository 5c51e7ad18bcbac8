"""The opening of the stream: the search for an earlier opening, and the initial query.

A search that finds nothing is no proof: the record may have been committed after the last offset
that the search had read.  An owner writes a snapshot only after it has read the record.  So once a
slot shows a snapshot, or the offset of a fence, the record is in the log, and a search that begins
after that finds it, or it was deleted.

The initial query runs under the empty token, in no slot and before there is an epoch: nothing of it
can be published except the children.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.producer.core import effects as do
from tidegate.producer.core.events import Now
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.position import Item
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.queries import Queries
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.transaction_cycle import TransactionCycle
from tidegate.producer.errors import InitialQueryChange
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.schemas.errors import invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN

_PATIENCE_US = 10_000_000
"""How long a search may still take before another one is started."""


class StreamStartSearch:
    """The searches of one worker, until one of them finds the record."""

    def __init__(self) -> None:
        self._searches = 0
        self._proved_us: int | None = None
        """When a slot first proved that the record was committed."""
        self._proving: int | None = None
        """The search that began after that proof."""

    def begin(self) -> list[do.FindStreamStart]:
        """Return the first search; nothing if it was already started."""
        return [] if self._searches else [self._next()]

    def poll(self, slots: Iterable[Slot], *, now_us: int) -> list[do.FindStreamStart]:
        """Return the decisive search, once it is due and while the record is not found."""
        if self._proving is not None:
            return []
        if self._proved_us is None:
            if any(slot.proves_stream_start for slot in slots):
                self._proved_us = now_us
            return []
        if now_us - self._proved_us < _PATIENCE_US:
            return []
        search = self._next()
        self._proving = search.search_id
        return [search]

    def is_decided_by(self, search_id: int) -> bool:
        """Whether the record is missing if this search ended without it."""
        return search_id == self._proving

    def _next(self) -> do.FindStreamStart:
        self._searches += 1
        return do.FindStreamStart(self._searches)


class StreamOpening:
    """Opens the stream from `start_ns` (None: now) to `end_ns` (None: without an end)."""

    def __init__(
        self,
        identity: StreamIdentity,
        queries: Queries,
        cycle: TransactionCycle,
        *,
        start_ns: int | None,
        end_ns: int | None,
    ) -> None:
        self.root: InitialQuery | None = None
        """The initial query's stream partition; None before it starts, and once it is dropped."""
        self._identity = identity
        self._queries = queries
        self._cycle = cycle
        self._start_ns = start_ns
        self._end_ns = end_ns

    def go_on(self, root_slot: Slot, writer: ProgressWriter, now: Now) -> list[do.Effect]:
        """Run the initial query; once its end is proved, begin the opening transaction."""
        if self.root is None:
            start_ns = now.wall_us * NS_PER_US if self._start_ns is None else self._start_ns
            self.root = InitialQuery(ChildPartition(ROOT_TOKEN, (), start_ns))
        root = self.root
        if root.state is PartitionState.SCHEDULED and root.retry_at_us <= now.monotonic_us:
            return [self._queries.start(root)]
        if root.state is not PartitionState.FINISHED or not self._cycle.is_due(now.monotonic_us):
            return []
        finish = root.publication().finish
        invariant(finish, "initial query finished without children")
        children = () if finish is None else finish[1]
        started = self._identity.started(
            start_ns=root.child.start_ns, end_ns=self._end_ns, children=children
        )
        return self._cycle.begin_stream(root_slot, started, writer)

    def drop(self) -> list[do.Effect]:
        """Stop the initial query: the epoch is open, or another worker has to open it."""
        root, self.root = self.root, None
        if root is None:
            return []
        effects = self._queries.stop(root)
        if root.pending_bytes:
            effects.append(do.ReleaseBudget(((root.child.token, root.pending_bytes),)))
        return effects


class InitialQuery(StreamPartition):
    """The stream partition of the empty token; its items only name stream partitions."""

    def add_items(
        self, items: Iterable[Item], size_bytes: int, *, end_ns: int | None = None
    ) -> bool:
        """Add the initial query's output, as `StreamPartition.add_items` does."""
        return super().add_items(filter(names_partitions, items), size_bytes, end_ns=end_ns)


def names_partitions(item: Item) -> bool:
    """Whether an item of the initial query names stream partitions; any other item is ignored.

    A heartbeat would move the start of the next attempt, and stream partitions begin there.  Raises
    InitialQueryChange for a change to publish, and for a move of keys.
    """
    if isinstance(item, PublishableRecord) and (item.messages or item.parked):
        topics = {change.topic for change in item.messages + item.parked}
        raise InitialQueryChange(
            commit_timestamp_us=item.commit_timestamp_us,
            server_transaction_id=item.server_transaction_id,
            record_sequence=item.record_sequence,
            topics=sorted(topics),
        )
    if isinstance(item, PartitionEventRecord):
        raise InitialQueryChange(
            commit_timestamp_us=item.commit_timestamp_ns // NS_PER_US,
            record_sequence=item.record_sequence,
        )
    return isinstance(item, ChildPartitionsRecord | PartitionStartRecord)
