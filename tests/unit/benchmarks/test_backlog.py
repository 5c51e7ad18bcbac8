"""The backlog of the comparison: each change is a record of its own, after the start."""

from __future__ import annotations

from benchmarks.peers.backlog import ROWS_AT_ONCE, STREAM, STREAM_PARTITIONS, write_backlog
from spanner_simulator import Simulator
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.schemas.instants import parse_rfc3339_ns


def test_each_change_has_a_record_of_its_own_in_one_of_all_stream_partitions():
    with Simulator(stream_partitions=STREAM_PARTITIONS) as spanner:
        address = spanner.environment()["SPANNER_EMULATOR_HOST"]
        start = write_backlog(DatabaseName(address, database="peers"), changes=3 * ROWS_AT_ONCE)
        log = spanner.commit_log("peers", STREAM)

    start_ns = parse_rfc3339_ns(start)
    backlog = [one for one in log if parse_rfc3339_ns(one["commit_timestamp"]) >= start_ns]
    assert len(backlog) == 3
    for one in backlog:
        assert {change["mod_type"] for change in one["changes"]} == {"UPDATE"}
        assert len({change["record_sequence"] for change in one["changes"]}) == ROWS_AT_ONCE
        assert len(set(one["stream_partition_tokens"])) == STREAM_PARTITIONS
    # The first one writes what is there; others, which run beside it, may commit before it.
    for one in backlog:
        times = {change["new_values"]["Updated"] for change in one["changes"]}
        assert times == {"2026-01-01T00:00:00Z"} or all(
            change["new_values"] != change["old_values"] for change in one["changes"]
        )
