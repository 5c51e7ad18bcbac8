"""The stream partitions of a Datastream source, and their tokens.

    initial query ─► objects              lists the folders of objects, and goes on for good
    objects       ─► object/<folder>      reads the files of one object, and goes on for good

Each says the first minute of which files are read: that of the stream's start.  A folder is named
by its path below the location, so that a location may move with its files.
"""

from __future__ import annotations

import re

from tidegate.producer.core.file_position import FILES_PREFIX

_OBJECTS = re.compile(rf"{FILES_PREFIX}objects/([0-9]+)")
_OBJECT = re.compile(rf"{FILES_PREFIX}object/([0-9]+)/(.*)", re.DOTALL)


def objects_token(first_minute: int) -> str:
    """Return the token of the stream partition that names those of objects."""
    return f"{FILES_PREFIX}objects/{first_minute}"


def objects_minute(token: str) -> int | None:
    """Return the first minute of that token; None for any other one."""
    found = _OBJECTS.fullmatch(token)
    return None if found is None else int(found[1])


def object_token(first_minute: int, folder: str) -> str:
    """Return the token of an object; `folder` is empty if the location is the only object's."""
    return f"{FILES_PREFIX}object/{first_minute}/{folder}"


def object_of(token: str) -> tuple[int, str] | None:
    """Return (first minute, folder) of an object's token; None for any other one."""
    found = _OBJECT.fullmatch(token)
    return None if found is None else (int(found[1]), found[2])
