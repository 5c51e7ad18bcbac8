"""Change stream queries of the official Python client: broken, slow, large, and many at once.

What that client does is as it is: it sends a broken query again with the last resume token, at once
and for ever, and it hears nothing of messages above 4 MiB where SPANNER_EMULATOR_HOST is set.
"""

from __future__ import annotations

import random
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import Aborted
from google.cloud import spanner
from google.cloud.spanner_v1 import ExecuteSqlRequest, PartialResultSet

from conformance.bank import QUERY, TYPES, account, changes, tokens_of
from spanner_simulator import Simulator

PATIENCE_S = 60


def write(bank: Any, name: str, amount: int = 1) -> Any:
    with bank.batch() as batch:
        batch.insert("Ledger", ["Id", "Amount"], [[name, amount]])
    return batch.committed


def names_in(row: Any) -> list[str]:
    """The keys of the ledger rows in one row of a change stream query."""
    return [mod[0]["Id"] for record in row[0] if record[4] == "Ledger" for mod in record[6]]


def owner_of(bank: Any, name: str, at: Any) -> str:
    """The token of the stream partition that a ledger row is in."""
    for row in changes(bank, None, at, None):
        (token,) = tokens_of(row)
        if any(name in names_in(one) for one in changes(bank, token, at, at)):
            return token
    raise AssertionError(f"{name} is in no stream partition")


def test_an_interrupted_query_goes_on_from_its_resume_token(
    bank: Any, simulator: Simulator
) -> None:
    token = simulator.stream_partitions("bank", "Bank")[-1]["token"]
    names = [f"{number:04d}" for number in range(30)]
    seen: list[str] = []

    def write(name: str) -> None:
        with bank.batch() as batch:
            batch.insert("Ledger", ["Id", "Amount"], [[f"f{name}", 1]])

    write(names[0])
    stream = changes(bank, token, bank.opened_at, None, heartbeat=100)
    interrupted = 0
    for row in stream:
        for record in row[0]:
            seen.extend(mod[0]["Id"] for mod in record[6])
        if len(seen) == len(names):
            break
        if row[0]:
            # The client re-sends the statement with the last token and hears nothing twice.
            interrupted += simulator.interrupt("bank", "Bank", token=token)["interrupted"]
            write(names[len(seen)])
    stream.close()

    assert seen == [f"f{name}" for name in names]
    assert interrupted >= 10


@pytest.mark.parametrize("kind", ["status", "drop"])
@pytest.mark.parametrize(
    ("when", "after_rows"), [("open", 0), ("after_rows", 1), ("after_rows", 7)]
)
def test_a_query_that_breaks_again_and_again_loses_and_repeats_nothing(
    bank: Any, simulator: Simulator, kind: str, when: str, after_rows: int
) -> None:
    names = [f"f{number:04d}" for number in range(40)]
    committed = [write(bank, name) for name in names]
    token = owner_of(bank, names[0], committed[0])
    rule = simulator.add_fault(
        stream="Bank", token=token, kind=kind, when=when, after_rows=after_rows, count=5
    )
    seen = [
        name
        for row in changes(bank, token, bank.opened_at, committed[-1])
        for name in names_in(row)
    ]

    assert seen == names
    (after,) = [one for one in simulator.faults() if one["number"] == rule["number"]]
    assert after["fired"] == 5


def test_a_client_that_is_refused_for_long_tries_again_until_it_is_let_in(
    bank: Any, simulator: Simulator
) -> None:
    committed = write(bank, "ffff")
    token = owner_of(bank, "ffff", committed)
    rule = simulator.add_fault(stream="Bank", token=token, count=None)["number"]

    def read() -> list[str]:
        rows = changes(bank, token, bank.opened_at, committed)
        return [name for row in rows for name in names_in(row)]

    def tries() -> int:
        return next(one["fired"] for one in simulator.faults() if one["number"] == rule)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        # The client itself never gives up, so the end of the outage is ours to give.
        deadline = time.monotonic() + PATIENCE_S
        while tries() < 50:
            assert time.monotonic() < deadline
            assert not reading.done()
            time.sleep(0.01)
        simulator.clear_faults(number=rule)

        assert reading.result(PATIENCE_S) == ["ffff"]


def test_a_code_that_is_not_retried_reaches_the_application(
    bank: Any, simulator: Simulator
) -> None:
    committed = write(bank, "ffff")
    token = owner_of(bank, "ffff", committed)
    simulator.add_fault(stream="Bank", token=token, code="ABORTED", message="not today")

    with pytest.raises(Aborted, match="not today"):
        list(changes(bank, token, bank.opened_at, committed))


def test_a_query_that_ends_well_but_early_says_nothing_of_children(
    bank: Any, simulator: Simulator
) -> None:
    committed = write(bank, "ffff")
    token = owner_of(bank, "ffff", committed)
    simulator.add_fault(
        stream="Bank", token=token, kind="clean_end", when="after_rows", after_rows=1
    )
    simulator.move("bank", "Bank", token=token)
    early = list(changes(bank, token, bank.opened_at, None))
    whole = list(changes(bank, token, bank.opened_at, None))

    assert [row[2] for row in early] == [[]]
    assert len(whole[-1][2]) == 1


def test_a_stalled_query_sends_not_even_heartbeats_until_it_is_released(
    bank: Any, simulator: Simulator
) -> None:
    committed = write(bank, "ffff")
    token = owner_of(bank, "ffff", committed)
    rule = simulator.add_fault(
        stream="Bank", token=token, kind="stall", when="after_rows", after_rows=1
    )
    heard = threading.Semaphore(0)

    def read() -> None:
        for row in changes(bank, token, bank.opened_at, None, heartbeat=100):
            heard.release()
            if row[1]:
                return

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert heard.acquire(timeout=PATIENCE_S)
        assert not heard.acquire(timeout=1)
        simulator.clear_faults(number=rule["number"])
        reading.result(PATIENCE_S)


def test_heartbeats_come_while_nothing_happens(bank: Any, simulator: Simulator) -> None:
    token = simulator.stream_partitions("bank", "Bank")[0]["token"]
    stream = changes(bank, token, bank.opened_at, None, heartbeat=100)
    beats: list[Any] = []
    for row in stream:
        beats.extend(record[0] for record in row[1])
        if len(beats) == 3:
            break
    stream.close()

    assert beats == sorted(set(beats))


def test_many_waiting_queries_on_one_channel_all_hear_of_a_commit(
    bank: Any, simulator: Simulator
) -> None:
    # A stream partition has 20 readers at most: seven of them, read 18 times each.
    for key in ("a1", "b1", "c1", "d1", "e1", "f1"):
        simulator.split("bank", "Bank", table="Ledger", key=[key])
    opened = write(bank, "0")
    seven = simulator.stream_partitions("bank", "Bank")[-7:]
    tokens = [one["token"] for one in seven]
    rows = [[f"{one['low']['key'][0]} last", 1] for one in seven]
    seen = threading.Semaphore(0)

    def read(number: int) -> None:
        for row in changes(bank, tokens[number % 7], opened, None, heartbeat=1000):
            if "last" in [name[-4:] for name in names_in(row)]:
                seen.release()
            if row[2]:
                return

    def readers() -> list[int]:
        live = simulator.stream_partitions("bank", "Bank")
        return [one["readers"] for one in live if one["token"] in tokens]

    with ThreadPoolExecutor(126) as pool:
        reading = [pool.submit(read, number) for number in range(126)]
        try:
            deadline = time.monotonic() + PATIENCE_S
            while readers() != [18] * 7:
                assert time.monotonic() < deadline, readers()
                time.sleep(0.05)
            with bank.batch() as batch:
                batch.insert("Ledger", ["Id", "Amount"], rows)
            for _ in range(126):
                assert seen.acquire(timeout=PATIENCE_S)
        finally:
            # Their children end the queries.
            for token in tokens:
                simulator.move("bank", "Bank", token=token)
        for one in reading:
            one.result(PATIENCE_S)


class TestLargeAnswers:
    """Where SPANNER_EMULATOR_HOST is set, this client receives no message above 4 MiB."""

    COUNT = 3000
    NOTE = "x" * 4000

    @pytest.fixture
    def backlog(self, bank: Any) -> Any:
        """Twelve megabytes of changes in few commits."""
        bank.update_ddl(["ALTER TABLE Ledger ADD COLUMN Note STRING(MAX)"]).result(30)
        for first in range(0, self.COUNT, 500):
            rows = [[f"f{number:05d}", self.NOTE] for number in range(first, first + 500)]
            with bank.batch() as batch:
                batch.insert("Ledger", ["Id", "Note"], rows)
        return batch.committed

    def test_a_backlog_arrives_in_messages_that_the_client_takes(
        self, bank: Any, backlog: Any
    ) -> None:
        seen = [
            mod[0]["Id"]
            for row in changes(bank, None, bank.opened_at, None)
            for one in changes(bank, tokens_of(row)[0], bank.opened_at, backlog)
            for record in one[0]
            if record[4] == "Ledger"
            for mod in record[6]
        ]

        assert sorted(seen) == [f"f{number:05d}" for number in range(self.COUNT)]

    def test_no_message_is_larger_than_a_megabyte_and_each_has_its_own_token(
        self, bank: Any, backlog: Any, simulator: Simulator
    ) -> None:
        tokens = [tokens_of(row)[0] for row in changes(bank, None, bank.opened_at, None)]
        sizes: list[int] = []
        for token in tokens:
            messages = list(raw_messages(bank, simulator, token, backlog))
            sizes += [len(message) for message in messages]
            answers = [PartialResultSet.deserialize(message) for message in messages]
            # Between the chunks of one value there is nothing to resume at.
            resumable = [one.resume_token for one in answers if one.resume_token]

            assert len(resumable) == len(set(resumable))
            assert all(one.resume_token or one.chunked_value for one in answers)
            assert [index for index, one in enumerate(answers) if one.metadata] == [0]

        assert max(sizes) <= 2**20 + 2**10
        assert sum(sizes) > self.COUNT * len(self.NOTE)

    def test_one_change_of_six_megabytes_is_joined_from_its_chunks(self, bank: Any) -> None:
        bank.update_ddl(["ALTER TABLE Ledger ADD COLUMN Scan BYTES(MAX)"]).result(30)
        scan = b64encode(random.Random(6).randbytes(6 * 2**20))
        with bank.batch() as batch:
            batch.insert("Ledger", ["Id", "Scan"], [["ffff", scan]])
        token = owner_of(bank, "ffff", batch.committed)
        (row,) = (row for row in changes(bank, token, batch.committed, batch.committed) if row[0])

        assert row[0][0][6][0][1]["Scan"] == scan.decode()


def raw_messages(bank: Any, simulator: Simulator, token: str, end: Any) -> Iterator[bytes]:
    """The messages of one query as they come, without the client."""
    session = bank.spanner_api.create_session(database=bank.name).name
    request = ExecuteSqlRequest(
        session=session,
        sql=QUERY,
        params={
            "start": bank.opened_at.rfc3339(),
            "end": end.rfc3339(),
            "token": token,
            "heartbeat": "1000",
        },
        param_types=TYPES,
    )
    with grpc.insecure_channel(simulator.grpc_address) as channel:
        call = channel.unary_stream("/google.spanner.v1.Spanner/ExecuteStreamingSql")
        yield from call(ExecuteSqlRequest.serialize(request))


def test_rows_that_are_decoded_later_are_the_same(bank: Any) -> None:
    committed = write(bank, "ffff")
    token = owner_of(bank, "ffff", committed)
    bound = {"start": bank.opened_at, "end": committed, "token": token, "heartbeat": 1000}
    with bank.snapshot() as snapshot:
        eager = list(snapshot.execute_sql(QUERY, params=bound, param_types=TYPES))
    with bank.snapshot() as snapshot:
        lazy = snapshot.execute_sql(QUERY, params=bound, param_types=TYPES, lazy_decode=True)
        decoded = [lazy.decode_row(row) for row in lazy]

    assert decoded == eager
    assert any(names_in(row[0][0]) == ["ffff"] for row in decoded)


@pytest.mark.parametrize("is_multiplexed", ["true", "false"])
def test_transactions_and_reads_work_in_both_kinds_of_sessions(
    bank: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, is_multiplexed: str
) -> None:
    for what in ("", "_PARTITIONED_OPS", "_FOR_RW"):
        monkeypatch.setenv(f"GOOGLE_CLOUD_SPANNER_MULTIPLEXED_SESSIONS{what}", is_multiplexed)
    database = connect()
    keys = spanner.KeySet(keys=[[account(0)]])

    def add_one(transaction: Any) -> None:
        ((balance,),) = transaction.read("Accounts", ["Balance"], keys)
        transaction.update("Accounts", ["Id", "Balance"], [[account(0), balance + 1]])

    for _ in range(3):
        database.run_in_transaction(add_one)
    with database.snapshot(multi_use=True) as snapshot:
        first = list(snapshot.read("Accounts", ["Balance"], keys))
        second = list(snapshot.execute_sql("SELECT Balance FROM Accounts WHERE Balance > 100"))
    listed = database.spanner_api.list_sessions(request={"database": database.name})
    ordinary = [one.name for one in listed if not one.multiplexed]

    assert first == second == [[103]]
    assert (len(ordinary) > 0) == (is_multiplexed == "false")
