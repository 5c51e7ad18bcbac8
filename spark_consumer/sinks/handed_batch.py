"""A batch's changes before their release, and the port of the sinks that take them.

This is the order mode `key`: a change is handed over by the batch that reads it, before the
watermark has passed it.

- `take` is called for each batch that has changes, in ascending order of their numbers, one at a
  time, and before any change of the batch is released.  Each change is in one batch.
- The changes of a key come in Kafka's order: by `offset` within a topic partition, in ascending
  batches.  That is their commit order, except for changes that an operator has put back, and for
  rows that were read on demand: these have their own topic, so that a row as of a time T may come
  after changes of its key that are later than T, also in a later batch.  `order_key` has the order.
  Changes of several keys, tables and transactions come in no order, and a transaction may be in
  several batches.  A record that repeats a change is there too, with the same `order_key`.
- After a kill the interrupted batch is handed over again: same number, same rows.  A sink that
  stores the number with what it writes, in one atomic step, has each change exactly once.
- A newer run may have replaced this one without its knowledge.  Both then hand over the same batch
  with the same rows.
- The sink is a `Sink` too; its `write` is called and may do nothing.  A sink that joins a query
  gets the batches of the plans that name it, from the next planned batch on.
- `take` blocks until the batch is durable.  It may raise any error: the run then ends, and the next
  run hands the batch over again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tidegate.spark_consumer.sinks.port import DecodedTable, Sink


@dataclass(frozen=True, slots=True)
class HandedBatch:
    """All changes that a batch has read, `rows` of them.

    `left_out` more cannot be decoded: they become dead letters with their release.

    `watermark_us` is the watermark that the batch leaves (microseconds since 1970): every change up
    to it has been handed over with this batch or before it, except for those that an operator puts
    back.

    `tables` has an entry for every topic known by now, by topic; frames have the columns
    `decoding.CHANGE_COLUMNS` in that order, with `batch` in place of `release` and `ordinal`.
    Frames are valid until `take` returns.
    """

    number: int
    query_id: str
    watermark_us: int
    rows: int
    tables: Mapping[str, DecodedTable]
    left_out: int = 0


@runtime_checkable
class BatchSink(Sink, Protocol):
    """A sink that takes the changes of each batch before they are released."""

    def take(self, batch: HandedBatch) -> None:
        """Take a batch; idempotent by its number."""
        ...
