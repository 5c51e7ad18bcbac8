"""Large values in pieces that clients join, by the rules of PartialResultSet.chunked_value.

Pieces of a string are concatenated; pieces of a list too, and where a string meets a string, or a
list a list, at the seam, those two are joined by the same rules. So a seam between two whole
elements of one kind gets an empty one before it. Clients disagree about a string that meets a
number at the seam ("NaN" in a list of floats): there is never a seam there.
"""

from __future__ import annotations

from spanner_simulator.core.values import Plain
from spanner_simulator.server.wire_bytes import plain_bytes


def pieces_of(plain: Plain, size_max: int) -> list[Plain]:
    """The value in pieces of about `size_max` encoded bytes; one piece when it cannot be split."""
    if isinstance(plain, str):
        return list(_text_pieces(plain, size_max))
    if isinstance(plain, list):
        return list(_list_pieces(plain, size_max))
    return [plain]


def _text_pieces(text: str, size_max: int) -> list[str]:
    raw = text.encode()
    pieces: list[str] = []
    start = 0
    while len(raw) - start > size_max:
        end = start + size_max
        # Not inside a character: bytes 10xxxxxx continue one.
        while end > start + 1 and raw[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(raw[start:end].decode())
        start = end
    pieces.append(raw[start:].decode())
    return pieces


def _list_pieces(items: list[Plain], size_max: int) -> list[list[Plain]]:
    pieces: list[list[Plain]] = []
    current: list[Plain] = []
    size = 0
    for item in items:
        item_size = len(plain_bytes(item))
        if current and size + item_size > size_max and _may_end(current[-1], item):
            pieces.append(current + _neutral(current[-1], item))
            current, size = [], 0
        if item_size > size_max:
            first, *rest = pieces_of(item, size_max)
            current.append(first)
            for part in rest:
                pieces.append(current)
                current = [part]
            size = len(plain_bytes(current[-1]))
        else:
            current.append(item)
            size += item_size
    pieces.append(current)
    return pieces


def _may_end(last: Plain, following: Plain) -> bool:
    return not (isinstance(last, str) and isinstance(following, float))


def _neutral(last: Plain, following: Plain) -> list[Plain]:
    if isinstance(last, str) and isinstance(following, str):
        return [""]
    if isinstance(last, list) and isinstance(following, list):
        return [[]]
    return []
