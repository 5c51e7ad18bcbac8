"""The order key of a change, defined a second time, from `docs/protocol.md`."""

from __future__ import annotations

import struct

from tidegate.local_stack.judge.log import Place

_TIME = struct.Struct(">Q")
_TAIL = struct.Struct(">QQI")


def order_key_of(place: Place) -> bytes:
    """Return the order key of a change at a place."""
    tail = _TAIL.pack(*place.record_sequence, place.mod_number)
    transaction = place.server_transaction_id.encode()
    return _TIME.pack(place.commit_timestamp_us) + transaction + b"\0" + tail


def place_of(order_key: bytes) -> Place:
    """Return the place of an order key; raises ValueError for bytes that are not one."""
    try:
        (at_us,) = _TIME.unpack_from(order_key)
        high, low, mod = _TAIL.unpack(order_key[-_TAIL.size :])
        transaction = order_key[_TIME.size : -_TAIL.size].removesuffix(b"\0").decode()
    except struct.error as error:
        raise ValueError(f"{order_key.hex()} is not an order key") from error
    place = Place(at_us, transaction, (high, low), mod)
    if order_key_of(place) != order_key:
        raise ValueError(f"{order_key.hex()} is not an order key")
    return place
