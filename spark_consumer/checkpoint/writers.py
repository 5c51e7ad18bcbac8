"""The runs that work on a folder: each takes the next number, and the highest one may write.

Only the creation of a file that must not exist decides between two runs.  A run looks for its
successor's file and for its own: files of old numbers are deleted in ascending order, so a run that
was paused for long finds its successor's file, or misses its own.  A listing is only used for
deleting: on an object store it may lack the youngest writer.

Kept are the files of the newest numbers, and those that a search for the newest number reads
(`last_number`), with a note that their run has ended.  Every later search reads the same numbers or
higher ones, and no delay makes that wrong: a file that is not needed for a number is not needed for
any higher one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.schemas.errors import UnreachableError, invariant
from tidegate.spark_consumer.checkpoint.json_files import JsonFiles, JsonStorage, not_as_written
from tidegate.spark_consumer.errors import CheckpointMismatch, WriterReplaced

CLAIMS_KEPT = 100
"""Newest numbers that are all kept."""

_FOLDER = "writers"
_DELETED_AT_ONCE = 1_000
_OVER = {"is_over": True}


class Writers:
    """The writers of one folder, as one run sees them.

    Numbers have no gaps: a run tries them one after the other.  So a run is replaced exactly when
    the file of the next number exists.
    """

    def __init__(self, files: JsonStorage, *, kept: int = CLAIMS_KEPT) -> None:
        """Be no writer before `take`; the newest `kept` numbers keep their files."""
        self._files = files
        self._kept = kept
        self.number: int | None = None

    def take(self) -> int:
        """Become the writer and return the number; the former writer is refused from then on.

        Raises WriterReplaced if another run has taken the folder in the meantime.
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


def is_needed(number: int, *, newest: int) -> bool:
    """Whether a search from 1 for a number of at least `newest` reads this lower number.

    It goes up to powers of two, less 1, and from there by halves: to `newest` + 1 without some of
    its low bits, less 1.
    """
    place = number + 1
    lowest_bit = place & -place
    return place == lowest_bit or (newest + 1) // lowest_bit * lowest_bit == place


def last_number(first: int, is_there: Callable[[int], bool]) -> int:
    """Return the last number from `first` on for which `is_there` is true; `first` - 1 for none.

    If it is true for a number, it must be true for all numbers from `first` to it.  Makes about
    twice the logarithm of their count of calls: in growing steps up, then by halves.
    """
    low, step = first - 1, 1
    while is_there(low + step):
        low += step
        step *= 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_there(middle) else (low, middle)
    return low


RENEWED_EVERY_S = 2.0
_MISSED = 3
"""The number of missed renewals after which a run counts as gone."""


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """The stored lease of a writer; `writer` is 0 before the first run.

    `renewals` is None for a run that has written no lease: it has just begun, or is of a version
    without leases.
    """

    writer: int
    renewals: int | None = None
    every_s: float = RENEWED_EVERY_S
    is_given_back: bool = False


class Lease:
    """The lease of the run that is the writer.

    Every method raises WriterReplaced once another run has taken the folder.

    The lease says whether the run is alive; it does not protect the folder, the writers' numbers
    do.  It lets a second run stand by.  Without it two supervised runs would replace each other
    without end.
    """

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
            self._files.delete([_lease_file(self._writer - 1)])

    def give_back(self) -> None:
        """Say that this run has ended: the next one need not wait."""
        self._write(is_given_back=True)

    def _write(self, *, is_given_back: bool) -> None:
        content = {
            "renewals": self._renewals,
            "every_s": RENEWED_EVERY_S,
            "is_given_back": is_given_back,
        }
        self._files.write_json(_lease_file(self._writer), content)


class LeaseWatch:
    """Decides from the renewals of a lease when the run that holds it counts as gone."""

    def __init__(self) -> None:
        """Start without an observation."""
        self._seen: LeaseSeen | None = None
        self._since_s = 0.0
        self.is_renewed = False
        """Whether a renewal was seen: the other run is alive, or was shortly before."""

    def may_take(self, seen: LeaseSeen, *, now_s: float) -> bool:
        """Return whether no run works on the checkpoint; `now_s` never goes back."""
        if seen.writer == 0 or seen.is_given_back:
            return True
        if seen != self._seen:
            self.is_renewed = self._seen is not None
            self._seen, self._since_s = seen, now_s
        return now_s - self._since_s > _MISSED * seen.every_s


def seen_lease(files: JsonFiles, writer: int) -> LeaseSeen:
    """Return the stored lease of a run, given the run's number.

    A lease that cannot be read counts as not written yet: a run of an earlier version does not
    replace a local file and its checksum of Hadoop's in one step.  Fields of later versions are
    ignored.  Raises CheckpointMismatch for a lease with values of other kinds.
    """
    try:
        content = files.read_json(_lease_file(writer)) if writer else None
    except (UnreachableError, CheckpointMismatch):
        content = None
    if content is None:
        return LeaseSeen(writer)
    try:
        return _lease(writer, content)
    except ValueError as error:
        raise not_as_written(_lease_file(writer), error) from error


def _lease(writer: int, content: object) -> LeaseSeen:
    """Return a lease; raises ValueError for values of other kinds."""
    fields = content if isinstance(content, dict) else {"renewals": content}
    renewals, every_s = fields.get("renewals"), fields.get("every_s", RENEWED_EVERY_S)
    is_given_back = fields.get("is_given_back", False)
    match renewals, every_s, is_given_back:
        case (None | int(), int() | float(), bool()) if not isinstance(renewals, bool):
            return LeaseSeen(writer, renewals, every_s, is_given_back)
    raise ValueError(f"unexpected lease {content!r}")


def _lease_file(writer: int) -> str:
    return f"leases/{writer:012d}.json"
