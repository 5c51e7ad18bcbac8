"""The topic partition of a data record: murmur2 of its framed key, as in Kafka's Java client.

Computed here, because a client's partitioner would use the topic's current number of topic
partitions: after the topic has grown, the next record of a key would go to another one.
"""

from __future__ import annotations

from struct import unpack_from

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def topic_partition_of(key: bytes, topic_partitions: int) -> int:
    """Return the topic partition of a framed key in a topic with this many topic partitions."""
    return (murmur2(key) & _POSITIVE) % topic_partitions


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash as an unsigned integer; Java shows the same bits as a signed one."""
    size = len(data)
    hashed = _SEED ^ size
    for word in unpack_from(f"<{size >> 2}I", data):
        mixed = word * _FACTOR & _MASK
        hashed = (hashed * _FACTOR ^ (mixed ^ mixed >> 24) * _FACTOR) & _MASK
    tail = data[size & ~3 :]
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15
