"""The runs that work on a folder: each takes the next number, and the highest one may write.

Only the creation of a file that must not exist decides between two runs.  A run looks for its
successor's file and for its own: files of old numbers are deleted in ascending order, so a run that
stood still for long finds its successor's, or misses its own.  Those that a search for the newest
number needs (`claims`) are kept, with a note that their run is over.  A listing only says what can
be deleted: on an object store it may lack the youngest writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.claims import CLAIMS_KEPT, is_needed
from tidegate.spark_consumer.core.last_number import last_number
from tidegate.spark_consumer.errors import WriterReplaced

_FOLDER = "writers"
_DELETED_AT_ONCE = 1_000
_OVER = {"is_over": True}


class WriterFiles(Protocol):
    """The files that hold the numbers."""

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a file's content, or None if there is no such file; never outdated."""
        ...

    def create(self, name: str, content: Mapping[str, Any]) -> bool:
        """Write a file if it does not exist; return whether this call wrote it."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; the youngest ones may be missing."""
        ...

    def write_json(self, name: str, content: object) -> None:
        """Write or replace a file; raises WriterReplaced if there is a younger writer."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; raises WriterReplaced if there is a younger writer."""
        ...


class Writers:
    """The writers of one folder, as one run sees them.

    Numbers have no gaps: a run tries them one after the other.  So a run is replaced exactly when
    the file of the next number exists.
    """

    def __init__(self, files: WriterFiles, *, kept: int = CLAIMS_KEPT) -> None:
        """Be no writer before `take`; the newest `kept` numbers keep their files."""
        self._files = files
        self._kept = kept
        self.number: int | None = None

    def take(self) -> int:
        """Become the writer and return the number; the former writer is refused from then on.

        Raises WriterReplaced if yet another run has taken the folder meanwhile.
        """
        invariant(self.number is None, "a run takes a folder once", number=self.number)
        number = self.newest() + 1
        while not self._files.create(_file(number), {}):
            number += 1
        self.number = number
        self._delete_old(number)
        return number

    def newest(self) -> int:
        """Return the number of the run that is the writer now, 0 before the first."""
        return last_number(1, self._has)

    def require(self) -> None:
        """Raise WriterReplaced if there is a younger writer, or `take` was never called."""
        if self.number is None:
            message = "this run has not taken the folder"
        elif self._has(self.number + 1) or self._is_over(self.number):
            message = "another run has taken this folder"
        else:
            return
        raise WriterReplaced(
            message,
            hint="Only one run at a time may work on a checkpoint; this one stops",
            writer=self.number,
        )

    def _has(self, number: int) -> bool:
        return self._files.read_json(_file(number)) is not None

    def _is_over(self, number: int) -> bool:
        content = self._files.read_json(_file(number))
        return content is None or content == _OVER

    def _delete_old(self, newest: int) -> None:
        """Delete files that neither a run nor a search needs, the oldest first."""
        listed = sorted(int(name) for name in self._files.names(_FOLDER) if name.isdecimal())
        old = [
            number
            for number in listed
            if number <= newest - self._kept and not is_needed(number, newest=newest)
        ]
        for number in old[:_DELETED_AT_ONCE]:
            # The run before it looks for this file.
            if not self._is_over(number - 1):
                self._files.write_json(_file(number - 1), _OVER)
            self._files.delete([_file(number)])


def _file(number: int) -> str:
    return f"{_FOLDER}/{number:012d}"
