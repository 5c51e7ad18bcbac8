"""Commits of a Delta table, from the files of its log."""

import json

from tidegate.spark_consumer.sinks.delta.commit_log import TableCommit
from tidegate.spark_consumer.sinks.delta.history import parse_commit


def lines(*actions):
    return "\n".join(json.dumps(action) for action in actions).encode()


def test_a_commit_is_read_from_its_own_action():
    info = {
        "operation": "MERGE",
        "userMetadata": "ours",
        "operationMetrics": {"numTargetRowsInserted": "3"},
    }
    text = lines({"add": {"path": "x"}}, {"commitInfo": info}, {"txn": {"appId": "q"}})
    assert parse_commit(7, text) == TableCommit(7, "MERGE", "ours", {"numTargetRowsInserted": "3"})


def test_a_commit_that_says_nothing_is_of_an_unknown_kind():
    assert parse_commit(7, lines({"add": {"path": "x"}})) == TableCommit(7, "unknown", None, {})


def test_a_commit_changes_rows_if_one_of_its_files_does():
    moved = {"add": {"path": "x", "dataChange": False}}, {"remove": {"dataChange": False}}
    info = {"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}}}
    metadata = {"metaData": {"id": "t"}}, {"protocol": {"minWriterVersion": 3}}
    assert not parse_commit(7, lines(info, *metadata, *moved)).changes_rows
    assert parse_commit(7, lines(info, *moved, {"add": {"dataChange": True}})).changes_rows
    assert parse_commit(7, lines({"remove": {"path": "x"}})).changes_rows
    assert parse_commit(7, lines(info)).mode == "Append"
