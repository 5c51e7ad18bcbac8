"""Records of a file with one JSON object per line, one line in memory at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, BinaryIO

from tidegate.producer.datastream.errors import FileCutShort, FileDamaged, InvalidEvent
from tidegate.producer.datastream.file_limits import (
    DEPTH_MAX,
    EMPTY_MAX,
    ITEMS_MAX,
    LARGE_BYTES,
    LINE_BYTES_MAX,
    BeyondLimit,
    LargeRead,
    require_depth,
)
from tidegate.producer.datastream.position import Position

# Matches from any quote on, without a way back: the time is linear whatever the line is.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def json_lines(stream: BinaryIO, file: str) -> Iterator[tuple[int, Any] | LargeRead]:
    """Yield each line's object with the line's number, from 1; empty lines are skipped.

    A long line is announced before the rest of it is read.

    Numbers keep all their digits.  An object with half a surrogate pair, which is no text, comes as
    InvalidEvent.  Raises FileDamaged, and FileCutShort for a last line without an
    end that is not JSON.
    """
    number = empty = 0
    while line := stream.readline(LARGE_BYTES + 1):
        number += 1
        position = Position(file, number)
        if len(line) > LARGE_BYTES and not line.endswith(b"\n"):
            yield LargeRead(LINE_BYTES_MAX)
            line += stream.readline(LINE_BYTES_MAX + 1 - len(line))
        if len(line) > LINE_BYTES_MAX:
            raise FileDamaged.at(position, f"a line has more than {LINE_BYTES_MAX} bytes")
        if not line.strip():
            empty += 1
            if empty > EMPTY_MAX:
                raise FileDamaged.at(position, f"more than {EMPTY_MAX} empty lines")
            continue
        empty = 0
        try:
            _require_few_items(line)
            found = json.loads(line, parse_float=Decimal, parse_constant=_refuse)
            if line.count(b"[") + line.count(b"{") > DEPTH_MAX:
                require_depth(found)
        except BeyondLimit as error:
            raise FileDamaged.at(position, f"a line cannot be read: {error}") from error
        except (ValueError, RecursionError) as error:
            if line.endswith(b"\n"):
                raise FileDamaged.at(position, f"a line is not JSON: {error}") from error
            raise FileCutShort.at(position, "the file ends in the middle of a line") from error
        if not isinstance(found, dict):
            raise FileDamaged.at(position, "a line is JSON, but not an object")
        if _SURROGATE.search(line) and not _is_text(found):
            found = InvalidEvent.at(position, "a text has half a surrogate pair: it has no UTF-8")
        yield number, found


def _require_few_items(line: bytes) -> None:
    """Raise BeyondLimit for more values than an event may have: each takes far more than its bytes.

    What looks like their beginnings within texts is left out, where there is much of it.
    """
    found = _beginnings(line, 0, len(line))
    if found <= ITEMS_MAX:
        return
    for number, text in enumerate(_TEXT.finditer(line)):
        found -= _beginnings(line, text.start(), text.end())
        if number > 2 * ITEMS_MAX:  # names and texts
            found = number
            break
    if found > ITEMS_MAX:
        raise BeyondLimit(f"it has more than {ITEMS_MAX} values")


def _beginnings(line: bytes, start: int, end: int) -> int:
    return sum(line.count(mark, start, end) for mark in (b",", b"[", b"{"))


def _is_text(found: Any) -> bool:
    try:
        json.dumps(found, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")
