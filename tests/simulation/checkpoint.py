"""What outlives a consumer's process: Spark's logs, the gate's files, the sinks.

Everything is kept as text or as plain rows, never as the core's own objects, so that nothing
passes from one batch to the next but what was stored.  A writer that has been superseded is
refused, as `spark.storage` does by its epoch; a sink knows a release by its number and takes it
once, as Delta does by `txnVersion`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.history import Mirror, Released
from tidegate.schemas.order_key import OrderKey
from tidegate.spark_consumer.errors import CheckpointMismatch

__all__ = ["Changelog", "Checkpoint", "DataRow", "MirrorTable", "SupersededError", "fold_row"]

Ends = dict[str, dict[int, int]]


class SupersededError(Exception):
    """Another consumer has taken the checkpoint over."""


@dataclass(frozen=True, slots=True)
class DataRow:
    """A data record as the gate's batch holds it."""

    order_key: bytes
    topic: str
    topic_partition: int
    offset: int
    key: bytes
    mod: str
    columns: tuple[tuple[str, int], ...]

    @property
    def commit_timestamp_us(self) -> int:
        return OrderKey.decode(self.order_key).commit_timestamp_us


@dataclass(slots=True)
class Changelog:
    """The released changes, each release appended once."""

    releases: list[Released] = field(default_factory=list)

    def write(self, released: Released) -> None:
        if not self.releases or released.number > self.releases[-1].number:
            self.releases.append(released)


@dataclass(slots=True)
class MirrorTable:
    """The source's rows as of the last release."""

    rows: dict[tuple[str, bytes], dict[str, int]] = field(default_factory=dict)
    release: int = -1

    def write(self, number: int, through_us: int, changes: Iterable[DataRow]) -> Mirror | None:
        if number <= self.release:
            return None
        self.release = number
        grouped: dict[tuple[str, bytes], list[DataRow]] = {}
        for change in changes:
            grouped.setdefault((change.topic, change.key), []).append(change)
        for place, of_key in grouped.items():
            row = fold_row(self.rows.get(place), of_key)
            if row is None:
                self.rows.pop(place, None)
            else:
                self.rows[place] = row
        return Mirror(through_us, {place: dict(row) for place, row in self.rows.items()})


def fold_row(before: Mapping[str, int] | None, changes: Iterable[DataRow]) -> dict[str, int] | None:
    """Fold one key's changes, in order, column by column, since its last INSERT or DELETE."""
    row = None if before is None else dict(before)
    for change in changes:
        if change.mod == "D":
            row = None
        elif change.mod == "I":
            row = dict(change.columns)
        elif row is not None:
            row.update(change.columns)
    return row


@dataclass(slots=True)
class Checkpoint:
    """See the module."""

    offsets: dict[int, Ends] = field(default_factory=dict)
    """Spark's offset log: batch -> end offsets, written before the batch runs."""
    committed: int = -1
    """Spark's commit log: the last batch that is done."""
    files: dict[str, str] = field(default_factory=dict)
    segments: dict[str, list[DataRow]] = field(default_factory=dict)
    changelog: Changelog = field(default_factory=Changelog)
    mirror: MirrorTable = field(default_factory=MirrorTable)
    late: dict[int, list[DataRow]] = field(default_factory=dict)
    """Batch -> its late rows."""
    epoch: int = 0

    def take_over(self) -> int:
        """Become the writer; return the epoch to write under."""
        self.epoch += 1
        return self.epoch

    def require(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise SupersededError

    def read(self, name: str) -> Any:
        text = self.files.get(name)
        return None if text is None else json.loads(text)

    def create(self, name: str, content: Mapping[str, Any]) -> None:
        if name in self.files:
            message = "another run has planned this batch"
            raise CheckpointMismatch(message, name=name)
        self.write(name, content)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        self.files[name] = json.dumps(content)
