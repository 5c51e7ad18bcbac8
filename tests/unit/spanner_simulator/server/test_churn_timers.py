from __future__ import annotations

import itertools

from tidegate.spanner_simulator.core.schema.ddl import parse_ddl


def churn(rig, seed: int, *, weights=None) -> None:
    rig.host.churn.start(
        rig.database,
        "Bank",
        mean_life_ms=1000,
        weights=weights or {"split": 1, "merge": 1, "move": 1},
        seed=seed,
    )


def test_churn_runs_until_it_is_stopped(rig) -> None:
    partitions = rig.database.streams.state("Bank").partitions
    churn(rig, 3)
    rig.host.clock.advance(20_000_000)
    count = len(partitions.by_token)
    rig.host.churn.stop(rig.database, "bank")
    rig.host.clock.advance(20_000_000)

    assert len(partitions.by_token) == count > 20
    live = sorted(partitions.live, key=lambda one: one.low)
    assert live[0].low == b""
    assert live[-1].high is None
    assert all(one.high == other.low for one, other in itertools.pairwise(live))


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


def test_churn_ends_with_its_change_stream(rig) -> None:
    churn(rig, 3)
    rig.database.apply_ddl([parse_ddl("DROP CHANGE STREAM Bank")], now_us=rig.now_us)
    rig.host.clock.advance(20_000_000)

    assert len(rig.host.churn) == 0


def test_churn_goes_on_where_a_turn_is_impossible(make_rig) -> None:
    """With mutable key ranges some stream partition soon has too few keys to give any away."""
    rig = make_rig()
    statement = "CREATE CHANGE STREAM M FOR Accounts OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')"
    rig.database.apply_ddl([parse_ddl(statement)], now_us=rig.now_us)
    partitions = rig.database.streams.state("M").partitions
    rig.host.churn.start(
        rig.database, "M", mean_life_ms=100, weights={"split": 3, "merge": 1}, seed=0
    )
    rig.host.clock.advance(20_000_000)
    count = len(partitions.by_token)
    rig.host.clock.advance(10_000_000)

    assert len(partitions.by_token) > count > 100


def test_churn_ends_with_its_database(rig) -> None:
    churn(rig, 3)
    assert len(rig.host.churn) == 1
    rig.host.drop_database(rig.database.name)

    assert len(rig.host.churn) == 0
