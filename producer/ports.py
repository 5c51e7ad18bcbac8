"""The change stream as the driver sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.producer.spanner_records import StreamRecord

__all__ = ["ChangeStream", "RunningQuery"]


class RunningQuery(Protocol):
    """One change stream query.  Iterating blocks until the next response message.

    Iteration ends normally only when the service ended the query with OK.  Otherwise it raises a
    `QueryError`; after `cancel`, which any thread may call, it raises or ends soon, whichever comes
    first.
    """

    def __iter__(self) -> Iterator[list[StreamRecord]]:
        """Yield the records of each response message."""
        ...

    def cancel(self) -> None:
        """End the query; does not block."""
        ...


class ChangeStream(Protocol):
    """One change stream of one database."""

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> RunningQuery:
        """Begin a query; the empty token asks for the stream partitions active at `start_ns`.

        Both bounds are inclusive (seed: "Change stream read functions and query syntax").
        """
        ...
