"""One running change stream query: a thread that reads, translates and delivers.

Readers of a worker share a budget in bytes.  What was delivered counts against it until the worker
gives it back, after its commit; a reader that finds no room waits, and with it the stream, so that
back-pressure stops reading instead of filling memory.  A reader decides nothing: it reports records
in order, then exactly one end or one failure, and after `stop` nothing any more.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tidegate.producer.core.events import QueryEnded, QueryFailed, ReaderOutput, RecordsRead
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.spanner_records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    StreamRecord,
)
from tidegate.schemas.errors import InvariantViolation, TidegateError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.producer.ports import ChangeStream, RunningQuery

__all__ = ["ByteBudget", "PartitionReader", "RecordTranslator", "size_bytes"]

ReadItem: TypeAlias = PublishableRecord | HeartbeatRecord | ChildPartitionsRecord

_ITEM_OVERHEAD_BYTES = 64
_MESSAGE_OVERHEAD_BYTES = 200
_JOIN_PATIENCE_S = 10.0


class RecordTranslator(Protocol):
    """Turns data change records into what is published."""

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages; raises TidegateError."""
        ...


class ByteBudget:
    """Bytes that all readers of a worker may hold together.

    A taker waits until its bytes fit; one that fits never is let in when nobody else holds any.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken = 0
        self._changed = threading.Condition()

    @property
    def taken(self) -> int:
        """The bytes that are held now."""
        with self._changed:
            return self._taken

    def take(self, size: int, *, until: threading.Event) -> bool:
        """Take bytes, waiting for room; return False, with nothing taken, once `until` is set."""
        with self._changed:
            self._changed.wait_for(
                lambda: until.is_set() or self._taken == 0 or self._taken + size <= self._bytes_max
            )
            if until.is_set():
                return False
            self._taken += size
            return True

    def release(self, size: int) -> None:
        """Give bytes back."""
        with self._changed:
            self._taken -= size
            invariant(self._taken >= 0, "more bytes were given back than taken", size=size)
            self._changed.notify_all()

    def wake(self) -> None:
        """Make every waiting taker look at its `until` again."""
        with self._changed:
            self._changed.notify_all()


class PartitionReader:
    """Reads one query to its end and hands what it brings to `deliver`, from a thread of its own.

    Every `RecordsRead` that was delivered has to be given back once, by `release` or at the budget.
    """

    def __init__(
        self,
        stream: ChangeStream,
        translator: RecordTranslator,
        *,
        token: str,
        query_id: int,
        start_ns: int,
        heartbeat_ms: int,
        deliver: Callable[[ReaderOutput], None],
        budget: ByteBudget,
    ) -> None:
        self._translator = translator
        self._token = token
        self._query_id = query_id
        self._deliver = deliver
        self._budget = budget
        self._stopped = threading.Event()
        self._query: RunningQuery = stream.query(
            token=token, start_ns=start_ns, end_ns=None, heartbeat_ms=heartbeat_ms
        )
        self._thread = threading.Thread(target=self._run, name=f"reader-{query_id}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the query and wait for the thread; nothing is delivered afterwards."""
        self._stopped.set()
        self._query.cancel()
        self._budget.wake()
        if self._thread.is_alive():
            self._thread.join(_JOIN_PATIENCE_S)

    def release(self, nbytes: int) -> None:
        """Give the bytes of delivered records back."""
        self._budget.release(nbytes)

    def _run(self) -> None:
        try:
            for records in self._query:
                self._read(records)
                if self._stopped.is_set():
                    return
            self._report(QueryEnded(self._token, self._query_id))
        except TidegateError as error:
            self._report(QueryFailed(self._token, self._query_id, error))
        except Exception as error:  # noqa: BLE001 - a thread that dies in silence stalls the fleet
            bug = InvariantViolation("a reader met an unknown error", cause=repr(error))
            bug.__cause__ = error
            self._report(QueryFailed(self._token, self._query_id, bug))
        finally:
            self._query.cancel()

    def _read(self, records: list[StreamRecord]) -> None:
        """Deliver one response's records; those before one that fails are delivered first."""
        items: list[ReadItem] = []
        try:
            for record in records:
                if isinstance(record, DataChangeRecord):
                    items.append(self._translator.translate(record, token=self._token))
                else:
                    items.append(record)
        finally:
            if items:
                size = sum(size_bytes(item) for item in items)
                if self._budget.take(size, until=self._stopped):
                    self._report(RecordsRead(self._token, self._query_id, items, size), size=size)

    def _report(self, output: ReaderOutput, *, size: int = 0) -> None:
        """Deliver, unless nobody wants it any more."""
        if self._stopped.is_set():
            if size:
                self._budget.release(size)
            return
        self._deliver(output)


def size_bytes(item: ReadItem) -> int:
    """Estimate an item's memory: its bytes, and what Python puts around them."""
    match item:
        case PublishableRecord():
            held = (
                len(message.key) + len(message.value) + len(message.order_key)
                for message in item.messages
            )
            return _ITEM_OVERHEAD_BYTES + sum(_MESSAGE_OVERHEAD_BYTES + size for size in held)
        case ChildPartitionsRecord():
            return _ITEM_OVERHEAD_BYTES * (1 + len(item.children))
        case HeartbeatRecord():
            return _ITEM_OVERHEAD_BYTES
