"""The bank's database: created and written to with the official Spanner client only.

`quiet_environment` is for programs that use the client: it switches off the client's metrics and
traces, which would otherwise use the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.cloud import spanner
from google.cloud.spanner_admin_database_v1 import DatabaseDialect
from google.cloud.spanner_v1 import KeySet

from tidegate.local_stack.demo.bank import (
    ACCOUNT_COLUMNS,
    ACCOUNTS,
    LEDGER,
    LEDGER_COLUMNS,
    Bank,
    Dialect,
    History,
    KeyRanges,
    Transfer,
    schema_statements,
)
from tidegate.local_stack.parts.programs import DatabaseName

_DDL_TIMEOUT_S = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def quiet_environment(spanner_address: str) -> dict[str, str]:
    """Return the variables that point the official client at an address and keep it quiet."""
    return {
        "SPANNER_EMULATOR_HOST": spanner_address,
        "SPANNER_DISABLE_BUILTIN_METRICS": "true",
        "OTEL_SDK_DISABLED": "true",
    }


def open_database(name: DatabaseName) -> Any:
    """Return the client's object for a database; nothing is sent yet."""
    client = _client(name)
    return client.instance(name.instance).database(name.database)


def _client(name: DatabaseName) -> Any:
    """Return a client without credentials and TLS, as emulators need it."""
    return spanner.Client(
        project=name.project,
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]  # the library has no types
        client_options={"api_endpoint": name.address},
        disable_builtin_metrics=True,
    )


def create_bank_database(
    name: DatabaseName,
    *,
    commit_timestamps: bool = True,
    dialect: Dialect = Dialect.GOOGLESQL,
    key_ranges: KeyRanges = KeyRanges.IMMUTABLE,
) -> Any:
    """Create instance, database, tables and change stream; return the client's database object."""
    statements = schema_statements(
        commit_timestamps=commit_timestamps, dialect=dialect, key_ranges=key_ranges
    )
    return create_database(name, statements, dialect=dialect)


def create_database(
    name: DatabaseName, statements: Sequence[str], *, dialect: Dialect = Dialect.GOOGLESQL
) -> Any:
    """Create instance and database with its schema; return the client's database object."""
    client = _client(name)
    config = f"projects/{name.project}/instanceConfigs/emulator-config"
    instance = client.instance(
        name.instance, configuration_name=config, display_name=name.instance, node_count=1
    )
    instance.create().result(timeout=_DDL_TIMEOUT_S)
    if dialect is Dialect.POSTGRESQL:
        # Spanner takes the schema of a PostgreSQL database only once the database exists.
        database = instance.database(name.database, database_dialect=DatabaseDialect.POSTGRESQL)
        database.create().result(timeout=_DDL_TIMEOUT_S)
        database.update_ddl(list(statements)).result(timeout=_DDL_TIMEOUT_S)
        return database
    database = instance.database(name.database, ddl_statements=list(statements))
    database.create().result(timeout=_DDL_TIMEOUT_S)
    return database


def open_accounts(database: Any, bank: Bank) -> int:
    """Open all accounts in one transaction; return its commit time, microseconds since 1970."""
    with database.batch() as batch:
        batch.insert(ACCOUNTS, columns=ACCOUNT_COLUMNS, values=bank.opening_rows())
    return commit_time_us(batch.committed)


def load_history(database: Any, history: History, *, rows_at_once: int = 2_500) -> None:
    """Write the rows of a bank that has been open for a while, in several transactions."""
    at = datetime.now(UTC)
    ledger = [(*row, at) for row in history.ledger]
    tables: tuple[tuple[str, tuple[str, ...], Sequence[tuple[object, ...]]], ...] = (
        (ACCOUNTS, ACCOUNT_COLUMNS, history.accounts),
        (LEDGER, (*LEDGER_COLUMNS, "CommittedAt"), ledger),
    )
    for table, columns, rows in tables:
        for first in range(0, len(rows), rows_at_once):
            with database.batch() as batch:
                batch.insert(table, columns=columns, values=rows[first : first + rows_at_once])


def transfer_money(transaction: Any, transfer: Transfer, *, commit_timestamps: bool = True) -> None:
    """Make one transfer in a read-write transaction: one read of both accounts, three mutations."""
    columns = ("AccountId", "Balance", "Transfers")
    keys = KeySet(keys=[[transfer.debit], [transfer.credit]])  # type: ignore[no-untyped-call]  # the client has no types
    accounts = {row[0]: row[1:] for row in transaction.read(ACCOUNTS, columns=columns, keyset=keys)}
    debit, credit, amount = transfer.settle(
        accounts[transfer.debit][0], accounts[transfer.credit][0]
    )
    transaction.update(
        ACCOUNTS,
        columns=columns,
        values=[
            (debit, accounts[debit][0] - amount, accounts[debit][1] + 1),
            (credit, accounts[credit][0] + amount, accounts[credit][1] + 1),
        ],
    )
    row: tuple[object, ...] = (transfer.transfer_id, debit, credit, amount, transfer.note)
    ledger_columns: tuple[str, ...] = LEDGER_COLUMNS
    if commit_timestamps:
        ledger_columns = (*ledger_columns, "CommittedAt")
        row = (*row, spanner.COMMIT_TIMESTAMP)
    transaction.insert(LEDGER, columns=ledger_columns, values=[row])


def commit_time_us(committed: datetime) -> int:
    """Return a commit timestamp as microseconds since 1970; smaller digits are cut off."""
    return (committed - _EPOCH) // timedelta(microseconds=1)
