"""Hand-made rows in the columns of the gate."""

from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.wire_format import frame

GATE_SCHEMA = (
    "is_progress boolean, topic string, topic_partition int, offset long, key binary,"
    " value binary, order_key binary, mod string, origin long"
)


def change(commit_us, offset=0, *, topic="bank.a", key_id=1, value_id=2, transaction="t"):
    """A change whose key and value are framed but hold no Avro."""
    order_key = OrderKey(commit_us, transaction, (0, 0), 0).encode()
    value = None if value_id is None else bytearray(frame(value_id, b"v"))
    key = bytearray(frame(key_id, b"k"))
    return (False, topic, 0, offset, key, value, bytearray(order_key), "I", 7)


def commit_times_us(frame):
    """Commit times of a frame's rows, in the frame's order."""
    return [int.from_bytes(row.order_key[:8], "big") for row in frame.collect()]
