"""Queries and tables with given answers, shared by the tests of backfills."""

from tidegate.producer.backfill.read_partition import KeyRanges
from tidegate.producer.records import DataChangeRecord

T_NS = 1_700_000_000_000_001_500


class Answer:
    """A response with given records."""

    size_bytes = 10

    def __init__(self, *records):
        self._records = list(records)

    def decode(self):
        return self._records, 0


class Query:
    """A query with given responses; one that is an error is raised."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.is_cancelled = False

    async def next_size(self):
        if self._answers and isinstance(self._answers[0], Exception):
            raise self._answers[0]
        return 10 if self._answers else None

    async def receive(self):
        return self._answers.pop(0)

    def cancel(self):
        self.is_cancelled = True


def change(at_ns, *, table="t", number=0):
    """Return a row that a backfill has read."""
    return DataChangeRecord(
        at_ns, "00000000", f"spanner-backfill-{number}", True, table, (), (), "INSERT", "NEW_ROW",
        1, 1, "spanner-backfill", False,
    )  # fmt: skip


def key_ranges(rows, **sizes):
    """Return ranges over the keys (1,) to (rows,), added in steps as a read adds them."""
    ranges = KeyRanges(**sizes)
    at = 0
    while (step := ranges.rows_to_end()) <= rows - at:
        ranges.pass_over(step - 1)
        at += step
        ranges.end_at((at,))
    ranges.pass_over(rows - at)
    return ranges
