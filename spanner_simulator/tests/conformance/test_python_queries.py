"""Change stream queries of the official Python client: broken, slow, large, and many at once.

What that client does is as it is: it sends a broken query again with the last resume token, at once
and for ever, and it hears nothing of messages above 4 MiB where SPANNER_EMULATOR_HOST is set.
"""

from __future__ import annotations

import random
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.cloud.spanner_v1 import ExecuteSqlRequest, PartialResultSet

from conformance.bank import QUERY, TYPES, changes, tokens_of
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


@pytest.mark.parametrize("kind", ["status", "drop"])
@pytest.mark.parametrize(("when", "after_rows"), [("open", 0), ("after_rows", 7)])
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
