"""Other kinds of worlds: tables of any schema, tables read in chunks, files of Datastream."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest

from tests.any_schema.tables import KEY_KINDS
from tests.datastream_files import SOURCES
from tests.simulation import __main__ as program
from tests.simulation import runner
from tests.simulation.any_tables import AnyTables, tables_of
from tests.simulation.runner import Verdict, failure_report, file_report, run_file_worlds, run_seed
from tests.simulation.spanner import KEYS
from tests.simulation.weather import ANY_SCHEMA, CHUNKS_CHURN, Weather
from tests.simulation.world import World
from tidegate.producer.backfill.table_run import RunChunk, place_of
from tidegate.schemas.progress import TimestampForm

ANY = range(ANY_SCHEMA, ANY_SCHEMA + 26)  # each type of each dialect is a first key column
IN_CHUNKS = range(5_001, 5_031)


def in_chunks(seed):
    drawn = Weather.drawn(Random(seed), seed)
    churn = max(drawn.churn, CHUNKS_CHURN)
    return drawn.but(chunks=True, backfill=False, key_moves=False, churn=churn)


@pytest.mark.parametrize("seed", [*ANY, *IN_CHUNKS])
def test_seed(seed):
    verdict = run_seed(seed, weather=in_chunks(seed) if seed in IN_CHUNKS else None)

    assert verdict.has_passed, "\n".join(failure_report(verdict))


def drawn(seed: int, **other: object) -> AnyTables:
    weather = Weather.drawn(Random(seed), seed).but(**other)
    tables = tables_of(weather, Random(seed), seed)
    assert isinstance(tables, AnyTables)
    return tables


def test_only_seeds_from_a_number_on_have_such_tables():
    """So that all other seeds stay the runs that they were."""
    drawn_weathers = [Weather.drawn(Random(seed), seed) for seed in (1, ANY_SCHEMA - 1, ANY_SCHEMA)]
    kinds = [type(tables_of(weather, Random(1), 1)) for weather in drawn_weathers]

    assert [kind is AnyTables for kind in kinds] == [False, False, True]


def test_adjacent_seeds_have_each_type_as_their_first_key_column_and_all_rows_differ():
    kinds = set()
    for seed in ANY:
        tables = drawn(seed)
        kinds.add((tables._dialect, tables._sources[tables.names[0]].key[0].kind))
        for name in tables.names:
            assert len({tables.key_text(name, number) for number in range(KEYS)}) == KEYS

    assert kinds == {(dialect, kind) for dialect, of in KEY_KINDS.items() for kind in of}


def test_a_row_is_named_with_zeros_of_either_sign_and_is_one_row():
    spellings: dict[tuple[int, str, bytes], set[str]] = {}
    for seed in ANY:
        tables = drawn(seed)
        for name in tables.names:
            for number in range(KEYS):
                row = seed, name, tables.key_text(name, number)
                known = spellings.setdefault(row, set())
                known |= {repr(tables.key(name, number)) for _ in range(8)}

    signed = [forms for forms in spellings.values() if len(forms) > 1]
    assert signed
    assert all("-0.0" in "".join(forms) for forms in signed)


def test_columns_come_again_in_another_case_except_where_rows_are_read_in_chunks():
    returned = {False: 0, True: 0}
    for chunks in returned:
        for seed in range(ANY_SCHEMA, ANY_SCHEMA + 10):
            tables = drawn(seed, chunks=chunks)
            name, seen = tables.names[0], set()
            for _ in range(30):
                seen |= set(tables.columns(name))
                tables._alter_columns(name)
                new = set(tables.columns(name)) - seen
                returned[chunks] += any(column.swapcase() in seen for column in new)
                assert tables.columns(name) == [
                    column.name for column in tables._sources[name].others
                ]

    assert returned[False]
    assert not returned[True]


@pytest.mark.parametrize("timestamps", TimestampForm)
def test_what_a_record_holds_and_what_a_reader_gets_have_the_same_columns(timestamps):
    tables = drawn(ANY_SCHEMA + 7, timestamps=timestamps, large_values=1.0)
    name = max(tables.names, key=lambda table: len(tables.columns(table)))
    columns = {column: tables.value(name, column) for column in tables.columns(name)}

    assert tables.plain(name, columns).keys() == {column.lower() for column in columns}
    assert {column.name for column in tables.shown(name, tuple(columns))} == {
        column.name for column in tables.schema(name).columns
    }
    nothing = {column: tables.as_json(name, column, None) for column in columns}
    assert set(nothing.values()) <= {None}


def test_such_worlds_run_beside_a_part_of_the_seeds():
    ran = []

    def run(seed: int) -> Verdict:
        ran.append(seed)
        return Verdict(seed, {}, 1, 1)

    with patch.object(program, "run_seed", run):
        for seed in (*range(6, 16), ANY_SCHEMA + 7):
            program._run_seed(seed)

    beside = [seed - ANY_SCHEMA for seed in ran if seed >= ANY_SCHEMA]
    assert beside == [7, 14, 7]


def test_runs_are_read_to_their_ends_beside_changes():
    met = {
        "chunks": 0,
        "runs ended": 0,
        "splits": 0,
        "later chunks of a condition": 0,
        "rows of keys that change later": 0,
    }
    for seed in IN_CHUNKS[4:8]:
        history = World(seed, weather=in_chunks(seed)).run()
        finished = {finish.token for finish in history.finishes}
        places = [place for token in finished if (place := place_of(token)) is not None]
        met["chunks"] += sum(isinstance(place, RunChunk) for place in places)
        met["runs ended"] += any(
            fact.end_us is not None and not fact.children and place_of(token) is not None
            for token, fact in history.lineage.items()
            if token in finished
        )
        met["splits"] += sum(place_of(token) is None for token in finished)
        ((beside, data),) = history.read_beside.items()
        newest = {
            change.key: change.order_key for change in history.committed if change.topic == data
        }
        met["rows of keys that change later"] += sum(
            change.order_key < newest.get(change.key, b"")
            for change in history.published
            if change.topic == beside
        )
        chosen = {token for token in history.lineage if _has_condition(token)}
        met["later chunks of a condition"] += sum(place_of(token).number > 0 for token in chosen)
        assert all(
            int(change.key) % 2 == 0 for change in history.committed if change.token in chosen
        )

    assert all(met.values()), met


def test_a_part_of_all_seeds_reads_chunks():
    drawn = [Weather.drawn(Random(seed), seed) for seed in range(1, 201)]

    assert 10 <= sum(weather.chunks for weather in drawn) <= 50
    assert not any(weather.chunks and (weather.backfill or weather.key_moves) for weather in drawn)


def _has_condition(token: str) -> bool:
    place = place_of(token)
    return isinstance(place, RunChunk) and place.run % 2 == 1


def test_each_tenth_seed_runs_a_world_of_every_source():
    verdicts = [world for seed in range(20, 31) for world in run_file_worlds(seed)]

    assert [(verdict.seed, verdict.source) for verdict in verdicts] == [
        (seed, source) for seed in (20, 30) for source in SOURCES
    ]
    assert [verdict.found for verdict in verdicts if verdict.found] == []
    assert {verdict.is_growing for verdict in verdicts} == {False, True}
    assert all(verdict.events for verdict in verdicts)


def test_what_the_judge_finds_and_a_world_that_cannot_go_on_say_how_to_repeat_them():
    with patch.object(runner, "judge", lambda _world: ["lost: 7"]):
        (judged, *_) = run_file_worlds(10)
    with patch.object(runner, "run_world", lambda *_, **__: 1 / 0):
        (stuck, *_) = run_file_worlds(10)

    assert (judged.found, stuck.found) == (("lost: 7",), ("ZeroDivisionError: division by zero",))
    assert list(file_report(judged)) == [
        f"seed 10 failed: files of {SOURCES[0]}",
        "  lost: 7",
        f"  again: run_world(1000010, source={SOURCES[0]!r}, growing=False)",
    ]


class _Pool:
    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, function, seeds, **_):
        return map(function, seeds)


def test_a_seed_whose_files_fail_has_failed(capsys):
    with (
        patch.object(program, "ProcessPoolExecutor", _Pool),
        patch.object(program, "run_seed", lambda seed: Verdict(seed, {}, 1, 1)),
        patch.object(runner, "run_world", lambda *_, **__: 1 / 0),
    ):
        assert program.main(["--seeds", "11", "--workers", "1"]) == 1
        printed = capsys.readouterr().out
        assert program.main(["--seeds", "9", "--workers", "1"]) == 0

    assert f"{len(SOURCES)} worlds, 0 events, 0 deaths, {len(SOURCES)} worlds failed" in printed
    assert "10 passed, 1 failed" in printed
    assert "9 passed, 0 failed" in capsys.readouterr().out
