"""Tables of any schema in the simulated database: types, keys, names and values of any kind.

The generator of `tests.any_schema` draws them.  To the simulated Spanner a row is a number, as in
every world; here each number of a table has a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.any_schema.changes import drawn_keys
from tests.any_schema.tables import DIALECTS, KEY_KINDS, TABLE_NAMES, SourceTable, drawn_table
from tests.any_schema.values import Kind
from tests.simulation.spanner import KEYS
from tests.simulation.tables import SimTables, plain_key_text
from tidegate.producer.records import RecordColumn
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import Column

_COLUMNS_MAX = 12
_DRAWS_MAX = 4
_SIZES = (300, 700, 1_100, 1_900)


def tables_of(weather, random: Random, seed: int) -> SimTables:
    names = [f"t{number}" for number in range(weather.tables)]
    if weather.any_schema:
        return AnyTables(names, random, weather=weather, turn=seed)
    large, timestamps = weather.large_values, weather.timestamps
    return SimTables(names, random, large_values=large, timestamps=timestamps)


class AnyTables(SimTables):
    """Tables as Spanner allows them, of one of its dialects.

    The first one has a name of the generator's.  `turn` decides the dialect and the type of that
    table's first key column, so that adjacent seeds have each type there.
    """

    def __init__(self, names: list[str], random: Random, *, weather, turn: int) -> None:
        self._dialect = DIALECTS[turn % len(DIALECTS)]
        self._has_text = weather.timestamps is TimestampForm.STRING
        # A row that is read in a chunk has no value of the column that was there before.
        self._returns = not weather.chunks
        kinds = KEY_KINDS[self._dialect]
        self._first_keys = [kinds[turn // len(DIALECTS) % len(kinds)]]
        self._sources: dict[str, SourceTable] = {}
        self._keys: dict[str, list[tuple[Any, ...]]] = {}  # the key of each row, by its number
        names = [random.choice(TABLE_NAMES), *names[1:]]
        super().__init__(
            names, random, large_values=weather.large_values, timestamps=weather.timestamps
        )

    def add_beside(self, name: str) -> str:
        beside = super().add_beside(name)
        self._sources[beside], self._keys[beside] = self._sources[name], self._keys[name]
        return beside

    def value(self, table: str, column: str) -> Any:
        chance, kind = self._random, self._kinds(table)[column]
        if chance.random() < 0.15:
            return None
        value = kind.draw(chance, ns=self._has_text)
        is_large = kind.code in {"STRING", "BYTES"} and chance.random() < self._large_values
        return value.ljust(chance.choice(_SIZES)) if is_large else value

    def key(self, table: str, number: int) -> dict[str, Any]:
        """Return a key, whose zeros have either sign: to Spanner they are equal."""
        columns, parts = self._sources[table].key, self._keys[table][number]
        signed = (
            -part if isinstance(part, float) and not part and self._random.random() < 0.5 else part
            for part in parts
        )
        return {one.name: one.kind.as_json(part) for one, part in zip(columns, signed, strict=True)}

    def key_text(self, table: str, number: int) -> bytes:
        return self._text(self._sources[table], self._keys[table][number])

    def as_json(self, table: str, column: str, value: Any) -> Any:
        return self._kinds(table)[column].as_json(value)

    def plain(self, table: str, columns: Mapping[str, Any]) -> dict[str, Any]:
        kinds = self._kinds(table)
        return {
            name.lower(): kinds[name].plain(value, text_times=self._has_text)
            for name, value in columns.items()
        }

    def shown(self, table: str, columns: tuple[str, ...]) -> tuple[RecordColumn, ...]:
        return self._sources[table].shown(frozenset(columns))

    def _first_columns(self, name: str) -> list[Column]:
        """Draw a table with as many rows as the key space; a lone BOOL has too few."""
        first_key = self._first_keys.pop() if self._first_keys else None
        keys: dict[bytes, tuple[Any, ...]] = {}
        while len(keys) < KEYS:
            table = self._sources[name] = drawn_table(
                self._random, dialect=self._dialect, name=name, first_key=first_key,
                columns_max=_COLUMNS_MAX,
            )  # fmt: skip
            keys = {
                self._text(table, key): key
                for _ in range(_DRAWS_MAX)
                for key in drawn_keys(self._random, table, ns=self._has_text, counts=(KEYS,))
            }
        self._keys[name] = self._random.sample(list(keys.values()), KEYS)
        return list(table.schema().columns)

    def _alter_columns(self, name: str) -> str:
        table, before = self._sources[name], set(self.columns(name))
        table.alter(self._random, returns=self._returns)
        self._tables[name][:] = table.schema().columns
        after = set(self.columns(name))
        (column,) = before ^ after
        return f'{name}: "{column}" {"added" if column in after else "dropped"}'

    def _kinds(self, table: str) -> dict[str, Kind]:
        return {column.name: column.kind for column in self._sources[table].columns}

    def _text(self, table: SourceTable, key: tuple[Any, ...]) -> bytes:
        return plain_key_text(
            {
                one.name: one.kind.plain(part, text_times=self._has_text)
                for one, part in zip(table.key, key, strict=True)
            }
        )
