"""What a failed query means: for itself, for its stream partition, or for the whole worker.

The one place that decides it, by the error's class (docs/decisions/errors.md).  An error that
concerns one stream partition only must not hold up the others; one that concerns everything a
worker does must not look like a stream partition in trouble.
"""

from __future__ import annotations

from enum import Enum

from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    PositionExpired,
    SourceFileError,
    SourceOrderBroken,
    TokenRefused,
    TooManyParkedKeys,
    TopicRefused,
)
from tidegate.schemas.errors import SchemaError, TidegateError
from tidegate.schemas.topics import ROOT_TOKEN

_OF_ONE_STREAM_PARTITION = (
    TokenRefused,
    PositionExpired,
    SourceOrderBroken,
    # What one record holds.  Others may hold the same, and their stream partitions stop as well.
    SchemaError,
    IncompatibleChange,
    MessageTooLarge,
    TopicRefused,
    TooManyParkedKeys,
    SourceFileError,
)


class Consequence(Enum):
    """What follows from an error of one query."""

    RETRY = "the query is repeated, later each time"
    STOP_STREAM_PARTITION = "the stream partition stops; the others go on"
    STOP_WORKER = "the worker stops"


def consequence_of(error: TidegateError, *, token: str) -> Consequence:
    """Return what follows from an error of a token's query, or of what it returned.

    Every error of the initial query that is not retriable stops the worker: without its children
    there is nothing to go on with.
    """
    if error.retriable:
        return Consequence.RETRY
    if token != ROOT_TOKEN and isinstance(error, _OF_ONE_STREAM_PARTITION):
        return Consequence.STOP_STREAM_PARTITION
    return Consequence.STOP_WORKER
