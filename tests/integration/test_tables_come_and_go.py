"""Tables are created and dropped below a running fleet, and around a restart of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.test_plain_subscriber import read_everything
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import ACCOUNTS, STREAM, Bank
from tidegate.local_stack.demo.bank_database import create_bank_database, open_accounts
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.programs import Programs
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BANK = Bank(accounts=3, seed=5)
PREFIX = "tables"
DDL_TIMEOUT_S = 60
DEADLINE_S = 120
LATER = (
    "CREATE TABLE Later (Region STRING(9) NOT NULL, Id INT64 NOT NULL, V STRING(MAX))"
    " PRIMARY KEY (Id, Region)"
)


def insert(database: Any, *rows: tuple[str, int, str]) -> None:
    with database.batch() as batch:
        batch.insert("Later", columns=("Region", "Id", "V"), values=rows)


def records(stack: LocalStack, pipeline: Pipeline, table: str, *, count: int) -> list[Any]:
    """Wait for a table's topic, and return what is in it."""
    topic = f"{PREFIX}.{table}"
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    pipeline.wait(
        lambda: topic in admin.list_topics(timeout=30).topics,
        what=f"topic {topic}",
        deadline_s=DEADLINE_S,
    )
    return read_everything(stack, topic, count=count)


def later_rows(stack: LocalStack, pipeline: Pipeline, *, count: int) -> list[tuple[Any, Any, str]]:
    return sorted(
        (tuple(m.key().items()), m.value()["new_values"]["V"], m.headers()[1][1].decode())
        for m in records(stack, pipeline, "Later", count=count)
    )


def test_a_table_comes_and_goes(tmp_path: Path):
    with LocalStack(load_config(data_dir=tmp_path / "stack", seed=5)) as stack:
        name = DatabaseName(address=stack.spanner_address)
        database = create_bank_database(name)
        for_all = f"ALTER CHANGE STREAM {STREAM} SET FOR ALL"
        database.update_ddl([for_all]).result(timeout=DDL_TIMEOUT_S)
        pipeline = Pipeline(
            Programs(
                folder=tmp_path,
                bootstrap_servers=stack.bootstrap_servers,
                registry_url=stack.registry_url,
                spanner_address=stack.spanner_address,
                database=name,
                stream=STREAM,
                prefix=PREFIX,
            )
        )
        start = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        try:
            pipeline.start_workers(2, start=start)
            open_accounts(database, BANK)
            records(stack, pipeline, ACCOUNTS, count=BANK.accounts)

            database.update_ddl([LATER]).result(timeout=DDL_TIMEOUT_S)
            insert(database, ("eu", 1, "one"))
            first = ((("Id", 1), ("Region", "eu")), "one", "I")
            assert later_rows(stack, pipeline, count=1) == [first]

            assert pipeline.stop() == []
            insert(database, ("us", 2, "two"))
            database.update_ddl(["DROP TABLE Later"]).result(timeout=DDL_TIMEOUT_S)
            pipeline.start_workers(2, start=start)
            second = ((("Id", 2), ("Region", "us")), "two", "I")
            assert later_rows(stack, pipeline, count=2) == [first, second]
            pipeline.check()
        finally:
            faults = pipeline.stop()
        assert faults == []
