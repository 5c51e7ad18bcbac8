"""Messages and enums: the proto bundle, columns of its types, queries and DML with them.

The emulator does not write them into change records, so that the workloads have none.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from differential.comparing import compare_results
from differential.difference import Difference
from differential.kinds import GOOGLE
from differential.side import Side
from differential.steps import Keys, Read, Write


def _descriptors() -> bytes:
    found = FileDescriptorSet()
    file = found.file.add(name="shop.proto", package="shop", syntax="proto3")
    tiers = file.enum_type.add(name="Tier")
    for number, name in enumerate(("UNKNOWN", "GOLD", "SILVER")):
        tiers.value.add(name=name, number=number)
    customer = file.message_type.add(name="Customer")
    customer.field.add(name="name", number=1, type=9, label=1)
    customer.nested_type.add(name="Address")
    return found.SerializeToString()


_SHOP = _descriptors()
_ANN = base64.b64encode(b"\n\x03Ann").decode()
_TIER = {"code": "ENUM", "proto_type_fqn": "shop.Tier"}
_CUSTOMER = {"code": "PROTO", "proto_type_fqn": "shop.Customer"}
_SCHEMA = (
    "CREATE PROTO BUNDLE (shop.Customer, `shop.Customer.Address`, shop.Tier,)",
    (
        "CREATE TABLE T (K INT64, C shop.Customer, E `shop.Tier`, A ARRAY<shop.Customer>, "
        "AE ARRAY<shop.Tier>, D shop.Tier DEFAULT ('GOLD'), G INT64 AS (CAST(D AS INT64)) STORED) "
        "PRIMARY KEY (K)"
    ),
    "CREATE TABLE ByTier (E shop.Tier, V INT64) PRIMARY KEY (E DESC)",
    "CREATE INDEX TByTier ON T(E) STORING (C)",
)
_ROWS = (
    Write(
        "insert",
        "T",
        ("K", "C", "E", "A", "AE", "D"),
        (
            ("1", _ANN, "1", (_ANN, None), ("1", "2", None), "2"),
            ("2", "//8=", "77", (), (), None),
            ("3", None, None, None, None, "1"),
        ),
    ),
    Write("insert", "ByTier", ("E", "V"), (("1", "10"), ("2", "20"), (None, "0"))),
)
_ALL = Read("T", ("K", "C", "E", "A", "AE", "D", "G"), Keys(is_all=True))

Call = Callable[[Side], Any]


def run_proto_cases(simulator: Side, emulator: Side, text: str) -> Iterator[Difference]:
    """Differences in the cases that have a text in their name."""
    for side in (simulator, emulator):
        side.create_database("proto-cases", GOOGLE)
        side.change_schema(_SCHEMA, proto_descriptors=_SHOP)
        side.session = side.create_session()
        side.commit(_ROWS, transaction=None, tag="")
    for name, call in PROTO_CASES.items():
        if text in name:
            ours, theirs = call(simulator), call(emulator)
            is_ordered = "ORDER BY" in name
            for kind, where, left, right in compare_results(
                (ours, {}), (theirs, {}), is_ordered=is_ordered
            ):
                yield Difference(kind, 0, f"case {name}{where}", left, right)
    for side in (simulator, emulator):
        side.drop_database()


def _query(sql: str, **parameters: Any) -> Call:
    return lambda side: side.execute(sql, parameters)


def _ddl(*statements: str, descriptors: bytes = _SHOP) -> Call:
    return lambda side: side.change_schema(statements, proto_descriptors=descriptors)


def _write(column: str, value: Any) -> Call:
    mutation = Write("insert_or_update", "T", ("K", column), (("9", value),))

    def call(side: Side) -> Any:
        done = side.commit([mutation], transaction=None, tag="")
        # The time of a commit is each side's own.
        return "done" if isinstance(done, str) else done

    return call


def _dml(sql: str, **parameters: Any) -> Call:
    def call(side: Side) -> Any:
        transaction = side.begin("read_write")
        done = side.execute(sql, parameters, transaction=transaction, sequence=1)
        side.commit([], transaction=transaction, tag="")
        return done

    return call


_QUERIES = (
    "SELECT * FROM T ORDER BY K",
    "SELECT * FROM ByTier",
    "SELECT K FROM T WHERE E = 1",
    "SELECT K FROM T WHERE E = 'GOLD'",
    "SELECT K FROM T WHERE E < 'SILVER'",
    "SELECT K FROM T WHERE E IN (1, 'SILVER')",
    "SELECT K FROM T WHERE 'GOLD' IN UNNEST(AE)",
    "SELECT K FROM T@{FORCE_INDEX=TByTier} WHERE E = 77",
    "SELECT V FROM ByTier WHERE E = 2",
    "SELECT V FROM ByTier WHERE E BETWEEN 'GOLD' AND 2 ORDER BY V",
    "SELECT E FROM T ORDER BY E",
    "SELECT E, COUNT(*) FROM T GROUP BY E",
    "SELECT MAX(E), MIN(E), COUNT(DISTINCT E) FROM T",
    "SELECT CAST(E AS INT64), CAST(E AS STRING) FROM T ORDER BY K",
    "SELECT CAST(1 AS shop.Tier), CAST('GOLD' AS `shop.Tier`), CAST(99 AS shop.Tier)",
    "SELECT SAFE_CAST('NOPE' AS shop.Tier), SAFE_CAST(3000000000 AS shop.Tier)",
    "SELECT CAST('NOPE' AS shop.Tier)",
    "SELECT CAST(3000000000 AS shop.Tier)",
    "SELECT CAST(C AS BYTES) FROM T WHERE K = 1",
    "SELECT CAST(b'\\n\\003Ann' AS shop.Customer)",
    "SELECT COALESCE(E, 'SILVER'), IF(K = 1, E, 2) FROM T ORDER BY K",
    "SELECT CASE E WHEN 1 THEN 'a' END FROM T ORDER BY K",
    "SELECT E FROM T UNION ALL SELECT 'GOLD'",
    "SELECT x FROM T, UNNEST(A) x WHERE K = 1",
    "SELECT C FROM T ORDER BY C",
    "SELECT C, COUNT(*) FROM T GROUP BY C",
    "SELECT DISTINCT C FROM T",
    (
        "SELECT COLUMN_NAME, SPANNER_TYPE FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'T' "
        "ORDER BY ORDINAL_POSITION"
    ),
)
_REFUSED_DDL = (
    "CREATE PROTO BUNDLE ()",
    "CREATE PROTO BUNDLE (shop.Nope)",
    "ALTER PROTO BUNDLE INSERT (shop.Nope)",
    "ALTER PROTO BUNDLE UPDATE (shop.Nope)",
    "ALTER PROTO BUNDLE DELETE (shop.Customer)",
    "ALTER PROTO BUNDLE DELETE (shop.Tier) INSERT (shop.Tier)",
    "DROP PROTO BUNDLE",
    "CREATE TABLE X (K INT64, E ENUM) PRIMARY KEY (K)",
    "CREATE TABLE X (K INT64, E ARRAY<shop.Tier>) PRIMARY KEY (E)",
    "CREATE TABLE X (K INT64, E shop.Tier OPTIONS (allow_commit_timestamp=true)) PRIMARY KEY (K)",
    "CREATE TABLE X (K INT64, E shop.Tier(5)) PRIMARY KEY (K)",
    "ALTER TABLE T ALTER COLUMN AE ARRAY<STRING(MAX)>",
    "ALTER TABLE T ALTER COLUMN A ARRAY<INT64>",
    "ALTER TABLE T ALTER COLUMN A ARRAY<shop.Tier>",
)
PROTO_CASES: dict[str, Call] = {
    "proto: schema": lambda side: side.schema(),
    **{f"proto: {sql}": _query(sql) for sql in _QUERIES},
    "proto: read of rows": lambda side: side.read(_ALL, transaction=None, at=None),
    "proto: read by an enum": lambda side: side.read(
        Read("ByTier", ("E", "V"), Keys((("2",), (None,)))), transaction=None, at=None
    ),
    "proto: enum parameter": _query("SELECT K, @p FROM T WHERE E = @p", p=("1", _TIER)),
    "proto: undeclared parameter": _query("SELECT K FROM T WHERE E = @p", p=("1", None)),
    "proto: text parameter": _query("SELECT K FROM T WHERE E = @p", p=("GOLD", {"code": "STRING"})),
    "proto: message parameter": _query("SELECT @p", p=(_ANN, _CUSTOMER)),
    "proto: array parameter": _query(
        "SELECT K FROM T WHERE E IN UNNEST(@p)",
        p=(("1", "77"), {"code": "ARRAY", "array_element_type": _TIER}),
    ),
    "proto: parameter of an unknown message": _query(
        "SELECT @p", p=(_ANN, {"code": "PROTO", "proto_type_fqn": "shop.X"})
    ),
    "proto: parameter of an unknown enum": _query(
        "SELECT @p", p=("1", {"code": "ENUM", "proto_type_fqn": "shop.X"})
    ),
    "proto: write of a member's name": _write("E", "GOLD"),
    "proto: write of a number": _write("E", 1),
    "proto: write of too great a number": _write("E", "2147483648"),
    "proto: write of a negative number": _write("E", "-2147483648"),
    "proto: write of what is not base64": _write("C", "$$"),
    "proto: write of a number as a message": _write("C", 5),
    "proto: write of no array": _write("A", 5),
    "proto: insert of literals": _dml(
        "INSERT INTO T (K, C, E) VALUES (20, b'\\n\\003Ann', 'GOLD')"
    ),
    "proto: insert of parameters": _dml(
        "INSERT INTO T (K, C, E) VALUES (21, @c, @e)", c=(_ANN, _CUSTOMER), e=("2", _TIER)
    ),
    "proto: insert of bytes": _dml(
        "INSERT INTO T (K, C, E) VALUES (22, @c, @e)",
        c=(_ANN, {"code": "BYTES"}),
        e=("2", {"code": "INT64"}),
    ),
    "proto: insert of undeclared parameters": _dml(
        "INSERT INTO T (K, C, E) VALUES (23, @c, @e)", c=(_ANN, None), e=("2", None)
    ),
    "proto: update": _dml("UPDATE T SET E = 'SILVER', C = NULL WHERE K = 21"),
    "proto: rows after DML": _query("SELECT * FROM T ORDER BY K"),
    **{f"proto: {statement}": _ddl(statement) for statement in _REFUSED_DDL},
    "proto: bundle without descriptors": _ddl("ALTER PROTO BUNDLE", descriptors=b""),
    "proto: enum to integer and back": _ddl(
        "ALTER TABLE T ALTER COLUMN AE ARRAY<INT64>",
        "ALTER TABLE T ALTER COLUMN AE ARRAY<shop.Tier>",
        "ALTER TABLE ByTier ALTER COLUMN V shop.Tier",
    ),
    "proto: message to bytes": _ddl("ALTER TABLE T ALTER COLUMN A ARRAY<BYTES(MAX)>"),
    "proto: types come and go": _ddl(
        "ALTER PROTO BUNDLE DELETE (shop.Customer.Address)",
        "ALTER PROTO BUNDLE INSERT (shop.Customer.Address) UPDATE (shop.Customer)",
    ),
    "proto: schema at the end": lambda side: side.schema(),
    "proto: rows at the end": _query("SELECT * FROM ByTier"),
    "proto: drop": _ddl(
        "DROP INDEX TByTier", "DROP TABLE T", "DROP TABLE ByTier", "DROP PROTO BUNDLE"
    ),
    "proto: drop of nothing": _ddl("DROP PROTO BUNDLE"),
    "proto: alteration of nothing": _ddl("ALTER PROTO BUNDLE INSERT (shop.Tier)"),
}
