"""The runs that work on a folder: each takes the next number, and the highest one may write.

Only the creation of a file that must not exist decides between two runs.  The folder is never
listed: on an object store a listing may lack the youngest writer, and there is a file for each
start that there ever was.  They stay: a run that stood still for long is refused by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.last_number import last_number
from tidegate.spark_consumer.errors import WriterReplaced

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["WriterFiles", "Writers"]

_FOLDER = "writers"


class WriterFiles(Protocol):
    """The files that hold the numbers."""

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a file's content, or None if there is no such file; never outdated."""
        ...

    def create(self, name: str, content: Mapping[str, Any]) -> bool:
        """Write a file if it does not exist; return whether this call wrote it."""
        ...


class Writers:
    """The writers of one folder, as one run sees them.

    Numbers have no gaps: a run tries them one after the other.  So a run is replaced exactly when
    the file of the next number exists.
    """

    def __init__(self, files: WriterFiles) -> None:
        """Be no writer before `take`."""
        self._files = files
        self.number: int | None = None

    def take(self) -> int:
        """Become the writer and return the number; the former writer is refused from then on."""
        invariant(self.number is None, "a run takes a folder once", number=self.number)
        number = self.newest() + 1
        while not self._files.create(_file(number), {}):
            number += 1
        self.number = number
        return number

    def newest(self) -> int:
        """Return the number of the run that is the writer now, 0 before the first."""
        return last_number(1, lambda number: self._files.read_json(_file(number)) is not None)

    def require(self) -> None:
        """Raise WriterReplaced if there is a younger writer, or `take` was never called."""
        if self.number is None:
            message = "this run has not taken the folder"
        elif self._files.read_json(_file(self.number + 1)) is not None:
            message = "another run has taken this folder"
        else:
            return
        hint = "Only one run at a time may work on a checkpoint; this one stops"
        raise WriterReplaced(message, hint=hint, writer=self.number)


def _file(number: int) -> str:
    return f"{_FOLDER}/{number:012d}"
