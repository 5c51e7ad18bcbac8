"""The API's sessions: create, get, list and delete.

A session has almost no state here; its name must be known, `multiplexed` is echoed (clients require
it), and its transactions end with it.
"""

from __future__ import annotations

from google.cloud.spanner_v1 import types as spanner
from google.protobuf import empty_pb2

from spanner_simulator.errors import invalid_argument, unsupported
from spanner_simulator.server.host import Host, Session
from spanner_simulator.server.messages import Message, timestamp_message
from spanner_simulator.server.paging import page_of

_BATCH_MAX = 100


class SessionMethods:
    """The methods by their API names, in snake case."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def create_session(self, request: Message) -> Message:
        """Create a session; NOT_FOUND for a missing database, which is never created implicitly."""
        return _session_message(self._created(request.database, request.session))

    async def batch_create_sessions(self, request: Message) -> Message:
        """Create up to a hundred sessions; the service may also return fewer than requested."""
        if request.session_count < 1:
            raise invalid_argument(
                "Invalid BatchCreateSessions request. The session_count must be positive."
            )
        if request.session_template.multiplexed:
            raise invalid_argument("Multiplexed sessions cannot be created in a batch.")
        reply = spanner.BatchCreateSessionsResponse.pb()()
        for _ in range(min(_BATCH_MAX, request.session_count)):
            reply.session.append(
                _session_message(self._created(request.database, request.session_template))
            )
        return reply

    def _created(self, database: str, template: Message) -> Session:
        return self._host.create_session(
            database,
            role=template.creator_role,
            is_multiplexed=template.multiplexed,
            labels=dict(template.labels),
        )

    async def get_session(self, request: Message) -> Message:
        """Find a session."""
        return _session_message(self._host.session(request.name))

    async def list_sessions(self, request: Message) -> Message:
        """Sessions of a database in the order of their creation."""
        hosted = self._host.served(request.database)
        if request.filter:
            raise unsupported("filters of sessions")
        sessions = [
            session for session in self._host.sessions.values() if session.database is hosted
        ]
        reply = spanner.ListSessionsResponse.pb()()
        page, reply.next_page_token = page_of(
            sessions, size=request.page_size, token=request.page_token
        )
        reply.sessions.extend(_session_message(session) for session in page)
        return reply

    async def delete_session(self, request: Message) -> Message:
        """Remove a session and its transactions; an unknown one is not an error."""
        session = self._host.sessions.pop(request.name, None)
        if session is not None:
            for opened in session.database.transactions.forget_session(session.name):
                session.database.database.rollback(opened.transaction_id)
        return empty_pb2.Empty()


def _session_message(session: Session) -> Message:
    message = spanner.Session.pb()(
        name=session.name,
        labels=session.labels,
        creator_role=session.role,
        multiplexed=session.is_multiplexed,
    )
    message.create_time.CopyFrom(timestamp_message(session.created_us))
    message.approximate_last_use_time.CopyFrom(timestamp_message(session.created_us))
    return message
