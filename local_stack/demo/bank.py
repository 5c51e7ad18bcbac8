"""The bank: two tables, their change stream, and the rules that hold at every moment.

A transfer debits one account, credits another and adds one ledger row, in one transaction.  So all
balances always add up to the same total, and each balance is the opening balance plus the ledger.
A reader that shows half a transaction, or one table later than the other, breaks one of the rules.
Pure: the same seed gives the same accounts and transfers.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidegate.local_stack.judge.delta import TableRows


ACCOUNTS = "accounts"
LEDGER = "ledger"
STREAM = "bank_changes"
ACCOUNT_COLUMNS = ("AccountId", "Owner", "Balance", "Transfers")
LEDGER_COLUMNS = ("TransferId", "FromAccount", "ToAccount", "Amount", "Note")
_COMMITTED_AT = "CommittedAt"
_STREAM_OPTIONS = "value_capture_type = 'OLD_AND_NEW_VALUES', retention_period = '7d'"

_OWNERS = ("Ada", "Bjarne", "Cleo", "Dmitri", "Edsger", "Frances", "Grace", "Hedy")


class Dialect(StrEnum):
    """The SQL of the bank's database; tables, columns and changes are the same in both."""

    GOOGLESQL = "googlesql"
    POSTGRESQL = "postgresql"


class KeyRanges(StrEnum):
    """Whether a stream partition has the same keys all its life."""

    IMMUTABLE = "immutable"
    MUTABLE = "mutable"


def schema_statements(
    *,
    commit_timestamps: bool = True,
    dialect: Dialect = Dialect.GOOGLESQL,
    key_ranges: KeyRanges = KeyRanges.IMMUTABLE,
) -> list[str]:
    """Return the DDL of tables and change stream.

    Without `commit_timestamps` the ledger has no column that Spanner fills with the commit
    timestamp: Google's emulator reports the year 9999 for it in its change stream.
    """
    options = _STREAM_OPTIONS
    if key_ranges is KeyRanges.MUTABLE:
        options += ", partition_mode = 'MUTABLE_KEY_RANGE'"
    if dialect is Dialect.POSTGRESQL:
        return _postgresql_statements(options, commit_timestamps=commit_timestamps)
    committed_at = (
        f"{_COMMITTED_AT} TIMESTAMP OPTIONS (allow_commit_timestamp = true),"
        if commit_timestamps
        else ""
    )
    return [
        f"""CREATE TABLE {ACCOUNTS} (
              AccountId STRING(36) NOT NULL,
              Owner STRING(MAX) NOT NULL,
              Balance INT64 NOT NULL,
              Transfers INT64 NOT NULL,
            ) PRIMARY KEY (AccountId)""",
        f"""CREATE TABLE {LEDGER} (
              TransferId STRING(36) NOT NULL,
              FromAccount STRING(36) NOT NULL,
              ToAccount STRING(36) NOT NULL,
              Amount INT64 NOT NULL,
              Note STRING(MAX),
              {committed_at}
            ) PRIMARY KEY (TransferId)""",
        f"CREATE CHANGE STREAM {STREAM} FOR {ACCOUNTS}, {LEDGER} OPTIONS ({options})",
    ]


def _postgresql_statements(options: str, *, commit_timestamps: bool) -> list[str]:
    """Columns are quoted: PostgreSQL folds other names to lower case."""
    committed_at = f'"{_COMMITTED_AT}" spanner.commit_timestamp,' if commit_timestamps else ""
    return [
        f"""CREATE TABLE {ACCOUNTS} (
              "AccountId" varchar(36) NOT NULL,
              "Owner" text NOT NULL,
              "Balance" bigint NOT NULL,
              "Transfers" bigint NOT NULL,
              PRIMARY KEY ("AccountId"))""",
        f"""CREATE TABLE {LEDGER} (
              "TransferId" varchar(36) NOT NULL,
              "FromAccount" varchar(36) NOT NULL,
              "ToAccount" varchar(36) NOT NULL,
              "Amount" bigint NOT NULL,
              "Note" text,
              {committed_at}
              PRIMARY KEY ("TransferId"))""",
        f"CREATE CHANGE STREAM {STREAM} FOR {ACCOUNTS}, {LEDGER} WITH ({options})",
    ]


class Scenario(StrEnum):
    """A scenario of the demo."""

    BANK = "bank"
    BACKFILL = "backfill"
    DATASTREAM = "datastream"


class FilesOf(StrEnum):
    """The kind of database whose changes Datastream's files have."""

    MYSQL = "mysql"
    ORACLE = "oracle"
    POSTGRESQL = "postgresql"
    SQLSERVER = "sqlserver"
    SALESFORCE = "salesforce"

    @property
    def vendor_name(self) -> str:
        """The name as its vendor writes it."""
        return _TITLES[self]


_TITLES = {
    FilesOf.MYSQL: "MySQL",
    FilesOf.ORACLE: "Oracle",
    FilesOf.POSTGRESQL: "PostgreSQL",
    FilesOf.SQLSERVER: "SQL Server",
    FilesOf.SALESFORCE: "Salesforce",
}


@dataclass(frozen=True, slots=True)
class Transfer:
    """A requested transfer; `settle` reduces the amount to the account's balance."""

    transfer_id: str
    debit: str
    credit: str
    amount: int
    note: str | None

    def settle(self, debit_balance: int, credit_balance: int) -> tuple[str, str, int]:
        """Return debited account, credited account and amount; no balance falls below zero.

        If the debited account is empty, the transfer is reversed.
        """
        if debit_balance > 0:
            return self.debit, self.credit, min(self.amount, debit_balance)
        return self.credit, self.debit, min(self.amount, credit_balance)


class History(NamedTuple):
    """The rows of both tables, in the order of their columns."""

    accounts: list[tuple[str, str, int, int]]
    ledger: list[tuple[str, str, str, int, str | None]]


@dataclass(frozen=True, slots=True)
class Bank:
    """A bank's size and seed, which decide everything else."""

    accounts: int
    seed: int
    opening_balance: int = 1_000

    @property
    def total(self) -> int:
        """The sum of all balances, at every moment."""
        return self.accounts * self.opening_balance

    def account_id(self, index: int) -> str:
        """Return an account's key; keys are spread evenly over the key space."""
        return _spread(self.seed, "account", index)

    def opening_rows(self) -> list[tuple[str, str, int, int]]:
        """Return the opening rows of the accounts, in the order of `ACCOUNT_COLUMNS`."""
        return [
            (self.account_id(index), _OWNERS[index % len(_OWNERS)], self.opening_balance, 0)
            for index in range(self.accounts)
        ]

    def transfer(self, number: int) -> Transfer:
        """Return a transfer by its number; it depends on no other transfer."""
        chance = random.Random(f"{self.seed}/transfer/{number}")  # noqa: S311 - a workload, no secret
        debit, credit = chance.sample(range(self.accounts), 2)
        return Transfer(
            transfer_id=_spread(self.seed, "transfer", number),
            debit=self.account_id(debit),
            credit=self.account_id(credit),
            amount=chance.randint(1, 100),
            note=None if chance.random() < 0.25 else f"no {number}",
        )

    def after(self, numbers: Iterable[int]) -> History:
        """Return the rows that both tables have after these transfers, in this order."""
        balances = {row[0]: row[2] for row in self.opening_rows()}
        moves: Counter[str] = Counter()
        ledger = []
        for number in numbers:
            transfer = self.transfer(number)
            debit, credit, amount = transfer.settle(
                balances[transfer.debit], balances[transfer.credit]
            )
            balances[debit] -= amount
            balances[credit] += amount
            moves.update((debit, credit))
            ledger.append((transfer.transfer_id, debit, credit, amount, transfer.note))
        return History(
            [
                (account, owner, balances[account], moves[account])
                for account, owner, _, _ in self.opening_rows()
            ],
            ledger,
        )

    def faults(self, tables: Mapping[str, TableRows], *, opened: bool) -> Sequence[str]:
        """Return the rules that a cut through both tables breaks, one text each.

        `opened`: whether the accounts were open at the time of the cut.
        """
        accounts, ledger = tables[ACCOUNTS], tables[LEDGER]
        balances = dict(
            zip(accounts.get("AccountId", ()), accounts.get("Balance", ()), strict=True)
        )
        expected_total = self.total if opened else 0
        faults = []
        total = sum(balances.values())
        if total != expected_total:
            faults.append(f"the balances add up to {total}, not to {expected_total}")
        moved: defaultdict[str, int] = defaultdict(int)
        for debit, credit, amount in zip(
            ledger.get("FromAccount", ()),
            ledger.get("ToAccount", ()),
            ledger.get("Amount", ()),
            strict=True,
        ):
            moved[debit] -= amount
            moved[credit] += amount
        unexplained = [
            account
            for account in sorted(balances.keys() | moved.keys())
            if balances.get(account) != self.opening_balance + moved.get(account, 0)
        ]
        if unexplained:
            first = unexplained[0]
            faults.append(
                f"the ledger does not explain {len(unexplained)} balances; {first} has "
                f"{balances.get(first)}, not {self.opening_balance + moved.get(first, 0)}"
            )
        return faults


def _spread(seed: int, what: str, index: int) -> str:
    digest = hashlib.blake2b(f"{seed}/{what}/{index}".encode(), digest_size=16).digest()
    return str(uuid.UUID(bytes=digest))
