"""Schemas, writes and reads in a row, each with its answer: rows, DML's count, or a refusal.

A file of `scenarios` has a step to a line and the answer below it. `M` is a mutation, `READ` a
change stream's records since the last time; what else is no query and no DML is DDL. `NOW` stands
for the time of a commit. A file whose name begins with `postgres` is in that dialect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanner_simulator.core.change_streams.records import DataChangeRecord
from spanner_simulator.core.rows.mutations import Write
from spanner_simulator.errors import SpannerError
from unit.sql.conftest import NOW_US, World

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


def answer(world: World, step: str) -> Iterator[str]:
    word = step.split(" ", 1)[0]
    if word == "M":
        _, kind, table, columns, rows = step.split(" ", 4)
        mutation = Write(kind, table, tuple(columns.split(",")), tuple(json.loads(rows)))
        world.database.commit(world.database.begin(), [mutation], now_us=NOW_US)
    elif word == "READ":
        partitions = world.database.streams.state(step.split()[1]).partitions.by_token.values()
        found = [one for held in partitions for one in held.records]
        for one in sorted(found, key=lambda one: (one.commit_timestamp_us, one.record_sequence)):
            assert isinstance(one, DataChangeRecord)
            types = ", ".join(
                f"{'*' * kind.is_primary_key}{kind.name} {kind.type_json} {kind.ordinal_position}"
                for kind in one.column_types
            )
            yield f"{one.table_name}: {types}"
            for mod in one.mods:
                values = [mod.keys, mod.new_values, mod.old_values]
                yield f"  {one.mod_type} {json.dumps(values)}"
        for held in partitions:
            held.records.forget_before(NOW_US * 2)
    elif word in ("SELECT", "INSERT", "UPDATE", "DELETE"):
        done = world.run(step)
        yield from () if done.count is None else [str(done.count)]
        yield from map(json.dumps, done.rows)
    else:
        world.ddl(step)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario(path: Path) -> None:
    is_postgres = path.stem.startswith("postgres")
    world = World((), (), "POSTGRESQL" if is_postgres else "GOOGLE_STANDARD_SQL")
    found: list[str] = []
    for step in (line for line in path.read_text().splitlines() if not line.startswith("    ")):
        found.append(step)
        try:
            lines = [] if not step or step.startswith("#") else list(answer(world, step))
        except SpannerError as error:
            lines = [str(error).split("\n", 1)[0]]
        found += [f"    {re.sub('2025-06-15T[0-9:.]+Z', 'NOW', line)}" for line in lines]
    assert "\n".join(found) + "\n" == path.read_text()
