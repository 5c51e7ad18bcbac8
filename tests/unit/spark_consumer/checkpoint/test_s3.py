"""What is asked of Hadoop's file system, and what its answers mean."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.file_systems import is_missing_file_system
from tidegate.spark_consumer.checkpoint.s3_access import S3Access, S3Credentials
from tidegate.spark_consumer.checkpoint.s3_objects import S3Objects


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
    s3, files = access(key=None)
    assert s3.credentials() is None  # anonymous access has no key
    files.getConf().getTrimmed.side_effect = {"fs.s3a.a.b": "c"}.get
    assert (s3.setting("a.b"), s3.setting("other")) == ("c", "")  # of the bucket


def test_what_hadoop_refuses_to_say_is_unreachable():
    s3, files = access()
    thrown = MagicMock()
    thrown._target_id, thrown._gateway_client = "o1", MagicMock()
    thrown.toString.return_value = "NoAuthWithAWSException: no provider"
    error = Py4JJavaError("", thrown)
    files.getS3AInternals().getBucketLocation.side_effect = error
    with pytest.raises(UnreachableError, match="no provider"):
        s3.region()


def missing(*_):
    raise Py4JError("Method getS3AInternals([]) does not exist")


def test_a_file_system_without_the_client_is_refused_with_what_to_use():
    files = MagicMock()
    files.getS3AInternals = missing
    with pytest.raises(ConfigError, match="hadoop-aws") as raised:
        S3Objects(MagicMock(), files)
    assert "3.4.1" in raised.value.hint
    assert "getS3AInternals" in raised.value.fields["cause"]
    # A JVM that is gone is not another Hadoop.
    files = MagicMock()
    files.getS3AInternals.side_effect = Py4JNetworkError("connection refused")
    with pytest.raises(Py4JNetworkError):
        S3Objects(MagicMock(), files)


def test_a_factory_with_other_arguments_is_refused_before_anything_is_sent():
    files = MagicMock()
    files.getRequestFactory().newPutObjectRequestBuilder = missing
    objects = S3Objects(MagicMock(), files)
    with pytest.raises(ConfigError, match="hadoop-aws"):
        objects.put("path", b"{}")
    files.getS3AInternals().getAmazonS3Client().putObject.assert_not_called()


NO_CLASS = "java.lang.ClassNotFoundException"


def test_only_a_missing_file_system_is_one():
    s3a = "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    unsupported = "org.apache.hadoop.fs.UnsupportedFileSystemException"
    gcs = "Class com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem not found"
    for name, text, is_missing in (
        (NO_CLASS, s3a, True),
        (NO_CLASS, gcs, True),
        (unsupported, 'No FileSystem for scheme "other"', True),
        # The file system is there, and lacks what its settings name, or a jar of its own.
        (NO_CLASS, "Class com.example.OurCredentials not found", False),
        (NO_CLASS, "software.amazon.awssdk.core.exception.SdkException", False),
        ("java.io.IOException", s3a, False),
    ):
        assert is_missing_file_system(name, text) is is_missing
