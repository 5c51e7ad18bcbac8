"""What is said where the JVM has another S3A than the one that a checkpoint in S3 needs."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.s3_objects import S3Objects


def missing(*_):
    raise Py4JError("Method getS3AInternals([]) does not exist")


def test_a_file_system_without_the_client_is_refused_with_what_to_use():
    files = MagicMock()
    files.getS3AInternals = missing
    with pytest.raises(ConfigError, match="hadoop-aws") as raised:
        S3Objects(MagicMock(), files)
    assert "3.4.1" in raised.value.hint
    assert "getS3AInternals" in raised.value.fields["cause"]


def test_a_factory_with_other_arguments_is_refused_before_anything_is_sent():
    files = MagicMock()
    files.getRequestFactory().newPutObjectRequestBuilder = missing
    objects = S3Objects(MagicMock(), files)
    with pytest.raises(ConfigError, match="hadoop-aws"):
        objects.put("path", b"{}")
    files.getS3AInternals().getAmazonS3Client().putObject.assert_not_called()


def test_a_jvm_that_is_gone_is_not_taken_for_another_hadoop():
    files = MagicMock()
    files.getS3AInternals.side_effect = Py4JNetworkError("connection refused")
    with pytest.raises(Py4JNetworkError):
        S3Objects(MagicMock(), files)
