"""A table is read in chunks while the stream runs, under everything that befalls a fleet."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.simulation.runner import run_seed
from tests.simulation.weather import CHUNKS_CHURN, Weather
from tests.simulation.world import World
from tidegate.producer.backfill.table_run import place_of

SEEDS = range(5_001, 5_031)


def weather_of(seed: int) -> Weather:
    drawn = Weather.drawn(Random(seed), seed)
    churn = max(drawn.churn, CHUNKS_CHURN)
    return replace(drawn, chunks=True, backfill=False, key_moves=False, churn=churn)


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int):
    verdict = run_seed(seed, weather=weather_of(seed))

    assert verdict.found == {}


def test_runs_are_read_to_their_ends_beside_changes():
    """Chunks are published, and stream partitions split meanwhile; rows meet their condition."""
    met = {
        "chunks": 0,
        "runs ended": 0,
        "splits": 0,
        "later chunks of a condition": 0,
        "rows of keys that change later": 0,
    }
    for seed in SEEDS[4:8]:
        history = World(seed, weather=weather_of(seed)).run()
        finished = {finish.token for finish in history.finishes}
        places = [place for token in finished if (place := place_of(token)) is not None]
        met["chunks"] += sum(place.is_chunk for place in places)
        met["runs ended"] += any(
            fact.end_us is not None and not fact.children and place_of(token) is not None
            for token, fact in history.lineage.items()
            if token in finished
        )
        met["splits"] += sum(place_of(token) is None for token in finished)
        ((beside, data),) = history.read_beside.items()
        newest = {one.key: one.order_key for one in history.committed if one.topic == data}
        met["rows of keys that change later"] += sum(
            one.order_key < newest.get(one.key, b"")
            for one in history.published
            if one.topic == beside
        )
        chosen = {token for token in history.lineage if _has_condition(token)}
        met["later chunks of a condition"] += sum(place_of(token).number > 0 for token in chosen)
        assert all(int(one.key) % 2 == 0 for one in history.committed if one.token in chosen)

    assert all(met.values()), met


def test_a_part_of_all_seeds_reads_chunks():
    """So that any number of seeds runs them."""
    drawn = [Weather.drawn(Random(seed), seed) for seed in range(1, 201)]

    assert 10 <= sum(one.chunks for one in drawn) <= 50
    assert not any(one.chunks and (one.backfill or one.key_moves) for one in drawn)


def _has_condition(token: str) -> bool:
    """Whether a stream partition is of a run that began with a condition."""
    place = place_of(token)
    return place is not None and place.is_chunk and place.run % 2 == 1
