"""The ordered topic: a sink that republishes every released change to one Kafka topic.

Records are copies from the data topics, key and value unchanged, so that any subscriber decodes
them with the registry; headers identify the change and its origin (`docs/protocol.md`, 11).

- Order: with `TOTAL` the topic has one topic partition, and its records are in commit order over
  all tables.  With `BY_KEY` it has any number, a record's topic partition follows from the hash of
  its key, as in Kafka's Java client, and each topic partition is in commit order.  With
  `BY_TRANSACTION` it is as with `TOTAL`, and a record is a whole transaction of Spanner, in JSON.
- A release is one Kafka transaction, with a record in the releases topic that names it.  A release
  never ends within a commit timestamp, so a `read_committed` reader of a topic partition never sees
  a part of a Spanner transaction without the rest.
- Exactly once: `write` does nothing for a release that the releases topic names.  The end of the
  topic is read after the transactional id was taken over, when no former producer of it can write
  any more.  After any failure both are repeated before anything is published again, so a commit
  without an answer is resolved by reading.
- A run that was replaced cannot publish: its producer is fenced, and `write` raises
  TopicWriterReplaced.
- Tombstones are not changes: the gate drops them when it reads.  A compacted topic, for which they
  are meant, is refused, because it would lose changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum

import structlog

from tidegate.schemas.errors import ConfigError, invariant
from tidegate.schemas.partitioner import topic_partition_of
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_ORIGIN, TopicNames
from tidegate.spark_consumer.errors import (
    ReleasesMissing,
    ReleaseUnconfirmed,
    TopicWriterReplaced,
)
from tidegate.spark_consumer.sinks.kafka.port import (
    CHANGES,
    TRANSACTIONS,
    Headers,
    OutputTopic,
    ReleaseRecord,
    TopicFacts,
    TransactionRecord,
)
from tidegate.spark_consumer.sinks.port import Release, SourceRecord, TableVersion

SINK = "topic"
"""The sink's name in plans, states and manifests."""

HEADER_RELEASE = "release"
"""The release's number, in decimal digits."""

HEADER_ORDINAL = "ordinal"
"""The change's place in its release, from 0 over all tables, in decimal digits."""

HEADER_TOPIC = "topic"
"""The data topic that the record was read from."""

HEADER_CHANGES = "changes"
"""How many changes a transaction has, in decimal digits."""

_ATTEMPTS = 3
_ORIGIN_BYTES = 8
_NOT_OUTPUT = ("-progress", "-dead-letter")
_ANOTHER_TOPIC = "Name another topic for this query: an ordered topic belongs to one query"
_LOST_CHECKPOINT = (
    "The checkpoint was lost or is an older copy: restore it, or begin with a new checkpoint, a "
    "new output and a new topic"
)


class TopicOrder(Enum):
    """The kind of the output topic's records, and their order."""

    TOTAL = "total"
    BY_KEY = "key"
    BY_TRANSACTION = "transaction"


class OrderedTopicSink:
    """Writes each release to the output topic in one Kafka transaction; for one thread."""

    name = SINK

    def __init__(
        self,
        topic: OutputTopic,
        *,
        names: TopicNames,
        order: TopicOrder = TopicOrder.TOTAL,
        first_release: int | None = 0,
        require_writer: Callable[[], None] = lambda: None,
        transactions: Callable[[Release], Iterable[TransactionRecord]] = lambda _: (),
    ) -> None:
        """Take the topic; nothing is sent before `open`.

        `names` are the stream's topics.  `first_release` is the number of the first release that
        the topic gets, None if the sink joins with a later one.  `require_writer` raises if a
        younger run has taken the checkpoint; it is called before a producer is created, so that a
        replaced run does not fence its successor.  `transactions` returns those of a release in
        commit order, for the order by transaction.  Raises ConfigError for a topic of the stream
        itself.
        """
        self._topic = topic
        self._prefix = names.prefix
        self._order = order
        self._first_release = first_release
        self._require_writer = require_writer
        self._transactions = transactions
        self._holds_what = TRANSACTIONS if order is TopicOrder.BY_TRANSACTION else CHANGES
        self._query_id = ""
        self._topic_id = ""
        self._topic_partitions = 0
        self._is_started = False
        self._last: ReleaseRecord | None = None
        for name in (topic.topic, topic.releases_topic):
            _require_foreign(name, names)

    def open(self, *, query_id: str, release_max: int) -> None:
        """Check the topics, create missing ones, and fence a former producer.

        Raises ConfigError if the output topic has unsuitable settings, belongs to another query or
        holds a higher release, and ReleasesMissing if it is not the topic that was written to.
        """
        output, releases = self._topic.ensure()
        self._require_output(output)
        self._require_releases(releases)
        self._query_id = query_id
        self._topic_id, self._topic_partitions = output.topic_id, output.topic_partitions
        self._start()
        last = self._last
        if last is None and self._topic.has_records():
            self._require_current()
            raise ConfigError(
                "the output topic holds records, and its releases topic names no release",
                hint=(
                    f"Name a topic that is empty, or restore {self._topic.releases_topic} if it "
                    "was deleted"
                ),
                topic=self._topic.topic,
            )
        if last is not None and last.release > release_max:
            # A run that was replaced has read an older checkpoint, not another one.
            self._require_writer()
            raise ConfigError(
                "the output topic holds a later release than this checkpoint knows",
                hint=_LOST_CHECKPOINT,
                topic=self._topic.topic,
                release_in_topic=last.release,
                release_in_checkpoint=release_max,
            )

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Publish a release that the topic lacks; returns when the broker has committed it.

        Raises ReleaseUnconfirmed if Kafka has not confirmed it in three attempts,
        TopicWriterReplaced if a younger run has taken over, ConfigError for a change that is larger
        than the topic takes, and ReleasesMissing if the topic lacks releases before this one.
        """
        invariant(self._query_id, "sink was written to before open()", sink=self.name)
        for attempt in range(1, _ATTEMPTS + 1):
            if self._holds(release):
                break
            try:
                self._publish(release)
            except ReleaseUnconfirmed as error:
                if attempt == _ATTEMPTS:
                    raise
                structlog.get_logger("tidegate.spark_consumer").warning(
                    "release not confirmed by Kafka", release=release.number, error=str(error)
                )
        return {
            table.schemas.table: TableVersion(self._topic.topic, release.number, table.rows)
            for table in release.tables.values()
        }

    def close(self) -> None:
        """Release the client."""
        self._is_started = False
        self._topic.close()

    # ------------------------------------------------------------ inside

    def _holds(self, release: Release) -> bool:
        """Whether the topic has a release; raises ReleasesMissing if it lacks one before it."""
        if not self._is_started:
            self._start()
        last = self._last
        following = self._following(release)
        if release.number > following:
            self._require_current()
            raise ReleasesMissing(
                "the output topic lacks releases",
                hint=(
                    f"Restore the topics {self._topic.topic} and {self._topic.releases_topic}, or "
                    "begin with a new checkpoint, a new output and a new topic"
                ),
                topic=self._topic.topic,
                lacks=following,
                release=release.number,
            )
        if last is None:
            invariant(
                release.number == following,
                "a release comes before the query's first one",
                release=release.number,
                first=following,
            )
            return False
        if release.number == last.release and release.through_us != last.through_us:
            raise ConfigError(
                "the output topic holds this release with other bounds",
                hint=_ANOTHER_TOPIC,
                topic=self._topic.topic,
                release=release.number,
                through_us_in_topic=last.through_us,
                through_us=release.through_us,
            )
        return release.number < following

    def _following(self, release: Release) -> int:
        """Return the topic's next release; a topic that joins begins with the query's next."""
        if self._last is not None:
            return self._last.release + 1
        return release.number if self._first_release is None else self._first_release

    def _start(self) -> None:
        """Take the transactional id, then read the end of the topic: no other run can write now."""
        self._require_writer()
        self._topic.start(f"{self._prefix}-gate-{self._query_id}-{self.name}")
        self._last = self._topic.last_release()
        self._require_own(self._last)
        self._is_started = True

    def _require_current(self) -> None:
        """Raise TopicWriterReplaced if another run has published since this one looked."""
        if self._topic.last_release() != self._last:
            raise TopicWriterReplaced(
                "another run has published to the output topic",
                hint="A younger run has taken over: stop this one, or stop that one",
                topic=self._topic.topic,
            )

    def _publish(self, release: Release) -> None:
        topic = self._topic
        rows = 0
        # Whatever ends this block early, an error of Spark's or a signal, the outcome is read
        # before anything is published again.
        self._is_started = False
        try:
            topic.begin()
            for number, key, value, headers, changes in self._records(release):
                topic.produce(number, key, value, headers)
                rows += changes
            expected = sum(table.rows for table in release.tables.values())
            invariant(
                rows == expected,
                "the records of a release are not as many as its changes",
                release=release.number,
                records=rows,
                changes=expected,
            )
            record = ReleaseRecord(
                query_id=self._query_id,
                release=release.number,
                after_us=release.after_us,
                through_us=release.through_us,
                rows=rows,
                topic_id=self._topic_id,
                topic_partitions=self._topic_partitions,
                holds=self._holds_what,
            )
            topic.produce_release(record)
            topic.flush()
            topic.commit()
        except BaseException:
            topic.abort()
            raise
        self._last, self._is_started = record, True

    def _records(self, release: Release) -> Iterator[tuple[int, bytes, bytes, Headers, int]]:
        """Yield topic partition, key, value, headers and changes of each record in commit order."""
        count = self._topic_partitions
        release_digits = str(release.number).encode()
        last = -1
        for record in self._source(release):
            ordinal = (
                record.first_ordinal if isinstance(record, TransactionRecord) else record.ordinal
            )
            invariant(
                ordinal > last,
                "the records of a release are not in commit order",
                release=release.number,
                ordinal=ordinal,
                after=last,
            )
            if isinstance(record, TransactionRecord):
                last = ordinal + record.changes - 1
                headers = _headers_of_transaction(record, release_digits)
                yield 0, record.key, record.value, headers, record.changes
            else:
                last = ordinal
                number = 0 if count == 1 else topic_partition_of(record.key, count)
                yield number, record.key, record.value, _headers(record, release_digits), 1

    def _source(self, release: Release) -> Iterable[SourceRecord | TransactionRecord]:
        if self._order is TopicOrder.BY_TRANSACTION:
            return self._transactions(release) if release.rows else ()
        return release.source_records()

    def _require_output(self, facts: TopicFacts) -> None:
        topic = self._topic.topic
        if self._order is not TopicOrder.BY_KEY and facts.topic_partitions != 1:
            kind = "a total order" if self._order is TopicOrder.TOTAL else "an order by transaction"
            raise ConfigError(
                f"topic {topic} has {facts.topic_partitions} topic partitions, and "
                f"{kind} needs one",
                hint="Name a topic with one topic partition, or set the order to 'key'",
            )
        if facts.policies != {"delete"}:
            policies = ",".join(sorted(facts.policies))
            raise ConfigError(
                f"topic {topic}: cleanup.policy is {policies!r}, it must be 'delete'",
                hint="Set cleanup.policy=delete: compaction would remove changes",
            )

    def _require_releases(self, facts: TopicFacts) -> None:
        topic = self._topic.releases_topic
        if facts.topic_partitions != 1:
            raise ConfigError(
                f"topic {topic} has {facts.topic_partitions} topic partitions, it must have one",
                hint="Create it with one topic partition",
            )
        if facts.policies != {"compact"}:
            policies = ",".join(sorted(facts.policies))
            raise ConfigError(
                f"topic {topic}: cleanup.policy is {policies!r}, it must be 'compact'",
                hint="Set cleanup.policy=compact: its newest record must never be deleted",
            )

    def _require_own(self, last: ReleaseRecord | None) -> None:
        """Raise an error for topics of another query, or replaced since this one's last write."""
        if last is None:
            return
        topic = self._topic.topic
        if last.query_id != self._query_id:
            raise ConfigError(
                "the output topic belongs to another query",
                hint=_ANOTHER_TOPIC,
                topic=topic,
                query_of_topic=last.query_id,
                query_id=self._query_id,
            )
        if last.holds != self._holds_what:
            raise ConfigError(
                f"the records of the output topic are {last.holds}, not {self._holds_what}",
                hint="Set ordered_topic_order to what the topic was begun with",
                topic=topic,
            )
        if last.topic_id != self._topic_id:
            raise ReleasesMissing(
                "the output topic was deleted and re-created: it lacks its earlier releases",
                hint="Begin with a new checkpoint, a new output and a new topic",
                topic=topic,
                releases=last.release + 1,
            )
        if last.topic_partitions != self._topic_partitions:
            raise ConfigError(
                (
                    f"topic {topic} had {last.topic_partitions} topic partitions and has "
                    f"{self._topic_partitions}: keys would move"
                ),
                hint="Kafka cannot remove topic partitions: begin with a new topic and checkpoint",
            )


def _headers(record: SourceRecord, release: bytes) -> Headers:
    """Return the headers of the data record unchanged, then the headers of the release."""
    headers: Headers = [(HEADER_ORDER, record.order_key), (HEADER_MOD, record.mod)]
    if record.origin is not None:
        origin = record.origin.to_bytes(_ORIGIN_BYTES, "big", signed=True)
        headers.append((HEADER_ORIGIN, origin))
    headers += (
        (HEADER_RELEASE, release),
        (HEADER_ORDINAL, str(record.ordinal)),
        (HEADER_TOPIC, record.topic),
    )
    return headers


def _headers_of_transaction(record: TransactionRecord, release: bytes) -> Headers:
    return [
        (HEADER_RELEASE, release),
        (HEADER_ORDINAL, str(record.first_ordinal)),
        (HEADER_CHANGES, str(record.changes)),
    ]


def _require_foreign(topic: str, names: TopicNames) -> None:
    """Raise ConfigError for a topic that the stream's programs would treat as one of theirs."""
    message = f"topic {topic} has the name of a topic of the stream {names.prefix!r}"
    if names.is_data(topic):
        raise ConfigError(
            message,
            hint=f"Name one that {names.data_pattern} does not match: the gate would read it again",
        )
    if topic in (names.progress, names.dead_letter, names.backfills):
        raise ConfigError(message, hint="Name another topic: the producer uses this one")
    if topic.endswith(_NOT_OUTPUT):
        raise ConfigError(
            f"topic {topic} would be taken for a topic of another stream",
            hint=f"Let its name not end with {' or '.join(_NOT_OUTPUT)}",
        )
