"""The gRPC server: which coroutine answers which method, and `SpannerError` as a status.

Runs on grpc.aio: a stream that waits for news costs a coroutine and not a thread, so there may be
thousands, and the core needs no lock.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.cloud.spanner_v1 import types as spanner
from google.longrunning import operations_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.admin_services import (
    DatabaseAdminService,
    InstanceAdminService,
    OperationsService,
)
from tidegate.spanner_simulator.server.spanner_service import SpannerService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tidegate.spanner_simulator.server.host import Host
    from tidegate.spanner_simulator.server.messages import Message

__all__ = ["PortTakenError", "start_grpc_server"]

_MESSAGE_BYTES_MAX = 128 * 1024 * 1024


class PortTakenError(Exception):
    """The address cannot be bound."""


async def start_grpc_server(host: Host, address: str) -> tuple[Any, int]:
    """A started grpc.aio server and its port; raises `PortTakenError`."""
    server = grpc.aio.server(
        options=[
            # Two servers on one port would share the calls; better to fail.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", _MESSAGE_BYTES_MAX),
            # Readers keep idle streams alive with pings; do not punish them.
            ("grpc.http2.min_ping_interval_without_data_ms", 1000),
            ("grpc.http2.max_ping_strikes", 0),
        ]
    )
    server.add_generic_rpc_handlers(_handlers(host))
    _check_free(address)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise PortTakenError(address) from error
    if port == 0:
        raise PortTakenError(address)
    await server.start()
    return server, port


def _check_free(address: str) -> None:
    """Refuse a taken port before gRPC does, which would print lines of its own about it."""
    name, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((name, int(port)))
        except OSError as error:
            raise PortTakenError(address) from error


def _handlers(host: Host) -> list[Any]:
    spanner_service = SpannerService(host)
    instances, databases = InstanceAdminService(host), DatabaseAdminService(host)
    one, many = _unary, _streaming
    services: dict[str, dict[str, Any]] = {
        "google.spanner.v1.Spanner": {
            "CreateSession": one(spanner_service.create_session, spanner.CreateSessionRequest),
            "BatchCreateSessions": one(
                spanner_service.batch_create_sessions, spanner.BatchCreateSessionsRequest
            ),
            "GetSession": one(spanner_service.get_session, spanner.GetSessionRequest),
            "ListSessions": one(spanner_service.list_sessions, spanner.ListSessionsRequest),
            "DeleteSession": one(spanner_service.delete_session, spanner.DeleteSessionRequest),
            "BeginTransaction": one(
                spanner_service.begin_transaction, spanner.BeginTransactionRequest
            ),
            "Commit": one(spanner_service.commit, spanner.CommitRequest),
            "Rollback": one(spanner_service.rollback, spanner.RollbackRequest),
            "Read": one(spanner_service.read, spanner.ReadRequest),
            "StreamingRead": many(spanner_service.streaming_read, spanner.ReadRequest),
            "ExecuteSql": one(spanner_service.execute_sql, spanner.ExecuteSqlRequest),
            "ExecuteStreamingSql": many(
                spanner_service.execute_streaming_sql, spanner.ExecuteSqlRequest
            ),
        },
        "google.spanner.admin.instance.v1.InstanceAdmin": {
            "CreateInstance": one(instances.create_instance, instance_admin.CreateInstanceRequest),
            "GetInstance": one(instances.get_instance, instance_admin.GetInstanceRequest),
            "ListInstances": one(instances.list_instances, instance_admin.ListInstancesRequest),
            "DeleteInstance": one(instances.delete_instance, instance_admin.DeleteInstanceRequest),
            "GetInstanceConfig": one(
                instances.get_instance_config, instance_admin.GetInstanceConfigRequest
            ),
            "ListInstanceConfigs": one(
                instances.list_instance_configs, instance_admin.ListInstanceConfigsRequest
            ),
        },
        "google.spanner.admin.database.v1.DatabaseAdmin": {
            "CreateDatabase": one(databases.create_database, database_admin.CreateDatabaseRequest),
            "GetDatabase": one(databases.get_database, database_admin.GetDatabaseRequest),
            "ListDatabases": one(databases.list_databases, database_admin.ListDatabasesRequest),
            "DropDatabase": one(databases.drop_database, database_admin.DropDatabaseRequest),
            "UpdateDatabaseDdl": one(
                databases.update_database_ddl, database_admin.UpdateDatabaseDdlRequest
            ),
            "GetDatabaseDdl": one(databases.get_database_ddl, database_admin.GetDatabaseDdlRequest),
        },
        "google.longrunning.Operations": {
            "GetOperation": one(
                OperationsService(host).get_operation, operations_pb2.GetOperationRequest
            ),
        },
    }
    return [
        grpc.method_handlers_generic_handler(service, methods)
        for service, methods in services.items()
    ]


def _serialise(reply: Message) -> bytes:
    return reply if isinstance(reply, bytes) else bytes(reply.SerializeToString())


def _parser(request_type: Any) -> Callable[[bytes], Message]:
    raw = request_type.pb() if hasattr(request_type, "pb") else request_type
    parse: Callable[[bytes], Message] = raw.FromString
    return parse


def _unary(answer: Callable[[Message], Awaitable[Message]], request_type: Any) -> Any:
    async def handle(request: Message, context: Any) -> Message:
        try:
            return await answer(request)
        except SpannerError as error:
            await _abort(context, error)

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=_parser(request_type), response_serializer=_serialise
    )


def _streaming(answer: Callable[[Message], AsyncIterator[bytes]], request_type: Any) -> Any:
    async def handle(request: Message, context: Any) -> AsyncIterator[bytes]:
        try:
            async for message in answer(request):
                yield message
        except SpannerError as error:
            await _abort(context, error)

    return grpc.unary_stream_rpc_method_handler(
        handle, request_deserializer=_parser(request_type), response_serializer=_serialise
    )


async def _abort(context: Any, error: SpannerError) -> NoReturn:
    code = grpc.StatusCode[error.code.name]
    metadata: list[tuple[str, bytes]] = []
    if error.retry_delay_ms is not None:
        retry_info = error_details_pb2.RetryInfo(
            retry_delay=Duration(nanos=error.retry_delay_ms * 1_000_000)
        )
        status = status_pb2.Status(code=error.code.value, message=error.message)
        status.details.add().Pack(retry_info)
        metadata = [
            ("google.rpc.retryinfo-bin", retry_info.SerializeToString()),
            ("grpc-status-details-bin", status.SerializeToString()),
        ]
    elif error.code is Code.NOT_FOUND:
        metadata = _resource_info(error)
    await context.abort(code, error.message, tuple(metadata))
    raise error


def _resource_info(error: SpannerError) -> list[tuple[str, bytes]]:
    """Clients tell a lost session from a missing row by this detail."""
    kind, separator, name = error.message.partition(" not found: ")
    if not separator or kind not in ("Session", "Database", "Instance"):
        return []
    info = error_details_pb2.ResourceInfo(
        resource_type=f"type.googleapis.com/google.spanner.v1.{kind}", resource_name=name
    )
    status = status_pb2.Status(code=error.code.value, message=error.message)
    status.details.add().Pack(info)
    return [
        ("google.rpc.resourceinfo-bin", info.SerializeToString()),
        ("grpc-status-details-bin", status.SerializeToString()),
    ]
