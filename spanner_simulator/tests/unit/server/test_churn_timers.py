from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.churn import ChurnSettings
from spanner_simulator.core.schema.ddl import parse_ddl

_HOUR_US = 3_600_000_000


def churn(rig, seed: int, *, weights=None) -> None:
    rig.host.churn.start(
        rig.database,
        "Bank",
        ChurnSettings(1000, weights=weights or {"split": 1, "merge": 1, "move": 1}),
        seed=seed,
    )


def test_churn_acts_at_its_own_times_whatever_the_steps(make_rig) -> None:
    def history(steps: int) -> list[tuple[str, int]]:
        rig = make_rig()
        partitions = rig.database.streams.state("Bank").partitions
        rig.host.clock.freeze()
        churn(rig, 3)
        for _ in range(steps):
            rig.host.clock.advance(12_000_000 // steps)
        return [(one.token, one.start_us) for one in partitions.by_token.values()]

    assert history(1) == history(4)


def test_every_new_change_stream_churns(make_rig) -> None:
    """Those of the first schema, and those that come later; one that is stopped stays so."""
    rig = make_rig(churn=ChurnSettings(1000))
    assert len(rig.host.churn) == 1
    rig.host.churn.stop(rig.database, "Bank")
    rig.database.apply_ddl(
        [parse_ddl("CREATE CHANGE STREAM Later FOR Accounts")], now_us=rig.now_us
    )
    rig.host.clock.advance(20_000_000)
    streams = rig.database.streams
    assert len(rig.host.churn) == 1
    assert len(streams.state("Later").partitions.by_token) > 20
    assert len(streams.state("Bank").partitions.by_token) == 2


def test_churn_is_bounded_for_as_long_as_it_runs(make_rig) -> None:
    """Live ones by the setting, ended ones by the retention period: memory does not grow."""
    rig = make_rig(churn=ChurnSettings(200_000, live_max=6))
    # The start of a served host sets the timer of the hourly expiry.
    rig.host._expire_hourly()
    statement = "ALTER CHANGE STREAM Bank SET OPTIONS (retention_period = '24h')"
    rig.database.apply_ddl([parse_ddl(statement)], now_us=rig.now_us)
    partitions = rig.database.streams.state("Bank").partitions
    live, held = set(), []
    for _ in range(10):
        for _ in range(12):
            rig.host.clock.advance(_HOUR_US)
            live.add(len(partitions.live))
        held.append(len(partitions.by_token))
    assert max(live) == 6
    assert len(partitions.expired_tokens) > 2 * max(held)
    earliest_us = rig.host.now_us() - 25 * _HOUR_US
    assert all(
        one.end_us is None or one.end_us > earliest_us for one in partitions.by_token.values()
    )


@pytest.mark.parametrize("whole", [False, True])
def test_churn_ends_with_its_change_stream_and_with_its_database(rig, *, whole: bool) -> None:
    churn(rig, 3)
    assert len(rig.host.churn) == 1
    if whole:
        rig.host.drop_database(rig.database.name)
    else:
        rig.database.apply_ddl(["DROP CHANGE STREAM Bank"], now_us=rig.now_us)
        rig.host.clock.advance(20_000_000)
    assert len(rig.host.churn) == 0


def test_churn_goes_on_where_a_turn_is_impossible(make_rig) -> None:
    """With mutable key ranges some stream partition soon has too few keys to give any away."""
    rig = make_rig()
    statement = "CREATE CHANGE STREAM M FOR Accounts OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')"
    rig.database.apply_ddl([parse_ddl(statement)], now_us=rig.now_us)
    partitions = rig.database.streams.state("M").partitions
    settings = ChurnSettings(100, weights={"split": 3, "merge": 1})
    rig.host.churn.start(rig.database, "M", settings, seed=0)
    rig.host.clock.advance(20_000_000)
    count = len(partitions.by_token)
    rig.host.clock.advance(10_000_000)
    assert len(partitions.by_token) > count > 100
