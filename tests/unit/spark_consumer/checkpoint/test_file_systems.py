"""Which errors of Java say that Spark has no file system for an address."""

from __future__ import annotations

import pytest

from tidegate.spark_consumer.checkpoint.file_systems import is_missing_file_system

NO_CLASS = "java.lang.ClassNotFoundException"


@pytest.mark.parametrize(
    ("name", "text", "is_missing"),
    [
        (NO_CLASS, "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", True),
        (NO_CLASS, "Class com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem not found", True),
        (
            "org.apache.hadoop.fs.UnsupportedFileSystemException",
            'No FileSystem for scheme "other"',
            True,
        ),
        # The file system is there, and lacks what its settings name, or a jar of its own.
        (NO_CLASS, "Class com.example.OurCredentials not found", False),
        (NO_CLASS, "software.amazon.awssdk.core.exception.SdkException", False),
        ("java.io.IOException", "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", False),
    ],
)
def test_only_a_missing_file_system_is_one(name, text, is_missing):
    assert is_missing_file_system(name, text) is is_missing
