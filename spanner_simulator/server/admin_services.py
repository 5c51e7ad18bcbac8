"""Instance and database administration and long-running operations, all done at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tidegate.spanner_simulator.core.schema.ddl import parse_ddl
from tidegate.spanner_simulator.core.schema.ddl_text import catalogue_ddl
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.messages import timestamp_message

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.schema.statements import Statement
    from tidegate.spanner_simulator.server.host import Host
    from tidegate.spanner_simulator.server.messages import Message

__all__ = ["DatabaseAdminService", "InstanceAdminService", "OperationsService"]

_CREATE_DATABASE = re.compile(
    r"\s*CREATE\s+DATABASE\s+([`\"]?)([a-z][a-z0-9_-]*)\1\s*;?\s*", re.IGNORECASE
)
_CONFIGS = ("emulator-config", "regional-simulated")


def _done(host: Host, name: str, response: Message, metadata: Any) -> Message:
    operation = operations_pb2.Operation(name=name, done=True)
    operation.response.Pack(response)
    operation.metadata.Pack(metadata)
    host.operations[name] = operation
    return operation


class InstanceAdminService:
    """google.spanner.admin.instance.v1.InstanceAdmin, as far as clients need it."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def create_instance(self, request: Message) -> Message:
        """Create an instance; ALREADY_EXISTS for a known one."""
        if re.fullmatch(r"[a-z][a-z0-9-]{0,62}[a-z0-9]", request.instance_id) is None:
            raise SpannerError(
                Code.INVALID_ARGUMENT, f"Invalid instance id: '{request.instance_id}'"
            )
        name = f"{request.parent}/instances/{request.instance_id}"
        if name in self._host.instances:
            raise SpannerError(Code.ALREADY_EXISTS, f"Instance already exists: {name}")
        instance = instance_admin.Instance.pb()()
        instance.CopyFrom(request.instance)
        instance.name = name
        instance.state = instance_admin.Instance.State.READY
        instance.node_count = instance.node_count or 1
        self._host.add_instance(name, instance)
        return _done(
            self._host,
            f"{name}/operations/create",
            instance,
            instance_admin.CreateInstanceMetadata.pb()(instance=instance),
        )

    def _instance(self, name: str) -> Message:
        instance = self._host.instances.get(name)
        if instance is None:
            raise SpannerError(Code.NOT_FOUND, f"Instance not found: {name}")
        return instance

    async def get_instance(self, request: Message) -> Message:
        """Find an instance."""
        return self._instance(request.name)

    async def list_instances(self, request: Message) -> Message:
        """All instances of a project, on one page."""
        reply = instance_admin.ListInstancesResponse.pb()()
        for name, instance in self._host.instances.items():
            if name.startswith(request.parent + "/"):
                reply.instances.add().CopyFrom(instance)
        return reply

    async def delete_instance(self, request: Message) -> Message:
        """Forget an instance and its databases."""
        self._instance(request.name)
        self._host.remove_instance(request.name)
        return empty_pb2.Empty()

    async def get_instance_config(self, request: Message) -> Message:
        """Any configuration name is known."""
        name = request.name.rsplit("/", 1)[-1]
        return instance_admin.InstanceConfig.pb()(name=request.name, display_name=name)

    async def list_instance_configs(self, request: Message) -> Message:
        """A few names, since some readers use this call as a probe."""
        reply = instance_admin.ListInstanceConfigsResponse.pb()()
        for config in _CONFIGS:
            reply.instance_configs.add(
                name=f"{request.parent}/instanceConfigs/{config}", display_name=config
            )
        return reply


class DatabaseAdminService:
    """google.spanner.admin.database.v1.DatabaseAdmin, as far as clients need it."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def create_database(self, request: Message) -> Message:
        """Create a database with its first statements, or nothing at all."""
        found = _CREATE_DATABASE.fullmatch(request.create_statement)
        if found is None:
            raise SpannerError(
                Code.INVALID_ARGUMENT, f"Error parsing statement: {request.create_statement}"
            )
        if request.database_dialect == database_admin.DatabaseDialect.POSTGRESQL:
            raise SpannerError(
                Code.UNIMPLEMENTED, "The simulator does not support: the PostgreSQL dialect"
            )
        if request.parent not in self._host.instances:
            raise SpannerError(Code.NOT_FOUND, f"Instance not found: {request.parent}")
        name = f"{request.parent}/databases/{found.group(2)}"
        if name in self._host.databases:
            raise SpannerError(Code.ALREADY_EXISTS, f"Database already exists: {name}")
        database = self._host.create_database(name)
        now_us = self._host.now_us()
        texts = _statement_texts(request.extra_statements)
        database.apply_ddl([parse_ddl(text) for text in texts], now_us=now_us)
        self._host.add_database(database)
        return _done(
            self._host,
            f"{name}/operations/create",
            self._message(name),
            database_admin.CreateDatabaseMetadata.pb()(database=name),
        )

    def _message(self, name: str) -> Message:
        if name not in self._host.databases:
            raise SpannerError(Code.NOT_FOUND, f"Database not found: {name}")
        message = database_admin.Database.pb()(
            name=name,
            state=database_admin.Database.State.READY,
            version_retention_period="1h",
            database_dialect=database_admin.DatabaseDialect.GOOGLE_STANDARD_SQL,
        )
        message.create_time.CopyFrom(timestamp_message(self._host.databases[name].created_us))
        return message

    async def get_database(self, request: Message) -> Message:
        """Find a database."""
        return self._message(request.name)

    async def list_databases(self, request: Message) -> Message:
        """All databases of an instance, on one page."""
        reply = database_admin.ListDatabasesResponse.pb()()
        for name in self._host.databases:
            if name.startswith(request.parent + "/"):
                reply.databases.add().CopyFrom(self._message(name))
        return reply

    async def drop_database(self, request: Message) -> Message:
        """Forget a database; an unknown one is no error."""
        self._host.drop_database(request.database)
        return empty_pb2.Empty()

    async def update_database_ddl(self, request: Message) -> Message:
        """Apply statements in order; a refused one ends it with its status."""
        self._message(request.database)
        database = self._host.databases[request.database].database
        texts = _statement_texts(request.statements)
        statements: list[Statement] = [parse_ddl(text) for text in texts]
        timestamps = database.apply_ddl(statements, now_us=self._host.now_us())
        operation_id = request.operation_id or f"ddl_{len(self._host.operations)}"
        metadata = database_admin.UpdateDatabaseDdlMetadata.pb()(
            database=request.database,
            statements=texts,
            commit_timestamps=[timestamp_message(one) for one in timestamps],
        )
        name = f"{request.database}/operations/{operation_id}"
        return _done(self._host, name, empty_pb2.Empty(), metadata)

    async def get_database_ddl(self, request: Message) -> Message:
        """The schema as statements, generated from what it is now."""
        self._message(request.database)
        catalogue = self._host.databases[request.database].database.catalogue
        return database_admin.GetDatabaseDdlResponse.pb()(statements=catalogue_ddl(catalogue))


def _statement_texts(texts: Any) -> list[str]:
    return [text for text in texts if text.strip()]


class OperationsService:
    """google.longrunning.Operations: every operation is done before its name is known."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def get_operation(self, request: Message) -> Message:
        """Find an operation."""
        operation = self._host.operations.get(request.name)
        if operation is None:
            raise SpannerError(Code.NOT_FOUND, f"Operation not found: {request.name}")
        return operation
