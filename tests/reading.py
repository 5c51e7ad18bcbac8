"""Change stream queries as a test reads them: one response after the other, without tasks."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.producer.driver.runtime import TaskThread
from tidegate.producer.ports import Response, RunningQuery
from tidegate.producer.records import StreamRecord


def received(query: RunningQuery, tasks: TaskThread) -> Iterator[Response]:
    """Yield a query's responses; cancel it when the caller stops reading."""
    try:
        while (response := tasks.run(lambda: _next(query))) is not None:
            yield response
    finally:
        query.cancel()


async def _next(query: RunningQuery) -> Response | None:
    return None if await query.next_size() is None else await query.receive()


def decoded(query: RunningQuery, tasks: TaskThread) -> Iterator[list[StreamRecord]]:
    """Yield the records of each response that completes any."""
    for response in received(query, tasks):
        if records := response.decode()[0]:
            yield records
