from __future__ import annotations

import pytest
from google.cloud.spanner_admin_database_v1 import types as database_admin

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.messages import timestamp_us_of

INSTANCE = "projects/p/instances/inst"
DATABASE = f"{INSTANCE}/databases/bank"


def create_database(rig, statement: str, *extra: str, parent: str = INSTANCE):
    request = database_admin.CreateDatabaseRequest.pb()(
        parent=parent, create_statement=statement, extra_statements=extra
    )
    return rig.run(rig.databases.create_database(request))


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
        ("CREATE DATABASE xy", "projects/p/instances/nope", Code.NOT_FOUND),
        ("CREATE SOMETHING xy", INSTANCE, Code.INVALID_ARGUMENT),
        ("CREATE DATABASE `x", INSTANCE, Code.INVALID_ARGUMENT),
        ("CREATE DATABASE Upper", INSTANCE, Code.INVALID_ARGUMENT),
    ],
)
def test_databases_that_cannot_be_made(rig, statement: str, parent: str, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        create_database(rig, statement, parent=parent)

    assert caught.value.code is code


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


def test_ddl_is_updated_printed_and_dated(rig) -> None:
    request = database_admin.UpdateDatabaseDdlRequest.pb()(
        database=DATABASE, statements=["CREATE TABLE T (A INT64) PRIMARY KEY (A)"]
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


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ([T1, "CREATE TABLE T ("], "Error parsing"),
        ([], "Missing statements in the request."),
        ([T1, " "], "DDL statement is empty."),
    ],
)
def test_a_malformed_statement_changes_nothing(rig, statements: list[str], message: str) -> None:
    with pytest.raises(SpannerError, match=message) as caught:
        update(rig, *statements)

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert "t1" not in rig.database.catalogue.tables


def test_an_operation_id_is_taken_once(rig) -> None:
    assert update(rig, T1, operation_id="op_1").name == f"{DATABASE}/operations/op_1"
    with pytest.raises(SpannerError, match="Operation already exists"):
        update(rig, "DROP TABLE T1", operation_id="op_1")
    with pytest.raises(SpannerError, match="Invalid operation id: Op-1"):
        update(rig, "DROP TABLE T1", operation_id="Op-1")
    assert "t1" in rig.database.catalogue.tables


def test_a_database_says_since_when_it_can_be_read(rig) -> None:
    get = database_admin.GetDatabaseRequest.pb()(name=DATABASE)
    fresh = rig.run(rig.databases.get_database(get))
    rig.now_us += 2 * 3_600_000_000
    aged = rig.run(rig.databases.get_database(get))

    assert fresh.state == database_admin.Database.State.READY
    assert timestamp_us_of(fresh.earliest_version_time) == timestamp_us_of(fresh.create_time)
    assert timestamp_us_of(aged.earliest_version_time) == rig.now_us - 3_600_000_000


def test_roles_and_permissions_are_listed(rig) -> None:
    update(rig, "CREATE ROLE clerk")
    request = database_admin.ListDatabaseRolesRequest.pb()(parent=DATABASE)
    roles = rig.run(rig.databases.list_database_roles(request)).database_roles
    asked = iam_policy_pb2.TestIamPermissionsRequest(resource=DATABASE, permissions=["a", "b"])

    assert f"{DATABASE}/databaseRoles/clerk" in [one.name for one in roles]
    assert rig.run(rig.databases.test_iam_permissions(asked)).permissions == ["a", "b"]


def test_operations_of_a_dropped_database_are_forgotten(rig) -> None:
    update(rig, T1, operation_id="op_1")
    request = database_admin.ListDatabaseOperationsRequest.pb()(parent=INSTANCE)
    before = rig.run(rig.databases.list_database_operations(request)).operations
    drop = database_admin.DropDatabaseRequest.pb()(database=DATABASE)
    rig.run(rig.databases.drop_database(drop))

    assert f"{DATABASE}/operations/op_1" in [one.name for one in before]
    assert not rig.run(rig.databases.list_database_operations(request)).operations


def test_a_proto_bundle_comes_with_its_descriptors_and_gives_them_back(rig) -> None:
    made = database_admin.CreateDatabaseRequest.pb()(
        parent=INSTANCE,
        create_statement="CREATE DATABASE `shop`",
        extra_statements=["CREATE PROTO BUNDLE (shop.Customer, shop.Tier)"],
        proto_descriptors=shop_descriptors(),
    )
    rig.run(rig.databases.create_database(made))
    altered = database_admin.UpdateDatabaseDdlRequest.pb()(
        database=f"{INSTANCE}/databases/shop",
        statements=[
            "CREATE TABLE T (K INT64, C shop.Customer) PRIMARY KEY (K)",
        ],
        proto_descriptors=shop_descriptors(),
    )
    rig.run(rig.databases.update_database_ddl(altered))
    asked = database_admin.GetDatabaseDdlRequest.pb()(database=f"{INSTANCE}/databases/shop")
    found = rig.run(rig.databases.get_database_ddl(asked))

    assert found.statements[0] == "CREATE PROTO BUNDLE (\n  shop.Customer,\n  shop.Tier,\n)"
    assert found.proto_descriptors == shop_descriptors()


def test_what_a_database_cannot_have_is_refused(rig) -> None:
    encrypted = database_admin.CreateDatabaseRequest.pb()(
        parent=INSTANCE, create_statement="CREATE DATABASE `xy`"
    )
    encrypted.encryption_config.kms_key_name = "k"
    with pytest.raises(SpannerError, match="encryption keys") as caught:
        rig.run(rig.databases.create_database(encrypted))
    assert caught.value.code is Code.UNIMPLEMENTED
