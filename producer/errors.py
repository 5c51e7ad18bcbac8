"""The fleet's branch of the error tree.

    ProducerError
    ├── QueryError              a change stream query ended without OK; `code` is gRPC's name
    │   ├── QueryInterrupted    the service may answer later                       retriable
    │   ├── QueryRefused        the service will not answer until somebody acts
    │   └── PositionExpired     what the query asked for is outside retention
    ├── TableChanged            a record shows a column or type that is not known yet
    └── IncompatibleChange      a table changed in a way that its topic's schema cannot follow

A record that cannot be decoded or represented is a `SchemaError` with its coordinates.
"""

from __future__ import annotations

from tidegate.schemas.errors import ProducerError

__all__ = [
    "IncompatibleChange",
    "PositionExpired",
    "QueryError",
    "QueryInterrupted",
    "QueryRefused",
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
