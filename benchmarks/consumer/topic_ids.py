"""What it costs to ask Kafka for the ids of the data topics, as each batch does.

python -m benchmarks.consumer.topic_ids
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from confluent_kafka.admin import AdminClient, NewTopic

from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.spark_consumer.kafka.topic_ids import LiveTopicIds

__all__ = ["main"]

_TOPICS = (10, 50, 200)
_TOPIC_PARTITIONS = 8
_BATCHES = 30


def main() -> None:
    """Print, for some numbers of topics, the time of a call and its CPU time in this process."""
    with TemporaryDirectory() as folder:
        config = load_config(data_dir=Path(folder))
        with LocalStack(config, with_simulator=False, is_lasting=True) as stack:
            address = stack.kafka.bootstrap_servers
            names = [f"bank.t{number}" for number in range(max(_TOPICS))]
            wanted = [NewTopic(name, _TOPIC_PARTITIONS, 1) for name in names]
            admin = AdminClient({"bootstrap.servers": address})
            for created in admin.create_topics(wanted).values():
                created.result()
            for count in _TOPICS:
                _measure(LiveTopicIds(address, {}), names[:count])


def _measure(ids: LiveTopicIds, topics: list[str]) -> None:
    ids(topics)
    walls, processor = [], time.process_time()
    for _ in range(_BATCHES):
        begun = time.perf_counter()
        found = ids(topics)
        walls.append(time.perf_counter() - begun)
        assert len(found) == len(topics)
    used = (time.process_time() - processor) / _BATCHES
    milliseconds = (1_000 * median(walls), 1_000 * max(walls), 1_000 * used)
    print(
        f"{len(topics)} topics: median {milliseconds[0]:.1f} ms, most {milliseconds[1]:.1f} ms, "
        f"CPU {milliseconds[2]:.1f} ms"
    )


if __name__ == "__main__":
    main()
