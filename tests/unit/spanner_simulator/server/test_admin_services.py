from __future__ import annotations

import pytest
from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.longrunning import operations_pb2

from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.admin_services import OperationsService

INSTANCE = "projects/p/instances/inst"
DATABASE = f"{INSTANCE}/databases/bank"


def create_database(rig, statement: str, *extra: str, parent: str = INSTANCE):
    request = database_admin.CreateDatabaseRequest.pb()(
        parent=parent, create_statement=statement, extra_statements=extra
    )
    return rig.run(rig.databases.create_database(request))


def test_operations_are_done_and_can_be_asked_for(rig) -> None:
    operation = create_database(rig, "CREATE DATABASE `other-db`")
    found = rig.run(
        OperationsService(rig.host).get_operation(
            operations_pb2.GetOperationRequest(name=operation.name)
        )
    )
    made = database_admin.Database.pb()()
    found.response.Unpack(made)

    assert found.done
    assert made.name == f"{INSTANCE}/databases/other-db"


def test_a_database_with_a_bad_statement_is_not_made(rig) -> None:
    with pytest.raises(SpannerError, match="Error parsing Spanner DDL"):
        create_database(rig, "CREATE DATABASE other", "CREATE TABLE T (")
    request = database_admin.GetDatabaseRequest.pb()(name=f"{INSTANCE}/databases/other")
    with pytest.raises(SpannerError, match="Database not found"):
        rig.run(rig.databases.get_database(request))


@pytest.mark.parametrize(
    ("statement", "parent", "code"),
    [
        ("CREATE DATABASE bank", INSTANCE, Code.ALREADY_EXISTS),
        ("CREATE DATABASE x", "projects/p/instances/nope", Code.NOT_FOUND),
        ("CREATE SOMETHING x", INSTANCE, Code.INVALID_ARGUMENT),
    ],
)
def test_databases_that_cannot_be_made(rig, statement: str, parent: str, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        create_database(rig, statement, parent=parent)

    assert caught.value.code is code


def test_the_other_dialect_is_refused(rig) -> None:
    request = database_admin.CreateDatabaseRequest.pb()(
        parent=INSTANCE,
        create_statement='CREATE DATABASE "x"',
        database_dialect=database_admin.DatabaseDialect.POSTGRESQL,
    )
    with pytest.raises(SpannerError, match="PostgreSQL dialect"):
        rig.run(rig.databases.create_database(request))


def test_ddl_is_updated_printed_and_dated(rig) -> None:
    request = database_admin.UpdateDatabaseDdlRequest.pb()(
        database=DATABASE, statements=["CREATE TABLE T (A INT64) PRIMARY KEY (A)", " "]
    )
    operation = rig.run(rig.databases.update_database_ddl(request))
    metadata = database_admin.UpdateDatabaseDdlMetadata.pb()()
    operation.metadata.Unpack(metadata)
    ddl = rig.run(
        rig.databases.get_database_ddl(database_admin.GetDatabaseDdlRequest.pb()(database=DATABASE))
    )

    assert len(metadata.commit_timestamps) == 1
    assert [statement.split("(")[0].strip() for statement in ddl.statements] == [
        "CREATE TABLE Accounts",
        "CREATE TABLE T",
        "CREATE CHANGE STREAM Bank FOR ALL",
    ]


def test_databases_are_listed_and_dropped(rig) -> None:
    request = database_admin.ListDatabasesRequest.pb()(parent=INSTANCE)
    before = rig.run(rig.databases.list_databases(request)).databases
    drop = database_admin.DropDatabaseRequest.pb()(database=DATABASE)
    for _ in range(2):
        rig.run(rig.databases.drop_database(drop))

    assert [one.name for one in before] == [DATABASE]
    assert not rig.run(rig.databases.list_databases(request)).databases


def test_instances(rig) -> None:
    get = instance_admin.GetInstanceRequest.pb()(name=INSTANCE)
    listed = instance_admin.ListInstancesRequest.pb()(parent="projects/p")
    configs = instance_admin.ListInstanceConfigsRequest.pb()(parent="projects/p")
    config = instance_admin.GetInstanceConfigRequest.pb()(name="projects/p/instanceConfigs/c")

    assert rig.run(rig.instances.get_instance(get)).name == INSTANCE
    assert len(rig.run(rig.instances.list_instances(listed)).instances) == 1
    assert rig.run(rig.instances.list_instance_configs(configs)).instance_configs
    assert rig.run(rig.instances.get_instance_config(config)).name.endswith("/c")
    rig.run(rig.instances.delete_instance(instance_admin.DeleteInstanceRequest.pb()(name=INSTANCE)))
    assert rig.host.databases == {}
    with pytest.raises(SpannerError, match="Instance not found"):
        rig.run(rig.instances.get_instance(get))


@pytest.mark.parametrize(
    ("instance_id", "code"), [("inst", Code.ALREADY_EXISTS), ("X", Code.INVALID_ARGUMENT)]
)
def test_instances_that_cannot_be_made(rig, instance_id: str, code: Code) -> None:
    request = instance_admin.CreateInstanceRequest.pb()(
        parent="projects/p", instance_id=instance_id
    )
    with pytest.raises(SpannerError) as caught:
        rig.run(rig.instances.create_instance(request))

    assert caught.value.code is code


def test_an_unknown_operation_is_not_found(rig) -> None:
    with pytest.raises(SpannerError, match="Operation not found"):
        rig.run(
            OperationsService(rig.host).get_operation(
                operations_pb2.GetOperationRequest(name="nope")
            )
        )
