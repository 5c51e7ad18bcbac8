from __future__ import annotations

import threading
from typing import Any

import pytest
from google.cloud import spanner

from spanner_simulator import Simulator
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.host import Host
from unit.control.conftest import DDL, insert


def living(simulator: Simulator) -> list[dict[str, Any]]:
    return simulator.stream_partitions("bank", "Bank")


def test_stream_partitions_have_bounds_counts_and_readers(simulator: Simulator) -> None:
    low, high = living(simulator)
    assert low["high"]["table"] == "A"
    assert low["high"]["key"] == ["0"]
    assert (low["records"], high["records"]) == (0, 2)
    assert (high["high"], high["end_timestamp_us"], high["children"]) == (None, None, [])
    assert high["recently_written_keys"] == 2
    assert high["tables"] == ["A"]
    assert (high["readers"], high["is_held"]) == (0, False)


def test_split_by_key_then_merge_then_move(simulator: Simulator) -> None:
    split = simulator.split("bank", "Bank", table="A", key=["6"])
    left, right = split["children"]
    tokens = [right["token"], left["token"]]
    merged = simulator.merge("bank", "Bank", tokens=tokens)
    moved = simulator.move("bank", "Bank", token=merged["children"][0]["token"])
    assert left["high"]["key"] == right["low"]["key"] == ["6"]
    assert sorted(merged["parents"]) == sorted(tokens)
    assert moved["children"][0]["low"] == left["low"]
    assert moved["start_timestamp_us"] > merged["start_timestamp_us"]
    assert moved["start_timestamp_us"] == moved["children"][0]["start_timestamp_us"]


def test_keys_move_between_living_ones_that_are_mutable(simulator: Simulator) -> None:
    ddl = [DDL[0], "CREATE CHANGE STREAM M FOR A OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')"]
    simulator.create_database("shop", ddl=ddl)
    low, high = (one["token"] for one in simulator.stream_partitions("shop", "M"))
    moved = simulator.move_keys(
        "shop", "M", source=high, destination=low, table="A", first_key=["10"], last_key=["19"]
    )
    (kept,) = [one for one in simulator.stream_partitions("shop", "M") if one["token"] == high]
    assert [one["token"] for one in moved["children"]] == [low]
    assert moved["parents"] == []
    assert moved["start_timestamp_us"] > kept["start_timestamp_us"]
    assert [one["low"]["key"] for one in kept["ranges"]] == [["0"], ["20"]]
    with pytest.raises(SpannerError):
        simulator.move_keys("bank", "Bank", source=low, destination=high)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean_life_ms": 0}, "mean_life_ms"),
        ({"live_max": 0}, "live_max"),
        ({"weights": {"jump": 1}}, "weights"),
        ({"weights": {"split": 0}}, "weights"),
    ],
)
def test_churn_without_sense_is_refused(
    simulator: Simulator, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpannerError, match=message):
        simulator.churn("bank", "Bank", **settings)


def test_interrupt_counts_the_queries_that_it_ended(simulator: Simulator) -> None:
    token = living(simulator)[0]["token"]
    readers = simulator._run(lambda host: [host.database("bank").attach(token) for _ in "ab"])
    assert simulator.interrupt("bank", "Bank", code="ABORTED") == {"interrupted": 2}
    assert [reader.fault.code for reader in readers] == [Code.ABORTED] * 2
    other = living(simulator)[1]["token"]
    assert simulator.interrupt("bank", "Bank", token=other) == {"interrupted": 0}
    with pytest.raises(SpannerError, match="The argument code must be one of"):
        simulator.interrupt("bank", "Bank", code="FINE")


def test_holding_and_releasing(simulator: Simulator) -> None:
    low, high = (one["token"] for one in living(simulator))
    assert simulator.hold("bank", "Bank", token=low) == {"held": [low]}
    assert [one["is_held"] for one in living(simulator)] == [True, False]
    assert simulator.hold("bank", "Bank") == {"held": sorted([low, high])}
    assert simulator.release("bank", "Bank", token=low) == {"released": 1}
    assert simulator.release("bank", "Bank") == {"released": 1}
    simulator.hold("bank", "Bank")
    assert simulator.release_all() == {"released": 2}
    for verb in (simulator.hold, simulator.release):
        with pytest.raises(SpannerError, match="Stream partition not found: x"):
            verb("bank", "Bank", token="x")


@pytest.mark.parametrize("ending", ["idle", "dropped", "stopped"])
def test_following_ends(ending: str, simulator: Simulator) -> None:
    idle_ms = 600 if ending == "idle" else 60_000
    following = simulator.follow_commit_log("bank", "Bank", first=2, idle_ms=idle_ms)
    end = {
        "idle": lambda: None,
        "dropped": lambda: simulator.drop_database("bank"),
        "stopped": simulator.stop,
    }[ending]
    ender = threading.Timer(0.2, end)
    ender.start()
    assert list(following) == []
    ender.join()


@pytest.mark.parametrize("verb", ["split", "merge", "move", "churn", "interrupt", "hold"])
def test_what_is_not_there(simulator: Simulator, verb: str) -> None:
    for database, stream in (("nope", "Bank"), ("bank", "Nope")):
        with pytest.raises(SpannerError) as refused:
            getattr(simulator, verb)(database, stream)
        assert refused.value.code is Code.NOT_FOUND


def test_churn_starts_keeps_to_its_bound_and_stops(simulator: Simulator) -> None:
    simulator.freeze()
    settings = {"mean_life_ms": 1000, "live_max": 3, "weights": {"split": 1, "merge": 0}}
    assert simulator.churn("bank", "Bank", seed=1, **settings) == {"enabled": True}
    counts = set()
    for _ in range(20):
        simulator.advance(1_000)
        counts.add(len(living(simulator)))
    count = len(simulator.stream_partitions("bank", "Bank", ended=True))
    assert simulator.churn("bank", "Bank", enabled=False) == {"enabled": False}
    simulator.advance(10_000)
    assert max(counts) == 3
    assert len(simulator.stream_partitions("bank", "Bank", ended=True)) == count > 5


def test_following_ends_with_its_change_stream_though_another_has_the_name(
    simulator: Simulator,
) -> None:
    following = simulator.follow_commit_log("bank", "Bank")
    assert [next(following)["index"] for _ in range(2)] == [0, 1]

    def replace(host: Host) -> None:
        database = host.database("bank").database
        stream = ["DROP CHANGE STREAM Bank", "CREATE CHANGE STREAM Bank FOR A"]
        database.apply_ddl(stream, now_us=host.now_us())

    simulator._run(replace)
    insert(simulator, 11, 12, 13)
    assert list(following) == []


NAME = "projects/test-project/instances/test-instance/databases/bank"


def test_what_the_api_refuses_is_refused(simulator: Simulator) -> None:
    for name, ddl, code in (
        ("bank", [], Code.ALREADY_EXISTS),
        ("NO WAY", [], Code.INVALID_ARGUMENT),
        ("new", ["CREATE TABLE T"], Code.INVALID_ARGUMENT),
    ):
        with pytest.raises(SpannerError) as refused:
            simulator.create_database(name, ddl=ddl)
        assert refused.value.code is code
    assert simulator.health()["databases"] == [NAME]


def test_after_a_reset_history_repeats_itself() -> None:
    with Simulator(seed=5, frozen_at="2026-01-01T00:00:00Z") as simulator:
        histories = []
        for _ in range(2):
            simulator.create_database("bank", ddl=DDL)
            simulator.add_fault()
            simulator.hold("bank", "Bank")
            insert(simulator, 1)
            simulator.advance(5)
            simulator.split("bank", "Bank")
            insert(simulator, 2)
            histories.append(
                (
                    simulator.commit_log("bank", "Bank"),
                    simulator.stream_partitions("bank", "Bank", ended=True),
                    simulator.faults(),
                    simulator.clock(),
                )
            )
            simulator.reset()
            assert simulator.health()["databases"] == []
    assert histories[0] == histories[1]


def test_the_simulators_own_loop_and_a_stopped_one_are_told_so(simulator: Simulator) -> None:
    with pytest.raises(RuntimeError, match="its own event loop cannot call it"):
        simulator._run(lambda _host: simulator.health())
    simulator.stop()
    with pytest.raises(RuntimeError, match="with statement"):
        simulator.health()


def test_rules_are_added_listed_and_cleared(simulator: Simulator) -> None:
    first = simulator.add_fault(method="Commit", database="bank", code="ABORTED", count=None)
    second = simulator.add_fault(stream="Bank", kind="slow", delay_ms=5, probability=0.5, seed=3)
    assert first == {
        "number": 1,
        "method": "Commit",
        "database": "projects/test-project/instances/test-instance/databases/bank",
        "stream": None,
        "token": None,
        "kind": "status",
        "when": "open",
        "after_rows": 0,
        "code": "ABORTED",
        "message": "Injected fault",
        "delay_ms": 0,
        "count": None,
        "probability": 1.0,
        "seed": 0,
        "fired": 0,
    }
    assert (second["number"], second["kind"], second["delay_ms"]) == (2, "slow", 5)
    assert simulator.faults() == [first, second]
    assert simulator.clear_faults(number=1) == {"cleared": 1}
    assert simulator.clear_faults() == {"cleared": 1}
    assert simulator.faults() == []


@pytest.mark.parametrize("kind", ["status", "drop"])
def test_the_official_client_resumes_a_read_that_breaks(simulator: Simulator, kind: str) -> None:
    database = simulator.client().instance("test-instance").database("bank")
    insert(simulator, *range(100, 600))
    simulator.add_fault(
        method="StreamingRead",
        kind=kind,
        when="after_rows",
        after_rows=3,
        count=2,
    )
    with database.snapshot() as snapshot:
        rows = [row[0] for row in snapshot.read("A", ["K"], spanner.KeySet(all_=True))]
    assert rows == [5, 7, *range(100, 600)]
    assert simulator.faults()[0]["fired"] == 2
