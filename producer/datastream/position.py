"""Where an event was read: its file, and its number in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Position:
    """A record of a file; sorts by the file's path, then by number.

    Datastream's paths begin with the time of writing, so this is the order of writing in an object.
    """

    file: str
    record: int
    """From 1; 0 for the head of the file."""


def printable(path: str) -> str:
    """Return a path as text that can be encoded: a name on a disk may be bytes of any kind."""
    return path.encode(errors="backslashreplace").decode()
