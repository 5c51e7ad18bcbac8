"""Records of a file with one JSON object per line, one line in memory at a time."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

from tidegate.producer.datastream.errors import FileCutShort, FileDamaged, InvalidEvent
from tidegate.producer.datastream.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["json_lines"]

_LINE_BYTES_MAX = 64 << 20
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def json_lines(stream: BinaryIO, file: str) -> Iterator[tuple[int, Any]]:
    """Yield each line's object with the line's number, from 1; empty lines are skipped.

    Numbers keep all their digits.  An object with half a surrogate pair, which is no text, comes as
    InvalidEvent.  Raises FileDamaged, and FileCutShort for a last line without an
    end that is not JSON.
    """
    number = 0
    while line := stream.readline(_LINE_BYTES_MAX + 1):
        number += 1
        position = Position(file, number)
        if len(line) > _LINE_BYTES_MAX:
            raise FileDamaged.at(position, f"a line has more than {_LINE_BYTES_MAX} bytes")
        if not line.strip():
            continue
        try:
            found = json.loads(line, parse_float=Decimal, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            if line.endswith(b"\n"):
                raise FileDamaged.at(position, f"a line is not JSON: {error}") from error
            raise FileCutShort.at(position, "the file ends in the middle of a line") from error
        if not isinstance(found, dict):
            raise FileDamaged.at(position, "a line is JSON, but not an object")
        if _SURROGATE.search(line) and not _is_text(found):
            found = InvalidEvent.at(position, "a text has half a surrogate pair: it has no UTF-8")
        yield number, found


def _is_text(found: Any) -> bool:
    try:
        json.dumps(found, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")
