from __future__ import annotations

import asyncio
import itertools

import pytest

from tidegate.spanner_simulator.core.database import DatabaseSettings
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.host import Host, wall_clock_us

DATABASE = "projects/p/instances/inst/databases/bank"


def test_a_database_is_found_by_its_full_or_short_name(rig) -> None:
    assert rig.host.database("bank") is rig.host.database(DATABASE)
    for wrong in ("nope", "projects/p/instances/inst/databases/nope"):
        with pytest.raises(SpannerError, match="Database not found"):
            rig.host.database(wrong)


def test_dropping_a_database_ends_its_sessions_and_queries(rig) -> None:
    session = rig.session()
    reader = rig.host.database("bank").attach("token")
    rig.host.drop_database(DATABASE)

    assert reader.fault is not None
    assert reader.fault.code is Code.NOT_FOUND
    with pytest.raises(SpannerError, match="Session not found"):
        rig.host.session(session)


def test_readers_are_woken_interrupted_and_forgotten(rig) -> None:
    hosted = rig.host.database("bank")
    first, second = hosted.attach("a"), hosted.attach("b")
    hosted.database.streams.listener(["a", "nobody"])

    assert (first.news.is_set(), second.news.is_set()) == (True, False)
    assert hosted.interrupt(["a", "b"], SpannerError(Code.UNAVAILABLE, "x")) == 2
    hosted.detach("a", first)
    assert hosted.interrupt(["a", "b"], SpannerError(Code.UNAVAILABLE, "x")) == 1


def test_a_session_needs_a_known_role(rig) -> None:
    with pytest.raises(SpannerError, match="Role not found: nope"):
        rig.session(role="nope")


def test_one_seed_gives_the_same_tokens_in_every_run() -> None:
    def draw(seed: int, name: str) -> int:
        host = Host(seed=seed, settings=DatabaseSettings())
        return host.create_database(name)._chance.getrandbits(64)

    assert draw(1, "a") == draw(1, "a")
    assert len({draw(1, "a"), draw(2, "a"), draw(1, "b")}) == 3


def test_churn_runs_until_it_is_stopped(rig) -> None:
    hosted = rig.host.database("bank")
    partitions = rig.database.streams.state("Bank").partitions
    rig.host.now_us = wall_clock_us

    async def churn() -> int:
        rig.host.start_churn(
            hosted, "Bank", mean_life_ms=1, weights={"split": 1, "merge": 1, "move": 1}, seed=3
        )
        await rig.until(lambda: len(partitions.by_token) >= 40)
        (running,) = hosted.churn.values()
        rig.host.stop_churn(hosted, "bank")
        assert running.task is not None
        await asyncio.wait([running.task], timeout=5)
        assert running.task.cancelled()
        return len(partitions.by_token)

    assert asyncio.run(churn()) >= 40
    live = sorted(partitions.live, key=lambda one: one.low)
    assert live[0].low == b""
    assert live[-1].high is None
    assert all(one.high == other.low for one, other in itertools.pairwise(live))
