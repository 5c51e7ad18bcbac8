"""Small files on any file system that Spark can write to; a folder has one writer (see `writers`).

Every write first checks for a younger writer.  A file appears whole or not at all (`whole_files`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.hadoop_folder import HadoopFolder, NameTaken
from tidegate.spark_consumer.checkpoint.json_files import decoded
from tidegate.spark_consumer.checkpoint.store_access import StoreAccess, find_access
from tidegate.spark_consumer.checkpoint.whole_files import (
    UNFINISHED,
    WholeFiles,
    find_whole_files,
    next_name,
    read_replaced,
    replaced_names,
)
from tidegate.spark_consumer.checkpoint.writers import Writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_BITS_AS_BLANKS = {ord("0"): " ", ord("1"): "\t"}


class Storage:
    """One folder: implements `JsonStorage`; names are paths relative to it.

    Every method blocks, and raises UnreachableError if the file system fails.  Opening a folder
    raises ConfigError if Spark has no file system for its scheme; writing to it does so if the
    store cannot decide between two runs.
    """

    def __init__(self, spark: SparkSession, root: str, *, guard: Storage | None = None) -> None:
        """Open a folder; nothing is written before `take`.

        With a `guard`, the writer of that folder is the writer of this one.
        """
        self._folder = HadoopFolder(spark, root)
        self.root = self._folder.root
        self.writers: Writers = Writers(self) if guard is None else guard.writers

    @cached_property
    def _whole_files(self) -> WholeFiles:
        """How files are written.  A folder that is only read may be in any store."""
        return find_whole_files(self._folder)

    def require_store(self) -> None:
        """Raise ConfigError for a store that denies access, or cannot decide between two runs.

        Writes nothing.
        """
        _ = self._whole_files
        self._folder.require_access()

    def access(self) -> StoreAccess | None:
        """Return how Spark's session reaches the folder where it is in an object store."""
        return find_access(self._folder)

    def path(self, name: str) -> str:
        """Return the whole path of a name, for Spark's readers and writers."""
        return f"{self.root}/{name}"

    def take(self) -> int:
        """Become the folder's writer; return its number.  Former writers are refused from then."""
        return self.writers.take()

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None if there is no such file."""
        if self._folder.is_in_azure:
            return read_replaced(self._folder, name)
        return self._folder.read(name)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a JSON file's content, or None if there is no such file.

        Raises CheckpointMismatch if it is not JSON.
        """
        data = self.read(name)
        return None if data is None else decoded(data, file=self.path(name))

    def write_json(self, name: str, content: object) -> None:
        """Write or replace a file; raises WriterReplaced if there is a younger writer."""
        self.write(name, _encoded(content))

    def write(self, name: str, data: bytes) -> None:
        """Do as `write_json` with a file of any bytes."""
        self.require_writer()
        self._whole_files.replace(name, data)

    def create_json(self, name: str, content: object) -> bool:
        """Write a file if it does not exist; return whether this call wrote it."""
        self.require_writer()
        return self.create(name, content)

    def create(self, name: str, content: object) -> bool:
        """Do as `create_json`, also for a run that is not the writer."""
        data = _encoded(content) + _mark()
        try:
            self._whole_files.create(name, data)
        except NameTaken:
            stored = self.read(name)
            if stored is None:
                raise UnreachableError(
                    "the storage neither has a file nor creates it",
                    hint="Check the folder: the name may be that of a folder; then start again",
                    folder=self.root,
                    file=name,
                ) from None
        except UnreachableError:
            # Another run may have been faster, or the answer to this one was lost.
            stored = self.read(name)
            if stored is None:
                raise
        else:
            return True
        return stored == data

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; empty if it does not exist."""
        names: Iterable[str] = self._folder.names(folder)
        if self._folder.is_in_azure:
            names = replaced_names(names)
        return sorted(name for name in names if not name.startswith((".", "_")))

    def table_names(self, folder: str) -> list[str]:
        """Return the names of the tables in a folder, sorted; they may begin with an underscore."""
        return sorted(name for name in self._folder.names(folder) if not name.startswith("."))

    def written_ms(self, name: str) -> int | None:
        """Return when a file was written last, in milliseconds since 1970; None without it.

        By the file system's clock.
        """
        return self._folder.written_ms(name)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and folders with their content; missing ones are not an error."""
        self.require_writer()
        for name in names:
            if self._folder.is_in_azure:
                self._folder.delete(next_name(name))
            self._folder.delete(name)

    def move_folder(self, name: str, to: str) -> None:
        """Give a folder another name, in place of a folder that has it; raises WriterReplaced.

        In an object store a kill may leave a part of the files under the new name.
        """
        self.require_writer()
        self._folder.delete(to)
        self._folder.move_folder(name, to)

    def delete_unfinished(self, folders: Iterable[str], *, written_before_ms: int) -> int:
        """Delete the files that killed writes left in some folders; return their number.

        Times are milliseconds since 1970 by the file system's clock.  A write that began before and
        still runs fails.
        """
        self.require_writer()
        names = [
            name
            for folder in folders
            for name in self._folder.ending_with(
                UNFINISHED, folder, written_before_ms=written_before_ms
            )
        ]
        for name in names:
            self._folder.delete(name)
        return len(names)

    def require_writer(self) -> None:
        """Raise WriterReplaced if there is a younger writer, or `take` was never called."""
        self.writers.require()


def _mark() -> bytes:
    """Return unique blanks, by which a run recognises a file that it has created.

    They follow the JSON text, and mean nothing in it.
    """
    return f"{uuid4().int:0128b}".translate(_BITS_AS_BLANKS).encode()


def _encoded(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"
