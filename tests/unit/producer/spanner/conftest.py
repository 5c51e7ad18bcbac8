"""Change stream responses as the service writes them."""

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import grpc
import pytest
from google.cloud.spanner_v1.types import (
    CreateSessionRequest,
    ExecuteSqlRequest,
    PartialResultSet,
    ReadRequest,
    ResultSet,
    Session,
    StructType,
    Type,
    TypeAnnotationCode,
    TypeCode,
)
from google.protobuf.struct_pb2 import ListValue, Value

from tests.certificates import Issued
from tidegate.producer.spanner.channel import SpannerChannels


def scalar(code):
    return Type(code=code)


def struct(**fields):
    return Type(
        code=TypeCode.STRUCT,
        struct_type=StructType(
            fields=[StructType.Field(name=name, type_=kind) for name, kind in fields.items()]
        ),
    )


def array(element):
    return Type(code=TypeCode.ARRAY, array_element_type=element)


STRING, BOOL, INT64 = scalar(TypeCode.STRING), scalar(TypeCode.BOOL), scalar(TypeCode.INT64)
TIMESTAMP, JSON = scalar(TypeCode.TIMESTAMP), scalar(TypeCode.JSON)

COLUMN = {"name": STRING, "type": JSON, "is_primary_key": BOOL, "ordinal_position": INT64}
MOD = {"keys": JSON, "new_values": JSON, "old_values": JSON}
DATA = {
    "commit_timestamp": TIMESTAMP,
    "record_sequence": STRING,
    "server_transaction_id": STRING,
    "is_last_record_in_transaction_in_partition": BOOL,
    "table_name": STRING,
    "column_types": array(struct(**COLUMN)),
    "mods": array(struct(**MOD)),
    "mod_type": STRING,
    "value_capture_type": STRING,
    "number_of_records_in_transaction": INT64,
    "number_of_partitions_in_transaction": INT64,
    "transaction_tag": STRING,
    "is_system_transaction": BOOL,
}
CHILD = {"token": STRING, "parent_partition_tokens": array(STRING)}
CHILDREN = {
    "start_timestamp": TIMESTAMP,
    "record_sequence": STRING,
    "child_partitions": array(struct(**CHILD)),
}
RECORD = {
    "data_change_record": array(struct(**DATA)),
    "heartbeat_record": array(struct(timestamp=TIMESTAMP)),
    "child_partitions_record": array(struct(**CHILDREN)),
}
INSERT = {
    "commit_timestamp": "2024-01-02T03:04:05.678901Z",
    "record_sequence": "00000001",
    "server_transaction_id": "tx",
    "is_last_record_in_transaction_in_partition": True,
    "table_name": "t",
    "column_types": [
        ["id", '{"code":"INT64"}', True, "1"],
        ["v", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', False, "2"],
    ],
    "mods": [[json.dumps({"id": "7"}), json.dumps({"v": ["a", None]}), "{}"]],
    "mod_type": "INSERT",
    "value_capture_type": "NEW_ROW",
    "number_of_records_in_transaction": "2",
    "number_of_partitions_in_transaction": "1",
    "transaction_tag": "",
    "is_system_transaction": False,
}


def row_type(record=RECORD):
    return StructType(fields=[StructType.Field(name="ChangeRecord", type_=array(struct(**record)))])


def value(plain):
    if plain is None:
        return Value(null_value=0)
    if isinstance(plain, bool):
        return Value(bool_value=plain)
    if isinstance(plain, int | float):
        return Value(number_value=plain)
    if isinstance(plain, str):
        return Value(string_value=plain)
    return Value(list_value=ListValue(values=[value(item) for item in plain]))


def message(*rows, metadata=None, chunked=False):
    """A PartialResultSet as the raw channel gives it."""
    built = PartialResultSet.pb()(values=[value(row) for row in rows], chunked_value=chunked)
    if metadata is not None:
        built.metadata.row_type.CopyFrom(StructType.pb(metadata))
    return built


def data_row(**changes):
    return [[[list({**copy.deepcopy(INSERT), **changes}.values())], [], []]]


def heartbeat_row(timestamp="2024-01-02T03:04:05Z"):
    return [[[], [[timestamp]], []]]


def children_row(*children, start="2024-01-02T03:04:05.000000001Z"):
    return [[[], [], [[start, "00000000", list(children)]]]]


JSONB_TYPE = StructType(
    fields=[
        StructType.Field(
            name="read_json_everything",
            type_=Type(code=TypeCode.JSON, type_annotation=TypeAnnotationCode.PG_JSONB),
        )
    ]
)


def json_row(kind, record):
    """A row of a PostgreSQL database: one JSONB value, its keys sorted as Spanner sorts them."""
    return json.dumps({kind: record}, sort_keys=True)


def json_data_row(**changes):
    """The row of PostgreSQL for what `data_row` is in GoogleSQL."""
    fields = {**copy.deepcopy(INSERT), **changes}
    fields["column_types"] = [
        {**dict(zip(COLUMN, column, strict=True)), "type": json.loads(column[1]),
         "ordinal_position": int(column[3])}
        for column in fields["column_types"]
    ]  # fmt: skip
    fields["mods"] = [
        {name: json.loads(text) for name, text in zip(MOD, mod, strict=True)}
        for mod in fields["mods"]
    ]
    for name in ("number_of_records_in_transaction", "number_of_partitions_in_transaction"):
        fields[name] = int(fields[name])
    return json_row("data_change_record", fields)


def json_heartbeat_row(timestamp="2024-01-02T03:04:05Z"):
    return json_row("heartbeat_record", {"timestamp": timestamp})


def json_children_row(*children, start="2024-01-02T03:04:05.000000001Z"):
    listed = [dict(zip(CHILD, child, strict=True)) for child in children]
    record = {"start_timestamp": start, "record_sequence": "00000000", "child_partitions": listed}
    return json_row("child_partitions_record", record)


@pytest.fixture
def wire():
    return SimpleNamespace(**globals())


class FakeSpanner:
    """A gRPC server that answers as a test says, and remembers what it was asked.

    `answers` holds one callable per SQL text it begins with; it gets the request and the context
    and returns a ResultSet, or yields PartialResultSets.
    """

    def __init__(self, credentials=None):
        """Speak plaintext, or TLS with the credentials of a server."""
        self.requests = []
        self.times_left_s = []
        self.sessions = 0
        self.metadata = []
        self.on_session = lambda _request, _context: None
        self.on_stream = lambda _request, _context: iter(())
        self.on_sql = lambda _request, _context: ResultSet.pb()()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=200))
        names = {
            "CreateSession": (grpc.unary_unary_rpc_method_handler, self._session,
                              CreateSessionRequest, Session),
            "ExecuteSql": (grpc.unary_unary_rpc_method_handler, self._sql,
                           ExecuteSqlRequest, ResultSet),
            "ExecuteStreamingSql": (grpc.unary_stream_rpc_method_handler, self._stream,
                                    ExecuteSqlRequest, PartialResultSet),
            "StreamingRead": (grpc.unary_stream_rpc_method_handler, self._stream,
                              ReadRequest, PartialResultSet),
        }  # fmt: skip
        handlers = {
            name: kind(
                behaviour,
                request_deserializer=request.pb().FromString,
                response_serializer=response.pb().SerializeToString,
            )
            for name, (kind, behaviour, request, response) in names.items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("google.spanner.v1.Spanner", handlers),)
        )
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self):
        self._server.stop(None).wait(10)

    def _session(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        self.on_session(request, context)
        self.sessions += 1
        return Session.pb()(name=f"{request.database}/sessions/s{self.sessions}", multiplexed=True)

    def _sql(self, request, context):
        self.requests.append(request)
        return self.on_sql(request, context)

    def _stream(self, request, context):
        self.requests.append(request)
        self.times_left_s.append(context.time_remaining())
        self.metadata.append(dict(context.invocation_metadata()))
        yield from self.on_stream(request, context)


@pytest.fixture
def spanner():
    """A server without a method that writes, and of which each query only reads."""
    server = FakeSpanner()
    yield server
    server.stop()
    assert all(map(only_reads, server.requests))


def only_reads(request):
    """Whether a request changes nothing; a query without a transaction is a strong read."""
    if "transaction" not in {field.name for field, _ in request.ListFields()}:
        return True
    return request.transaction.single_use.HasField("read_only")


@pytest.fixture
def transport():
    return "h2"


@pytest.fixture
def channels(spanner, transport):
    opened = SpannerChannels(
        database="projects/p/instances/i/databases/d",
        emulator_host=spanner.address,
        database_role="reader",
        query_transport=transport,
    )
    yield opened
    opened.close()


@contextmanager
def channels_to(simulator, transport="h2", **names):
    """Channels to databases of a simulator, by any key."""
    opened = {
        key: SpannerChannels(
            database=f"projects/test-project/instances/test-instance/databases/{name}",
            emulator_host=simulator.grpc_address,
            query_transport=transport,
        )
        for key, name in names.items()
    }
    yield opened
    for one in opened.values():
        one.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a key and a certificate of 127.0.0.1 that no authority signed."""
    return Issued(tmp_path_factory.mktemp("tls") / "both.pem").path
