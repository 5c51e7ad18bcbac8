"""What the gate hands to a sink, and what a sink gives back.

A sink receives each release once or, after a kill, again: the same number, the same rows with the
same ordinals.  It recognises a release that it has already written and answers as it did the first
time.  It decides nothing about order or completeness: rows come deduplicated, numbered, complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

__all__ = ["Release", "Sink", "TableVersion", "TopicSchemas"]


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """How a topic's bytes are read; fixed in the plan, so that a replay reads them the same way.

    `table` is the topic without prefix and dot.  `reader_schema` is the newest value schema: its
    `Row` holds every column that any of the writer schemas has.  `writer_schemas` holds, by schema
    id, every schema that stands in a header of the release's rows, **of keys and of values**; ids
    that do not occur may be there too.  An id that is missing fails the release.
    """

    table: str
    key_schema: Mapping[str, Any]
    reader_schema: Mapping[str, Any]
    writer_schemas: Mapping[int, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Release:
    """All changes with `after_us` < commit timestamp <= `through_us`, in commit order.

    `rows`: topic string, topic_partition int, offset long, key binary, value binary (Confluent's
    framing), order_key binary, mod string (I, U, D), ordinal long.  `ordinal` is dense from 0 in
    the order of `order_key`, over all topics.  The gate has persisted the rows, which may be none.
    `topics` names every topic known at this release, also those without a row in it.
    `rows_by_topic` spares the sinks a count if the gate has one (a topic that is not in it has no
    row); None lets each sink count for itself.
    """

    number: int
    after_us: int
    through_us: int
    query_id: str
    batch: int
    rows: DataFrame
    topics: Mapping[str, TopicSchemas]
    rows_by_topic: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as it stands at a release.

    `path` is relative to the output.  `version` is the version that this release made, or the last
    one before it if it changed nothing.  `rows` counts what this release appended; None where that
    is no meaningful number.
    """

    path: str
    version: int
    rows: int | None = None


class Sink(Protocol):
    """One kind of output.

    The gate calls every sink with a release before it begins the next release.
    """

    @property
    def name(self) -> str:
        """Short name: in step log lines (`sink-<name>`), commit metadata and the manifest."""
        ...

    def open(self, *, query_id: str, release_max: int) -> None:
        """Check what the output already holds; called once, before the first `write`.

        `release_max` is the highest release number that the gate's state or plan names, -1 if none:
        what the plan of an unfinished batch names may be in the tables already.  Raises ConfigError
        if a table holds another query's commits or a higher release.
        """
        ...

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write a release; idempotent by its number.

        Returns a version for every table in `release.topics`, by table name.
        """
        ...
