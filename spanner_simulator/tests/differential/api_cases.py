"""Calls that must be refused, or be answered with nothing: what sessions and transactions may do.

A case is a function that calls a side and gives what it answered; both sides hold one small table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from differential.comparing import compare_results
from differential.difference import Difference
from differential.kinds import GOOGLE
from differential.side import Side
from differential.steps import Delete, Interval, Keys, Read, Write

_TABLE = "CREATE TABLE U (k INT64 NOT NULL, a STRING(MAX)) PRIMARY KEY (k)"
_ROW = Write("insert_or_update", "U", ("k", "a"), (("1", "x"),))
_ALL = Read("U", ("k", "a"), Keys(is_all=True))
_UPDATE = "UPDATE U SET a = 'y' WHERE k = 1"

Call = Callable[[Side], Any]


def run_api_cases(simulator: Side, emulator: Side, text: str) -> Iterator[Difference]:
    """Differences in the cases that have a text in their name."""
    for side in (simulator, emulator):
        side.create_database("api-cases", GOOGLE)
        side.change_schema([_TABLE])
        side.commit([_ROW], transaction=None, tag="")
    for name, call in API_CASES.items():
        if text in name:
            for side in (simulator, emulator):
                # What a case leaves open is nobody else's affair.
                side.session = side.create_session()
            ours, theirs = (_comparable(call(side)) for side in (simulator, emulator))
            for kind, where, left, right in compare_results(
                (ours, {}), (theirs, {}), is_ordered=True
            ):
                yield Difference(kind, 0, f"case {name}{where}", left, right)
    for side in (simulator, emulator):
        side.drop_database()


def _comparable(result: Any) -> Any:
    """Ids and moments are made up: that there is one is all that counts."""
    return "done" if isinstance(result, str | bytes) else result


def _commit_twice(side: Side) -> Any:
    transaction = side.begin("read_write")
    side.commit([_ROW], transaction=transaction, tag="")
    return side.commit([_ROW], transaction=transaction, tag="")


def _after(*ends: str, then: str) -> Call:
    """Do something in a transaction that has ended in some way."""

    def call(side: Side) -> Any:
        transaction = side.begin("read_write")
        for end in ends:
            if end == "commit":
                side.commit([], transaction=transaction, tag="")
            else:
                side.rollback(transaction)
        match then:
            case "commit":
                return side.commit([_ROW], transaction=transaction, tag="")
            case "rollback":
                return side.rollback(transaction)
            case "read":
                return side.read(_ALL, transaction=transaction, at=None)
            case "query":
                return side.execute("SELECT k FROM U", {}, transaction=transaction)
            case _:
                return side.execute(_UPDATE, {}, transaction=transaction, sequence=9)

    return call


def _unknown(then: str) -> Call:
    def call(side: Side) -> Any:
        if then == "commit":
            return side.commit([_ROW], transaction=b"999999", tag="")
        if then == "rollback":
            return side.rollback(b"999999")
        return side.read(_ALL, transaction=b"999999", at=None)

    return call


def _in_read_only(then: str) -> Call:
    def call(side: Side) -> Any:
        transaction = side.begin("read_only")
        match then:
            case "commit":
                return side.commit([_ROW], transaction=transaction, tag="")
            case "rollback":
                return side.rollback(transaction)
            case "dml":
                return side.execute(_UPDATE, {}, transaction=transaction, sequence=1)
            case _:
                return side.read(_ALL, transaction=transaction, at=None)

    return call


def _in_partitioned(sql: str) -> Call:
    def call(side: Side) -> Any:
        transaction = side.begin("partitioned_dml")
        return side.execute(sql, {}, transaction=transaction, sequence=1)

    return call


def _read(read: Read, at: str | None = None) -> Call:
    return lambda side: side.read(read, transaction=None, at=at)


def _write(*mutations: Any) -> Call:
    return lambda side: side.commit(mutations, transaction=None, tag="")


def _with_session(session: str) -> Call:
    def call(side: Side) -> Any:
        kept, side.session = side.session, session.format(database=side.database)
        try:
            return side.read(_ALL, transaction=None, at=None)
        finally:
            side.session = kept

    return call


def _same_sequence(side: Side) -> Any:
    """A statement sent twice with one number is done once."""
    transaction = side.begin("read_write")
    insert = "INSERT INTO U (k, a) VALUES (50, 'a')"
    side.execute(insert, {}, transaction=transaction, sequence=1)
    again = side.execute(insert, {}, transaction=transaction, sequence=1)
    side.rollback(transaction)
    return again


def _older_sequence(side: Side) -> Any:
    transaction = side.begin("read_write")
    side.execute(_UPDATE, {}, transaction=transaction, sequence=5)
    older = side.execute(_UPDATE, {}, transaction=transaction, sequence=3)
    side.rollback(transaction)
    return older


def _batch_that_fails(side: Side) -> Any:
    transaction = side.begin("read_write")
    statements: list[Any] = [(_UPDATE, {}), ("INSERT INTO U (k) VALUES (1)", {}), (_UPDATE, {})]
    done = side.execute_batch(statements, transaction=transaction, sequence=1)
    side.rollback(transaction)
    return done


def _empty_batch(side: Side) -> Any:
    transaction = side.begin("read_write")
    done = side.execute_batch([], transaction=transaction, sequence=1)
    side.rollback(transaction)
    return done


def _query_in_batch(side: Side) -> Any:
    transaction = side.begin("read_write")
    done = side.execute_batch([("SELECT 1", {})], transaction=transaction, sequence=1)
    side.rollback(transaction)
    return done


def _interval(start: tuple[Any, ...], end: tuple[Any, ...]) -> Keys:
    return Keys(intervals=(Interval(start, end, start_closed=True, end_closed=True),))


API_CASES: dict[str, Call] = {
    "api: commit twice": _commit_twice,
    "api: commit after rollback": _after("rollback", then="commit"),
    "api: rollback after commit": _after("commit", then="rollback"),
    "api: rollback twice": _after("rollback", then="rollback"),
    "api: read after commit": _after("commit", then="read"),
    "api: read after rollback": _after("rollback", then="read"),
    "api: query after commit": _after("commit", then="query"),
    "api: dml after commit": _after("commit", then="dml"),
    "api: dml after rollback": _after("rollback", then="dml"),
    "api: commit of an unknown transaction": _unknown("commit"),
    "api: rollback of an unknown transaction": _unknown("rollback"),
    "api: read in an unknown transaction": _unknown("read"),
    "api: commit of a read-only transaction": _in_read_only("commit"),
    "api: rollback of a read-only transaction": _in_read_only("rollback"),
    "api: dml in a read-only transaction": _in_read_only("dml"),
    "api: read in a read-only transaction": _in_read_only("read"),
    "api: dml in single use": lambda side: side.execute(_UPDATE, {}),
    "api: partitioned insert": _in_partitioned("INSERT INTO U (k) VALUES (7)"),
    "api: partitioned query": _in_partitioned("SELECT k FROM U"),
    "api: partitioned returning": _in_partitioned(f"{_UPDATE} THEN RETURN k"),
    "api: same sequence number": _same_sequence,
    "api: older sequence number": _older_sequence,
    "api: batch that fails": _batch_that_fails,
    "api: empty batch": _empty_batch,
    "api: query in a batch": _query_in_batch,
    "api: read of a missing table": _read(Read("Nope", ("k",), Keys(is_all=True))),
    "api: read of a missing column": _read(Read("U", ("nope",), Keys(is_all=True))),
    "api: read of a missing index": _read(Read("U", ("k",), Keys(is_all=True), index="Nope")),
    "api: read of no column": _read(Read("U", (), Keys(is_all=True))),
    "api: read of a column twice": _read(Read("U", ("k", "k"), Keys(is_all=True))),
    "api: read of no key": _read(Read("U", ("k",), Keys())),
    "api: read with a long key": _read(Read("U", ("k",), Keys((("1", "2"),)))),
    "api: read with a short key": _read(Read("U", ("k",), Keys(((),)))),
    "api: read with a wrong key": _read(Read("U", ("k",), Keys((("x",),)))),
    "api: read with a negative limit": _read(Read("U", ("k",), Keys(is_all=True), limit=-1)),
    "api: read with a long range": _read(Read("U", ("k",), _interval(("1", "1"), ("2",)))),
    "api: read in the far past": _read(_ALL, at="2001-01-01T00:00:00Z"),
    "api: write to a missing table": _write(Write("insert", "Nope", ("k",), (("1",),))),
    "api: write of a missing column": _write(Write("insert", "U", ("k", "x"), (("1", "1"),))),
    "api: write of a column twice": _write(Write("insert", "U", ("k", "k"), (("1", "1"),))),
    "api: write of too few values": _write(Write("insert", "U", ("k", "a"), (("91",),))),
    "api: write of too many values": _write(Write("insert", "U", ("k",), (("92", "x"),))),
    "api: write without the key": _write(Write("insert", "U", ("a",), (("x",),))),
    "api: write of a NULL key": _write(Write("insert", "U", ("k",), ((None,),))),
    "api: write of no rows": _write(Write("insert", "U", ("k",), ())),
    "api: write of nothing": _write(),
    "api: delete from a missing table": _write(Delete("Nope", Keys(is_all=True))),
    "api: delete of a missing row": _write(Delete("U", Keys((("999",),)))),
    "api: delete with a long key": _write(Delete("U", Keys((("1", "2"),)))),
    "api: delete of no key": _write(Delete("U", Keys())),
    "api: unknown session": _with_session("{database}/sessions/unknown"),
    "api: session of another database": _with_session(
        "projects/differential/instances/one/databases/nope/sessions/1"
    ),
    "api: session that is no name": _with_session("nonsense"),
}
