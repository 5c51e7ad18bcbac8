"""How files are written in each kind of store: whole or not at all, and new ones once.

Everything that keeps two runs apart rests on `create`, so a store that cannot decide between two
creators of a file is refused.
"""

from __future__ import annotations

from typing import Protocol

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.hadoop_folder import HadoopFolder
from tidegate.spark_consumer.checkpoint.moved_files import AzureFiles, HdfsFiles, LocalFiles
from tidegate.spark_consumer.checkpoint.put_objects import PutObjects
from tidegate.spark_consumer.checkpoint.s3_objects import S3Objects

_HDFS = frozenset({"hdfs", "webhdfs", "swebhdfs"})
_HAS_FOLDERS = "fs.capability.etags.preserved.in.rename"
"""What Hadoop says of an account of Azure with a hierarchical namespace, and of no other."""

_PLACES = "a local disk, HDFS, s3a://, gs:// or abfss:// (with a hierarchical namespace)"


class WholeFiles(Protocol):
    """Writes the files of one folder; who reads meanwhile finds the former file or the new one.

    Methods raise UnreachableError if the store fails; the file may be written then.
    """

    def create(self, name: str, data: bytes) -> None:
        """Write a file that does not exist; raises NameTaken if it does.

        Of any number of simultaneous calls one at most returns.
        """
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, in place of one that has the name."""
        ...


def find_whole_files(folder: HadoopFolder) -> WholeFiles:
    """Return how files are written to a folder; raises ConfigError for a store that may not be."""
    schemes = folder.schemes
    if schemes <= _HDFS:
        return HdfsFiles(folder)
    if schemes == {"file"}:
        return LocalFiles(folder)
    if schemes == {"s3a"}:
        return S3Objects(folder)
    if schemes == {"gs"}:
        return PutObjects(folder)
    if folder.is_in_azure and folder.can(_HAS_FOLDERS):
        return AzureFiles(folder)
    raise ConfigError(
        "the store of a folder cannot decide which of two runs creates a file",
        hint="Write s3a:// in place of s3://" if schemes == {"s3"} else f"Use {_PLACES}",
        folder=folder.root,
        scheme=", ".join(sorted(schemes)),
    )
