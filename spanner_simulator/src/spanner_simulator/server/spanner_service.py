"""google.spanner.v1.Spanner: all methods in one object, each a coroutine over raw messages.

They answer or raise `SpannerError`; `grpc_server` turns that into a status.
"""

from __future__ import annotations

from spanner_simulator.server.commits import TransactionMethods
from spanner_simulator.server.queries import QueryMethods
from spanner_simulator.server.reads import ReadMethods
from spanner_simulator.server.sessions import SessionMethods


class SpannerService(SessionMethods, TransactionMethods, ReadMethods, QueryMethods):
    """The method names are the API's, in snake case."""
