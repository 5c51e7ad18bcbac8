"""A simulator that comes back: what its clients knew before must still be true."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.cloud import spanner
from google.cloud.spanner_v1 import types

from spanner_simulator import Simulator
from spanner_simulator.core.database import DatabaseSettings
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.server.host import Host
from spanner_simulator.server.keeping.data_directory import DataDirectory, DataDirectoryError
from spanner_simulator.server.keeping.journal_file import JournalFile
from spanner_simulator.server.official_client import connect
from spanner_simulator.server.restoration import restore

A = (
    "CREATE TABLE A (K INT64 NOT NULL, V STRING(MAX), N NUMERIC, "
    "Drawn STRING(36) DEFAULT (GENERATE_UUID()), Twice INT64 AS (K * 2) STORED, "
    "Stamp TIMESTAMP OPTIONS (allow_commit_timestamp = true)) PRIMARY KEY (K)"
)
CHILD = (
    "CREATE TABLE Child (K INT64 NOT NULL, C INT64) PRIMARY KEY (K, C), "
    "INTERLEAVE IN PARENT A ON DELETE CASCADE"
)
DDL = [A, CHILD, "CREATE INDEX AByV ON A (V)", "CREATE CHANGE STREAM S FOR ALL"]
COLUMNS = ["K", "V", "Stamp", "Drawn", "Twice"]
DAY_US = 86_400_000_000
WHERE = "database=bank&stream=S"


def write(database: Any, key: int) -> None:
    with database.batch() as batch:
        batch.insert_or_update(
            "A", ["K", "V", "Stamp"], [[key, f"v{key}", spanner.COMMIT_TIMESTAMP]]
        )


def bank_of(simulator: Simulator) -> Any:
    return simulator.client().instance("test-instance").database("bank")


def rows_of(database: Any) -> list[Any]:
    with database.snapshot() as snapshot:
        return list(snapshot.read("A", COLUMNS, spanner.KeySet(all_=True)))


def truth(simulator: Simulator) -> list[Any]:
    """What must be the same after a restart."""
    partitions = simulator.stream_partitions("bank", "S", ended=True)
    for one in partitions:
        del one["is_held"], one["readers"]
    return [
        simulator.commit_log("bank", "S"),
        partitions,
        simulator.health(),
        list(bank_of(simulator).ddl_statements),
        rows_of(bank_of(simulator)),
    ]


def test_everything_is_there_again(tmp_path: Path) -> None:
    with Simulator(data_directory=tmp_path, stream_partitions=3, seed=1) as simulator:
        simulator.create_database("bank", ddl=DDL)
        database = bank_of(simulator)
        for key in range(5):
            write(database, key * 10**17)
        with database.batch() as batch:
            batch.insert("Child", ["K", "C"], [[0, 1], [0, 2]])
        with database.batch() as batch:
            batch.delete("A", spanner.KeySet(keys=[[0]]))
        simulator.split("bank", "S")
        simulator.merge("bank", "S")
        database.update_ddl(["ALTER TABLE A ADD COLUMN More BOOL NOT NULL DEFAULT (true)"]).result(
            30
        )
        simulator.move("bank", "S")
        write(database, 7)
        before = truth(simulator)
    for _ in range(2):
        with Simulator(data_directory=tmp_path, stream_partitions=3, seed=1) as simulator:
            assert truth(simulator) == before

    with Simulator(data_directory=tmp_path, stream_partitions=3, seed=1) as simulator:
        write(bank_of(simulator), 8)
        simulator.split("bank", "S")
        tokens = [one["token"] for one in simulator.stream_partitions("bank", "S", ended=True)]
        last, new = simulator.commit_log("bank", "S")[-2:]
        assert len(set(tokens)) == len(tokens)
        assert last == before[0][-1]
        assert new["server_transaction_id"] > last["server_transaction_id"]
        assert new["commit_timestamp_us"] > last["commit_timestamp_us"]


@pytest.mark.parametrize("frozen_at_us", [None, 5])
def test_time_goes_on_from_where_a_clock_had_run_to(
    tmp_path: Path, frozen_at_us: int | None
) -> None:
    """Heartbeats and reads promise times that are in no journal."""
    wall_us = [10**15]

    @contextmanager
    def opened(frozen_at_us: int | None = None) -> Iterator[Host]:
        with closing(DataDirectory(tmp_path)) as directory:
            host = Host(
                seed=1,
                settings=DatabaseSettings(),
                now_us=lambda: wall_us[0],
                frozen_at_us=frozen_at_us,
                directory=directory,
            )
            restore(host)
            yield host

    with opened() as host:
        host.clock.advance(DAY_US)
        host.keep_time()
        wall_us[0] += 1000
        promised_us = host.now_us()
    wall_us[0] += 1
    with opened(frozen_at_us) as host:
        assert host.now_us() > promised_us
        # A second restart knows as much as the first.
        wall_us[0] += 1000
        promised_us = host.now_us()
    wall_us[0] += 1
    with opened(frozen_at_us) as host:
        assert host.now_us() >= promised_us
        host.reset()
        assert host.now_us() == (frozen_at_us or wall_us[0])
    with opened(frozen_at_us) as host:
        assert host.now_us() == (frozen_at_us or wall_us[0])


def test_a_default_that_was_being_filled_in_is_filled_in(tmp_path: Path) -> None:
    """The process died between the statement and the rows that it changes."""
    with Simulator(data_directory=tmp_path) as simulator:
        simulator.create_database("bank", ddl=DDL)
        write(bank_of(simulator), 1)
        bank_of(simulator).update_ddl(
            ["ALTER TABLE A ADD COLUMN More BOOL NOT NULL DEFAULT (true)"]
        ).result(30)
        before = simulator.commit_log("bank", "S")
    path = tmp_path / "database-000001.journal"
    last = JournalFile(path)
    sizes = [end for end, _ in last._frames(last._end)]
    last.close()
    with path.open("r+b") as file:
        file.truncate(sizes[-2])

    for _ in range(2):
        with Simulator(data_directory=tmp_path) as simulator:
            log = simulator.commit_log("bank", "S")
            assert [one["changes"] for one in log] == [one["changes"] for one in before]
            assert len(log) == 2
            with bank_of(simulator).snapshot() as snapshot:
                assert list(snapshot.execute_sql("SELECT More FROM A")) == [[True]]


def test_a_disk_that_takes_no_more_ends_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = Simulator(data_directory=tmp_path)
    simulator.start()
    simulator.create_database("bank", ddl=DDL)
    database = bank_of(simulator)
    write(database, 1)

    def full(_host: Any) -> None:
        (kept,) = _host.keeper.directory.databases.values()

        def refuse(_entry: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(kept.journal, "append", refuse)

    simulator._run(full)
    with pytest.raises(GoogleAPICallError):
        write(database, 2)
    simulator._thread.join(60)
    assert not simulator.is_running
    with pytest.raises(DataDirectoryError, match="No space left on device"):
        simulator.stop()
    monkeypatch.undo()
    with Simulator(data_directory=tmp_path) as simulator:
        assert [row[0] for row in rows_of(bank_of(simulator))] == [1]


@contextmanager
def process(data: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The program, as anybody would start it."""
    started = subprocess.Popen(
        [sys.executable, "-m", "spanner_simulator", "--data", str(data)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        yield started, json.loads(started.stdout.readline())
    finally:
        started.kill()
        started.communicate()


def ask(addresses: dict[str, str], path: str, body: dict[str, Any] | None = None) -> list[Any]:
    data = None if body is None else json.dumps(body).encode()
    url = f"http://{addresses['control']}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=60) as reply:
        return [json.loads(line) for line in reply.read().splitlines()]


def read_stream(
    addresses: dict[str, str], name: str, start_us: int, token: str, resume_token: bytes = b""
) -> Iterator[Any]:
    """Messages of one query of a stream partition, over a connection of its own."""
    service = "/google.spanner.v1.Spanner"
    with grpc.insecure_channel(addresses["grpc"]) as channel:
        open_session = channel.unary_unary(f"{service}/CreateSession")
        query = channel.unary_stream(f"{service}/ExecuteStreamingSql")
        made = open_session(
            types.CreateSessionRequest.serialize(types.CreateSessionRequest(database=name))
        )
        request = types.ExecuteSqlRequest(
            session=types.Session.deserialize(made).name,
            sql="SELECT ChangeRecord FROM READ_S(@start, NULL, @token, 300000)",
            params={"start": format_us(start_us), "token": token},
            resume_token=resume_token,
        )
        for message in query(types.ExecuteSqlRequest.serialize(request), timeout=60):
            yield types.PartialResultSet.deserialize(message)


def keys_of(message: Any) -> list[str]:
    """Keys of the data change records of a message."""
    return [
        json.loads(mod.list_value.values[0].string_value)["K"]
        for value in types.PartialResultSet.pb(message).values
        for record in value.list_value.values
        for change in record.list_value.values[0].list_value.values
        for mod in change.list_value.values[6].list_value.values
    ]


def test_killed_in_the_middle_of_commits_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    with process(tmp_path) as (first, addresses):
        made = ask(addresses, "/create-database", {"database": "bank", "ddl": DDL})[0]
        client = connect(addresses["grpc"], project="test-project")
        database = client.instance("test-instance").database("bank")
        first_one = ask(addresses, f"/stream-partitions?{WHERE}")[0]["stream_partitions"][0]
        place = (made["name"], first_one["start_timestamp_us"], first_one["token"])
        write(database, 1)
        messages = read_stream(addresses, *place)
        message = next(messages)
        assert keys_of(message) == ["1"]

        def commit_for_ever() -> None:
            try:
                for key in range(2, 10**6):
                    write(database, key)
                    acknowledged.append(key)
                    if key == 40:
                        ready.set()
            except GoogleAPICallError:
                pass

        ready = threading.Event()
        writer = threading.Thread(target=commit_for_ever, daemon=True)
        writer.start()
        assert ready.wait(60)
        before = ask(addresses, f"/commit-log?{WHERE}")
        first.send_signal(signal.SIGKILL)
        first.wait(60)
        known = len(acknowledged)

    with process(tmp_path) as (_, addresses):
        log = ask(addresses, f"/commit-log?{WHERE}")
        keys = [one["changes"][0]["keys"]["K"] for one in log]
        assert log[: len(before)] == before
        assert len(keys) >= known + 1
        assert keys == [str(key) for key in range(1, len(keys) + 1)]
        client = connect(addresses["grpc"], project="test-project")
        database = client.instance("test-instance").database("bank")
        assert [row[0] for row in rows_of(database)] == list(range(1, len(keys) + 1))
        resumed = read_stream(addresses, *place, message.resume_token)
        found: list[str] = []
        while len(found) < len(keys) - 1:
            found += keys_of(next(resumed))
        assert found == keys[1:]


def test_a_journal_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    with Simulator(data_directory=tmp_path) as simulator:
        simulator.create_database("bank", ddl=DDL)
    directory = DataDirectory(tmp_path)
    (kept,) = directory.databases.values()
    kept.journal.append(["no", "entry"])
    directory.close()

    with (
        pytest.raises(DataDirectoryError, match=r"cannot restore .*/bank from .*, entry 5"),
        Simulator(data_directory=tmp_path),
    ):
        pass
