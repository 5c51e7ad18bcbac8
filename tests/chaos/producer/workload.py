"""What is committed while a run lasts: rows of several tables, whose columns come and go.

Some values cannot be published: a TIMESTAMP with nanoseconds, a text that no topic takes.  Writers
commit transactions over several tables and keys; beside them the schema changes: ADD
COLUMN, DROP COLUMN, CREATE TABLE, DROP TABLE.  Keys are few, so that each has many changes.
"""

from __future__ import annotations

import base64
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from google.api_core.datetime_helpers import DatetimeWithNanoseconds
from google.api_core.exceptions import GoogleAPICallError
from google.cloud.spanner_v1 import KeySet

from tests.chaos.producer.statements import Statements
from tidegate.local_stack.judge.log import LoggedChange
from tidegate.local_stack.judge.source import SourceTable

STREAM = "everything"
_KEY = ("Shop", "Sku")
_KEYS = 120
_WRITERS = 3
_FILL_AT_ONCE = 2_000
_SCHEMA_EVERY_S = (6.0, 12.0)
_EACH_KIND = 4
"""The first changes of a seed are one of each kind; a run has them, however short it is."""
_COLUMNS_MAX = 4
"""Columns that a table gets beside its first ones; then one is dropped first."""
_TABLES_MAX = 5
_KEPT = "items"
"""The table that is never dropped."""
_ADDED_TYPES = ("INT64", "STRING(MAX)", "FLOAT64", "BOOL", "BYTES(MAX)", "TIMESTAMP")
_NEW_TABLE = {"Amount": "INT64", "Text": "STRING(MAX)"}
_DDL_TIMEOUT_S = 60
_PAUSE_S = 0.5
_POISON = 0.008
"""Chance per written row to hold a value that cannot be published."""
_LARGE = 1_500_000
"""Characters of a text that is larger than Kafka's default limit on messages."""
_LARGE_MIN = 1 << 20
_FINE = re.compile(r"\.\d{6}\d*[1-9]\d*Z$")
"""Ends a TIMESTAMP that is finer than a microsecond."""


@dataclass(slots=True)
class Table:
    """A table as the writers know it: its columns without the key's."""

    name: str
    columns: dict[str, str]
    """Name -> GoogleSQL's name of the type."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One statement, and what becomes of the writers' tables."""

    ddl: str
    table: str
    adds: str = ""
    drops: str = ""
    kind: str = ""
    """The added column's type."""
    is_end: bool = False
    """Whether the table itself is dropped."""

    @property
    def verb(self) -> str:
        """What it does, for the report."""
        if self.is_end:
            return "DROP TABLE"
        return "ADD COLUMN" if self.adds else "DROP COLUMN" if self.drops else "CREATE TABLE"


def initial_tables() -> list[Table]:
    """Return the tables that there are before the run."""
    every = {f"C{n}": kind for n, kind in enumerate((*_ADDED_TYPES, "NUMERIC"))}
    return [Table(_KEPT, every), Table("counts", {"Amount": "INT64"})]


def initial_layout() -> dict[str, SourceTable]:
    """Return these tables for the judge."""
    return {table.name: SourceTable((*_KEY, *table.columns), _KEY) for table in initial_tables()}


def initial_ddl(statements: Statements, *, has_moves: bool = False) -> list[str]:
    """Return the statements of tables and change stream; it watches tables that come later."""
    tables = initial_tables()
    return [
        *(statements.create_table(table.name, table.columns) for table in tables),
        statements.create_stream(STREAM, has_moves=has_moves),
    ]


def schema_changes_of(seed: int, statements: Statements) -> Iterator[SchemaChange]:
    """Yield changes without end, each to be carried out before the next is asked for."""
    chance = random.Random(f"{seed}/schema")
    added: dict[str, list[str]] = {table.name: [] for table in initial_tables()}
    number = 0
    while True:
        number += 1
        # A new table early, so that a short run has one as well.
        is_table = number == 2 or (number > 4 and chance.random() < 0.2)
        if is_table and len(added) < _TABLES_MAX:
            table = Table(f"late{number}", dict(_NEW_TABLE))
            added[table.name] = []
            yield SchemaChange(statements.create_table(table.name, table.columns), table.name)
            continue
        # Of the first tables as well as of later ones; what they hold is still to be published.
        if number == 4 or (number > 4 and chance.random() < 0.1):
            ended = chance.choice([name for name in added if name != _KEPT] or [""])
            if ended:
                del added[ended]
                yield SchemaChange(statements.drop_table(ended), ended, is_end=True)
                continue
        grown = [one for one, columns in added.items() if columns]
        name = chance.choice(list(added))
        if grown and (number == 3 or chance.random() < 0.35):
            name, is_drop = chance.choice(grown), True
        else:
            is_drop = len(added[name]) >= _COLUMNS_MAX
        columns = added[name]
        if is_drop:
            column = columns.pop(chance.randrange(len(columns)))
            yield SchemaChange(statements.drop_column(name, column), name, drops=column)
            continue
        # Never a name again: a column that comes back with another type stops its readers.
        column, kind = f"Extra{number}", chance.choice(_ADDED_TYPES)
        columns.append(column)
        ddl = statements.add_column(name, column, kind)
        yield SchemaChange(ddl, name, adds=column, kind=kind)


def value_of(kind: str, chance: random.Random) -> Any:
    """Return a random value of a column's type, or None."""
    if chance.random() < 0.15:
        return None
    match kind:
        case "INT64":
            return chance.randint(-(1 << 40), 1 << 40)
        case "FLOAT64":
            return chance.choice((0.5, -2.25, float("nan"), chance.random()))
        case "BOOL":
            return chance.random() < 0.5
        case "BYTES(MAX)":
            # The client takes BYTES as base64.
            return base64.b64encode(chance.randbytes(chance.randint(0, 40)))
        case "TIMESTAMP":
            epoch = datetime(2020, 1, 1, tzinfo=UTC)
            return epoch + timedelta(microseconds=chance.randrange(1 << 47))
        case "NUMERIC":
            return Decimal(chance.randint(-(10**12), 10**12)).scaleb(-9)
        case _:
            return "ä" * chance.randint(0, 30) + str(chance.random())


def poison_of(kind: str, chance: random.Random) -> Any:
    """Return a value of a column's type that cannot be published; None if all of them can."""
    match kind:
        case "TIMESTAMP":
            nanosecond = chance.randrange(1, 1_000) + 1_000 * chance.randrange(1_000_000)
            return DatetimeWithNanoseconds(2024, 5, 6, nanosecond=nanosecond, tzinfo=UTC)
        case "STRING(MAX)":
            return "x" * _LARGE
        case _:
            return None


def is_poison(change: LoggedChange) -> bool:
    """Whether a committed change cannot be published, by what its values are."""
    texts = [
        value
        for values in (change.new_values, change.old_values)
        for value in values.values()
        if isinstance(value, str)
    ]
    return sum(map(len, texts)) > _LARGE_MIN or any(_FINE.search(text[-40:]) for text in texts)


def _key_of(number: int) -> tuple[str, int]:
    """Return a key; they are spread over the key space, as stream partitions are ranges of it."""
    return f"{number * 2_654_435_761 % (1 << 32):08x}", number % 7


@dataclass(slots=True)
class Workload:
    """Commits to a database (the official client's object) until it is stopped."""

    database: Any
    seed: int
    rate: float
    """Transactions a second, of all writers together."""
    say: Callable[[str], None]
    has_poison: bool = False
    statements: Statements = field(default_factory=Statements)
    commits: int = 0
    refused: int = 0
    """Transactions that failed: a column was dropped meanwhile, or a connection was cut."""
    schema_changes: dict[str, int] = field(default_factory=dict)
    failure: Exception | None = None
    """What ended a writer before its time."""
    _tables: dict[str, Table] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Know the tables that there are."""
        self._tables = {table.name: table for table in initial_tables()}

    def fill(self, rows: int) -> None:
        """Write so many rows of each table, those of the keys that writers use among them."""
        chance = random.Random(f"{self.seed}/first rows")
        for table in self._tables.values():
            columns = [*_KEY, *table.columns]
            for first in range(0, rows, _FILL_AT_ONCE):
                with self.database.batch() as batch:
                    batch.insert(
                        table.name,
                        columns,
                        [
                            [
                                shop,
                                sku,
                                *(value_of(kind, chance) for kind in table.columns.values()),
                            ]
                            for number in range(first, min(rows, first + _FILL_AT_ONCE))
                            for sku, shop in [_key_of(number)]
                        ],
                    )

    def writers(self, until: threading.Event) -> list[threading.Thread]:
        """Start the writers; they end soon after the event is set."""
        started = [
            threading.Thread(target=self._write, args=(number, until), daemon=True)
            for number in range(_WRITERS)
        ]
        for thread in started:
            thread.start()
        return started

    def change_schema(self, until: threading.Event, abandoned: threading.Event) -> None:
        """Change tables until the first event is set, or one change of each kind was made.

        Ends at once when the second one is set.
        """
        chance = random.Random(f"{self.seed}/schema times")
        for number, change in enumerate(schema_changes_of(self.seed, self.statements)):
            enough = until if number >= _EACH_KIND else abandoned
            until.wait(chance.uniform(*_SCHEMA_EVERY_S))
            while not enough.is_set() and not self._carry_out(change):
                enough.wait(_PAUSE_S)
            if enough.is_set():
                return

    def commit_last(self) -> None:
        """Commit one more transaction; repeats it until it succeeds."""
        chance = random.Random(f"{self.seed}/last")
        while not self._commit(chance):
            time.sleep(_PAUSE_S)

    # ------------------------------------------------------------ inside

    def _carry_out(self, change: SchemaChange) -> bool:
        # Writers stop naming what is dropped before it goes, and name what is new after it came.
        with self._lock:
            if change.is_end:
                self._tables.pop(change.table, None)
            elif change.drops:
                self._tables[change.table].columns.pop(change.drops, None)
        try:
            self.database.update_ddl([change.ddl]).result(timeout=_DDL_TIMEOUT_S)
        except GoogleAPICallError as error:
            # A lost answer: the statement may have been carried out.
            if not any(text in str(error) for text in ("Duplicate", "not found", "exists")):
                return False
        with self._lock:
            if change.adds:
                self._tables[change.table].columns[change.adds] = change.kind
            elif not change.drops and not change.is_end:
                self._tables[change.table] = Table(change.table, dict(_NEW_TABLE))
            self.schema_changes[change.verb] = self.schema_changes.get(change.verb, 0) + 1
        self.say(change.ddl)
        return True

    def _write(self, number: int, until: threading.Event) -> None:
        chance = random.Random(f"{self.seed}/writer/{number}")
        try:
            while not until.wait(chance.expovariate(self.rate / _WRITERS)):
                self._commit(chance)
        except Exception as error:
            self.failure = error
            raise

    def _commit(self, chance: random.Random) -> bool:
        with self._lock:
            mutations = [self._mutation(chance) for _ in range(chance.choice((1, 1, 2, 3, 5, 12)))]
        try:
            with self.database.batch() as batch:
                for verb, table, columns, values in mutations:
                    if verb == "delete":
                        batch.delete(table, KeySet(keys=[values]))
                    else:
                        batch.insert_or_update(table, columns, [values])
        except GoogleAPICallError:
            with self._lock:
                self.refused += 1
            return False
        with self._lock:
            self.commits += 1
        return True

    def _mutation(self, chance: random.Random) -> tuple[str, str, list[str], list[Any]]:
        table = chance.choice(list(self._tables.values()))
        sku, shop = _key_of(chance.randrange(_KEYS))
        if chance.random() < 0.12:
            return "delete", table.name, [], [sku, shop]
        columns = [column for column in table.columns if chance.random() < 0.6]
        values = [value_of(table.columns[column], chance) for column in columns]
        if self.has_poison and chance.random() < _POISON:
            poison = [poison_of(table.columns[column], chance) for column in columns]
            values = [
                good if bad is None else bad for good, bad in zip(values, poison, strict=True)
            ]
        return "write", table.name, [*_KEY, *columns], [shop, sku, *values]
