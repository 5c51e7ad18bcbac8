"""What is asked of Hadoop's file system, and what its answers mean."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.s3_access import S3Access, S3Credentials


def access(kind="AwsBasicCredentials", key="key"):
    files = MagicMock()
    internals = files.getS3AInternals()
    found = internals.shareCredentials().resolveCredentials()
    found.accessKeyId.return_value = key
    found.secretAccessKey.return_value = "hush"
    found.sessionToken.return_value = "for an hour"
    found.getClass().getSimpleName.return_value = kind
    internals.shareCredentials.reset_mock()
    return S3Access(files), files


@pytest.mark.parametrize(
    ("kind", "token"), [("AwsBasicCredentials", None), ("AwsSessionCredentials", "for an hour")]
)
def test_credentials_come_from_one_list_of_providers(kind, token):
    s3, files = access(kind)
    for _ in range(2):
        assert s3.credentials() == S3Credentials("key", "hush", token)
    assert files.getS3AInternals().shareCredentials.call_count == 1


def test_anonymous_access_has_no_key():
    s3, _ = access(key=None)
    assert s3.credentials() is None


def test_settings_are_those_of_the_bucket():
    s3, files = access()
    files.getConf().getTrimmed.side_effect = {"fs.s3a.a.b": "c"}.get
    assert (s3.setting("a.b"), s3.setting("other")) == ("c", "")


def test_what_hadoop_refuses_to_say_is_unreachable():
    s3, files = access()
    thrown = MagicMock()
    thrown._target_id, thrown._gateway_client = "o1", MagicMock()
    thrown.toString.return_value = "NoAuthWithAWSException: no provider"
    error = Py4JJavaError("", thrown)
    files.getS3AInternals().getBucketLocation.side_effect = error
    with pytest.raises(UnreachableError, match="no provider"):
        s3.region()
