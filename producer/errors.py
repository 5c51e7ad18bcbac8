"""The fleet's branch of the error tree.

    ProducerError
    ├── QueryError              a change stream query ended without OK; `code` is gRPC's name
    │   ├── QueryInterrupted    the service may answer later                       retriable
    │   ├── QueryRefused        the service will not answer until somebody acts
    │   └── PositionExpired     what the query asked for is outside retention
    ├── ProducerFencedError     another process publishes under this worker's name
    ├── StreamChangedError      the progress topic belongs to another stream, or its topics changed
    ├── TableChanged            a record shows a column or type that is not known yet
    └── IncompatibleChange      a table changed in a way that its topic's schema cannot follow

A record that cannot be decoded or represented is a `SchemaError` with its coordinates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.schemas.errors import ProducerError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "IncompatibleChange",
    "PositionExpired",
    "ProducerFencedError",
    "QueryError",
    "QueryInterrupted",
    "QueryRefused",
    "StreamChangedError",
    "TableChanged",
]


class QueryError(ProducerError):
    """A change stream query ended without OK; the fields hold `code`, the name of gRPC's status."""

    @property
    def code(self) -> str:
        """The name of gRPC's status code, such as `UNAVAILABLE`."""
        return str(self.fields.get("code", "UNKNOWN"))


class QueryInterrupted(QueryError):  # noqa: N818 - named for what happened
    """The service was not able to answer just now; the same query may work later."""

    retriable = True


class QueryRefused(QueryError):  # noqa: N818 - named for what happened
    """The service will give the same answer until somebody changes something."""


class PositionExpired(QueryError):  # noqa: N818 - named for what happened
    """Changes that were to be read are gone, or not there yet: the fields name the interval.

    Never passed over in silence: going on from a later position would be a gap.
    """


class ProducerFencedError(ProducerError):
    """Another process took over this worker's transactional id; two of one name cannot work."""

    def __init__(self, worker: str) -> None:
        super().__init__(
            "another process runs under this worker's name",
            hint="Give every worker process a name of its own (setting worker)",
            worker=worker,
        )


class StreamChangedError(ProducerError):
    """What the epoch was begun with no longer holds; keys would move between topic partitions."""

    exit_code = 2

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__(
            f"the progress topic was made for something else: {'; '.join(differences)}",
            hint="Use another prefix, or put back what was changed",
        )


class TableChanged(ProducerError):  # noqa: N818 - named for what happened
    """A record shows a table, column or type that the known schema does not have.

    Answered by reading the catalogue again, registering the new version, and trying once more.
    """

    @property
    def table(self) -> str:
        """The table's name, as Spanner reports it."""
        return str(self.fields["table"])


class IncompatibleChange(ProducerError):  # noqa: N818 - named for what happened
    """A column's new type, or a new primary key, cannot be told in the topic's schema."""
