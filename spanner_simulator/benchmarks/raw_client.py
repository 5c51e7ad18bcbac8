"""The few raw calls that the simulator's benchmarks make."""

from __future__ import annotations

from typing import Any

import grpc
from google.cloud.spanner_v1 import types as spanner
from simulator_process import DATABASE

OPTIONS = [("grpc.max_receive_message_length", 1 << 27)]
SPANNER = "/google.spanner.v1.Spanner/"
Result = spanner.PartialResultSet.pb()


class RawClient:
    """One channel and one session."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=OPTIONS)
        call = self.channel.unary_unary(
            SPANNER + "CreateSession",
            request_serializer=spanner.CreateSessionRequest.serialize,
            response_deserializer=spanner.Session.deserialize,
        )
        self.session: str = call(spanner.CreateSessionRequest(database=DATABASE)).name

    def query(self, stream: str, token: str | None, start: str, end: str | None) -> Any:
        """A change stream query: an iterator over messages as bytes."""
        sql = f"SELECT ChangeRecord FROM READ_{stream}(@s, @e, @t, @h)"
        request = spanner.ExecuteSqlRequest.pb()(session=self.session, sql=sql)
        request.params.update({"s": start, "e": end, "t": token, "h": "100"})
        call = self.channel.unary_stream(
            SPANNER + "ExecuteStreamingSql",
            request_serializer=spanner.ExecuteSqlRequest.pb().SerializeToString,
            response_deserializer=None,
        )
        return call(request)
