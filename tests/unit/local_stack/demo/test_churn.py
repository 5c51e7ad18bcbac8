"""A schedule is decided by the seed alone, and spread over the run."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.local_stack.demo.churn import SimulatorControl, schedule
from tidegate.local_stack.errors import LocalStackError

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTS = st.integers(0, 8)


@given(st.integers(0, 1_000), COUNTS, COUNTS, COUNTS, COUNTS)
def test_everything_asked_for_is_planned_in_time(
    seed: int, splits: int, merges: int, workers: int, consumer: int
):
    asked = {
        "splits": splits,
        "merges": merges,
        "kill_workers": workers,
        "kill_consumer": consumer,
        "kills_from": 0.75,
    }
    plan = schedule(seed, **asked)
    shares = [one.at_share for one in plan]

    assert Counter(one.kind for one in plan) == Counter(
        {"split": splits, "merge": merges, "kill-worker": workers, "kill-consumer": consumer}
    )
    assert shares == sorted(shares)
    assert all(0.0 < share < 0.9 for share in shares)
    assert all(one.at_share > 0.75 for one in plan if one.kind.startswith("kill"))
    assert plan == schedule(seed, **asked)


def test_seeds_differ():
    plans = [
        tuple(schedule(seed, splits=6, merges=4, kill_workers=1, kill_consumer=1, kills_from=0.7))
        for seed in range(5)
    ]

    assert len(set(plans)) == 5


def test_merges_never_outrun_splits():
    for seed in range(50):
        plan = schedule(seed, splits=6, merges=4, kill_workers=0, kill_consumer=0, kills_from=1.0)
        kinds = [one.kind for one in plan]
        ahead = [kinds[:n].count("split") - kinds[:n].count("merge") for n in range(len(kinds))]

        assert min(ahead) >= 0
        assert (kinds.count("split"), kinds.count("merge")) == (6, 4)


def test_kills_of_one_kind_keep_their_distance():
    for seed in range(50):
        plan = schedule(seed, splits=0, merges=0, kill_workers=0, kill_consumer=2, kills_from=0.75)
        first, second = (one.at_share for one in plan)

        assert second - first > 0.05


@contextmanager
def answering(status: int, body: object) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    asked: list[tuple[str, str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked.append((self.command, self.path, self.rfile.read(length).decode()))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", asked


@pytest.mark.parametrize("verb", ["split", "merge", "move"])
def test_verbs_name_database_and_stream_and_return_the_result(verb: str):
    came = {"start_timestamp_us": 5, "parents": ["a"], "children": [{"token": "b"}]}
    with answering(200, came) as (address, asked):
        found = getattr(SimulatorControl(address, database="d", stream="s"), verb)()

    assert found == came

    ((method, path, body),) = asked
    assert (method, path, json.loads(body)) == (
        "POST",
        f"/{verb}",
        {"database": "d", "stream": "s"},
    )


def test_live_stream_partitions_are_a_list():
    with answering(200, {"stream_partitions": [{"token": "a"}]}) as (address, _):
        found = SimulatorControl(address, database="d", stream="s").stream_partitions()

    assert found == [{"token": "a"}]


def test_a_refusal_says_what_the_simulator_said():
    with (
        answering(400, {"message": "nothing to merge"}) as (address, _),
        pytest.raises(LocalStackError, match="nothing to merge"),
    ):
        SimulatorControl(address, database="d", stream="s").merge()


def test_a_silent_port_is_named():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        address = f"127.0.0.1:{server.server_port}"

    with pytest.raises(LocalStackError, match=address):
        SimulatorControl(address, database="d", stream="s").split()


def test_reads_of_tables_are_slowed_down_and_quick_again():
    with answering(200, {}) as (address, asked):
        SimulatorControl(address, database="d", stream="s").slow_reads(300)
    assert (asked[0][1], json.loads(asked[0][2])) == (
        "/add-fault",
        {
            "database": "d", "method": "StreamingRead", "kind": "slow", "delay_ms": 300,
            "count": None,
        },
    )  # fmt: skip
    with answering(200, {}) as (address, asked):
        SimulatorControl(address, database="d", stream="s").clear_faults()
    assert asked[0][1] == "/clear-faults"
