"""A transaction as one record of the ordered topic: JSON, so that a subscriber needs no schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.schemas.instants import NS_PER_US, format_rfc3339


class TransactionChange(Protocol):
    """A change of a transaction; `key` and the values are JSON text, None where there is none."""

    ordinal: int
    table: str
    record_sequence: str
    mod_number: int
    mod_type: str
    key: str
    new_values: str | None
    old_values: str | None
    new_columns: Sequence[str] | None
    old_columns: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transaction's key and value, and how many changes it has."""

    first_ordinal: int
    changes: int
    key: bytes
    value: bytes


def transaction_record(
    *, commit_us: int, transaction_id: str, changes: Sequence[TransactionChange]
) -> TransactionRecord:
    """Return the record of a transaction; `changes` are in commit order.

    Its key is the transaction's id, and the value the same text however often it is made.
    """
    head = {
        "commit_timestamp": format_rfc3339(commit_us * NS_PER_US),
        "server_transaction_id": transaction_id,
    }
    listed = ",".join(map(_change, changes))
    value = f'{_text(head)[:-1]},"changes":[{listed}]}}'
    first = changes[0].ordinal
    return TransactionRecord(first, len(changes), transaction_id.encode(), value.encode())


def _change(one: TransactionChange) -> str:
    head = {
        "ordinal": one.ordinal,
        "table": one.table,
        "record_sequence": one.record_sequence,
        "mod_number": one.mod_number,
        "mod_type": one.mod_type,
    }
    columns = {"new_columns": one.new_columns, "old_columns": one.old_columns}
    # They are JSON already: reading them here would cost digits of their numbers.
    values = (
        f'"{name}":{"null" if text is None else text}'
        for name, text in (
            ("key", one.key),
            ("new_values", one.new_values),
            ("old_values", one.old_values),
        )
    )
    return f"{_text(head)[:-1]},{','.join(values)},{_text(columns)[1:]}"


def _text(content: object) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
