"""Whether the run that works on a checkpoint still lives: it renews its lease, or gives it back.

A lease protects nothing: the writers' numbers do (see `writers`).  It only lets a second run stand
by.  Without it two supervised runs would replace each other without end.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.json_files import JsonFiles, JsonStorage
from tidegate.spark_consumer.errors import CheckpointMismatch

RENEWED_EVERY_S = 2.0
_MISSED = 3
"""Renewals that do not come before a run counts as gone."""


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """What is stored of a writer's lease; `writer` is 0 before the first run.

    `renewals` is None for a run that has written no lease: it has just begun, or is of a version
    without leases.
    """

    writer: int
    renewals: int | None = None
    every_s: float = RENEWED_EVERY_S
    is_given_back: bool = False


class Lease:
    """The lease of the run that is the writer; every method raises WriterReplaced after another."""

    def __init__(self, files: JsonStorage, writer: int) -> None:
        """Take the `gate` folder and the run's number; nothing is written before `renew`."""
        self._files = files
        self._writer = writer
        self._renewals = 0

    def renew(self) -> None:
        """Say that this run lives."""
        self._renewals += 1
        self._write(is_given_back=False)
        if self._renewals == 1 and self._writer > 1:
            self._files.delete([_file(self._writer - 1)])

    def give_back(self) -> None:
        """Say that this run has ended: the next one need not wait."""
        self._write(is_given_back=True)

    def _write(self, *, is_given_back: bool) -> None:
        content = {
            "renewals": self._renewals,
            "every_s": RENEWED_EVERY_S,
            "is_given_back": is_given_back,
        }
        self._files.write_json(_file(self._writer), content)


class LeaseWatch:
    """Decides when the run that works on a checkpoint counts as gone, from what is seen of it."""

    def __init__(self) -> None:
        """Have seen nothing."""
        self._seen: LeaseSeen | None = None
        self._since_s = 0.0
        self.is_renewed = False
        """Whether a renewal was seen: the other run lives, or did until a moment ago."""

    def may_take(self, seen: LeaseSeen, *, now_s: float) -> bool:
        """Return whether nobody works on the checkpoint; `now_s` never goes back."""
        if seen.writer == 0 or seen.is_given_back:
            return True
        if seen != self._seen:
            self.is_renewed = self._seen is not None
            self._seen, self._since_s = seen, now_s
        return now_s - self._since_s > _MISSED * seen.every_s


def seen_lease(files: JsonFiles, writer: int) -> LeaseSeen:
    """Return what is stored of a run's lease, given the run's number.

    A lease that cannot be read counts as one that is not written yet: a run of an earlier version
    does not replace a local file and Hadoop's checksum of it in one step.
    """
    try:
        content = files.read_json(_file(writer)) if writer else None
    except (UnreachableError, CheckpointMismatch):
        content = None
    return LeaseSeen(writer) if content is None else LeaseSeen(writer, **content)


def _file(writer: int) -> str:
    return f"leases/{writer:012d}.json"
