"""Administration, mutations, types, reads and large values."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import math
from decimal import Decimal
from typing import Any

from google.api_core import exceptions
from google.api_core.datetime_helpers import DatetimeWithNanoseconds
from google.cloud import spanner
from google.cloud.spanner_admin_database_v1 import types as admin
from google.cloud.spanner_v1 import JsonObject, KeyRange, KeySet, param_types
from google.cloud.spanner_v1 import types as wire
from harness import Databases, equal, fails_with, statements

SCALARS = ["Bool", "Int", "Float4", "Float8", "Num", "Str", "Byt", "Dat", "Tim", "Jso"]
MOMENT = "2024-02-29T12:34:56.123456789Z"
ROW = [
    *(True, -42, 0.5, 0.1, Decimal("-12.345"), "grüße 🌍", b"aGVsbG8AAQ==", dt.date(2024, 2, 29)),
    *(DatetimeWithNanoseconds.from_rfc3339(MOMENT), JsonObject({"a": [1, None, "x"], "b": {}})),
]


def instance_created(databases: Databases) -> None:
    databases.instance = databases.client.instance(
        "conformance-python", "projects/conformance/instanceConfigs/emulator-config"
    )
    databases.instance.create().result(30)
    listed = [one.name.rsplit("/")[-1] for one in databases.client.list_instances()]
    equal(True, "conformance-python" in listed)


def database_created(databases: Databases) -> None:
    databases.google = databases.instance.database(
        "python-google", ddl_statements=statements("google.sql")
    )
    databases.google.create().result(30)
    databases.google.reload()
    equal(admin.Database.State.READY, databases.google.state)


def ddl_changed(databases: Databases) -> None:
    databases.google.update_ddl(
        [
            "ALTER TABLE Counters ADD COLUMN Note STRING(100)",
            "CREATE INDEX ByNote ON Counters(Note)",
        ]
    ).result(30)
    with databases.google.snapshot() as snapshot:
        rows = list(
            snapshot.execute_sql(
                "SELECT COLUMN_NAME, SPANNER_TYPE FROM INFORMATION_SCHEMA.COLUMNS "
                "WHERE TABLE_NAME = @table ORDER BY ORDINAL_POSITION",
                params={"table": "Counters"},
                param_types={"table": param_types.STRING},
            )
        )
    equal([["Name", "STRING(64)"], ["Value", "INT64"], ["Note", "STRING(100)"]], rows)


def session_multiplexed(databases: Databases) -> None:
    api = databases.google.spanner_api
    request = wire.CreateSessionRequest(
        database=databases.google.name, session=wire.Session(multiplexed=True)
    )
    session = api.create_session(request=request)
    equal(True, session.multiplexed)
    begun = api.begin_transaction(
        wire.BeginTransactionRequest(
            session=session.name,
            options=wire.TransactionOptions(read_write=wire.TransactionOptions.ReadWrite()),
            mutation_key=_insert("Counters", ["Name", "Value"], ["multiplexed", "1"]),
        )
    )
    answer = api.commit(
        wire.CommitRequest(
            session=session.name,
            transaction_id=begun.id,
            mutations=[_insert("Counters", ["Name", "Value"], ["multiplexed", "1"])],
            precommit_token=begun.precommit_token,
        )
    )
    equal(True, answer.commit_timestamp is not None)


def _insert(table: str, columns: list[str], values: list[str]) -> wire.Mutation:
    return wire.Mutation(insert=wire.Mutation.Write(table=table, columns=columns, values=[values]))


def _query(database: Any, sql: str, **options: Any) -> list[Any]:
    with database.snapshot() as snapshot:
        return list(snapshot.execute_sql(sql, **options))


def _read(database: Any, table: str, columns: list[str], keys: KeySet, **options: Any) -> list[Any]:
    with database.snapshot() as snapshot:
        return list(snapshot.read(table, columns, keys, **options))


def mutations(databases: Databases) -> None:
    columns = ["SingerId", "Name", "Born"]
    day = dt.date(1970, 1, 1)
    with databases.google.batch() as batch:
        batch.insert("Singers", columns, [[n, f"name {n}", day] for n in range(100, 106)])
    with databases.google.batch() as batch:
        batch.update("Singers", ["SingerId", "Name"], [[100, "updated"]])
        batch.insert_or_update("Singers", ["SingerId", "Name"], [[101, "upserted"], [110, "new"]])
        batch.replace("Singers", ["SingerId", "Name"], [[102, "replaced"]])
        batch.delete("Singers", KeySet(keys=[[103]]))
        batch.delete("Singers", KeySet(ranges=[KeyRange(start_closed=[104], end_open=[106])]))
    keys = KeySet(ranges=[KeyRange(start_closed=[100], end_closed=[199])])
    equal(
        [
            [100, "updated", day],
            [101, "upserted", day],
            [102, "replaced", None],
            [110, "new", None],
        ],
        _read(databases.google, "Singers", columns, keys),
    )


def mutation_errors(databases: Databases) -> None:
    def write(verb: str, table: str, values: list[Any]) -> None:
        with databases.google.batch() as batch:
            getattr(batch, verb)(table, ["Name", "Value"], [values])

    write("insert", "Counters", ["once", 1])
    fails_with(exceptions.AlreadyExists, lambda: write("insert", "Counters", ["once", 1]))
    fails_with(exceptions.NotFound, lambda: write("update", "Counters", ["never", 1]))
    fails_with(exceptions.NotFound, lambda: write("insert", "Nope", ["a", 1]))
    fails_with(
        exceptions.FailedPrecondition, lambda: write("insert", "Counters", ["null value", None])
    )


def commit_timestamp(databases: Databases) -> None:
    with databases.google.batch() as batch:
        batch.insert("Events", ["Id", "Written"], [["mutation", spanner.COMMIT_TIMESTAMP]])

    def insert(transaction: Any) -> None:
        transaction.execute_update(
            "INSERT INTO Events (Id, Written) VALUES ('statement', PENDING_COMMIT_TIMESTAMP())"
        )

    databases.google.run_in_transaction(insert)
    rows = _read(
        databases.google, "Events", ["Id", "Written"], KeySet(keys=[["mutation"], ["statement"]])
    )
    equal(["mutation", batch.committed], rows[0])
    equal(True, batch.committed < rows[1][1])


def batch_write(databases: Databases) -> None:
    with databases.google.mutation_groups() as groups:
        for number in range(4):
            groups.group().insert("Counters", ["Name", "Value"], [[f"group {number}", number]])
        groups.group().insert("Counters", ["Name", "Value"], [["group 0", 7], ["group 9", 9]])
        answers = list(groups.batch_write())
    codes = {index: one.status.code for one in answers for index in one.indexes}
    equal([0, 1, 2, 3, 4], sorted(codes))
    # Groups are applied in any order: of the two that insert the same row, one fails.
    equal(1, sum(1 for code in codes.values() if code))
    keys = KeySet(keys=[[f"group {number}"] for number in range(10)])
    equal(True, len(_read(databases.google, "Counters", ["Name"], keys)) in (4, 5))


def types_scalar(databases: Databases) -> None:
    with databases.google.batch() as batch:
        batch.insert("Scalars", ["Id", *SCALARS], [[1, *ROW]])
    equal([ROW], _read(databases.google, "Scalars", SCALARS, KeySet(keys=[[1]])))
    equal([ROW], _query(databases.google, f"SELECT {', '.join(SCALARS)} FROM Scalars WHERE Id = 1"))


def types_extreme(databases: Databases) -> None:
    columns = ["Id", "Int", "Float4", "Float8", "Num", "Str", "Byt", "Dat", "Tim"]
    stamp = DatetimeWithNanoseconds.from_rfc3339
    number = Decimal("9" * 29 + ".999999999")
    low = [
        *(-(2**63), -math.inf, -math.inf, number.copy_negate(), "", b""),
        *(dt.date(1, 1, 1), stamp("0001-01-01T00:00:00Z")),
    ]
    high = [
        *(2**63 - 1, math.inf, 1.7976931348623157e308, number, "\x00\n\"'\\", b"/w=="),
        *(dt.date(9999, 12, 31), stamp("9999-12-31T23:59:59.999999999Z")),
    ]
    with databases.google.batch() as batch:
        batch.insert("Scalars", columns, [[10, *low], [11, *high]])
        batch.insert("Scalars", ["Id", "Float4", "Float8"], [[12, math.nan, math.nan]])
    found = _read(databases.google, "Scalars", columns, KeySet(keys=[[10], [11]]))
    equal([[10, *low], [11, *high]], found)
    ((four, eight),) = _read(databases.google, "Scalars", ["Float4", "Float8"], KeySet(keys=[[12]]))
    equal((True, True), (math.isnan(four), math.isnan(eight)))


def types_array(databases: Databases) -> None:
    full = [[value, None, value] for value in ROW]
    empty: list[Any] = [[] for _ in ROW]
    with databases.google.batch() as batch:
        batch.insert("Arrays", ["Id", *SCALARS], [[20, *full], [21, *empty]])
    found = _read(databases.google, "Arrays", SCALARS, KeySet(keys=[[20], [21]]))
    equal([full, empty], found)


def types_parameter(databases: Databases) -> None:
    types = [
        *(param_types.BOOL, param_types.INT64, param_types.FLOAT32, param_types.FLOAT64),
        *(param_types.NUMERIC, param_types.STRING, param_types.BYTES, param_types.DATE),
        *(param_types.TIMESTAMP, param_types.JSON),
    ]
    names = [f"p{number}" for number in range(len(types))]
    sql = f"SELECT {', '.join('@' + name for name in names)}"
    for values, declared in (
        (ROW, types),
        ([None] * len(types), types),
        ([[value, None] for value in ROW], [param_types.Array(one) for one in types]),
    ):
        found = _query(
            databases.google,
            sql,
            params=dict(zip(names, values, strict=True)),
            param_types=dict(zip(names, declared, strict=True)),
        )
        equal([values], found)


def _singers(databases: Databases, first: int, count: int) -> None:
    with databases.google.batch() as batch:
        batch.insert_or_update(
            "Singers",
            ["SingerId", "Name", "Born"],
            [[first + n, f"singer {first + n}", dt.date(1950 + n, 1, 1)] for n in range(count)],
        )


def read_ranges(databases: Databases) -> None:
    _singers(databases, 400, 10)

    def found(limit: int = 0, **bounds: list[int]) -> list[int]:
        keys = KeySet(ranges=[KeyRange(**bounds)])
        options = {"limit": limit} if limit else {}
        return [row[0] for row in _read(databases.google, "Singers", ["SingerId"], keys, **options)]

    equal([402, 403], found(start_closed=[402], end_open=[404]))
    equal([403, 404], found(start_open=[402], end_closed=[404]))
    equal([403], found(start_open=[402], end_open=[404]))
    equal([402, 403, 404], found(start_closed=[402], end_closed=[404]))
    equal([400, 401], found(start_closed=[400], end_closed=[499], limit=2))
    with databases.google.batch() as batch:
        batch.insert("Albums", ["SingerId", "AlbumId"], [[400, n] for n in range(3)])
        batch.insert("Albums", ["SingerId", "AlbumId"], [[401, 0]])
    # A prefix of the key stands for all rows below it.
    keys = KeySet(ranges=[KeyRange(start_closed=[400], end_closed=[400])])
    rows = _read(databases.google, "Albums", ["SingerId", "AlbumId"], keys)
    equal([[400, 0], [400, 1], [400, 2]], rows)


def read_index(databases: Databases) -> None:
    _singers(databases, 500, 10)
    keys = KeySet(ranges=[KeyRange(start_closed=["singer 502"], end_closed=["singer 504"])])
    columns = ["Name", "SingerId", "Born"]
    rows = _read(databases.google, "Singers", columns, keys, index="SingersByName")
    equal([[f"singer {n}", n, dt.date(1450 + n, 1, 1)] for n in (502, 503, 504)], rows)


def large_value(databases: Databases) -> None:
    # One string of 10 MiB is the most that a column takes; base64 makes 4/3 of it.
    data = bytes(range(256)) * (6 * 4096)
    with databases.google.batch() as batch:
        batch.insert("Blobs", ["Id", "Data"], [[1, base64.b64encode(data)]])
    ((found,),) = _read(databases.google, "Blobs", ["Data"], KeySet(keys=[[1]]))
    equal(hashlib.sha256(data).hexdigest(), hashlib.sha256(base64.b64decode(found)).hexdigest())


def large_result(databases: Databases) -> None:
    with databases.google.batch() as batch:
        rows = [[1000 + n, f"{n:06d}" * 300] for n in range(4000)]
        batch.insert("Singers", ["SingerId", "Name"], rows)
    sql = "SELECT SingerId, Name FROM Singers WHERE SingerId >= 1000 ORDER BY SingerId"
    equal(rows, _query(databases.google, sql))
    keys = KeySet(ranges=[KeyRange(start_closed=[1000], end_closed=[99999])])
    equal(rows, _read(databases.google, "Singers", ["SingerId", "Name"], keys))


CHECKS = [
    *(instance_created, database_created, ddl_changed, session_multiplexed, mutations),
    *(mutation_errors, commit_timestamp, batch_write, types_scalar, types_extreme, types_array),
    *(types_parameter, read_ranges, read_index, large_value, large_result),
]
