"""Instances and databases by plain arguments, through the services that clients call.

So everything that the API rejects is rejected here with the same text, and nothing can exist that a
client could not have created.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.cloud.spanner_admin_instance_v1 import types as instance_admin

from spanner_simulator.core.values import Dialect
from spanner_simulator.server.admin.database_admin import DatabaseAdminService
from spanner_simulator.server.admin.instance_admin import InstanceAdminService
from spanner_simulator.server.host import Host


async def create_database(
    host: Host,
    *,
    project: str,
    instance: str,
    database: str,
    statements: Sequence[str],
    dialect: Dialect = "GOOGLE_STANDARD_SQL",
) -> str:
    """Create a database, and its instance if it is missing; return its full name.

    Raises `SpannerError`, ALREADY_EXISTS for an existing database.
    """
    parent = f"projects/{project}/instances/{instance}"
    if parent not in host.instances:
        await InstanceAdminService(host).create_instance(
            instance_admin.CreateInstanceRequest.pb()(
                parent=f"projects/{project}",
                instance_id=instance,
                instance=instance_admin.Instance.pb()(display_name=instance),
            )
        )
    quote = '"' if dialect == "POSTGRESQL" else "`"
    await DatabaseAdminService(host).create_database(
        database_admin.CreateDatabaseRequest.pb()(
            parent=parent,
            create_statement=f"CREATE DATABASE {quote}{database}{quote}",
            extra_statements=statements,
            database_dialect=getattr(database_admin.DatabaseDialect, dialect),
        )
    )
    return f"{parent}/databases/{database}"


async def drop_database(host: Host, name: str) -> None:
    """Drop a database by its full name."""
    await DatabaseAdminService(host).drop_database(
        database_admin.DropDatabaseRequest.pb()(database=name)
    )
