"""Tables of any schema under everything that befalls a fleet; a part of the simulation's seeds."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from tests.any_schema.tables import KEY_KINDS
from tests.simulation import __main__ as program
from tests.simulation.any_tables import AnyTables, tables_of
from tests.simulation.runner import Verdict, failure_report, run_seed
from tests.simulation.spanner import KEYS
from tests.simulation.weather import ANY_SCHEMA, Weather
from tidegate.schemas.progress import TimestampForm

SEEDS = range(ANY_SCHEMA, ANY_SCHEMA + 26)
"""Enough for each type of each dialect to be that of a first key column."""


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int):
    verdict = run_seed(seed)

    assert verdict.has_passed, "\n".join(failure_report(verdict))


def drawn(seed: int, **other: object) -> AnyTables:
    weather = replace(Weather.drawn(Random(seed), seed), **other)
    tables = tables_of(weather, Random(seed), seed)
    assert isinstance(tables, AnyTables)
    return tables


def test_only_seeds_from_a_number_on_have_such_tables():
    """So that all other seeds stay the runs that they were."""
    drawn_weathers = [Weather.drawn(Random(seed), seed) for seed in (1, ANY_SCHEMA - 1, ANY_SCHEMA)]
    found = [type(tables_of(one, Random(1), 1)) for one in drawn_weathers]

    assert [one is AnyTables for one in found] == [False, False, True]


def test_adjacent_seeds_have_each_type_as_their_first_key_column_and_all_rows_differ():
    kinds = set()
    for seed in SEEDS:
        tables = drawn(seed)
        kinds.add((tables._dialect, tables._sources[tables.names[0]].key[0].kind))
        for name in tables.names:
            assert len({tables.key_text(name, number) for number in range(KEYS)}) == KEYS

    assert kinds == {(dialect, kind) for dialect, of in KEY_KINDS.items() for kind in of}


def test_a_row_is_named_with_zeros_of_either_sign_and_is_one_row():
    spellings: dict[tuple[int, str, bytes], set[str]] = {}
    for seed in SEEDS:
        tables = drawn(seed)
        for name in tables.names:
            for number in range(KEYS):
                row = seed, name, tables.key_text(name, number)
                known = spellings.setdefault(row, set())
                known |= {repr(tables.key(name, number)) for _ in range(8)}

    signed = [known for known in spellings.values() if len(known) > 1]
    assert signed
    assert all("-0.0" in "".join(known) for known in signed)


def test_columns_come_again_in_another_case_except_where_rows_are_read_in_chunks():
    returned = {False: 0, True: 0}
    for chunks in returned:
        for seed in range(ANY_SCHEMA, ANY_SCHEMA + 10):
            tables = drawn(seed, chunks=chunks)
            name, known = tables.names[0], set()
            for _ in range(30):
                known |= set(tables.columns(name))
                tables._alter_columns(name)
                new = set(tables.columns(name)) - known
                returned[chunks] += any(one.swapcase() in known for one in new)
                assert tables.columns(name) == [one.name for one in tables._sources[name].others]

    assert returned[False]
    assert not returned[True]


@pytest.mark.parametrize("timestamps", TimestampForm)
def test_what_a_record_holds_and_what_a_reader_gets_have_the_same_columns(timestamps):
    tables = drawn(ANY_SCHEMA + 7, timestamps=timestamps, large_values=1.0)
    name = max(tables.names, key=lambda one: len(tables.columns(one)))
    columns = {one: tables.value(name, one) for one in tables.columns(name)}

    assert tables.plain(name, columns).keys() == {one.lower() for one in columns}
    assert {one.name for one in tables.shown(name, tuple(columns))} == {
        one.name for one in tables.schema(name).columns
    }
    nothing = {one: tables.as_json(name, one, None) for one in columns}
    assert set(nothing.values()) <= {None}


def test_such_worlds_run_beside_a_part_of_the_seeds():
    ran = []

    def run(seed: int) -> Verdict:
        ran.append(seed)
        return Verdict(seed, {}, 1, 1)

    with patch.object(program, "run_seed", run):
        for seed in (*range(6, 16), ANY_SCHEMA + 7):
            program._run_seed(seed)

    beside = [one - ANY_SCHEMA for one in ran if one >= ANY_SCHEMA]
    assert beside == [7, 14, 7]
