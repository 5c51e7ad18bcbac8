"""The end offsets of a batch, from Spark's own offset log.

Spark writes `offsets/<batch>` before it calls the batch function: a version, the batch's metadata,
then a line per source.  A line is identified by the topics that it names, never by its place.
"""

from __future__ import annotations

import json

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import CheckpointMismatch

_VERSION = "v1"
_NOTHING_YET = "-"
_HINT = "Restore the whole checkpoint of one moment, or adopt the output into a new one"


def end_offsets(checkpoint: Storage, batch: int) -> dict[str, dict[int, int]]:
    """Return topic -> topic partition -> next offset after a batch.

    `checkpoint` is Spark's own folder.  Raises CheckpointMismatch if the log has no such batch, and
    as `parse_offset_log` does.
    """
    data = checkpoint.read(f"offsets/{batch}")
    if data is None:
        raise CheckpointMismatch(
            "Spark's offset log lacks the batch that Spark runs",
            hint=_HINT,
            batch=batch,
            folder=checkpoint.root,
        )
    return parse_offset_log(data.decode(errors="replace"), batch=batch)


def read_offsets(checkpoint: Storage) -> dict[str, dict[int, int]] | None:
    """Return the next offsets after the last batch that Spark has committed; None before the first.

    `checkpoint` is Spark's own folder.  Raises CheckpointMismatch as above.
    """
    committed = [int(name) for name in checkpoint.names("commits") if name.isdecimal()]
    return end_offsets(checkpoint, max(committed)) if committed else None


def parse_offset_log(text: str, *, batch: int) -> dict[str, dict[int, int]]:
    """Return the end offsets that an entry of the log holds.

    Raises CheckpointMismatch for an unknown format, and for an entry that was damaged: after a
    power failure a file of a local disk may be empty.
    """
    version, *rest = text.splitlines() or [""]
    if version and version != _VERSION:
        raise CheckpointMismatch(
            "Spark's offset log has an unknown format", hint=_HINT, batch=batch, version=version
        )
    try:
        sources = [
            {
                topic: {int(topic_partition): end for topic_partition, end in offsets.items()}
                for topic, offsets in json.loads(line).items()
            }
            for line in rest[1:]
            if line != _NOTHING_YET
        ]
    except (AttributeError, ValueError) as error:
        raise _damaged(batch, cause=repr(error)) from error
    if len(rest) <= 1:
        raise _damaged(batch, cause="it ends before the first source")
    ends: dict[str, dict[int, int]] = {}
    for source in sources:
        for topic, offsets in source.items():
            if topic in ends:
                raise CheckpointMismatch(
                    "two sources read the same topic", hint=_HINT, batch=batch, topic=topic
                )
            ends[topic] = offsets
    return ends


def _damaged(batch: int, *, cause: str) -> CheckpointMismatch:
    message = "an entry of Spark's offset log is not as Spark wrote it"
    return CheckpointMismatch(message, hint=_HINT, batch=batch, cause=cause)
