from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from spanner_simulator.core.change_streams.churn import ChurnSettings
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.server.clock import Clock

HOUR_US = 3_600_000_000


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class TestTime:
    def test_frozen_it_stands_still_and_thawed_it_runs_on_from_there(self) -> None:
        now = [5]
        clock = Clock(lambda: now[0])
        assert clock.freeze() == 5
        now[0] = 1000
        assert (clock.is_frozen, clock.now_us()) == (True, 5)
        assert clock.advance(10) == 15
        assert clock.thaw() == 15
        now[0] = 1001
        assert (clock.is_frozen, clock.now_us()) == (False, 16)

    def test_what_happened_pushes_a_frozen_clock_only(self) -> None:
        frozen, running = Clock(frozen_at_us=7), Clock(lambda: 7)
        for clock in (frozen, running):
            clock.reach(3)
            clock.reach(9)
        assert (frozen.now_us(), running.now_us()) == (9, 7)


class TestWaiting:
    def test_a_jump_wakes_those_whose_time_has_come_in_their_order(self) -> None:
        async def scene() -> list[int]:
            clock, woken = Clock(frozen_at_us=0), list[int]()

            async def sleeper(at_us: int) -> None:
                await clock.sleep_until(at_us)
                woken.append(at_us)

            tasks = [asyncio.create_task(sleeper(at)) for at in (300, 100, 200, 900)]
            await turns()
            clock.advance(500)
            await turns()
            tasks[-1].cancel()
            return woken

        assert run(scene()) == [100, 200, 300]

    def test_time_that_stands_still_wakes_nobody_until_thawed(self) -> None:
        async def scene() -> bool:
            clock = Clock()
            clock.freeze()
            task = asyncio.create_task(clock.sleep_until(clock.now_us() + 2_000))
            await asyncio.sleep(0.02)
            was_asleep = not task.done()
            clock.thaw()
            await task
            return was_asleep

        assert run(scene())


class TestTimers:
    def test_a_jump_runs_them_in_order_each_at_its_own_instant(self) -> None:
        clock, seen = Clock(frozen_at_us=0), list[tuple[str, int]]()

        def every_hour() -> None:
            seen.append(("hour", clock.now_us()))
            clock.call_at(clock.now_us() + HOUR_US, every_hour)

        clock.call_at(HOUR_US, every_hour)
        clock.call_at(HOUR_US, lambda: seen.append(("second", clock.now_us())))
        clock.call_at(90, lambda: seen.append(("early", clock.now_us())))
        assert clock.advance(2 * HOUR_US + 5) == 2 * HOUR_US + 5
        hours = [("hour", HOUR_US), ("second", HOUR_US), ("hour", 2 * HOUR_US)]
        assert seen == [("early", 90), *hours]

    def test_a_jump_over_very_many_of_them_ends_all_the_same(self) -> None:
        clock, seen = Clock(frozen_at_us=0), list[int]()

        def again() -> None:
            seen.append(clock.now_us())
            clock.call_at(clock.now_us() + 1, again)

        clock.call_at(1, again)
        assert clock.advance(10**12) == 10**12
        assert seen == list(range(1, 20_001))

    def test_a_cancelled_one_does_not_act(self) -> None:
        clock, seen = Clock(frozen_at_us=0), list[str]()
        clock.call_at(5, lambda: seen.append("no")).cancel()
        clock.advance(10)
        assert seen == []

    def test_they_run_by_themselves_once_started(self) -> None:
        async def scene() -> list[str]:
            clock, seen, done = Clock(), list[str](), asyncio.Event()
            # Read once: on a busy machine a second reading may be milliseconds later.
            now_us = clock.now_us()
            clock.call_at(now_us + 2_000, done.set)
            clock.call_at(now_us + 1_000, lambda: seen.append("first"))
            clock.start()
            await done.wait()
            clock.call_at(clock.now_us() + 1_000, lambda: seen.append("never"))
            clock.close()
            await asyncio.sleep(0.01)
            return seen

        assert run(scene()) == ["first"]

    def test_what_is_set_for_the_past_runs_soon_also_when_time_stands_still(self) -> None:
        async def scene() -> None:
            clock, done = Clock(frozen_at_us=7), asyncio.Event()
            clock.start()
            clock.call_at(3, done.set)
            assert not done.is_set()
            await done.wait()

        run(scene())

    def test_one_that_fails_does_not_stop_a_jump(self) -> None:
        async def scene() -> list[str]:
            clock, seen = Clock(frozen_at_us=0), list[str]()
            sleeper = asyncio.create_task(clock.sleep_until(20))
            await turns()
            clock.start()
            clock.call_at(5, lambda: next(iter(())))
            clock.call_at(6, lambda: seen.append("other"))
            with pytest.raises(StopIteration):
                clock.advance(20)
            assert clock.now_us() == 20
            await sleeper
            await asyncio.sleep(0.01)
            return seen

        assert run(scene()) == ["other"]


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
            rig.host.clock.advance(HOUR_US)
            live.add(len(partitions.live))
        held.append(len(partitions.by_token))
    assert max(live) == 6
    assert len(partitions.expired_tokens) > 2 * max(held)
    earliest_us = rig.host.now_us() - 25 * HOUR_US
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
