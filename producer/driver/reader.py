"""One running change stream query: a task that reads, translates and delivers.

Readers of a worker share a budget in bytes.  A message counts against it from before it is received
until the worker releases it, after its commit: first with the bytes that decoding needs, then with
the size of its records.  A reader that finds no room waits, and its stream waits with it.

A reader decides nothing: it delivers records in order, then exactly one end or one failure, and
after `stop` nothing.  It reports when it waits for the budget or for a table's new schema, and when
it has received bytes that complete no record yet, since its query is not silent then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidegate.producer.core.events import (
    QueryEnded,
    QueryFailed,
    QueryPaused,
    QueryResumed,
    ReaderOutput,
    RecordsRead,
)
from tidegate.producer.core.position import Item
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.errors import without_frames
from tidegate.producer.messages import MOD_DELETE, PublishableRecord
from tidegate.producer.ports import ChangeStream, RecordTranslator, Response, RunningQuery, Tasks
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    FilesClosedRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.schemas.errors import InvariantViolation, TidegateError

_ITEM_OVERHEAD_BYTES = 64
_MESSAGE_OVERHEAD_BYTES = 200


class PartitionReader:
    """Reads one query to its end as one of `tasks`; implements `ports.Reader`.

    `deliver` is called from their thread and must not block.  The bytes of every delivered
    `RecordsRead` have to be released once, at the budget.  With `tombstones` a DELETE also needs
    room for the tombstone after it.
    """

    def __init__(
        self,
        stream: ChangeStream,
        translator: RecordTranslator,
        *,
        token: str,
        query_id: int,
        start_ns: int,
        end_ns: int | None = None,
        heartbeat_ms: int,
        deliver: Callable[[ReaderOutput], None],
        budget: ByteBudget,
        tasks: Tasks,
        tombstones: bool = False,
    ) -> None:
        self._translator = translator
        self._token = token
        self._query_id = query_id
        self._deliver = deliver
        self._budget = budget
        self._tasks = tasks
        self._tombstones = tombstones
        self._delivering = threading.Lock()
        self._is_stopped = False
        self._query: RunningQuery = stream.query(
            token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=heartbeat_ms
        )
        self._held = 0
        """Bytes that were taken and not delivered."""
        self._is_paused = False

    def start(self) -> None:
        """Start reading; called once."""
        self._tasks.start(self._run, name=f"reader-{self._query_id}")

    def stop(self) -> None:
        """End the query; nothing is delivered afterwards.

        The task ends a moment later; the bytes that it holds are released then.
        """
        with self._delivering:
            self._is_stopped = True
        self._query.cancel()
        self._budget.wake()

    async def _run(self) -> None:
        try:
            while (response := await self._receive()) is not None:
                await self._read(response)
            self._report(QueryEnded(self._token, self._query_id))
        except TidegateError as error:
            self._report(QueryFailed(self._token, self._query_id, without_frames(error)))
        except Exception as error:  # noqa: BLE001 - a task that ends silently stalls its token
            bug = InvariantViolation("unexpected error in a reader", cause=repr(error))
            bug.__cause__ = error
            self._report(QueryFailed(self._token, self._query_id, bug))
        finally:
            self._query.cancel()
            self._release(self._held)

    def _was_stopped(self) -> bool:
        return self._is_stopped

    async def _receive(self) -> Response | None:
        """Return the next response, with its bytes taken; None at the end, or once stopped."""
        size = await self._query.next_size()
        if size is None or (size and not await self._take(size)):
            return None
        self._resume()
        return await self._query.receive()

    async def _take(self, size: int) -> bool:
        """Wait until bytes fit, and hold them; return False once stopped."""
        is_taken = await self._budget.take(
            self._token, size, carried=self._held,
            is_cancelled=self._was_stopped, on_wait=self._pause,
        )  # fmt: skip
        if is_taken:
            self._held += size
        return is_taken

    def _release(self, size: int) -> None:
        self._budget.release([(self._token, size)])

    def _pause(self) -> None:
        self._is_paused = True
        self._report(QueryPaused(self._token, self._query_id))

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._report(QueryResumed(self._token, self._query_id))

    async def _read(self, response: Response) -> None:
        """Deliver one response's records; the records before a failing one are delivered first."""
        items: list[Item] = []
        unfinished = 0
        try:
            records, unfinished = response.decode()
            left = records[::-1]
            del records
            while left:
                record = left.pop()  # dropped as soon as it is translated
                if isinstance(record, DataChangeRecord):
                    items.append(await self._translate(record))
                else:
                    items.append(record)
        finally:
            await self._hand_over(items, unfinished=min(unfinished, self._held))
        if not items:
            self._report(QueryResumed(self._token, self._query_id))

    async def _translate(self, record: DataChangeRecord) -> PublishableRecord:
        translated = self._translator.translate_now(record, token=self._token)
        if translated is not None:
            return translated
        self._pause()
        # All queries would wait with this one.
        translated = await self._tasks.in_thread(
            lambda: self._translator.translate(record, token=self._token)
        )
        self._resume()
        return translated

    async def _hand_over(self, items: list[Item], *, unfinished: int) -> None:
        """Deliver items with the bytes that they need; release the other bytes of decoding.

        Waits until the budget has room if the items need more; delivers nothing if the reader is
        stopped meanwhile.
        """
        size = sum(size_bytes(item, tombstones=self._tombstones) for item in items)
        growth = size + unfinished - self._held
        if growth > 0:
            if not await self._take(growth):
                return
            self._resume()
        else:
            self._release(-growth)
        self._held = unfinished
        if items:
            self._report(RecordsRead(self._token, self._query_id, items, size), size=size)

    def _report(self, output: ReaderOutput, *, size: int = 0) -> None:
        """Deliver, unless the reader was stopped."""
        with self._delivering:
            if not self._is_stopped:
                self._deliver(output)
                return
        if size:
            self._release(size)


def size_bytes(item: Item, *, tombstones: bool = False) -> int:
    """Estimate an item's memory: its bytes, and the Python objects around them.

    With `tombstones`, also the tombstone after each DELETE.
    """
    match item:
        case PublishableRecord():
            messages = (
                len(message.key) + len(message.value) + len(message.order_key)
                for message in item.messages
            )
            size = _ITEM_OVERHEAD_BYTES + sum(_MESSAGE_OVERHEAD_BYTES + size for size in messages)
            if tombstones:
                deletes = (message for message in item.messages if message.mod == MOD_DELETE)
                size += sum(_MESSAGE_OVERHEAD_BYTES + len(message.key) for message in deletes)
            for change in item.parked:
                size += _MESSAGE_OVERHEAD_BYTES + change.size_bytes
            return size
        case ChildPartitionsRecord():
            return _ITEM_OVERHEAD_BYTES * (1 + len(item.children))
        case PartitionStartRecord():
            return _ITEM_OVERHEAD_BYTES * (1 + len(item.tokens))
        case PartitionEventRecord():
            return _ITEM_OVERHEAD_BYTES * (1 + len(item.sources) + len(item.destinations))
        case FilesClosedRecord():
            return _ITEM_OVERHEAD_BYTES * (1 + len(item.files))
        case HeartbeatRecord() | PartitionEndRecord():
            return _ITEM_OVERHEAD_BYTES
