"""One table's changes in a small release, in the driver's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.change_types import change_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class CollectedTable:
    """A `DecodedTable` that is in memory too: `changes` are the rows of its frame.

    They are in the order of their ordinals, each a mapping with the columns
    `sinks.decoding.CHANGE_COLUMNS`.  Records are mappings, timestamps microseconds since 1970,
    dates days since 1970, UUIDs text.
    """

    def __init__(
        self,
        spark: SparkSession,
        make_frame: Callable[[], DataFrame],
        changes: Sequence[Mapping[str, Any]],
        schemas: TopicSchemas,
    ) -> None:
        """Take the changes, and how to have them as a frame, for a sink that needs one."""
        self.spark = spark
        self.changes = changes
        self.schemas = schemas
        self._make_frame = make_frame

    @property
    def rows(self) -> int:
        """Number of changes."""
        return len(self.changes)

    @property
    def schema(self) -> StructType:
        """The frame's columns, every field nullable."""
        return change_type(self.schemas)

    @cached_property
    def frame(self) -> DataFrame:
        """The same changes as a frame of Spark's, made when it is first asked for."""
        return self._make_frame()
