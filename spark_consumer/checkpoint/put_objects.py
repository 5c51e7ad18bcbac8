"""Objects of Google Cloud Storage, each put by one request, which says what it may replace.

Google's connector sends the generation that an object must have (`ifGenerationMatch`): 0 for a new
one, and the one that it has found for one that is replaced.  Its rename copies, and replaces by a
deletion first, so it is not used; nor is `hsync`, which puts an object twice.
"""

from __future__ import annotations

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.hadoop_folder import HadoopFolder

_TRIES = 3


class PutObjects:
    """Objects below a folder of the scheme `gs`."""

    def __init__(self, folder: HadoopFolder) -> None:
        """Take a folder of Google's connector, or of Hadoop's own."""
        self._folder = folder

    def create(self, name: str, data: bytes) -> None:
        """Put an object that does not exist; raises NameTaken if it does.

        One that another run puts at the same time is an UnreachableError: who lost reads it.
        """
        self._put(name, data, may_replace=False)

    def replace(self, name: str, data: bytes) -> None:
        """Put an object, in place of one that has the name."""
        for left in reversed(range(_TRIES)):
            try:
                self._put(name, data, may_replace=True)
            except UnreachableError:
                # Another run put it between the look at its generation and the request, or the
                # answer was lost.  A store that does not answer ends this by another error.
                if self._folder.read(name) == data:
                    return
                if not left:
                    raise
            else:
                return

    def _put(self, name: str, data: bytes, *, may_replace: bool) -> None:
        path = self._folder.path(name)

        def put() -> None:
            stream = self._folder.files.create(path, may_replace)
            # A stream that is not closed puts nothing: no part of the data is ever seen.
            stream.write(bytearray(data))
            stream.close()

        (self._folder.call if may_replace else self._folder.naming)(put)
