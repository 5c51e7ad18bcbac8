"""Whether the data topics have records that a batch did not read; asks Kafka without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidegate.lineage.frontier import EndOffsets
from tidegate.lineage.subscription import Subscription
from tidegate.program.kafka_clients import admin_config, listed_offset, make_client
from tidegate.schemas.errors import UnreachableError

_TIMEOUT_S = 5.0
_TOPICS_EVERY_S = 2.0


class DataEnds:
    """Compares the ends of a stream's data topics with those of a batch."""

    def __init__(
        self,
        bootstrap_servers: str,
        options: Mapping[str, str],
        subscription: Subscription,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is sent yet.  `options` are librdkafka's and may hold secrets."""
        self._config = admin_config(bootstrap_servers, options)
        self._names = subscription.names
        self._monotonic = monotonic
        self._admin: AdminClient | None = None
        self._places: list[TopicPartition] = []
        self._listed_s: float | None = None

    def are_past(self, ends: EndOffsets) -> bool:
        """Whether a data topic has committed records after `ends`; blocks for some seconds at most.

        A new topic is noticed within two seconds.  Returns True as well if Kafka does not answer,
        so that no change waits for an answer that never comes.
        """
        try:
            self._admin = self._admin or make_client(AdminClient, self._config)
            places = self._data_places(self._admin)
            if not places:
                return False
            answers = self._admin.list_offsets(
                dict.fromkeys(places, OffsetSpec.latest()),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=_TIMEOUT_S,
            )
            return any(
                listed_offset(answer.result()) > ends.get(place.topic, {}).get(place.partition, 0)
                for place, answer in answers.items()
            )
        except (KafkaException, UnreachableError):
            self.close()  # a client that saw a broker disconnect may never answer
            return True

    def close(self) -> None:
        """Close the client; a later call starts another one."""
        self._admin, self._listed_s = None, None

    def _data_places(self, admin: AdminClient) -> list[TopicPartition]:
        now_s = self._monotonic()
        if self._listed_s is None or now_s - self._listed_s >= _TOPICS_EVERY_S:
            self._places = [
                TopicPartition(topic, number)
                for topic, description in admin.list_topics(timeout=_TIMEOUT_S).topics.items()
                if self._names.is_data(topic)
                for number in description.partitions
            ]
            self._listed_s = now_s
        return self._places
