"""Histories of tables of any schema: what was committed, and the data change records that say so.

A world has stages.  Before each one columns may come and go, and the stream may capture values in
another way.  Rows may be older than the stream: it shows their UPDATEs and DELETEs, never their
INSERT.  The same number is the same world.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from hypothesis import strategies as st

from tests.any_schema.tables import DIALECTS, KEY_KINDS, SourceTable, drawn_table
from tests.any_schema.values import MEGABYTE, Kind, near, plain_key
from tidegate.producer.records import DataChangeRecord, Mod

CAPTURES = ("OLD_AND_NEW_VALUES", "NEW_VALUES", "NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
STAGE_US = 1_000_000
"""Every stage's commit times lie in a second of its own."""


@dataclass(frozen=True)
class Committed:
    """A change of one row, as plain values: captured ones alone, the key's among them.

    Names are in lower case, since Spanner compares them without case.
    """

    table: str
    mod: str
    key: tuple[Any, ...]
    """Plain, in the order of the primary key, with 0.0 in the place of -0.0."""
    new: dict[str, Any] | None
    old: dict[str, Any] | None
    commit_us: int
    transaction: str
    sequence: str
    mod_number: int


@dataclass
class Stage:
    """What is committed between two changes of the tables, in commit order."""

    tables: dict[str, SourceTable]
    records: list[DataChangeRecord] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)


@dataclass
class World:
    """What a seed makes."""

    seed: int | None
    dialect: str
    has_text_times: bool
    """Whether the stream carries timestamps as text, with nanoseconds."""
    stages: list[Stage] = field(default_factory=list)


@dataclass
class _Rows:
    """The rows of one table in the database."""

    pool: list[tuple[Any, ...]]
    """Keys that changes are about."""
    live: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    def keep(self, columns: set[str]) -> None:
        """Forget the values of other columns."""
        for key, row in self.live.items():
            self.live[key] = {name: value for name, value in row.items() if name in columns}


def make_world(
    rng: random.Random,
    *,
    seed: int | None = None,
    tables: int = 2,
    stages: int = 3,
    transactions: int = 6,
    has_text_times: bool | None = None,
    has_megabytes: bool = True,
    columns_max: int = 100,
    first_keys: Callable[[str], list[Kind]] | None = None,
) -> World:
    """Return a world.

    `first_keys` chooses the types of first key columns, by dialect; by default that of the first
    table follows from the seed, so that adjacent seeds have each type there.
    """
    dialect = rng.choice(DIALECTS)
    text_times = rng.random() < 0.3 if has_text_times is None else has_text_times
    world = World(seed, dialect, text_times)
    kinds: list[Kind | None] = [None] * tables
    if first_keys is not None:
        kinds = [*first_keys(dialect)]
    elif seed is not None:
        kinds[0] = KEY_KINDS[dialect][seed % len(KEY_KINDS[dialect])]
    known = [
        drawn_table(
            rng, dialect=dialect, name=f"t{n}" if n else None, first_key=kind,
            columns_max=columns_max,
        )
        for n, kind in enumerate(kinds)
    ]  # fmt: skip
    rows = {table.name: _Rows(drawn_keys(rng, table, ns=text_times)) for table in known}
    for table in known:
        for key in rng.sample(rows[table.name].pool, len(rows[table.name].pool) // 2):
            rows[table.name].live[key] = _drawn_row(rng, table, ns=text_times)
    large = rng.randrange(stages) if has_megabytes and rng.random() < 0.2 else None
    for number in range(stages):
        if number:
            for table in known:
                if rng.random() < 0.5:
                    table.alter(rng)
                    rows[table.name].keep({one.name for one in table.others})
        copies = {one.name: SourceTable(dialect, one.name, list(one.columns)) for one in known}
        stage = Stage(copies)
        times = sorted(rng.sample(range(1, STAGE_US), transactions))
        for turn, at_us in enumerate(times):
            is_large = large == number and not turn
            writer = _Writer(
                rng, world, stage, number * STAGE_US + at_us, f"{number}-{turn}", is_large
            )
            writer.commit(rows)
        world.stages.append(stage)
    return world


@dataclass
class _Writer:
    """Commits one transaction."""

    rng: random.Random
    world: World
    stage: Stage
    commit_us: int
    transaction: str
    is_large: bool
    """Whether one value is a megabyte long."""

    def commit(self, rows: dict[str, _Rows]) -> None:
        rng = self.rng
        capture = rng.choice(CAPTURES)
        writes = []
        for table in self.stage.tables.values():
            known = rows[table.name]
            chosen = rng.sample(known.pool, rng.randrange(1, 2 + len(known.pool) // 3))
            # Several writes of a row in one transaction are one change.
            keys = {self._plain_key(table, key): key for key in chosen}.values()
            writes += [(table, *self._written(table, known, key, capture)) for key in keys]
        if rng.random() < 0.5:  # or by table, so that records have several mods
            rng.shuffle(writes)
        self._record(writes, capture)

    def _written(
        self, table: SourceTable, known: _Rows, key: tuple[Any, ...], capture: str
    ) -> tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any], frozenset[str]]:
        """Change a row; return kind, key, captured values after and before, columns shown."""
        rng, others = self.rng, table.others
        every = frozenset(one.name for one in others)
        same = self._plain_key(table, key)
        place = next((one for one in known.live if self._plain_key(table, one) == same), None)
        if place is None:
            row = known.live[key] = {one.name: self._drawn(one.kind) for one in others}
            return "INSERT", key, dict(row), {}, every
        row = {name: known.live[place].get(name) for name in every}
        if not others or rng.random() < 0.2:
            del known.live[place]
            return "DELETE", key, {}, row if "OLD" in capture else {}, every
        touched = rng.sample(others, rng.randrange(1, 1 + len(others)))
        changed = {one.name: self._drawn(one.kind) for one in touched}
        before = {name: row[name] for name in changed}
        known.live[place] = row | changed
        is_whole = capture.startswith("NEW_ROW")
        new = row | changed if is_whole else changed
        shown = every if is_whole else frozenset(changed)
        return "UPDATE", key, new, before if "OLD" in capture else {}, shown

    def _record(self, writes: list[Any], capture: str) -> None:
        """Put adjacent writes of one table, kind and set of columns into one record."""
        runs = [
            list(run) for _, run in groupby(writes, key=lambda one: (one[0].name, one[1], one[5]))
        ]
        for number, run in enumerate(runs):
            table, mod, *_, shown = run[0]
            sequence = f"{number:08d}"
            self.stage.records.append(
                DataChangeRecord(
                    commit_timestamp_ns=self.commit_us * 1_000,
                    record_sequence=sequence,
                    server_transaction_id=self.transaction,
                    is_last_record_in_transaction_in_partition=number == len(runs) - 1,
                    table_name=table.name,
                    columns=table.shown(shown),
                    mods=tuple(_mod(table, *one[2:5]) for one in run),
                    mod_type=mod,
                    value_capture_type=capture,
                    number_of_records_in_transaction=len(runs),
                    number_of_partitions_in_transaction=1,
                    transaction_tag="",
                    is_system_transaction=False,
                )
            )
            for place, (_, _, key, new, old, _) in enumerate(run):
                has_old = mod == "DELETE" or (mod == "UPDATE" and old)
                self.stage.committed.append(
                    Committed(
                        table.name,
                        mod,
                        self._plain_key(table, key),
                        None if mod == "DELETE" else self._plain(table, key, new),
                        self._plain(table, key, old) if has_old else None,
                        self.commit_us,
                        self.transaction,
                        sequence,
                        place,
                    )
                )

    def _drawn(self, kind: Kind) -> Any:
        value = _drawn(self.rng, kind, ns=self.world.has_text_times)
        if self.is_large and kind.code in {"STRING", "BYTES"} and value:
            self.is_large = False
            value *= MEGABYTE // len(value)
        return value

    def _plain_key(self, table: SourceTable, key: tuple[Any, ...]) -> tuple[Any, ...]:
        text = self.world.has_text_times
        return tuple(
            plain_key(one.kind.plain(part, text_times=text))
            for one, part in zip(table.key, key, strict=True)
        )

    def _plain(
        self, table: SourceTable, key: tuple[Any, ...], values: dict[str, Any]
    ) -> dict[str, Any]:
        row = {one.name: part for one, part in zip(table.key, key, strict=True)} | values
        text = self.world.has_text_times
        kinds = {column.name: column.kind for column in table.columns}
        return {
            name.lower(): kinds[name].plain(value, text_times=text) for name, value in row.items()
        }


def _mod(table: SourceTable, key: tuple[Any, ...], new: dict[str, Any], old: dict[str, Any]) -> Mod:
    """Return a mod as the decoder has it: what the JSON in the record holds."""
    kinds = {column.name: column.kind for column in table.columns}
    row = {one.name: part for one, part in zip(table.key, key, strict=True)}
    sides = (
        {name: kinds[name].as_json(value) for name, value in one.items()} for one in (row, new, old)
    )
    return Mod(*(json.loads(json.dumps(one, sort_keys=True)) for one in sides))


def _drawn(rng: random.Random, kind: Kind, *, ns: bool) -> Any:
    return None if rng.random() < 0.15 else kind.draw(rng, ns=ns)


def _drawn_row(rng: random.Random, table: SourceTable, *, ns: bool) -> dict[str, Any]:
    return {one.name: _drawn(rng, one.kind, ns=ns) for one in table.others}


def drawn_keys(
    rng: random.Random, table: SourceTable, *, ns: bool, counts: tuple[int, ...] = (4, 8, 12)
) -> list[tuple[Any, ...]]:
    """Return keys, many of which differ in their first column by as little as may be."""
    kinds = [one.kind for one in table.key]
    keys: list[tuple[Any, ...]] = []
    if kinds[0].code.startswith("FLOAT") and rng.random() < 0.5:
        keys.append((0.0, *(_drawn(rng, kind, ns=ns) for kind in kinds[1:])))
    for _ in range(rng.choice(counts)):
        key = tuple(_drawn(rng, kind, ns=ns) for kind in kinds)
        if keys and keys[-1][0] is not None and rng.random() < 0.4:
            first = near(kinds[0], keys[-1][0], rng)
            key = (first, *(keys[-1][1:] if rng.random() < 0.5 else key[1:]))
        keys.append(key)
    return list({repr(key): key for key in keys}.values())


def worlds(**more: Any) -> st.SearchStrategy[World]:
    """Strategy: worlds by their seeds, so that a failing one is named by the seed that makes it."""
    seeds = st.integers(0, 2**32 - 1)
    return seeds.map(lambda seed: make_world(random.Random(seed), seed=seed, **more))
