from __future__ import annotations

import pytest
from google.cloud.spanner_admin_database_v1 import types as database_admin
from google.cloud.spanner_admin_instance_v1 import types as instance_admin
from google.protobuf import empty_pb2

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.admin.operations import done_operation, operation_name

INSTANCE = "projects/p/instances/inst"
DATABASE = f"{INSTANCE}/databases/bank"


def create_database(rig, statement: str, *extra: str, parent: str = INSTANCE):
    request = database_admin.CreateDatabaseRequest.pb()(
        parent=parent, create_statement=statement, extra_statements=extra
    )
    return rig.run(rig.databases.create_database(request))


def test_the_other_dialect_has_its_own_quotes(rig) -> None:
    request = database_admin.CreateDatabaseRequest.pb()(
        parent=INSTANCE,
        create_statement="CREATE DATABASE `x2`",
        database_dialect=database_admin.DatabaseDialect.POSTGRESQL,
    )
    with pytest.raises(SpannerError, match="CREATE DATABASE and one name are expected"):
        rig.run(rig.databases.create_database(request))
    request.create_statement = 'CREATE DATABASE "x2"'
    rig.run(rig.databases.create_database(request))
    get = database_admin.GetDatabaseRequest.pb()(name=f"{INSTANCE}/databases/x2")

    dialect = rig.run(rig.databases.get_database(get)).database_dialect
    assert dialect == database_admin.DatabaseDialect.POSTGRESQL


def update(rig, *statements: str, operation_id: str = ""):
    request = database_admin.UpdateDatabaseDdlRequest.pb()(
        database=DATABASE, statements=statements, operation_id=operation_id
    )
    return rig.run(rig.databases.update_database_ddl(request))


T1 = "CREATE TABLE T1 (A INT64) PRIMARY KEY (A)"


def test_a_statement_refused_after_others_is_the_operations_error(rig) -> None:
    operation = update(rig, T1, T1, "CREATE TABLE T2 (A INT64) PRIMARY KEY (A)")
    metadata = database_admin.UpdateDatabaseDdlMetadata.pb()()
    operation.metadata.Unpack(metadata)
    assert operation.done
    assert operation.error.code == Code.FAILED_PRECONDITION.value
    assert len(metadata.commit_timestamps) == 1
    assert len(metadata.statements) == 3
    assert {"t1"} == {"t1", "t2"} & rig.database.catalogue.tables.keys()


def test_an_operation_id_is_taken_once(rig) -> None:
    assert update(rig, T1, operation_id="op_1").name == f"{DATABASE}/operations/op_1"
    with pytest.raises(SpannerError, match="Operation already exists"):
        update(rig, "DROP TABLE T1", operation_id="op_1")
    with pytest.raises(SpannerError, match="Invalid operation id: Op-1"):
        update(rig, "DROP TABLE T1", operation_id="Op-1")
    assert "t1" in rig.database.catalogue.tables


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


def test_names_of_our_own_are_distinct(empty_rig) -> None:
    names = set()
    for _ in range(3):
        name = operation_name(empty_rig.host, "a")
        done_operation(empty_rig.host, name, metadata=empty_pb2.Empty(), outcome=empty_pb2.Empty())
        names.add(name)
    del empty_rig.host.operations[min(names)]
    assert operation_name(empty_rig.host, "a") not in names - {min(names)}


def test_an_error_is_an_outcome(empty_rig) -> None:
    operation = done_operation(
        empty_rig.host,
        "a/operations/x",
        metadata=empty_pb2.Empty(),
        outcome=SpannerError(Code.FAILED_PRECONDITION, "no"),
    )
    assert operation.WhichOneof("result") == "error"
    assert (operation.error.code, operation.error.message) == (9, "no")
