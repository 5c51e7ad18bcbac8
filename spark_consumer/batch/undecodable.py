"""Which record of a release it is that Spark could not decode.

Spark's error names no record, and a task of it fails at the first of many; a sink that decodes
records itself does not know where they stand.  So the records are decoded once more, one after the
other in the driver, which names the first that it cannot decode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.errors import UndecodableRecord
from tidegate.spark_consumer.sinks.row_decoding import decode_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_OF_DECODING = (
    "MALFORMED_AVRO_MESSAGE",
    "Malformed records are detected",
    "has a schema id that the plan does not name",
    "names no stream partition",
)
"""What the errors say in `sinks.decoding`, and in Spark's own Avro functions."""

_COLUMNS = ("topic", "topic_partition", "offset", "order_key", "key", "value", "origin")


@contextmanager
def naming_undecodable(
    rows: DataFrame, topics: Mapping[str, TopicSchemas], *, release: int
) -> Iterator[None]:
    """Within the block, raise UndecodableRecord with its place where a record cannot be decoded.

    `rows` are the release's, with every column of a record; they must be readable still.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        is_of_a_sink = isinstance(error, UndecodableRecord)
        if is_of_a_sink or any(sign in text for sign in _OF_DECODING):
            _decode_each(rows, topics, release=release)
        raise


def _decode_each(rows: DataFrame, topics: Mapping[str, TopicSchemas], *, release: int) -> None:
    for row in rows.select(*_COLUMNS).toLocalIterator():
        record = {**row.asDict(), "ordinal": 0}
        if row["topic"] in topics:
            decode_rows([record], topics[row["topic"]], release=release)
