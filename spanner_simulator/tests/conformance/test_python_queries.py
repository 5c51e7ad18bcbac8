"""Change stream queries of the official Python client: broken ones, and a large change.

What that client does is as it is: it sends a broken query again with the last resume token, at once
and for ever, and it hears nothing of messages above 4 MiB where SPANNER_EMULATOR_HOST is set.
"""

from __future__ import annotations

import random
from base64 import b64encode
from typing import Any

import pytest

from conformance.bank import changes, tokens_of
from spanner_simulator import Simulator


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


def test_one_change_of_six_megabytes_is_joined_from_its_chunks(bank: Any) -> None:
    bank.update_ddl(["ALTER TABLE Ledger ADD COLUMN Scan BYTES(MAX)"]).result(30)
    scan = b64encode(random.Random(6).randbytes(6 * 2**20))
    with bank.batch() as batch:
        batch.insert("Ledger", ["Id", "Scan"], [["ffff", scan]])
    token = owner_of(bank, "ffff", batch.committed)
    (row,) = (row for row in changes(bank, token, batch.committed, batch.committed) if row[0])
    assert row[0][0][6][0][1]["Scan"] == scan.decode()
