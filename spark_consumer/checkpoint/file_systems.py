"""Hadoop's file systems by scheme: names what is missing if Spark has none for an address."""

from __future__ import annotations

from tidegate.schemas.errors import ConfigError

FILE_SYSTEMS: dict[str, tuple[str, ...]] = {
    "s3a": ("org.apache.hadoop.fs.s3a.S3AFileSystem",),
    # Google's own, and Hadoop's from 3.5.0 on.
    "gs": (
        "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem",
    ),
    "abfs": ("org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",),
    "abfss": ("org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",),
}
"""The classes of the stores that Spark has no jar for, by scheme: one of them is needed."""

_GCS_HINT = (
    "Add the jar gcs-connector-4.0.0-shaded.jar to jars, or to Spark's folder jars; with "
    f"spark-submit use --jars. Set spark.hadoop.fs.gs.impl to {FILE_SYSTEMS['gs'][0]}"
)

_NO_CLASS = "java.lang.ClassNotFoundException"
_NO_SCHEME = "org.apache.hadoop.fs.UnsupportedFileSystemException"


def is_missing_file_system(exception: str, text: str) -> bool:
    """Whether an exception of Java, by its class and text, says that a file system is missing.

    A class that is not found may also be one that the file system's settings name.
    """
    return exception == _NO_SCHEME or (exception == _NO_CLASS and "FileSystem" in text)


def missing_file_system(address: str) -> ConfigError:
    """Return the error for an address whose file system Spark does not have."""
    scheme = address.partition(":")[0]
    if scheme in ("s3", "s3n"):
        hint = f"Write s3a:// in place of {scheme}://"
    elif scheme == "s3a":
        hint = (
            "Add org.apache.hadoop:hadoop-aws:3.4.1 to packages, or its jars to jars or to Spark's "
            "folder jars; with spark-submit use --packages"
        )
    elif scheme == "gs":
        hint = _GCS_HINT
    elif scheme in ("abfs", "abfss"):
        hint = (
            "Add org.apache.hadoop:hadoop-azure, in the version of Spark's own Hadoop, to "
            "packages; with spark-submit use --packages"
        )
    else:
        hint = "Check the scheme of the address, or add the jar of its file system to packages"
    message = "Spark has no file system for the scheme of a folder"
    return ConfigError(message, hint=hint, folder=address, scheme=scheme)
