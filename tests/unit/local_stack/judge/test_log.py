"""The commit log becomes transactions whose changes compare in commit order."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from tidegate.local_stack.judge.log import (
    Place,
    fetch_commit_log,
    parse_commit_log,
    record_sequence_numbers,
)

CHANGE = {
    "table": "accounts",
    "mod_type": "DELETE",
    "keys": {"AccountId": "a"},
    "new_values": None,
    "old_values": {"Balance": "3"},
    "record_sequence": "00000010",
    "mod_number": 2,
}
ENTRY = {
    "commit_timestamp_us": 5,
    "server_transaction_id": "t",
    "tag": "x",
    "stream_partition_tokens": ["p", "q"],
    "changes": [CHANGE],
}


def test_a_line_becomes_a_transaction():
    (transaction,) = parse_commit_log([json.dumps(ENTRY), "", "\n"])

    assert transaction.stream_partition_tokens == {"p", "q"}
    (change,) = transaction.changes
    assert change.place == Place(5, "t", (0, 10), 2)
    assert (change.new_values, change.old_values) == ({}, {"Balance": "3"})


def test_a_transaction_that_changed_nothing_watched_is_left_out():
    assert parse_commit_log([json.dumps(ENTRY | {"changes": []})]) == []


def test_forgotten_changes_have_places_that_no_row_can_have():
    forgotten = CHANGE | {"record_sequence": None, "mod_number": None}
    (transaction,) = parse_commit_log([json.dumps(ENTRY | {"changes": [forgotten, forgotten]})])
    first, second = transaction.changes

    assert first.place != second.place
    assert first.place.record_sequence == second.place.record_sequence == (-1, -1)


def test_places_compare_by_number_and_not_by_text():
    assert record_sequence_numbers("00000009") < record_sequence_numbers("00000010")
    assert record_sequence_numbers("963d1af435fb3e79-0000000f") == (0x963D1AF435FB3E79, 15)
    assert Place(1, "b", (0, 0), 0) < Place(2, "a", (0, 0), 0)
    assert Place(1, "a", (0, 2), 0) < Place(1, "a", (0, 10), 0) < Place(1, "a", (0, 10), 1)


def test_the_log_is_fetched_over_http():
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = (json.dumps(ENTRY) + "\n").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        found = fetch_commit_log(f"127.0.0.1:{server.server_port}", database="a/b", stream="s")

    assert len(found) == 1
    assert asked == ["/commit-log?database=a%2Fb&stream=s&from=0"]
