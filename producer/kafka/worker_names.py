"""Which process owns a worker's name: a register that outlasts processes and sessions.

The broker cannot tell two processes of one name apart.  It fences static members whose join was
retried, and producers whose transaction took too long, just as it fences a process that has been
replaced; and its description of a member that was replaced still shows the former client.

So each process claims its name when it starts: in the metadata of an offset, which is otherwise
unused, of a group that has no members (`<group>-<worker>`).  The last claim is the successor's.
"""

from __future__ import annotations

from confluent_kafka import TopicPartition

from tidegate.producer.kafka.committed_offsets import CommittedOffsets

_UNUSED_OFFSET = 0


class NameClaim:
    """One process's claim to a worker's name; `process` is unique to the process.

    The offset is that of topic partition 0 of `topic`, which must exist.
    """

    def __init__(self, claims: CommittedOffsets, *, topic: str, process: str) -> None:
        """Take the offsets of the name's own group, which is the register."""
        self._claims = claims
        self._topic = topic
        self._process = process

    def claim(self) -> None:
        """Write the claim, over that of any predecessor; raises UnreachableError."""
        place = TopicPartition(self._topic, 0, _UNUSED_OFFSET, self._process)
        self._claims.write(place, "cannot claim the worker's name", name=self._claims.group)

    def has_successor(self) -> bool:
        """Whether another process claimed the name after this one; raises UnreachableError."""
        message = "cannot look up the worker's name"
        place = self._claims.find(self._topic, 0, message, name=self._claims.group)
        return (place.metadata or "") not in {"", self._process}
