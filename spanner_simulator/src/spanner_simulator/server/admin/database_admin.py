"""google.spanner.admin.database.v1.DatabaseAdmin, as far as clients need it.

`methods` rejects backups, access policies and other unsupported methods by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.protobuf import empty_pb2

from spanner_simulator.core.rows.storage import VERSION_RETENTION_US
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.ddl_text import catalogue_ddl
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import (
    SpannerError,
    already_exists,
    invalid_argument,
    not_found,
    unsupported,
)
from spanner_simulator.server.admin.operations import done_operation, operation_name
from spanner_simulator.server.host import Host
from spanner_simulator.server.messages import Message, timestamp_message
from spanner_simulator.server.paging import page_of

_CREATE_DATABASE: dict[Dialect, re.Pattern[str]] = {
    "GOOGLE_STANDARD_SQL": re.compile(
        r"\s*CREATE\s+DATABASE\s+(`?)([^\s`\"';]+)\1\s*;?\s*", re.IGNORECASE
    ),
    "POSTGRESQL": re.compile(r"\s*CREATE\s+DATABASE\s+(\"?)([^\s`\"';]+)\1\s*;?\s*", re.IGNORECASE),
}
_DATABASE_ID = re.compile(r"[a-z][a-z0-9_-]{0,28}[a-z0-9]")
_POSTGRESQL = database_admin.DatabaseDialect.POSTGRESQL


class DatabaseAdminService:
    """The methods by their API names, in snake case."""

    def __init__(self, host: Host) -> None:
        self._host = host

    # -- databases

    async def create_database(self, request: Message) -> Message:
        """Create a database with its first statements, or change nothing."""
        dialect: Dialect = (
            "POSTGRESQL" if request.database_dialect == _POSTGRESQL else "GOOGLE_STANDARD_SQL"
        )
        _refuse(request, "encryption_config", "encryption keys of databases")
        name = f"{request.parent}/databases/{_database_id(request.create_statement, dialect)}"
        self._check_instance(request.parent)
        if name in self._host.databases:
            raise already_exists(f"Database already exists: {name}")
        database = self._host.create_database(name, dialect=dialect)
        statements = _parsable(request.extra_statements, dialect)
        database.apply_ddl(
            statements, now_us=self._host.now_us(), proto_descriptors=request.proto_descriptors
        )
        self._host.add_database(database)
        return done_operation(
            self._host,
            operation_name(self._host, name),
            metadata=database_admin.CreateDatabaseMetadata.pb()(database=name),
            outcome=self._message(name),
        )

    def _check_instance(self, name: str) -> None:
        if name not in self._host.instances:
            raise not_found(f"Instance not found: {name}")

    def _message(self, name: str) -> Message:
        hosted = self._host.served(name)
        catalogue = hosted.database.catalogue
        message = database_admin.Database.pb()(
            name=name,
            state=database_admin.Database.State.READY,
            version_retention_period="1h",
            database_dialect=getattr(database_admin.DatabaseDialect, catalogue.dialect),
        )
        message.create_time.CopyFrom(timestamp_message(hosted.created_us))
        earliest_us = max(hosted.created_us, self._host.now_us() - VERSION_RETENTION_US)
        message.earliest_version_time.CopyFrom(timestamp_message(earliest_us))
        return message

    async def get_database(self, request: Message) -> Message:
        """Find a database."""
        return self._message(request.name)

    async def list_databases(self, request: Message) -> Message:
        """The databases of an instance."""
        self._check_instance(request.parent)
        names = [name for name in self._host.databases if name.startswith(request.parent + "/")]
        reply = database_admin.ListDatabasesResponse.pb()()
        page, reply.next_page_token = page_of(
            names, size=request.page_size, token=request.page_token
        )
        reply.databases.extend(self._message(name) for name in page)
        return reply

    async def drop_database(self, request: Message) -> Message:
        """Remove a database and its operations; an unknown one is not an error."""
        self._host.drop_database(request.database)
        prefix = f"{request.database}/operations/"
        for name in [
            operation for operation in self._host.operations if operation.startswith(prefix)
        ]:
            del self._host.operations[name]
        return empty_pb2.Empty()

    # -- schema

    async def update_database_ddl(self, request: Message) -> Message:
        """Apply statements in order, up to the first that is rejected.

        If that is the very first, or one is malformed, nothing has changed and the call fails;
        otherwise the operation carries the error, and its metadata the progress.
        """
        hosted = self._host.served(request.database)
        if not request.statements:
            raise invalid_argument("Missing statements in the request.")
        name = operation_name(self._host, request.database, request.operation_id)
        database = hosted.database
        statements = _parsable(request.statements, database.catalogue.dialect)
        outcome: Any = empty_pb2.Empty()
        metadata = database_admin.UpdateDatabaseDdlMetadata.pb()(
            database=request.database, statements=request.statements
        )
        for index, statement in enumerate(statements):
            start = timestamp_message(self._host.now_us())
            try:
                (at_us,) = database.apply_ddl(
                    [statement],
                    now_us=self._host.now_us(),
                    proto_descriptors=request.proto_descriptors,
                )
            except SpannerError as error:
                if index == 0:
                    raise
                outcome = error
                break
            metadata.commit_timestamps.append(timestamp_message(at_us))
            progress = metadata.progress.add(progress_percent=100)
            progress.start_time.CopyFrom(start)
            progress.end_time.CopyFrom(timestamp_message(at_us))
        return done_operation(self._host, name, metadata=metadata, outcome=outcome)

    async def get_database_ddl(self, request: Message) -> Message:
        """The present schema as statements."""
        catalogue = self._host.served(request.database).database.catalogue
        return database_admin.GetDatabaseDdlResponse.pb()(
            statements=catalogue_ddl(catalogue),
            # A FileDescriptorSet: a message may be the concatenation of its parts.
            proto_descriptors=b"".join(catalogue.proto_files.values()),
        )


def _refuse(request: Message, field: str, feature: str) -> None:
    if request.HasField(field):
        raise unsupported(f"{feature}")


def _parsable(texts: Iterable[str], dialect: Dialect) -> list[str]:
    """The same texts, if all of them are statements."""
    statements = list(texts)
    for text in statements:
        if not text.strip():
            raise invalid_argument("DDL statement is empty.")
        parse_ddl(text, dialect)
    return statements


def _database_id(statement: str, dialect: Dialect) -> str:
    match = _CREATE_DATABASE[dialect].fullmatch(statement)
    if match is None:
        raise invalid_argument(
            f"Error parsing Spanner DDL statement: {statement} : CREATE DATABASE and one name "
            "are expected."
        )
    database_id = match.group(2)
    if _DATABASE_ID.fullmatch(database_id) is None:
        raise invalid_argument(
            "Invalid database name. Database name must start with a lowercase letter, be 2-30 "
            "characters long, contain only lowercase letters, numbers, underscores or hyphens, and "
            f"not end with an underscore or hyphen. Got: {database_id}"
        )
    return database_id
