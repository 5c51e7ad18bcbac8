"""Anybody can read the data topics: confluent-kafka's own consumer, none of our code in it.

Two workers publish a bank under splits and merges; then every committed change must be there once,
with its values, and the changes of one key in commit order within its topic partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import xxhash

from tests.integration.shared_stack import SharedStack, now, open_shared_stack
from tests.integration.topic_reading import read_everything
from tidegate.local_stack.demo.bank import ACCOUNTS, LEDGER, STREAM, Bank
from tidegate.local_stack.demo.bank_database import (
    create_bank_database,
    open_accounts,
)
from tidegate.local_stack.demo.churn import SimulatorControl
from tidegate.local_stack.demo.customers import Customers
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.judge.log import LoggedTransaction, fetch_commit_log
from tidegate.local_stack.judge.progress import finished_stream_partitions
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BANK = Bank(accounts=30, seed=5)
TRANSFERS = 300
SPLITS, MERGES = 3, 2
DEADLINE_S = 60
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def published(
    kafka_and_registry: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SharedStack, list[LoggedTransaction], dict[str, list[Any]]]]:
    folder: Path = tmp_path_factory.mktemp("plain")
    with open_shared_stack(kafka_and_registry, folder) as stack:
        name = stack.database_name
        database = create_bank_database(name)
        start = now()
        open_accounts(database, BANK)
        pipeline = Pipeline(stack.programs(STREAM))
        customers = Customers(
            name,
            bank=BANK,
            transfers=TRANSFERS,
            rate_max=60.0,
            reserve=2,
            log=folder / "logs" / "customers.log",
            threads=3,
        )
        try:
            pipeline.start_workers(2, start=start)
            customers.start()
            control = SimulatorControl(stack.control_address, database=name.path, stream=STREAM)
            churn = [control.split] * SPLITS + [control.merge] * MERGES
            for number, act in enumerate(churn):
                due = TRANSFERS * (number + 1) // (len(churn) + 2)
                pipeline.wait(
                    lambda due=due: customers.done >= due,
                    what=f"{due} transfers",
                    deadline_s=DEADLINE_S,
                )
                act()
            customers.finish()
            pipeline.wait(
                lambda: customers.has_finished, what="the transfers", deadline_s=DEADLINE_S
            )
            log = fetch_commit_log(stack.control_address, database=name.path, stream=STREAM)
            counts = {
                table: sum(change.table == table for one in log for change in one.changes)
                for table in (ACCOUNTS, LEDGER)
            }
            messages = {
                table: read_everything(stack, stack.topic(table), count=count)
                for table, count in counts.items()
            }
            pipeline.check()
            faults = pipeline.stop()
        finally:
            customers.stop()
            pipeline.stop()
        assert faults == []
        yield stack, log, messages


def instant(us: int) -> datetime:
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)


def place(value: dict[str, Any]) -> tuple[Any, ...]:
    source = value["source"]
    return (
        source["commit_timestamp"],
        source["server_transaction_id"],
        int(source["record_sequence"]),
        source["mod_number"],
    )


@pytest.mark.rule("spanner-split-and-merge", "P1")
def test_every_committed_change_is_there_once(published: Any):
    _, log, messages = published
    for table in (ACCOUNTS, LEDGER):
        committed = [
            (
                instant(change.place.commit_timestamp_us),
                change.place.server_transaction_id,
                change.place.record_sequence[1],
                change.place.mod_number,
            )
            for one in log
            for change in one.changes
            if change.table == table
        ]

        assert sorted(place(message.value()) for message in messages[table]) == sorted(committed)


@pytest.mark.rule("spanner-key-order", "P2")
def test_the_changes_of_one_key_are_in_commit_order(published: Any):
    _, _, messages = published
    for table in (ACCOUNTS, LEDGER):
        homes: defaultdict[tuple[Any, ...], set[int]] = defaultdict(set)
        places: defaultdict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for message in messages[table]:
            key = tuple(message.key().values())
            homes[key].add(message.partition())
            places[key].append(place(message.value()))

        assert all(len(topic_partitions) == 1 for topic_partitions in homes.values())
        assert all(found == sorted(found) for found in places.values())
        changes_of_a_key = max(map(len, places.values()))
        assert changes_of_a_key == 1 if table == LEDGER else changes_of_a_key > 1


@pytest.mark.rule("spanner-mod-type", "P3")
def test_keys_and_values_are_the_rows(published: Any):
    _, log, messages = published
    owed: defaultdict[str, int] = defaultdict(int)
    for message in messages[LEDGER]:
        value = message.value()
        row = value["new_values"]
        assert value["mod_type"] == "INSERT"
        assert value["old_values"] is None
        assert message.key() == {"TransferId": row["TransferId"]}
        assert row["CommittedAt"] == value["source"]["commit_timestamp"]
        owed[row["FromAccount"]] -= row["Amount"]
        owed[row["ToAccount"]] += row["Amount"]
    balances: dict[str, int] = {}
    for message in messages[ACCOUNTS]:
        value = message.value()
        account = message.key()["AccountId"]
        new, old = value["new_values"], value["old_values"]
        assert new["AccountId"] == account
        assert (value["mod_type"] == "INSERT") == (old is None)
        assert old is None or old["Balance"] == balances[account]
        balances[account] = new["Balance"]

    assert len(messages[LEDGER]) == TRANSFERS
    assert sum(balances.values()) == BANK.total
    assert balances == {
        account: BANK.opening_balance + owed[account] for account, *_ in BANK.opening_rows()
    }
    tags = {message.value()["source"]["transaction_tag"] for message in messages[LEDGER]}
    assert tags == {one.tag for one in log if one.tag}


@pytest.mark.rule("spanner-mod-type")
def test_the_order_header_sorts_like_commit_order(published: Any):
    _, _, messages = published
    for table in (ACCOUNTS, LEDGER):
        headers = [dict(message.headers()) for message in messages[table]]
        by_header = sorted(
            zip([one["order"] for one in headers], messages[table], strict=True),
            key=lambda pair: pair[0],
        )

        assert [message.headers()[0][0] for message in messages[table]] == ["order"] * len(headers)
        assert [place(message.value()) for _, message in by_header] == sorted(
            place(message.value()) for message in messages[table]
        )
        assert {one["mod"] for one in headers} <= {b"I", b"U", b"D"}


def test_the_origin_header_is_sparks_hash_of_the_token(published: Any):
    _, log, messages = published
    tokens = {one.server_transaction_id: one.stream_partition_tokens for one in log}
    for message in messages[LEDGER]:
        source, (name, origin) = message.value()["source"], message.headers()[2]
        own = tokens[source["server_transaction_id"]]

        assert (name, source["partition_token"]) == ("origin", "")
        assert origin in {xxhash.xxh64_digest(token.encode(), 42) for token in own}


@pytest.mark.rule("P4")
def test_every_ended_stream_partition_has_its_marker(published: Any):
    stack, _, _ = published
    tokens = finished_stream_partitions(
        stack.prefix,
        bootstrap_servers=stack.bootstrap_servers,
        registry_url=stack.registry_url,
    )

    assert len(tokens) == SPLITS + 2 * MERGES
