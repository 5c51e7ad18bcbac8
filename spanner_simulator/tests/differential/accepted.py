"""Differences that are meant, each with its reason and a test as narrow as it can be.

A difference is accepted where the specification says otherwise than the emulator does, or where the
emulator lacks what the simulator has. Whatever no entry accepts is unexplained.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from differential.accepted_records import (
    is_back_fill,
    is_infinite,
    is_null_map,
    is_pending_timestamp,
    is_replaced,
    is_split_record,
    is_tag,
    is_unmodified_column,
    is_untracked_update,
    is_without_fraction,
    statements_of,
)
from differential.difference import Difference
from differential.steps import Delete, Query, Write

_ROW_FAULTS = ("ALREADY_EXISTS ", "FAILED_PRECONDITION ", "NOT_FOUND ", "OUT_OF_RANGE ")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A name, why the simulator is right, and which differences are meant."""

    name: str
    reason: str
    holds: Callable[[Difference], bool]


def _is_order_of_faults(difference: Difference) -> bool:
    """Two faults of rows, of which each side reported the one that it met first."""
    step = difference.facts.get("step")
    rows = sum(len(one.rows) for one in getattr(step, "mutations", ()) if isinstance(one, Write))
    rows += sum(text.count("), (") + 1 for text in statements_of(step))
    both = str(difference.simulator), str(difference.emulator)
    return (
        difference.kind == "code" and rows > 1 and all(one.startswith(_ROW_FAULTS) for one in both)
    )


def _is_update_of_deleted(difference: Difference) -> bool:
    step = difference.facts.get("step")
    mutations = getattr(step, "mutations", ())
    updated = [
        at for at, one in enumerate(mutations) if isinstance(one, Write) and one.kind == "update"
    ]
    # The row's own delete, or that of its parent.
    deletes = any(isinstance(one, Delete) for one in mutations[: max(updated, default=0)]) or any(
        text.startswith("DELETE ") for text in statements_of(step)
    )
    return (
        difference.kind == "code"
        and bool(updated)
        and deletes
        and str(difference.simulator).startswith("NOT_FOUND ")
        and str(difference.emulator).endswith(
            "was deleted and then updated in the same transaction."
        )
    )


def _is_internal(difference: Difference) -> bool:
    return (
        difference.kind == "code"
        and str(difference.simulator).startswith("INVALID_ARGUMENT ")
        and str(difference.emulator).startswith(
            ("INTERNAL ZETASQL_RET_CHECK", "UNKNOWN Unexpected error in RPC handling")
        )
    )


def _is_of_the_future(difference: Difference) -> bool:
    """A query in the past of a table that was not there yet."""
    action = difference.facts.get("action")
    return (
        difference.kind == "code"
        and isinstance(action, Query)
        and action.at is not None
        and str(difference.simulator).startswith("INVALID_ARGUMENT Table not found: ")
        and str(difference.emulator).startswith("NOT_FOUND relation ")
    )


def _is_pending_read(difference: Difference) -> bool:
    """DML on a row whose commit timestamp is written already, in the same transaction."""
    ours, theirs = str(difference.simulator), str(difference.emulator)
    texts = list(statements_of(difference.facts.get("step")))
    return (
        difference.kind in ("success", "code")
        and ours.startswith(("succeeds: ", *_ROW_FAULTS))
        and any("PENDING_COMMIT_TIMESTAMP" in one for one in texts)
        and theirs.startswith("INVALID_ARGUMENT ")
        and theirs.endswith("has a pending CommitTimestamp")
    )


def _is_unprinted(difference: Difference) -> bool:
    left_out = r"\(vector_length=>\d+\)| VECTOR LENGTH \d+| HIDDEN"
    ours = re.sub(left_out, "", str(difference.simulator))
    return ours != str(difference.simulator) and ours == str(difference.emulator)


ACCEPTED: tuple[Accepted, ...] = (
    Accepted("tag", "the emulator leaves transaction_tag empty", is_tag),
    Accepted(
        "pending timestamp",
        "the emulator writes the end of time for a commit timestamp",
        is_pending_timestamp,
    ),
    Accepted(
        "fraction",
        "the emulator drops the fraction of a TIMESTAMP in keys, new_values and old_values, and "
        "writes the year 1 without its zeros",
        is_without_fraction,
    ),
    Accepted(
        "infinity",
        "NaN and the infinities are strings in mods; the emulator writes null",
        is_infinite,
    ),
    Accepted(
        "replace",
        "a row that is replaced, or deleted and inserted again, gives a DELETE and an INSERT; the "
        "emulator gives one INSERT",
        is_replaced,
    ),
    Accepted(
        "update of no tracked column",
        "gives no record; the emulator gives one under the two NEW_ROW types, and for DML",
        is_untracked_update,
    ),
    Accepted(
        "unmodified columns of DML",
        "an UPDATE reports the columns that it wrote; the emulator reports all of them for DML",
        is_unmodified_column,
    ),
    Accepted(
        "back-fill",
        "a new column's default is written into the present rows; the emulator reports nothing",
        is_back_fill,
    ),
    Accepted(
        "null old_values",
        "an empty map is {}; the emulator writes null where no tracked column was written",
        is_null_map,
    ),
    Accepted(
        "split record",
        "changes of a row that came to nothing do not split a record; on the emulator they do",
        is_split_record,
    ),
    Accepted(
        "update of a deleted row",
        "mutations apply in their order, so the row is missing: NOT_FOUND",
        _is_update_of_deleted,
    ),
    Accepted(
        "read of a pending timestamp by DML",
        "DML reads the columns that it needs; the emulator reads the whole row",
        _is_pending_read,
    ),
    Accepted(
        "table of the future",
        "is INVALID_ARGUMENT in both dialects; the emulator's PostgreSQL says NOT_FOUND",
        _is_of_the_future,
    ),
    Accepted(
        "internal errors of the emulator",
        "are crashes that were caught; the simulator names what is wrong",
        _is_internal,
    ),
    Accepted(
        "unprinted",
        "the emulator 1.5.28 leaves vector_length and HIDDEN out of the DDL that it prints",
        _is_unprinted,
    ),
    Accepted(
        "order of faults",
        "of several rows at fault each side reports the one that it meets first",
        _is_order_of_faults,
    ),
)


def accepted_by(difference: Difference) -> Accepted | None:
    """The first entry that accepts a difference."""
    return next((one for one in ACCEPTED if one.holds(difference)), None)
