"""A bank in a database that Datastream captures: two tables, and the changes of each transfer.

A transfer changes two accounts and adds a row to the ledger; some close an account, which deletes
its row, and some open a closed one again.  So all balances always add up to the same total.
Pure: the same seed gives the same changes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

DATABASE = "bank"
KEY = "id"
_ACCOUNTS, _LEDGER = "accounts", "ledger"
_OPENING = Decimal("1000.00")
_TURNS, _CLOSES = 24, (6, 18)
"""How many transfers make a turn, and which of them close an account; the first opens one again."""
_KEEP_OPEN = 3
_OWNERS = ("Ada", "Bjarne", "Cleo", "Dmitri", "Edsger", "Frances", "Grace", "Hedy")


def _nullable(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


_MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
_INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
FIELDS = {
    _ACCOUNTS: (
        _nullable(KEY, "long"),
        _nullable("owner", "string"),
        _nullable("balance", _MONEY),
        _nullable("transfers", "long"),
        _nullable("changed_at", _INSTANT),
    ),
    _LEDGER: (
        _nullable(KEY, "long"),
        _nullable("from_account", "long"),
        _nullable("to_account", "long"),
        _nullable("amount", _MONEY),
        _nullable("note", "string"),
    ),
}
"""The columns of each table, as fields of an Avro record."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change: the row after it, or the row that was deleted."""

    table: str
    kind: Literal["INSERT", "UPDATE", "DELETE"]
    row: Mapping[str, Any]


class SourceBank:
    """The rows of both tables; a timestamp is a number of microseconds since 1970."""

    def __init__(self, *, accounts: int, rows: int, seed: int, opened_us: int) -> None:
        """Open that many accounts and make `rows` transfers, from before the stream."""
        self._seed = seed
        self._closed: list[int] = []
        self.tables: dict[str, dict[int, dict[str, Any]]] = {_ACCOUNTS: {}, _LEDGER: {}}
        """The rows that there are now, by key."""
        for number in range(1, accounts + 1):
            self.tables[_ACCOUNTS][number] = {
                KEY: number,
                "owner": _OWNERS[number % len(_OWNERS)],
                "balance": _OPENING,
                "transfers": 0,
                "changed_at": opened_us,
            }
        self.total = accounts * _OPENING
        for number in range(rows):
            self._move(number, at_us=opened_us, chance=self._chance(number))
        self._first = rows

    def transfer(self, number: int, *, at_us: int) -> list[RowChange]:
        """Make the n-th transfer of the stream; return its changes in order."""
        turn, number = number % _TURNS, number + self._first
        chance = self._chance(number)
        if turn in _CLOSES and len(self.tables[_ACCOUNTS]) > _KEEP_OPEN:
            return self._close(number, at_us=at_us, chance=chance)
        if turn == 0 and self._closed:
            return self._open_again(number, at_us=at_us, chance=chance)
        return self._move(number, at_us=at_us, chance=chance)

    def _chance(self, number: int) -> random.Random:
        return random.Random(f"{self._seed}/{number}")  # noqa: S311 - sample data

    def _move(self, number: int, *, at_us: int, chance: random.Random) -> list[RowChange]:
        giver, taker = chance.sample(sorted(self.tables[_ACCOUNTS]), 2)
        balance = self.tables[_ACCOUNTS][giver]["balance"]
        amount = (balance * chance.randrange(1, 10) / 100).quantize(Decimal("0.01"))
        return [
            self._pay(giver, -amount, at_us=at_us),
            self._pay(taker, amount, at_us=at_us),
            self._entry(number, giver, taker, amount),
        ]

    def _close(self, number: int, *, at_us: int, chance: random.Random) -> list[RowChange]:
        giver, taker = chance.sample(sorted(self.tables[_ACCOUNTS]), 2)
        row = self.tables[_ACCOUNTS].pop(giver)
        self._closed.append(giver)
        return [
            RowChange(_ACCOUNTS, "DELETE", row),
            self._pay(taker, row["balance"], at_us=at_us),
            self._entry(number, giver, taker, row["balance"]),
        ]

    def _open_again(self, number: int, *, at_us: int, chance: random.Random) -> list[RowChange]:
        accounts = self.tables[_ACCOUNTS]
        giver, taker = chance.choice(sorted(accounts)), self._closed.pop(0)
        amount = (accounts[giver]["balance"] / 2).quantize(Decimal("0.01"))
        accounts[taker] = {
            KEY: taker,
            "owner": chance.choice(_OWNERS),
            "balance": amount,
            "transfers": 1,
            "changed_at": at_us,
        }
        return [
            self._pay(giver, -amount, at_us=at_us),
            RowChange(_ACCOUNTS, "INSERT", accounts[taker]),
            self._entry(number, giver, taker, amount),
        ]

    def _pay(self, account: int, amount: Decimal, *, at_us: int) -> RowChange:
        row = self.tables[_ACCOUNTS][account]
        # A new row each time: changes and rows of a backfill keep their own.
        self.tables[_ACCOUNTS][account] = row = {
            **row,
            "balance": row["balance"] + amount,
            "transfers": row["transfers"] + 1,
            "changed_at": at_us,
        }
        return RowChange(_ACCOUNTS, "UPDATE", row)

    def _entry(self, number: int, giver: int, taker: int, amount: Decimal) -> RowChange:
        row = {
            KEY: number + 1,
            "from_account": giver,
            "to_account": taker,
            "amount": amount,
            "note": None if number % 7 == 0 else f"transfer {number + 1}",
        }
        self.tables[_LEDGER][number + 1] = row
        return RowChange(_LEDGER, "INSERT", row)
