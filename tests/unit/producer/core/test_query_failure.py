"""What follows from an error, class by class."""

from __future__ import annotations

import pytest

from tidegate.producer.core.query_failure import Consequence, consequence_of
from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    PositionExpired,
    QueryInterrupted,
    QueryRefused,
    SourceFileError,
    SourceOrderBroken,
    TokenRefused,
    TooManyParkedKeys,
)
from tidegate.schemas.errors import (
    ConfigError,
    InvariantViolation,
    ProducerError,
    SchemaError,
    UnreachableError,
)
from tidegate.schemas.topics import ROOT_TOKEN


@pytest.mark.parametrize("kind", [QueryInterrupted, UnreachableError])
@pytest.mark.parametrize("token", ["a", ROOT_TOKEN])
def test_what_may_pass_is_retried(kind, token):
    assert consequence_of(kind("m"), token=token) is Consequence.RETRY


@pytest.mark.parametrize(
    "kind",
    [
        TokenRefused,
        PositionExpired,
        SourceOrderBroken,
        SchemaError,
        IncompatibleChange,
        MessageTooLarge,
        TooManyParkedKeys,
        SourceFileError,
    ],
)
def test_what_concerns_one_stream_partition_stops_it(kind):
    assert consequence_of(kind("m"), token="a") is Consequence.STOP_STREAM_PARTITION
    assert consequence_of(kind("m"), token=ROOT_TOKEN) is Consequence.STOP_WORKER


@pytest.mark.parametrize("kind", [QueryRefused, ConfigError, InvariantViolation, ProducerError])
def test_what_concerns_everything_stops_the_worker(kind):
    assert consequence_of(kind("m"), token="a") is Consequence.STOP_WORKER
