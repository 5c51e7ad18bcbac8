"""The coroutine for each method of the API; all other methods are rejected by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.cloud.spanner_v1 import types as spanner
from google.longrunning import operations_pb2

from spanner_simulator.server.admin.database_admin import DatabaseAdminService
from spanner_simulator.server.admin.instance_admin import InstanceAdminService
from spanner_simulator.server.admin.operations import OperationsService
from spanner_simulator.server.host import Host
from spanner_simulator.server.spanner_service import SpannerService
from spanner_simulator.server.transport.calls import Calls

_STREAMING = frozenset(("StreamingRead", "ExecuteStreamingSql", "BatchWrite"))

METHODS: dict[str, dict[str, Any]] = {
    "google.spanner.v1.Spanner": {
        "CreateSession": spanner.CreateSessionRequest,
        "BatchCreateSessions": spanner.BatchCreateSessionsRequest,
        "GetSession": spanner.GetSessionRequest,
        "ListSessions": spanner.ListSessionsRequest,
        "DeleteSession": spanner.DeleteSessionRequest,
        "BeginTransaction": spanner.BeginTransactionRequest,
        "Commit": spanner.CommitRequest,
        "Rollback": spanner.RollbackRequest,
        "BatchWrite": spanner.BatchWriteRequest,
        "Read": spanner.ReadRequest,
        "StreamingRead": spanner.ReadRequest,
        "PartitionRead": spanner.PartitionReadRequest,
        "ExecuteSql": spanner.ExecuteSqlRequest,
        "ExecuteStreamingSql": spanner.ExecuteSqlRequest,
        "ExecuteBatchDml": spanner.ExecuteBatchDmlRequest,
        "PartitionQuery": spanner.PartitionQueryRequest,
    },
    "google.spanner.admin.instance.v1.InstanceAdmin": {
        "CreateInstance": instance_admin.CreateInstanceRequest,
        "GetInstance": instance_admin.GetInstanceRequest,
        "ListInstances": instance_admin.ListInstancesRequest,
        "DeleteInstance": instance_admin.DeleteInstanceRequest,
        "GetInstanceConfig": instance_admin.GetInstanceConfigRequest,
        "ListInstanceConfigs": instance_admin.ListInstanceConfigsRequest,
    },
    "google.spanner.admin.database.v1.DatabaseAdmin": {
        "CreateDatabase": database_admin.CreateDatabaseRequest,
        "GetDatabase": database_admin.GetDatabaseRequest,
        "ListDatabases": database_admin.ListDatabasesRequest,
        "DropDatabase": database_admin.DropDatabaseRequest,
        "UpdateDatabaseDdl": database_admin.UpdateDatabaseDdlRequest,
        "GetDatabaseDdl": database_admin.GetDatabaseDdlRequest,
    },
    "google.longrunning.Operations": {"GetOperation": operations_pb2.GetOperationRequest},
}
"""Request types by service and method."""


def method_handlers(host: Host) -> list[Any]:
    """All handlers of the server."""
    calls = Calls(host)
    services: dict[str, object] = {
        "google.spanner.v1.Spanner": SpannerService(host),
        "google.spanner.admin.instance.v1.InstanceAdmin": InstanceAdminService(host),
        "google.spanner.admin.database.v1.DatabaseAdmin": DatabaseAdminService(host),
        "google.longrunning.Operations": OperationsService(host),
    }
    handlers = {
        f"/{service}/{method}": _handler(calls, services[service], method, request_type)
        for service, methods in METHODS.items()
        for method, request_type in methods.items()
    }
    return [_Handlers(calls, handlers)]


def _handler(calls: Calls, service: object, method: str, request_type: Any) -> Any:
    name = "".join(
        f"_{character.lower()}" if character.isupper() else character for character in method
    ).lstrip("_")
    answer: Callable[..., Any] = getattr(service, name)
    if method in _STREAMING:
        return calls.streaming(method, answer, request_type)
    return calls.unary(method, answer, request_type)


class _Handlers:
    """Knows the handler of each method, and one that rejects all others."""

    def __init__(self, calls: Calls, handlers: dict[str, Any]) -> None:
        self._calls = calls
        self._handlers = handlers

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a call."""
        method = handler_call_details.method
        handler = self._handlers.get(method)
        return self._calls.refused(method.strip("/")) if handler is None else handler
