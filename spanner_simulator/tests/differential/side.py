"""One side of the comparison: a Spanner behind a gRPC address, asked in the plainest way.

Every call returns plain data, or a `Failure`; nothing is retried and nothing hidden, so that both
sides are asked the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import grpc
from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.cloud.spanner_v1 import types as spanner
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp

_PROJECT = "projects/differential"
_INSTANCE = f"{_PROJECT}/instances/one"
_DEADLINE_S = 30

_DATABASES = "/google.spanner.admin.database.v1.DatabaseAdmin/"
_INSTANCES = "/google.spanner.admin.instance.v1.InstanceAdmin/"
_SPANNER = "/google.spanner.v1.Spanner/"

# name -> (plain value, type as the API's JSON has it, or None for an undeclared one)
Parameters = Mapping[str, tuple[Any, Mapping[str, Any] | None]]


class SideDownError(Exception):
    """The program on this side (`side`) does not answer any more."""

    def __init__(self, side: str, text: str) -> None:
        super().__init__(f"{side}: {text}")
        self.side = side


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that ended with a status."""

    code: str
    message: str


@dataclass(slots=True)
class Rows:
    """A result: column names with their types as the API's JSON has them, rows, exact row count."""

    columns: list[tuple[str, Any]] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    count: int | None = None


def plain(value: Value) -> Any:
    """A protobuf value as what `json` makes of it."""
    match value.WhichOneof("kind"):
        case "null_value" | None:
            return None
        case "list_value":
            return [plain(item) for item in value.list_value.values]
        case "struct_value":
            return {name: plain(item) for name, item in value.struct_value.fields.items()}
        case kind:
            return getattr(value, kind)


def wire(data: Any) -> Value:
    """The opposite of `plain`."""
    value = Value()
    match data:
        case None:
            value.null_value = 0
        case bool():
            value.bool_value = data
        case int() | float():
            value.number_value = data
        case str():
            value.string_value = data
        case _:
            value.list_value.SetInParent()
            value.list_value.values.extend(wire(item) for item in data)
    return value


class Side:
    """A connection to one database of one Spanner; `database` is its full name."""

    def __init__(self, address: str, name: str) -> None:
        self.name = name
        self.database = ""
        self.session = ""
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.max_receive_message_length", -1)]
        )

    def close(self) -> None:
        self._channel.close()

    # ------------------------------------------------------------ calls

    def _call(self, method: str, request: Any, reply: Any) -> Any:
        """The reply, or a `Failure`. Raises `SideDownError`."""
        call = self._channel.unary_unary(
            method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        try:
            return call(request, timeout=_DEADLINE_S, metadata=self._metadata())
        except grpc.RpcError as error:
            return self._failure(error)

    def _metadata(self) -> list[tuple[str, str]]:
        return [("google-cloud-resource-prefix", self.database)]

    def _failure(self, error: Any) -> Failure:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise SideDownError(self.name, f"{error.code().name} {error.details()}") from error
        return Failure(error.code().name, error.details() or "")

    def _must(self, reply: Any, what: str) -> None:
        if isinstance(reply, Failure):
            raise SideDownError(self.name, f"refuses {what}: {reply}")

    # ------------------------------------------------------------ admin

    def create_instance(self) -> None:
        """The one instance; that it exists already is no fault."""
        request = instance_admin.CreateInstanceRequest.pb()(parent=_PROJECT, instance_id="one")
        request.instance.config = f"{_PROJECT}/instanceConfigs/emulator-config"
        request.instance.display_name = "one"
        request.instance.node_count = 1
        self._call(_INSTANCES + "CreateInstance", request, operations_pb2.Operation)

    def create_database(self, name: str, dialect: str) -> None:
        """Create and choose a database."""
        quote = '"' if dialect == "POSTGRESQL" else "`"
        request = database_admin.CreateDatabaseRequest.pb()(
            parent=_INSTANCE,
            create_statement=f"CREATE DATABASE {quote}{name}{quote}",
            database_dialect=dialect,
        )
        done = self._call(_DATABASES + "CreateDatabase", request, operations_pb2.Operation)
        self._must(done, "a database")
        self.database = f"{_INSTANCE}/databases/{name}"
        self.session = self.create_session()

    def drop_database(self) -> None:
        """Forget the chosen database."""
        request = database_admin.DropDatabaseRequest.pb()(database=self.database)
        self._call(_DATABASES + "DropDatabase", request, empty_pb2.Empty)

    def create_session(self) -> str:
        request = spanner.CreateSessionRequest.pb()(database=self.database)
        made = self._call(_SPANNER + "CreateSession", request, spanner.Session.pb())
        self._must(made, "a session")
        return str(made.name)

    def change_schema(
        self, statements: Sequence[str], *, proto_descriptors: bytes = b""
    ) -> Failure | None:
        """UpdateDatabaseDdl, waited for."""
        request = database_admin.UpdateDatabaseDdlRequest.pb()(
            database=self.database, statements=statements, proto_descriptors=proto_descriptors
        )
        done = self._call(_DATABASES + "UpdateDatabaseDdl", request, operations_pb2.Operation)
        while not isinstance(done, Failure) and not done.done:
            ask = operations_pb2.GetOperationRequest(name=done.name)
            method = "/google.longrunning.Operations/GetOperation"
            done = self._call(method, ask, operations_pb2.Operation)
        if isinstance(done, Failure):
            return done
        if done.HasField("error"):
            code = next(one for one in grpc.StatusCode if one.value[0] == done.error.code)
            return Failure(code.name, done.error.message)
        return None

    def schema(self) -> list[str] | Failure:
        """GetDatabaseDdl."""
        request = database_admin.GetDatabaseDdlRequest.pb()(database=self.database)
        reply = database_admin.GetDatabaseDdlResponse.pb()
        got = self._call(_DATABASES + "GetDatabaseDdl", request, reply)
        return got if isinstance(got, Failure) else list(got.statements)

    # ------------------------------------------------------------ transactions

    def begin(
        self, kind: Literal["read_write", "read_only", "partitioned_dml"], *, tag: str = ""
    ) -> Any:
        """A transaction's id, or a `Failure`."""
        request = spanner.BeginTransactionRequest.pb()(session=self.session)
        getattr(request.options, kind).SetInParent()
        request.request_options.transaction_tag = tag
        made = self._call(_SPANNER + "BeginTransaction", request, spanner.Transaction.pb())
        return made if isinstance(made, Failure) else made.id

    def now(self) -> str:
        """A strong read's timestamp, later than all that was committed before."""
        request = spanner.BeginTransactionRequest.pb()(session=self.session)
        request.options.read_only.strong = True
        request.options.read_only.return_read_timestamp = True
        made = self._call(_SPANNER + "BeginTransaction", request, spanner.Transaction.pb())
        self._must(made, "the time")
        return timestamp_text(made.read_timestamp)

    def commit(self, mutations: Sequence[Any], *, transaction: bytes | None, tag: str) -> Any:
        """The commit timestamp, or a `Failure`; without a transaction a single-use one."""
        request = spanner.CommitRequest.pb()(session=self.session)
        if transaction is None:
            request.single_use_transaction.read_write.SetInParent()
        else:
            request.transaction_id = transaction
        request.request_options.transaction_tag = tag
        for mutation in mutations:
            mutation.write_to(request.mutations.add())
        done = self._call(_SPANNER + "Commit", request, spanner.CommitResponse.pb())
        return done if isinstance(done, Failure) else timestamp_text(done.commit_timestamp)

    def rollback(self, transaction: bytes) -> Failure | None:
        request = spanner.RollbackRequest.pb()(session=self.session, transaction_id=transaction)
        done = self._call(_SPANNER + "Rollback", request, empty_pb2.Empty)
        return done if isinstance(done, Failure) else None

    # ------------------------------------------------------------ reads

    def read(self, call: Any, *, transaction: bytes | None, at: str | None) -> Rows | Failure:
        """A Read; `call` writes itself into the request."""
        request = spanner.ReadRequest.pb()(session=self.session)
        call.write_to(request)
        _select(request.transaction, transaction, at)
        return _rows(self._call(_SPANNER + "Read", request, spanner.ResultSet.pb()))

    def execute(
        self,
        sql: str,
        parameters: Parameters,
        *,
        transaction: bytes | None = None,
        at: str | None = None,
        sequence: int = 0,
    ) -> Rows | Failure:
        """An ExecuteSql."""
        request = spanner.ExecuteSqlRequest.pb()(session=self.session, sql=sql, seqno=sequence)
        _bind(request, parameters)
        _select(request.transaction, transaction, at)
        return _rows(self._call(_SPANNER + "ExecuteSql", request, spanner.ResultSet.pb()))

    def stream(
        self, sql: str, parameters: Parameters, *, transaction: bytes | None = None
    ) -> Rows | Failure:
        """An ExecuteStreamingSql, read to its end; single use without a transaction."""
        request = spanner.ExecuteSqlRequest.pb()(session=self.session, sql=sql)
        _bind(request, parameters)
        _select(request.transaction, transaction, None)
        call = self._channel.unary_stream(
            _SPANNER + "ExecuteStreamingSql",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=spanner.PartialResultSet.pb().FromString,
        )
        rows = Rows()
        values: list[Any] = []
        is_open = False
        try:
            for part in call(request, timeout=_DEADLINE_S, metadata=self._metadata()):
                if not rows.columns:
                    rows.columns = _columns(part.metadata)
                got = [plain(value) for value in part.values]
                if is_open and got:
                    values[-1] = _joined(values[-1], got.pop(0))
                values.extend(got)
                is_open = part.chunked_value
        except grpc.RpcError as error:
            return self._failure(error)
        width = len(rows.columns) or 1
        rows.rows = [values[at : at + width] for at in range(0, len(values), width)]
        return rows


def timestamp_text(stamp: Timestamp) -> str:
    """RFC 3339 with exactly as many digits as protobuf's JSON has."""
    return str(stamp.ToJsonString())


def _select(selector: Any, transaction: bytes | None, at: str | None) -> None:
    if transaction is not None:
        selector.id = transaction
    elif at is not None:
        selector.single_use.read_only.read_timestamp.FromJsonString(at)
    else:
        selector.single_use.read_only.strong = True


def _bind(request: Any, parameters: Parameters) -> None:
    for name, (value, kind) in parameters.items():
        request.params.fields[name].CopyFrom(wire(value))
        if kind is not None:
            request.param_types[name].CopyFrom(spanner.Type.pb(spanner.Type(dict(kind))))


def _columns(metadata: Any) -> list[tuple[str, Any]]:
    return [
        (one.name, MessageToDict(one.type_ if hasattr(one, "type_") else one.type))
        for one in metadata.row_type.fields
    ]


def _rows(reply: Any) -> Rows | Failure:
    if isinstance(reply, Failure):
        return reply
    rows = Rows(_columns(reply.metadata))
    rows.rows = [[plain(value) for value in row.values] for row in reply.rows]
    if reply.stats.WhichOneof("row_count") is not None:
        counted = getattr(reply.stats, reply.stats.WhichOneof("row_count"))
        rows.count = int(counted)
    return rows


def _joined(first: Any, rest: Any) -> Any:
    """Two parts of a chunked value, joined as the API says."""
    if isinstance(first, str):
        return first + rest
    if first and rest and type(first[-1]) is type(rest[0]) and isinstance(first[-1], str | list):
        return [*first[:-1], _joined(first[-1], rest[0]), *rest[1:]]
    return [*first, *rest]
