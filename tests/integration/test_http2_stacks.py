"""Workers behind proxies whose HTTP/2 is not ours: none loses or repeats a change.

Changes are committed all the time and stream partitions split, merge and move, while the proxy is
reloaded, then killed and started again.  Then all that both workers, one for each
`query_transport`, have published is compared with the simulator's commit log.

With `--log-cli-level=INFO` each test prints its figures.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from contextlib import ExitStack

import pytest
from google.cloud.spanner_v1 import KeySet

from spanner_simulator import Simulator
from tests.certificates import Issued
from tests.chaos.judge.published import compare_published
from tests.chaos.judge.topics import Topics
from tests.integration.http2_stacks.stacks import STACKS, NotFetchedError, Proxy
from tests.integration.http2_stacks.worker import StreamWorker
from tests.integration.shared_stack import STREAM
from tidegate.local_stack.demo.bank_database import create_database
from tidegate.local_stack.judge.log import fetch_commit_log
from tidegate.local_stack.parts.programs import DatabaseName

pytestmark = pytest.mark.deep

_TABLE = (
    "CREATE TABLE Users (Id INT64, Name STRING(MAX), Number INT64) PRIMARY KEY (Id)",
    f"CREATE CHANGE STREAM {STREAM} FOR Users",
)
_KEYS = 120
_SECONDS = 60.0
_RELOAD_AT_S = 15.0
_KILL_AT_S = 35.0
_AWAY_S = 2.0
_PAUSE_S = 0.05
_ARRIVE_S = 90.0
_RATE_MIN = 10
"""Changes a second, on a busy machine."""
_TOKENS_MIN = 20
_SIZES = ((0.004, 2 << 20), (0.03, 300_000), (1.0, 40))
"""Probability up to which a text has this size; a large one comes in many frames."""
_log = logging.getLogger(__name__)


class Traffic:
    """Commits inserts, updates and deletes of few keys until `with` ends."""

    def __init__(self, database):
        self._database = database
        self._random = random.Random(7)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="traffic")
        self.error = None

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        assert self.error is None, self.error

    def _write(self):
        try:
            number = 0
            while not self._stop.wait(_PAUSE_S):
                number += 1
                with self._database.batch() as batch:
                    keys = self._random.sample(range(_KEYS), self._random.randint(2, 8))
                    batch.delete("Users", KeySet(keys=[[keys[0]]]))
                    rows = [[key, self._text(), number] for key in keys[1:]]
                    batch.insert_or_update("Users", ["Id", "Name", "Number"], rows)
        except Exception as error:  # noqa: BLE001 - the test's own thread raises it
            self.error = error

    def _text(self):
        drawn = self._random.random()
        return "x" * next(size for share, size in _SIZES if drawn < share)


@pytest.fixture
def simulator():
    settings = {"churn_mean_life_ms": 5_000, "churn_live_max": 16}
    with Simulator(seed=7, stream_partitions=6, **settings) as started:
        yield started


@pytest.fixture
def database(simulator):
    """The client's object of the only database, past every proxy."""
    return create_database(DatabaseName(address=simulator.grpc_address), _TABLE)


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """A file with a key and a certificate of 127.0.0.1, which is its own authority."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    return Issued(tmp_path / "both.pem", is_authority=True).path


@pytest.fixture
def proxy(request, simulator, certificate, tmp_path):
    """A running proxy before the simulator."""
    stack = request.param
    if stack.missing:
        pytest.skip(stack.missing)
    folder = tmp_path / "proxy"
    folder.mkdir()
    try:
        opened = Proxy(stack, folder, backend=simulator.grpc_address, certificate=certificate)
    except NotFetchedError as error:
        pytest.skip(str(error))
    try:
        opened.start()
        yield opened
    finally:
        opened.kill()


@pytest.mark.timeout(900)  # with what is fetched and built the first time
@pytest.mark.parametrize("proxy", STACKS, ids=lambda stack: stack.name, indirect=True)
def test_every_change_arrives_once_while_a_proxy_is_reloaded_and_killed(
    proxy, simulator, database, certificate
):
    workers = [
        StreamWorker(
            transport,
            address=proxy.address,
            ca_file=certificate,
            database=database.name,
            stream=STREAM,
        )
        for transport in ("h2", "grpc")
    ]
    began_at = time.monotonic()
    with ExitStack() as exits:
        for worker in workers:
            exits.enter_context(worker)
        with Traffic(database):
            _sleep_until(began_at + _RELOAD_AT_S)
            at_reload = [len(worker.failed_queries) for worker in workers]
            proxy.reload()
            _sleep_until(began_at + _KILL_AT_S)
            at_kill = [len(worker.failed_queries) for worker in workers]
            proxy.kill()
            time.sleep(_AWAY_S)
            proxy.start()
            _sleep_until(began_at + _SECONDS)
        committed = fetch_commit_log(
            simulator.control_address, database=database.name, stream=STREAM
        )
        places = frozenset(change.place for one in committed for change in one.changes)
        for worker in workers:
            worker.wait_for(places, patience_s=_ARRIVE_S)
    seconds = time.monotonic() - began_at
    assert len(places) > _SECONDS * _RATE_MIN
    assert len({token for one in committed for token in one.stream_partition_tokens}) > _TOKENS_MIN
    for worker, before, between in zip(workers, at_reload, at_kill, strict=True):
        assert worker.error is None
        entries = list(worker.entries())
        faults = compare_published(Topics(worker.transport), committed, entries)
        failed = len(worker.failed_queries)
        _log.info(
            "%s %s, %s: %.0f s, %d changes; queries that failed before, after a reload, after a "
            "kill: %d, %d, %d; connections opened: %s; missing %d, twice %d",
            *(proxy.name, proxy.version, worker.transport, seconds, len(entries)),
            *(before, between - before, failed - between, worker.connections_opened),
            *(len(faults["lost"]), len(faults["twice"])),
        )
        assert {name: found[:3] for name, found in faults.items() if found} == {}
        # Both have queried through this proxy, and been interrupted by its end.
        assert worker.trial.startswith(f"over {worker.transport}, ")
        assert failed > between


def _sleep_until(end):
    time.sleep(max(0.0, end - time.monotonic()))
