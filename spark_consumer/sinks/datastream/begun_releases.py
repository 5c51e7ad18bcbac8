"""What decides a release's files, recorded before the first of them: its minute, form and limits.

Files are in the folder of the minute in which their release was begun, as Datastream's are in that
in which they were written.  A repeated release does not ask the clock, nor the settings, but the
record.  Of two runs that begin a release at the same time one writes the record, and both follow
it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import CheckpointMismatch

KEPT = 1_000
"""Records of so many releases are kept: a run that was replaced may still be at an older one."""

_S_PER_MINUTE = 60
_RECORD = re.compile(r"([0-9]{12,})\.json", re.ASCII)


class RecordFolder(Protocol):
    """The output, as far as records need it."""

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a file's content, or None if there is no such file."""
        ...

    def create_json(self, name: str, content: object) -> bool:
        """Write a file if it does not exist; return whether this call wrote it."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; empty if it does not exist."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are no error."""
        ...


@dataclass(frozen=True, slots=True)
class BegunRelease:
    """A release whose files may be written."""

    query_id: str
    release: int
    minute: int
    """Since 1970: that of the folder of all its files."""
    format: str
    rows_max: int
    bytes_max: int


class BegunReleases:
    """The records of one output."""

    def __init__(
        self,
        output: RecordFolder,
        *,
        folder: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`folder` is the records' own in the output; `clock` returns seconds since 1970."""
        self._output = output
        self._folder = folder
        self._clock = clock
        self._last_minute = 0

    def open(self, *, query_id: str, release_max: int) -> None:
        """Read the newest record; refuse files of another query, or ahead of its checkpoint.

        Raises ConfigError.
        """
        found = map(_RECORD.fullmatch, self._output.names(self._folder))
        numbers = sorted(int(one[1]) for one in found if one is not None)
        if not numbers:
            return
        newest = self._read(numbers[-1])
        if newest is None:
            return
        if newest.query_id != query_id:
            raise ConfigError(
                "the Datastream files of this output belong to another query",
                hint="Use the checkpoint that they were written with, or a new output",
                found=newest.query_id,
                expected=query_id,
            )
        if newest.release > release_max:
            raise ConfigError(
                "the Datastream files of this output are ahead of the checkpoint",
                hint="Restore the checkpoint's newest state, or use a new output and checkpoint",
                found=newest.release,
                expected=release_max,
            )
        self._last_minute = newest.minute
        self._output.delete(self._name(one) for one in numbers if one <= numbers[-1] - KEPT)

    def begin(
        self, release: int, *, query_id: str, file_format: str, rows_max: int, bytes_max: int
    ) -> tuple[BegunRelease, bool]:
        """Return a release's record, and whether it was begun before; minutes never fall."""
        found = self._read(release)
        if found is None:
            minute = max(int(self._clock()) // _S_PER_MINUTE, self._last_minute)
            begun = BegunRelease(query_id, release, minute, file_format, rows_max, bytes_max)
            if self._output.create_json(self._name(release), asdict(begun)):
                self._last_minute = minute
                return begun, False
            found = self._read(release)
        if found is None or found.query_id != query_id:
            raise ConfigError(
                "another query writes Datastream files to this output",
                hint="Give each query an output of its own",
                release=release,
            )
        self._last_minute = max(found.minute, self._last_minute)
        return found, True

    def finish(self, release: int) -> None:
        """Forget a release so far back that no run can be at it."""
        self._output.delete([self._name(release - KEPT)])

    def _name(self, release: int) -> str:
        return f"{self._folder}/{release:012d}.json"

    def _read(self, release: int) -> BegunRelease | None:
        name = self._name(release)
        content = self._output.read_json(name)
        if content is None:
            return None
        try:
            return BegunRelease(**content)
        except TypeError as error:
            raise CheckpointMismatch(
                "a record of begun Datastream files is not as Tidegate writes it",
                hint=(
                    "Restore checkpoint and output of one moment, or use a new "
                    "output and checkpoint"
                ),
                file=name,
                cause=str(error),
            ) from error
