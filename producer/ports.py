"""The producer's ports: contracts for all that the loop and the translation need from outside.

An adapter implements a port for one outside system (`kafka/`, `spanner/`, `memory/`).  It makes no
decisions: it carries out calls and reports outcomes.  No exception of a foreign library leaves an
adapter; errors are of the tree in `schemas.errors` and `producer.errors`.

The loop calls a port from its own thread, unless the port says otherwise.  The simulation schedules
time, threads and tasks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeAlias, TypeVar

from tidegate.producer.core.effects import PublishProgress, PublishRecords, StartQuery
from tidegate.producer.core.events import (
    CommitUnanswered,
    Delivered,
    Event,
    ReaderOutput,
    SlotRecoveryStarted,
    TransactionCommitted,
    TransactionFailure,
)
from tidegate.producer.description import StreamDescription
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import DataChangeRecord, StreamRecord
from tidegate.schemas.progress import ProgressRecord
from tidegate.schemas.tables import TableSchema

_T = TypeVar("_T")
_Run: TypeAlias = "Callable[[], Coroutine[Any, Any, _T]]"


class Clock(Protocol):
    """Returns the time and waits; any thread may call it."""

    def monotonic_us(self) -> int:
        """Return microseconds since an arbitrary moment; never less than before."""
        ...

    def wall_us(self) -> int:
        """Return microseconds since 1970; may step backwards or forwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for about `seconds`."""
        ...


class Condition(Protocol):
    """A lock, and a way to wait for a change of the data under it; see `threading.Condition`."""

    def __enter__(self) -> bool:
        """Acquire the lock."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Release the lock."""
        ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Release the lock until `predicate` holds or `timeout` seconds passed; return which."""
        ...

    def notify_all(self) -> None:
        """Make every waiting thread evaluate its predicate again; the lock is held."""
        ...


class Threads(Protocol):
    """Creates conditions between threads."""

    def condition(self) -> Condition:
        """Return a new condition with its own lock."""
        ...


class Signal(Protocol):
    """A way for tasks to wait for a change."""

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `predicate` holds or `timeout_s` passed; return which."""
        ...

    def notify(self) -> None:
        """Make every waiting task evaluate its predicate again; any thread may call it."""
        ...


class Tasks(Protocol):
    """Starts tasks and creates their signals."""

    def start(self, run: _Run[None], *, name: str) -> None:
        """Run `run()` concurrently with the caller; any thread may call it.

        `run` raises nothing.
        """
        ...

    def signal(self) -> Signal:
        """Return a new signal for tasks of this object."""
        ...

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """Return the result of `call`, or raise its error; it may block."""
        ...


class Publisher(Protocol):
    """The transactional producer of one worker.

    The calls of one transaction come in this order: `begin`, any number of `publish_records` and
    `publish_progress`, `await_delivery`, further `publish_progress` (the snapshots), a second
    `await_delivery`, `send_offsets`, `commit`; `commit` again only after `CommitUnanswered`.
    `abort` may take the place of any call after `begin`.

    A call returns None when the next one may follow, and otherwise the event that reports its
    outcome.  A `TransactionFailure` ends the transaction; nothing may follow it but `begin`, or
    `start` after `CommitOutcomeUnknown`:

    - `TransactionAborted`: the transaction left nothing behind.
    - `CommitOutcomeUnknown`: only a new producer (`start`) can end what is still open.
      Both carry a `DeliveryFailure` if a message was the cause: which one, and whether its fault
      lasts.  The publisher classifies it and decides nothing.
    - `ProducerFenced`: the broker accepts nothing more from this producer.  `has_successor` is left
      at its default; the loop asks `Membership.has_successor`.

    One thread at a time.  Every call blocks for a bounded time, at most about the transaction
    time-out.
    """

    def start(self) -> None:
        """Replace the producer with a new one of the same transactional id.

        Ends the open transaction of its predecessor, in this process or another.  Blocks until the
        broker has confirmed that; raises UnreachableError if it does not within a minute.
        """
        ...

    def begin(self, metadata: bytes | None) -> TransactionFailure | None:
        """Begin a transaction and keep the group's metadata for its fence.

        `metadata` is the present result of `Membership.metadata`: None aborts the transaction; if
        it is empty, no fence follows.  May replace a broken producer first, as `start` does.
        """
        ...

    def publish_records(self, effect: PublishRecords) -> TransactionFailure | None:
        """Produce all messages of the records, in order; blocks only while the queue is full."""
        ...

    def publish_progress(self, effect: PublishProgress) -> TransactionFailure | None:
        """Produce one progress record into its slot; blocks only while the queue is full."""
        ...

    def await_delivery(self) -> Delivered | TransactionFailure:
        """Wait for the delivery reports of all produced messages; return their offsets.

        `Delivered` is cumulative over the transaction.  A report that failed, lacks an offset or
        does not come in time aborts the transaction.  The first failed report ends the wait.
        """
        ...

    def send_offsets(self, offsets: tuple[tuple[int, int], ...]) -> TransactionFailure | None:
        """Send the fence: (slot, offset) pairs, with the metadata kept at `begin`.

        Everything produced must have been delivered.  If the group's generation has changed since
        `begin`, the broker rejects the fence, which aborts the transaction.
        """
        ...

    def commit(self) -> TransactionCommitted | CommitUnanswered | TransactionFailure:
        """Commit; after `CommitUnanswered` a second call is harmless and asks for the outcome."""
        ...

    def abort(self, reason: str) -> TransactionFailure:
        """Abort the open transaction; undelivered messages are dropped.

        Returns `TransactionAborted` with the reason, or another failure if the abort failed.
        """
        ...

    def close(self) -> None:
        """Release the client; only `start` may follow.

        A transaction that is open is neither committed nor aborted: the broker's time-out, or the
        next producer of the transactional id, aborts it.  Does not block and raises nothing.
        """
        ...


class MessageLimits(Protocol):
    """The last read limit of each topic on the size of a message; any thread may use it."""

    def bytes_max(self, topic: str) -> int:
        """Return a topic's limit on `messages.batch_bytes`; does not block."""
        ...

    def add(self, topic: str) -> None:
        """Read the limit of one more topic, which was created later; as `refresh`."""
        ...

    def refresh(self) -> None:
        """Read the limits from Kafka again; blocks for at most some seconds.

        Raises UnreachableError if Kafka does not answer; then the earlier limits stay in use.
        """
        ...


class GroupListener(Protocol):
    """Receives rebalances, inside `Membership.poll` and `close`, on the caller's thread."""

    def slots_assigned(self, slots: tuple[int, ...]) -> None:
        """Start owning slots.  May call `Membership.recover` for them before it returns."""
        ...

    def slots_revoked(self, slots: tuple[int, ...]) -> None:
        """Commit and stop everything of these slots; bounded: the rebalance waits for it."""
        ...

    def slots_lost(self, slots: tuple[int, ...]) -> None:
        """Drop everything of these slots without committing; other workers may own them already."""
        ...


class Membership(Protocol):
    """One worker's membership in the consumer group over the progress topic, and its reading.

    Its listener is given to its constructor.  One thread at a time.
    """

    def start(self) -> None:
        """Claim the worker's name and join the group; slots arrive in later polls.

        Raises UnreachableError if the claim cannot be written.
        """
        ...

    def close(self, *, leaves_group: bool = False) -> None:
        """End; the listener may be called.  The place in the group is kept or given up at once."""
        ...

    def poll(self, timeout_s: float) -> list[Event]:
        """Return what happened, in order; waits for at most about `timeout_s` for something.

        - `ProgressRead`: committed records of own slots, by offset within a slot, each with the
          incarnation given to `recover`.  Records that were read before a `recover` are not
          returned after it.
        - `SlotPositionAdvanced`: reading of a slot passed one or more unwanted records, or its end.
        - `SlotOutOfRange`: the log of a slot does not hold the offset to be read next; reading goes
          on nowhere else.
        - `GroupDescribed`: the group as its coordinator described it a few seconds ago; comes
          every ten seconds or so, and not at all while the coordinator does not answer.
        - `TopicsObserved`: the same for the progress topic and the data topics, those of `watch`
          included.
        - `RootSlotRead`: records of later tables and of operators, of any epoch, from the root's
          slot, which every worker reads from its beginning; each comes once.
        - `FleetRead`: after `follow`, how far the fleet's slots are: when that has changed, and
          each second or so while it is known.  `ReadInterrupted`: any other error of reading.
        - `AccessDenied`: a right is missing.  `ProgressReadLost`: another slot lost records.

        Rebalances happen inside: the listener is called before this returns.  Raises ProducerError
        if another process took this worker's name, UnreachableError if that cannot be found out.
        """
        ...

    def metadata(self) -> bytes | None:
        """Return the group's metadata as of now; None while the worker is not a member.

        Opaque; for `Publisher.begin` only.  Does not block.
        """
        ...

    def recover(self, slot: int, incarnation: int) -> SlotRecoveryStarted:
        """Read an own slot from its committed offset on, or from its beginning if there is none.

        Blocks until no open transaction can move that offset and until the slot's end, including
        open transactions, is known.  Raises UnreachableError if the broker does not answer within a
        minute.
        """
        ...

    def read_announcements(self, slot: int, incarnation: int) -> None:
        """Return only announcements of an own slot until its next `recover`.

        Has no effect for another incarnation than that of the last `recover`; does not block.
        """
        ...

    def rejoin(self) -> None:
        """Leave the group and join it again, which starts a rebalance.

        The own slots are revoked in the polls that follow.  Does not block.
        """
        ...

    def watch(self, topic: str) -> None:
        """Describe one more data topic from now on; does not block."""
        ...

    def follow(self, epoch: str, *, with_moves: bool) -> None:
        """Read all slots from their beginnings from now on, also the own ones; does not block.

        Records of another epoch are ignored; `await_sources` needs `with_moves`.  A record that
        contradicts the protocol ends the reading, with one `ReadInterrupted`: no further
        `FleetRead` comes.
        """
        ...

    def await_sources(self, sources: Sequence[tuple[str, int]]) -> None:
        """Report each (token, microseconds) in a `FleetRead` once it is published; never blocks."""
        ...

    def replace_client(self) -> None:
        """Let the next poll join the group with a new client; own slots are then lost.

        That poll raises ProducerError if another process took this worker's name.
        """
        ...

    def has_successor(self) -> bool:
        """Return whether another process claimed this worker's name after this one did.

        Raises UnreachableError if the claim cannot be read within a minute.
        """
        ...


class StreamStartFinder(Protocol):
    """A search through the root's slot for the record that opened the epoch."""

    def poll(self, timeout_s: float = 0.0) -> tuple[ProgressRecord | None, bool]:
        """Return (the record if it was read just now, whether the slot's end was reached).

        Waits for about `timeout_s`; continues where it stopped, also after an error of the broker.
        """
        ...

    def close(self) -> None:
        """End the search."""
        ...


# ---------------------------------------------------------------- Spanner


class Response(Protocol):
    """One response message of a query, as received."""

    size_bytes: int
    """Its size as received."""

    def decode(self) -> tuple[list[StreamRecord], int]:
        """Return the records that it completes, and the bytes kept for an incomplete one.

        Called once.  Raises SchemaError for a record that cannot be decoded.
        """
        ...


class RunningQuery(Protocol):
    """One change stream query, read by one task (`driver.runtime`)."""

    async def next_size(self) -> int | None:
        """Wait for the next response message to begin; return the bytes that it needs.

        That is its size and its copies until it is translated, beyond an unfinished value of the
        message before; 0 while it is not complete.  The first call sends the query.  Little of a
        large message arrives before `receive`.  Returns None only after an OK end or `cancel`.
        Raises `QueryError`, or SchemaError for an end within a value.  Only `cancel` may follow.
        """
        ...

    async def receive(self) -> Response:
        """Return the begun message, or each second a part without records; raises likewise."""
        ...

    def cancel(self) -> None:
        """End the query; any thread may call it, more than once; does not block."""
        ...


class ChangeStream(Protocol):
    """One change stream of one database; any thread may start concurrent queries."""

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> RunningQuery:
        """Prepare a query; its first `next_size` sends it.  Does not block.

        The empty token asks for the stream partitions active at `start_ns`.  Both bounds are
        inclusive, in nanoseconds since 1970.
        """
        ...


class Catalogue(Protocol):
    """The database's catalogue (`INFORMATION_SCHEMA`), read again by every call; thread-safe.

    Calls block for a few seconds at most.  They raise QueryError if the database does not answer,
    and SchemaError for a column type that Tidegate does not know.
    """

    def describe(self, stream: str) -> StreamDescription:
        """Return a change stream and its tables; `exists` is false if there is no such stream."""
        ...

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:
        """Return a table as a change stream watches it, now or at a time; None if it is missing."""
        ...


class DataTopics(Protocol):
    """The data topics of the stream; thread-safe."""

    def ensure(self, topic: str, *, key_schema_id: int) -> None:
        """Return when the topic exists; create it if it is missing, never alter it.

        Reports the topic to the worker (`events.TableFound`) before it returns.  Blocks for at most
        some seconds.  Raises ConfigError if it cannot be created, and UnreachableError if Kafka
        does not answer.
        """
        ...


# ---------------------------------------------------------------- reading and translating


class Reader(Protocol):
    """One running query: reads, translates and delivers concurrently with the loop.

    Delivers `RecordsRead` in order, then exactly one `QueryEnded` or `QueryFailed`.
    """

    def start(self) -> None:
        """Start reading; called once."""
        ...

    def stop(self) -> None:
        """End the query; nothing is delivered once this returns.  Does not block.

        May be called before `start`, after the query's end, and more than once.
        """
        ...


OpenReader: TypeAlias = "Callable[[StartQuery, Callable[[ReaderOutput], None]], Reader]"
"""Prepares the reader of a query; the second argument is called from the readers' thread."""


class RecordTranslator(Protocol):
    """Translates data change records for publication; shared by all readers, thread-safe."""

    def translate_now(self, record: DataChangeRecord, *, token: str) -> PublishableRecord | None:
        """Return the result of `translate`; None if it would have to block.

        Raises the errors of `translate`.
        """
        ...

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages, in the order of its mods.

        May block while a table's schema is read again and registered.  Raises SchemaError for a
        value that its topic's schema cannot represent, IncompatibleChange for a table that changed
        in a way the schema cannot follow, QueryError or UnreachableError if catalogue or registry
        do not answer.
        """
        ...
