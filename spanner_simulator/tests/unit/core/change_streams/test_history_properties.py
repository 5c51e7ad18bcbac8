"""Any history, read by the rules, gives back exactly what was committed.

The commit log is the judge. See `histories` for what a history is.
"""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spanner_simulator.core.change_streams.change_streams import StreamState
from spanner_simulator.core.change_streams.records import DataChangeRecord
from spanner_simulator.core.database import Database, DatabaseSettings
from spanner_simulator.core.journal import entry_from_plain
from unit.core.change_streams.histories import MutableWorld, Reading, World

WORLDS = [World, MutableWorld]


@pytest.mark.parametrize("kind", WORLDS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_reading_by_the_rules_gives_each_change_once_and_each_key_in_order(
    kind: type[World], seed: int
) -> None:
    world = kind(seed)
    world.run(120)
    world.drain()
    committed = [one.as_json() for one in world.state.log.transactions]
    expected = [
        (
            (one["commit_timestamp_us"], one["server_transaction_id"], change["record_sequence"]),
            (change["mod_number"], change["table"], change["mod_type"]),
            (change["keys"], change["new_values"], change["old_values"]),
        )
        for one in committed
        for change in one["changes"]
    ]
    arrived = [
        (
            (row.commit_timestamp_us, row.server_transaction_id, row.record_sequence),
            (number, row.table_name, row.mod_type),
            (mod.keys, mod.new_values, mod.old_values),
        )
        for row in world.out
        for number, mod in enumerate(row.mods)
    ]

    by_place = sorted(arrived, key=lambda one: (one[0], one[1][0]))
    assert by_place == sorted(expected, key=lambda one: (one[0], one[1][0]))
    assert len({(one[0], one[1][0]) for one in arrived}) == len(arrived)
    for key in {(one[1][1], str(one[2][0])) for one in arrived}:
        places = [(one[0], one[1][0]) for one in arrived if (one[1][1], str(one[2][0])) == key]
        assert places == sorted(places)


@pytest.mark.parametrize("kind", WORLDS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=29588194)  # A heartbeat once came behind a move that was ahead of the clock.
@example(seed=8725)  # A heartbeat once spoke for what was behind the end of its query.
def test_every_transaction_counts_its_own_records_right(kind: type[World], seed: int) -> None:
    world = kind(seed)
    world.run(120)
    records: dict[str, list[tuple[str, DataChangeRecord]]] = {}
    for token, record in world.records():
        if isinstance(record, DataChangeRecord):
            records.setdefault(record.server_transaction_id, []).append((token, record))

    for found in records.values():
        tokens = {token for token, _ in found}
        sequences = sorted(record.record_sequence for _, record in found)
        assert len(set(sequences)) == len(sequences)
        for token, record in found:
            mine = [one.record_sequence for where, one in found if where == token]
            assert record.number_of_records_in_transaction == len(found)
            assert record.number_of_partitions_in_transaction == len(tokens)
            is_last = record.record_sequence == max(mine)
            assert record.is_last_record_in_transaction_in_partition == is_last


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_records_of_mutable_key_ranges_have_a_strict_order_in_their_stream_partition(
    seed: int,
) -> None:
    world = MutableWorld(seed)
    world.run(120)
    for partition in world.state.partitions.by_token.values():
        places = [(one.commit_timestamp_us, one.record_sequence) for one in partition.records]
        assert places == sorted(set(places))


@pytest.mark.parametrize("kind", WORLDS)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), life_us=st.integers(1, 500))
def test_expiry_takes_what_is_too_old_and_nothing_else(
    kind: type[World], seed: int, life_us: int
) -> None:
    world = kind(seed)
    world.run(120)
    partitions = world.state.partitions
    earliest_us = world.now_us - life_us
    before = [
        (token, record)
        for token, record in world.records()
        if record.commit_timestamp_us >= earliest_us  # type: ignore[union-attr]
        and ((ended_us := partitions.by_token[token].end_us) is None or ended_us >= earliest_us)
    ]
    live = {one.token for one in partitions.live}
    partitions.expire(earliest_us)
    assert list(world.records()) == before
    assert live <= partitions.by_token.keys()
    assert partitions.by_token.keys().isdisjoint(partitions.expired_tokens)


@pytest.mark.parametrize("kind", WORLDS)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_journal_gives_the_same_stream_partitions_and_records_again(
    kind: type[World], seed: int
) -> None:
    world = kind(seed)
    world.run(120)
    again = Database("d", random.Random(999), DatabaseSettings(3, 0.5))
    for entry in json.loads(json.dumps(world.journal)):
        again.replay(entry_from_plain(entry))

    def described(state: StreamState) -> tuple[object, ...]:
        kept = [
            (one.token, one.ranges, one.start_us, one.end_us, one.parents, list(one.records))
            for one in state.partitions.by_token.values()
        ]
        live = [one.token for one in state.partitions.live]
        return kept, live, [one.as_json() for one in state.log.transactions]

    assert described(again.streams.state("S")) == described(world.state)


class Impatient(MutableWorld):
    """Readers that do not wait for the sources of a move-in."""

    def may_read(self, reading: Reading) -> bool:
        return not reading.is_finished


def test_a_reader_that_waits_for_no_source_is_found_out() -> None:
    def is_in_order(world: World) -> bool:
        world.run(120)
        world.drain()
        places: dict[str, list[tuple[int, str]]] = {}
        for row in world.out:
            for mod in row.mods:
                place = (row.commit_timestamp_us, row.record_sequence)
                places.setdefault(f"{row.table_name}{mod.keys}", []).append(place)
        return all(found == sorted(found) for found in places.values())

    assert not all(is_in_order(Impatient(seed)) for seed in range(10))
    assert all(is_in_order(MutableWorld(seed)) for seed in range(10))
