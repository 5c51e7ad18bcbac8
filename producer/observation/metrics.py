"""The metrics of a worker."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tidegate.program.status_server import Metric, Metrics

CounterName: TypeAlias = Literal[
    "records_total",
    "mods_total",
    "value_bytes_total",
    "parked_total",
    "filtered_total",
    "heartbeats_total",
    "transactions_committed_total",
    "transactions_aborted_total",
    "query_retries_total",
    "stalled_queries_total",
    "query_turns_total",
    "stream_partition_pauses_total",
    "stream_partition_stops_total",
    "stream_partitions_finished_total",
    "unproven_finishes_total",
    "unknown_outcomes_total",
    "orphan_rounds_total",
    "group_clients_replaced_total",
    "files_read_total",
    "files_late_total",
    "file_events_late_total",
    "file_events_copied_total",
    "file_events_refused_total",
    "file_uuids_forgotten_total",
]
GaugeName: TypeAlias = Literal[
    "queries_running",
    "stream_partitions_queued",
    "stream_partitions_paused",
    "stream_partitions_held",
    "stream_partitions_stopped",
    "stream_paused",
    "parked_keys",
    "stream_partitions",
    "slots",
    "bytes_in_flight",
    "watermark_lag_seconds",
    "retention_headroom_seconds",
    "files_unread",
    "files_open_seconds",
]
HistogramName: TypeAlias = Literal["commit_to_kafka_seconds"]

METRICS: tuple[Metric, ...] = (
    Metric("records_total", "counter", "Data change records committed to Kafka", ("topic",)),
    Metric("mods_total", "counter", "Row changes committed to Kafka", ("topic",)),
    Metric("value_bytes_total", "counter", "Bytes of committed Kafka values", ("topic",)),
    Metric(
        "parked_total",
        "counter",
        "Changes committed to the dead-letter topic, by the error's class; `KeyParked`: an earlier "
        "change of the key is there",
        ("topic", "reason"),
    ),
    Metric("filtered_total", "counter", "Changes that the stream's filter has left out"),
    Metric("heartbeats_total", "counter", "Heartbeat records read"),
    Metric("transactions_committed_total", "counter", "Kafka transactions committed"),
    Metric("transactions_aborted_total", "counter", "Kafka transactions aborted"),
    Metric(
        "query_retries_total",
        "counter",
        "Queries that failed and are retried, by gRPC status",
        ("code",),
    ),
    Metric(
        "stalled_queries_total",
        "counter",
        "Queries that were silent for ten heartbeat intervals, and are retried",
    ),
    Metric(
        "query_turns_total",
        "counter",
        "Queries stopped in favour of a queued stream partition that was further behind",
    ),
    Metric(
        "stream_partition_pauses_total",
        "counter",
        "Times that a stream partition was paused, because it was far ahead of the slowest one",
    ),
    Metric(
        "stream_partition_stops_total",
        "counter",
        "Stream partitions stopped by an error that a repetition would meet again, by its class",
        ("error",),
    ),
    Metric("stream_partitions_finished_total", "counter", "Completion markers committed"),
    Metric(
        "unproven_finishes_total",
        "counter",
        "Queries that ended with OK without their children: retried, never taken for finished",
    ),
    Metric(
        "unknown_outcomes_total",
        "counter",
        "Commits without an answer: all slots were read again",
    ),
    Metric(
        "orphan_rounds_total",
        "counter",
        "Times this worker rejoined the group because slots were unassigned",
    ),
    Metric(
        "group_clients_replaced_total",
        "counter",
        "Times this worker was not in its group for half a minute, and joined with a new client",
    ),
    Metric("queries_running", "gauge", "Change stream queries running"),
    Metric(
        "stream_partitions_queued",
        "gauge",
        "Stream partitions that wait for a query, because `open_queries_max` queries run",
    ),
    Metric(
        "stream_partitions_paused",
        "gauge",
        "Stream partitions that are not read, because they are ahead by more than `drift_ms_max`",
    ),
    Metric(
        "stream_partitions_held",
        "gauge",
        "Stream partitions that wait for another one to publish what precedes a move of keys",
    ),
    Metric(
        "stream_partitions_stopped",
        "gauge",
        "Stream partitions in the owned slots that are stopped by an error: alarm above 0",
    ),
    Metric(
        "stream_paused",
        "gauge",
        "1 while an operator has paused the stream (`tidegate-producer pause`), else 0",
    ),
    Metric(
        "parked_keys",
        "gauge",
        "Keys whose changes the owned stream partitions park: alarm above 0",
    ),
    Metric("stream_partitions", "gauge", "Stream partitions in the owned slots"),
    Metric("slots", "gauge", "Slots owned"),
    Metric("bytes_in_flight", "gauge", "Bytes read and not yet committed to Kafka"),
    Metric(
        "watermark_lag_seconds",
        "gauge",
        "Age of the lowest watermark over the owned stream partitions",
    ),
    Metric(
        "commit_to_kafka_seconds",
        "histogram",
        "From a change's commit in Spanner to that of its transaction in Kafka: of the earliest "
        "change that each transaction has of each stream partition",
    ),
    Metric(
        "retention_headroom_seconds",
        "gauge",
        "How long until what the slowest owned stream partition has not published expires: the "
        "stream's retention period at the worker's start, less that age; infinite with files as "
        "the source. Alarm while there is time",
    ),
    Metric("files_read_total", "counter", "Files of the source read to their ends"),
    Metric("files_late_total", "counter", "Files that came after their minute was closed"),
    Metric(
        "file_events_late_total",
        "counter",
        "Events of files released later than others of their time",
    ),
    Metric(
        "file_events_copied_total",
        "counter",
        "Events of files that were recognised as copies and left out",
    ),
    Metric(
        "file_events_refused_total",
        "counter",
        "Events of files that go to the dead-letter topic; `parked_total` has their reasons",
    ),
    Metric(
        "file_uuids_forgotten_total",
        "counter",
        "Uuids beyond `uuids_max` that no longer recognise copies",
    ),
    Metric(
        "files_unread",
        "gauge",
        "Files that were listed and not read to their ends, of the owned objects",
    ),
    Metric(
        "files_open_seconds",
        "gauge",
        "Age of the earliest minute with unread files, of the owned objects; without one that of "
        "the earliest minute that may still get files",
    ),
)


ProducerMetrics: TypeAlias = Metrics[CounterName, GaugeName, HistogramName]


def producer_metrics() -> ProducerMetrics:
    """Return the metrics of one process, each at 0."""
    return Metrics("tidegate_producer", METRICS)
