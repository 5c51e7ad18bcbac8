"""The initial query of a worker that has to open the stream, up to the transaction that does.

The query runs under the empty token, in no slot: nothing of it is published but the children.
"""

from __future__ import annotations

from tidegate.producer.core import effects as do
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.now import Now
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.queries import Queries
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.transaction_cycle import TransactionCycle
from tidegate.schemas.errors import invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN


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
        """Start without a query; `queries` and `cycle` are the worker's own."""
        self.root: StreamPartition | None = None
        """The initial query's stream partition; None before it starts, and once it is dropped."""
        self._identity = identity
        self._queries = queries
        self._cycle = cycle
        self._start_ns = start_ns
        self._end_ns = end_ns

    def go_on(self, root_slot: Slot, writer: ProgressWriter, now: Now) -> list[do.Effect]:
        """Run the initial query; once its end is proved, begin the transaction that opens it."""
        if self.root is None:
            start_ns = now.wall_us * NS_PER_US if self._start_ns is None else self._start_ns
            self.root = StreamPartition(ChildPartition(ROOT_TOKEN, (), start_ns))
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
